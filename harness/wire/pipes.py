"""The two pipes between orchestrator and worker: inherited, or named if the worker
cannot inherit descriptors."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path

from workloads.accelerators.pool import DevicePool

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent, the process `parent`, ends in
    any manner."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(70)


class Pipes:
    """The orchestrator's ends of both pipes, and the worker's arguments for its ends.
    `events`, `go`: descriptors from which events are read, and to which `go` is
    written. `arguments`: the worker's two arguments: numbers of inherited descriptors,
    or paths. `inherited`: descriptors that the worker's process has to inherit."""

    def __init__(self, folder: Path, *, named: bool) -> None:
        self.inherited: tuple[int, ...] = ()
        if not named:
            self.events, event_write = os.pipe()
            go_read, self.go = os.pipe()
            self.inherited = (event_write, go_read)
            self._others = [*self.inherited]
            self.arguments = [str(end) for end in self.inherited]
            return
        paths = [folder / "events", folder / "go"]
        for path in paths:
            path.unlink(missing_ok=True)  # a calibration used the folder before
            os.mkfifo(path, 0o600)
        self.events = _open_fifo(paths[0], os.O_RDONLY | os.O_NONBLOCK)
        # Both sides stay open: a pipe without a writer yet must not look like one at
        # its end.
        self._others = [_open_fifo(paths[0], os.O_WRONLY)]
        self.go = _open_fifo(paths[1], os.O_RDWR)
        self.arguments = [str(path) for path in paths]

    def spawned(self) -> None:
        """Close our copies of the inherited descriptors, after the worker's start."""
        if self.inherited:
            self._give_up()

    def close(self) -> None:
        """Close all descriptors; may be called more than once."""
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
    """Server that passes pools of this process (`names`), such as emulated devices'
    memory, to a worker. It listens on one socket a pool in `folder`, which the worker
    sees at the same path."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        # `DevicePool.attach` takes a name that begins with a slash for a socket's path.
        folder = folder.absolute()
        self.paths = [str(folder / f"pool-{index}") for index in range(len(names))]
        self._sockets: list[socket.socket] = []
        directory = os.open(folder, os.O_DIRECTORY | os.O_RDONLY)
        try:
            for path, name in zip(self.paths, names, strict=True):
                Path(path).unlink(missing_ok=True)
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                # A socket's address holds 108 bytes, and scratch folders have longer
                # paths.
                listener.bind(f"/proc/self/fd/{directory}/{Path(path).name}")
                listener.listen(8)
                self._sockets.append(listener)
                pool = DevicePool.attach(name)
                threading.Thread(
                    target=_serve,
                    args=(listener, pool),
                    name="device pool",
                    daemon=True,
                ).start()
        finally:
            os.close(directory)

    def close(self) -> None:
        """Stop serving; memory that a worker has mapped stays mapped."""
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
