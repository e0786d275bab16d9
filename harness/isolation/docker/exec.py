"""Program that runs one command in a running container with the input, output and
ending of a local command: `python -m harness.isolation.docker.exec CONTAINER FOLDER
ARGV…`. The exit status is the command's own, a signal included, and 125 where the
container is missing or the engine does not report how the command ended."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

_GONE = 125
_NOTE_S = 60.0  # time limit for the engine to report how a command ended


def run(container: str, folder: str, argv: list[str]) -> int:
    """Run `argv` in `container`, in `folder`; return its exit status, 128 + n after
    signal n."""
    import docker.errors
    from docker.utils.socket import frames_iter

    from harness.isolation.docker.engine import connect

    api = connect().api
    try:
        work = api.exec_create(container, argv, stdin=True, workdir=folder or None)[
            "Id"
        ]
        stream = api.exec_start(work, socket=True)
    except docker.errors.APIError as error:
        print(
            f"outcore: cannot join {container[:12]}: {error.explanation}",
            file=sys.stderr,
        )
        return _GONE
    threading.Thread(
        target=_feed, args=(getattr(stream, "_sock", stream),), daemon=True
    ).start()
    for kind, data in frames_iter(stream, tty=False):
        while data:
            data = data[os.write(2 if kind == 2 else 1, data) :]
    return _status(api, container, work)


def _feed(target: socket.socket) -> None:
    """Send standard input into the container, its end included."""
    try:
        # A terminal is not read: reading it from the background would stop this
        # process.
        while not os.isatty(0) and (data := os.read(0, 1 << 16)):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the command has ended, and reads no more


def _status(api: Any, container: str, work: str) -> int:
    """Return the exit status noted by the engine, on a busy machine seconds after the
    output has ended; SIGKILL's where the container ended or was removed before that."""
    import docker.errors

    deadline = time.monotonic() + _NOTE_S
    while time.monotonic() < deadline:
        up = True
        state: dict[str, Any] = {"Running": True}
        with suppress(
            docker.errors.APIError
        ):  # a busy engine that fails to answer is asked again
            try:
                up = bool(api.inspect_container(container)["State"]["Running"])
            except docker.errors.NotFound:
                up = False
        with suppress(docker.errors.APIError):
            state = api.exec_inspect(work)
        if not state["Running"] and state["ExitCode"] is not None:
            return int(state["ExitCode"])
        if not up:
            return 128 + signal.SIGKILL
        time.sleep(0.02)
    print(
        f"outcore: the container engine has not reported within {_NOTE_S:.0f} s how a "
        "command ended",
        file=sys.stderr,
    )
    return _GONE


def main() -> None:
    """Run the command given by the arguments and end as it did."""
    import resource

    status = run(sys.argv[1], sys.argv[2], sys.argv[3:])
    if 128 < status < 128 + signal.NSIG:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = status - 128
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    # Skips the interpreter's own shutdown: the thread may still wait for input.
    os._exit(status)


if __name__ == "__main__":
    main()
