"""The two pipes between orchestrator and worker: inherited, or named where nothing can be inherited."""

from __future__ import annotations

import os
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workloads.accelerators.pool import DevicePool


class Pipes:
    """The orchestrator's ends of both pipes, and how the worker is told of its own.

    Attributes:
        events: descriptor that events are read from; go: descriptor that `go` is written to.
        arguments: the worker's two arguments: numbers of inherited descriptors, or paths.
        inherited: descriptors that the worker's process has to inherit.
    """

    def __init__(self, folder: Path, *, named: bool) -> None:
        self._others: list[int] = []
        self.inherited: tuple[int, ...] = ()
        if not named:
            self.events, event_write = os.pipe()
            go_read, self.go = os.pipe()
            self.inherited = (event_write, go_read)
            self._others = [event_write, go_read]
            self.arguments = [str(event_write), str(go_read)]
            return
        paths = [folder / "events", folder / "go"]
        for path in paths:
            path.unlink(missing_ok=True)  # a calibration used the folder before
            os.mkfifo(path, 0o600)
        self.events = _open_fifo(paths[0], os.O_RDONLY | os.O_NONBLOCK)
        # Held open on both sides: a pipe whose writer has not come yet must not look like one whose writer has gone.
        self._others = [_open_fifo(paths[0], os.O_WRONLY)]
        self.go = _open_fifo(paths[1], os.O_RDWR)
        self.arguments = [str(path) for path in paths]

    def spawned(self) -> None:
        """The worker has its ends: give up our copies of what it inherited."""
        if self.inherited:
            self._give_up()

    def close(self) -> None:
        """Close everything; twice is once."""
        self._give_up()
        for fd in (self.events, self.go):
            if fd >= 0:
                with suppress(OSError):
                    os.close(fd)
        self.events = self.go = -1

    def _give_up(self) -> None:
        for fd in self._others:
            os.close(fd)
        self._others = []


def _open_fifo(path: Path, flags: int) -> int:
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    assert stat.S_ISFIFO(os.fstat(fd).st_mode)
    return fd


class PoolServer:
    """Hands the memory of emulated devices to a worker that cannot look for it: through a socket beside its spec.

    Args:
        folder: seen by the worker at the same path.
        names: of pools that this process holds.
    """

    def __init__(self, folder: Path, names: list[str]) -> None:
        from workloads.accelerators.pool import DevicePool

        # A name with a slash at its front is a place, any other one a pool of a process that may be looked into.
        folder = folder.absolute()
        self.paths = [str(folder / f"pool-{index}") for index in range(len(names))]
        self._sockets: list[socket.socket] = []
        directory = os.open(folder, os.O_DIRECTORY | os.O_RDONLY)
        try:
            for path, name in zip(self.paths, names, strict=True):
                Path(path).unlink(missing_ok=True)
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                # A socket's address holds 108 bytes, and scratch folders have longer paths.
                listener.bind(f"/proc/self/fd/{directory}/{Path(path).name}")
                listener.listen(8)
                self._sockets.append(listener)
                pool = DevicePool.attach(name)
                threading.Thread(target=_serve, args=(listener, pool), name="device pool", daemon=True).start()
        finally:
            os.close(directory)

    def close(self) -> None:
        """Stop serving; what a worker has mapped stays with it."""
        for listener in self._sockets:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._sockets = []


def _serve(listener: socket.socket, pool: DevicePool) -> None:
    try:
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                socket.send_fds(connection, [b"p"], [pool.descriptor])
    except OSError:
        pool.close()  # the server was closed
