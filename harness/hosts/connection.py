"""Connection to a Ray cluster: made with a word on its progress, or refused in a
sentence."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from workloads.errors import HostError, InputError

_CLIENT = "ray://"
# A method of Ray's client server, which no other server of a cluster has.
_METHOD = "/ray.rpc.RayletDriver/ClusterInfo"
_ANSWER_S = 10.0
_CONNECTS = 3
# Pause before the next connection, in which the head forgets the failed one.
_PAUSE_S = 10.0
# Ray's message where the process that it starts for a client ended at once.
_NOT_STARTED = "Starting Ray client server failed"
_START = (
    "start one with `ray start --head --ray-client-server-port 10001`, and see that "
    "this port can be reached"
)


def connect(address: str, progress: Callable[[str], None]) -> Any:
    """Connect this process to a cluster and return the module `ray`.

    Args:
        address: `ray://HOST:PORT` of the cluster's client server, or `HOST:PORT` of its
            head for a driver on a node.
        progress: called with each step.

    Raises:
        InputError: Ray is not installed.
        HostError: no cluster answers at the address, or one of another version.
    """
    # Ray reports each use to its vendor unless this is set before it is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        fix = "pip install 'outcore[hosts]' on every host"
        raise InputError("--hosts needs Ray, which is not installed", fix) from error
    absent = f"no Ray cluster answers at {address}"
    if not _listens(address):
        raise HostError(f"{absent}: nothing listens there", _START)
    if address.startswith(_CLIENT) and not _is_client_server(address):
        raise HostError(f"{absent}: the port is not that of Ray's clients", _START)
    progress(f"connecting to the Ray cluster at {address} (may take a minute)")
    for left in reversed(range(_CONNECTS)):
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
            ray.shutdown()
            if left and _may_connect_later(error):
                progress("no connection yet: trying again")
                time.sleep(_PAUSE_S)
                continue
            raise _refused(address, error) from error
        break
    return ray


def _may_connect_later(error: Exception) -> bool:
    """Return whether the process that Ray starts for a client failed, as it sometimes
    does on a busy head: a new one is asked for."""
    lost = isinstance(error, ConnectionError | TimeoutError)
    return lost or _NOT_STARTED in str(error)


def _refused(address: str, error: Exception) -> HostError:
    """Return the error for a cluster that refuses the connection."""
    reason = " ".join(str(error).split()) or type(error).__name__
    if "version" in reason.lower():
        fix = "install the same outcore[hosts] and Python on this host and on the nodes"
        return HostError(
            f"the Ray cluster at {address} is of another version: {reason}", fix
        )
    return HostError(f"no Ray cluster answers at {address}: {reason[:300]}", _START)


def _listens(address: str) -> bool:
    """Return whether a server listens at `[ray://]HOST:PORT`."""
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5.0):
            return True
    except (OSError, ValueError):
        return False


def _is_client_server(address: str) -> bool:
    """Return whether the server at an address is one for Ray's clients; True where that
    cannot be found out, as over TLS."""
    if os.environ.get("RAY_USE_TLS", "0") != "0":
        return True
    import grpc

    with grpc.insecure_channel(address.removeprefix(_CLIENT)) as channel:
        try:
            channel.unary_unary(_METHOD)(b"", timeout=_ANSWER_S)
        except grpc.RpcError as error:
            codes = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE)
            # A server that is no gRPC server never answers.
            return error.code() not in (*codes, grpc.StatusCode.DEADLINE_EXCEEDED)
    return True
