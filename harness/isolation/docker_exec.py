"""Runs one command in a container that is up, as if it ran here: same input, output and ending.

`python -m harness.isolation.docker_exec CONTAINER FOLDER ARGV…`. docker-py does the talking; this only carries bytes.
The exit status is the command's own, a signal included, and 125 where the container is not there.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import Any

_GONE = 125
_LEAVE_S = 5.0


def run(container: str, folder: str, argv: list[str]) -> int:
    """Run `argv` in `container` below `folder`; returns its exit status, 128 and the signal where one ended it."""
    import docker.errors
    from docker.utils.socket import frames_iter

    from harness.isolation.docker_engine import connect

    api = connect().api
    try:
        work = api.exec_create(container, argv, stdin=True, workdir=folder or None)["Id"]
        stream = api.exec_start(work, socket=True)
    except docker.errors.APIError as error:
        print(f"outcore: cannot join {container[:12]}: {error.explanation}", file=sys.stderr)
        return _GONE
    threading.Thread(target=_feed, args=(_plain(stream),), daemon=True).start()
    for kind, data in frames_iter(stream, tty=False):
        _write(2 if kind == 2 else 1, data)
    return _status(api, work)


def _plain(stream: Any) -> socket.socket:
    """The socket below what docker-py hands out."""
    found: socket.socket = getattr(stream, "_sock", stream)
    return found


def _feed(target: socket.socket) -> None:
    """Standard input into the container, its end included."""
    try:
        # A terminal stays with whoever holds it: reading it from the background would stop this process.
        while not os.isatty(0) and (data := os.read(0, 1 << 16)):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the command has ended, and reads no more


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _status(api: Any, work: str) -> int:
    """The engine notes the exit a moment after the output has ended; of a container that was removed it knows none."""
    import docker.errors

    deadline = time.monotonic() + _LEAVE_S
    while time.monotonic() < deadline:
        try:
            state = api.exec_inspect(work)
        except docker.errors.APIError:
            break
        if not state["Running"] and state["ExitCode"] is not None:
            return int(state["ExitCode"])
        time.sleep(0.01)
    return 128 + signal.SIGKILL


def main() -> None:
    """End as the command did."""
    import resource

    status = run(sys.argv[1], sys.argv[2], sys.argv[3:])
    if 128 < status < 128 + signal.NSIG:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = status - 128
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    # Past the interpreter's own end: the thread may still wait for input that nobody sends.
    os._exit(status)


if __name__ == "__main__":
    main()
