"""The host's Docker Engine through docker-py: the connection, and the engine's refusals as errors with a fix."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from workloads.errors import HostError

# Every container, and the image made from the host, carries labels of this family.
LABEL = "org.outcore"
# An engine on a busy disk may take long for one request; without a limit a hang would lose the run.
_TIMEOUT_S = 60
_START = "start it: systemctl start docker (or `dockerd` as root)"
_INSTALL = "install one, like `apt-get install docker.io`, or set DOCKER_HOST to the socket of the one there is"


def connect() -> Any:
    """Return a `docker.DockerClient` for `$DOCKER_HOST`, or the host's usual socket. Raises HostError: no package, no
    engine, no permission for its socket, or an engine that is not on this host."""
    try:
        import docker
    except ImportError as error:
        raise HostError("the Python package docker is not installed", "pip install docker") from error
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if urlparse(where).scheme not in ("unix", "http+unix"):
        raise HostError(f"the Docker Engine at {where} is not on this host", "unset DOCKER_HOST")
    try:
        return docker.from_env(version="auto", timeout=_TIMEOUT_S)
    except Exception as error:  # docker-py wraps the socket's error three layers deep, each in another class
        raise _unreachable(error, where) from error


def socket_present() -> bool:
    """Return whether an engine can exist here: cheap enough to call before every series of runs."""
    parsed = urlparse(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    return parsed.scheme in ("unix", "http+unix") and Path(parsed.path or "/").is_socket()


def _unreachable(error: BaseException, where: str) -> HostError:
    reason = _os_error(error)
    code = reason.errno if reason else None
    if code in (errno.EACCES, errno.EPERM):
        return HostError(
            f"this user may not talk to the Docker Engine at {where}",
            "join the group docker (usermod -aG docker $USER, then log in again), or run as root",
        )
    if code == errno.ENOENT:
        return HostError(f"there is no Docker Engine here: {where} does not exist", _INSTALL)
    if code == errno.ECONNREFUSED:
        return HostError(f"the Docker Engine does not answer at {where}", _START)
    return HostError(f"the Docker Engine at {where} cannot be used: {error}", _START)


def _os_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's own error, however deep it is wrapped in causes, contexts or arguments."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        # requests' exceptions are OSErrors without a number.
        if isinstance(one, OSError) and one.errno is not None:
            return one
        waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return None


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn docker-py's errors while the engine is asked to do `what` into a HostError, with the engine's own message
    and a fix where the cause is known."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise HostError(
            f"the engine has no such image ({error.explanation})",
            "build it with containers/build, or unset OUTCORE_IMAGE for the one made from this host",
        ) from error
    except docker.errors.APIError as error:
        said = str(error.explanation or error).strip()
        raise HostError(f"the Docker Engine could not {what}: {said}", _fix(said)) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise HostError(f"the Docker Engine stopped answering when asked to {what}: {error}", _START) from error


def _fix(said: str) -> str:
    if "no space left" in said:
        return "free some space under the engine's data root (`docker info -f '{{.DockerRootDir}}'`), or docker prune"
    if "does not exist" in said and "source path" in said:
        return "check that the folder is there on the host where the engine runs"
    if "memory limit" in said:
        return "raise memory"
    return "see the engine's own log: journalctl -u docker"
