"""The host's Docker Engine through docker-py: the connection, and the engine's refusals as errors with a fix."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from workloads.errors import HostError

LABEL = "org.outcore"  # every container, and the image made from the host, carries labels of this family
_TIMEOUT_S = 60  # an engine on a busy disk may take long for one request; without a limit a hang would lose the run
_START = "start it: systemctl start docker (or `dockerd` as root)"
_INSTALL = "install one, like `apt-get install docker.io`, or set DOCKER_HOST to the socket of the one there is"


def _where() -> tuple[str, str]:
    """Return the engine's address and the path of its socket, which is empty where it is not on this host."""
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    parsed = urlparse(where)
    return where, (parsed.path or "/") if parsed.scheme in ("unix", "http+unix") else ""


def connect() -> Any:
    """Return a `docker.DockerClient` for `$DOCKER_HOST`, or the host's usual socket. Raises HostError: no package, no
    engine, no permission for its socket, or an engine that is not on this host."""
    try:
        import docker
    except ImportError as error:
        raise HostError("the Python package docker is not installed", "pip install docker") from error
    where, path = _where()
    if not path:
        raise HostError(f"the Docker Engine at {where} is not on this host", "unset DOCKER_HOST")
    try:
        # docker-py wraps the socket's error three layers deep, each in another class.
        with socket.socket(socket.AF_UNIX) as tried:
            tried.settimeout(_TIMEOUT_S)
            tried.connect(path)
        return docker.from_env(version="auto", timeout=_TIMEOUT_S)
    except PermissionError as error:
        fix = "join the group docker (usermod -aG docker $USER, then log in again), or run as root"
        raise HostError(f"this user may not talk to the Docker Engine at {where}", fix) from error
    except FileNotFoundError as error:
        raise HostError(f"there is no Docker Engine here: {where} does not exist", _INSTALL) from error
    except ConnectionRefusedError as error:
        raise HostError(f"the Docker Engine does not answer at {where}", _START) from error
    except Exception as error:
        raise HostError(f"the Docker Engine at {where} cannot be used: {error}", _START) from error


def socket_present() -> bool:
    """Return whether an engine can exist here: cheap enough to call before every series of runs."""
    return Path(_where()[1]).is_socket()


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn docker-py's errors while the engine is asked to do `what` into a HostError with its message and a fix."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.ImageNotFound as error:
        fix = "build it with containers/build, or unset OUTCORE_IMAGE for the one made from this host"
        raise HostError(f"the engine has no such image ({error.explanation})", fix) from error
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
