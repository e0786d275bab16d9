"""The host's Docker Engine through docker-py: the connection, and the engine's refusals
as errors with a fix."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from workloads.errors import HostError, is_of_host

# every container, and the image made from the host, carries labels of this family
LABEL = "org.outcore"
# an engine on a busy disk may take long for one request; without a limit a hang would
# lose the run
_TIMEOUT_S = 60
_START = "start it: systemctl start docker (or `dockerd` as root)"
_OTHER_HOST = (
    "unset DOCKER_HOST, or set it to the socket of a Docker Engine on this host"
)
_NO_HTTP = re.compile(
    r"BadStatusLine|RemoteDisconnected|without response|404 .*Not Found"
)
_INSTALL = (
    "install one, like `apt-get install docker.io`, or set DOCKER_HOST to the socket "
    "of the one there is"
)


def _where() -> tuple[str, str]:
    """Return the engine's address and the path of its socket, which is empty where it
    is not on this host."""
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    parsed = urlparse(where)
    return where, (parsed.path or "/") if parsed.scheme in ("unix", "http+unix") else ""


def connect() -> Any:
    """Return a `docker.DockerClient` for `$DOCKER_HOST`, or the host's usual socket.
    Raises HostError: no package, no engine, no permission for its socket, or an engine
    that is not on this host."""
    try:
        import docker
        import docker.errors
    except ImportError as error:
        raise HostError(
            "the Python package docker is not installed", "pip install docker"
        ) from error
    where, path = _where()
    if not path:
        raise HostError(
            f"the Docker Engine at {where} is not on this host", "unset DOCKER_HOST"
        )
    try:
        # docker-py wraps the socket's error three layers deep, each in another class.
        with socket.socket(socket.AF_UNIX) as tried:
            tried.settimeout(_TIMEOUT_S)
            tried.connect(path)
        return docker.from_env(version="auto", timeout=_TIMEOUT_S)
    except PermissionError as error:
        fix = (
            "join the group docker (usermod -aG docker $USER, then log in again), or "
            "run as root"
        )
        raise HostError(
            f"this user may not talk to the Docker Engine at {where}", fix
        ) from error
    except FileNotFoundError as error:
        fix = _OTHER_HOST if "DOCKER_HOST" in os.environ else _INSTALL
        raise HostError(
            f"there is no Docker Engine here: {where} does not exist", fix
        ) from error
    except ConnectionRefusedError as error:
        if not Path(path).is_socket():
            raise HostError(
                f"{path} is no socket, so no Docker Engine answers there", _OTHER_HOST
            ) from error
        raise HostError(
            f"the Docker Engine does not answer at {where}", _START
        ) from error
    except docker.errors.TLSParameterError as error:
        raise HostError(
            f"DOCKER_TLS_VERIFY is set without its certificates ({error.args[0]})",
            "unset it",
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and is_of_host(error):
            raise HostError.from_os(
                error, f"the Docker Engine at {where} cannot be reached"
            ) from error
        cause, fix = _cause(error)
        raise HostError(
            f"the Docker Engine at {where} cannot be used: {cause}", fix
        ) from error


def socket_present() -> bool:
    """Return whether an engine can exist here: cheap enough to call before every series
    of runs."""
    return Path(_where()[1]).is_socket()


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn docker-py's errors while the engine is asked to do `what` into a HostError
    with its message and a fix."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.ImageNotFound as error:
        fix = (
            "build it with containers/build, or unset OUTCORE_IMAGE for the one made "
            "from this host"
        )
        raise HostError(
            f"the engine has no such image ({error.explanation})", fix
        ) from error
    except docker.errors.APIError as error:
        message = str(error.explanation or error).strip()
        cause, fix = _cause(error)
        fix = _fix(message) if fix == _START else fix
        raise HostError(f"the Docker Engine could not {what}: {cause}", fix) from error
    except (
        docker.errors.DockerException,
        requests.exceptions.RequestException,
    ) as error:
        cause, fix = _cause(error)
        raise HostError(
            f"the Docker Engine stopped answering when asked to {what}: {cause}", fix
        ) from error


def _cause(error: Exception) -> tuple[str, str]:
    """Return why the engine cannot be used, in a sentence, and the fix of this
    cause."""
    import requests.exceptions

    message = " ".join(str(getattr(error, "explanation", None) or error).split())
    # docker-py wraps the errors of its libraries in its own.
    chain = [
        one for one in (error, error.__cause__, error.__context__) if one is not None
    ]
    status = next((code for one in chain if (code := _status(one))), 0)
    if re.search(
        r"client version \S+ is too old|Minimum supported API version", message
    ):
        return (
            f"it is newer than the Python package docker ({message})",
            "pip install --upgrade docker",
        )
    if re.search(r"client version \S+ is too new|API versions below", message):
        return (
            f"it is older than the Python package docker supports ({message})",
            "upgrade the Docker Engine",
        )
    if status in (502, 503, 504):
        fix = (
            "check the proxy and the engine behind it, or set DOCKER_HOST to the "
            "engine's own socket"
        )
        return (
            f"a proxy in front of it answers with status {status}, without an engine",
            fix,
        )
    if status in (401, 403, 407):
        return (
            f"it refuses this user with status {status} ({message})",
            "ask whoever set up its access rules",
        )
    timeouts = (TimeoutError, requests.exceptions.Timeout)
    if any(isinstance(one, timeouts) for one in chain):
        return (
            f"it gave no answer in {_TIMEOUT_S} s",
            "restart it: systemctl restart docker",
        )
    if any(isinstance(one, ValueError | KeyError) for one in chain) or _NO_HTTP.search(
        message
    ):
        return f"no Docker Engine answers there ({message[:200]})", _OTHER_HOST
    return message, _START


def _status(error: BaseException) -> int:
    """Return the HTTP status of an error's answer; 0 without one."""
    return int(getattr(getattr(error, "response", None), "status_code", 0) or 0)


def _fix(message: str) -> str:
    if "no space left" in message:
        return (
            "free some space under the engine's data root (`docker info -f "
            "'{{.DockerRootDir}}'`), or docker prune"
        )
    if "does not exist" in message and "source path" in message:
        return "check that the folder is there on the host where the engine runs"
    if "memory limit" in message:
        return "raise memory"
    return "see the engine's own log: journalctl -u docker"
