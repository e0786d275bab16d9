"""Cheats that a worker's sandbox makes impossible: each tries to break one wall before
the first epoch."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from pathlib import Path

from tests.harness.cheats.act import CHEATS, Act, cheat
from workloads.making.salt import FOLDER

DENIED = "Operation not permitted"
READ_ONLY = "Read-only file system"
MISSING = "No such file or directory"
_PROCESS = "No such process"
_LIBC = ctypes.CDLL(None, use_errno=True)
_PTRACE_ATTACH = 16


class _Attempt(Act):
    """Base: `attempt` raises OSError where the wall stands."""

    def prepare(self) -> None:
        """Try it."""
        self.attempt()

    def attempt(self) -> None:
        """Break the wall."""

    @property
    def observer(self) -> int:
        """Process id of the orchestrator."""
        return int(self.system.options.place)


def _done(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@cheat("", wall=DENIED)
class RowsInTcpQueues(_Attempt):
    """Keeps rows in the receive queues of its own connections over the loopback
    device."""

    def attempt(self) -> None:
        """Open a connection to itself."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname())


@cheat("", wall=DENIED)
class RowsInUnixSockets(_Attempt):
    """Keeps rows in pairs of UNIX sockets."""

    def attempt(self) -> None:
        """Open a pair."""
        socket.socketpair()


@cheat("", wall=DENIED)
class RowsInMessageQueues(_Attempt):
    """Keeps rows in message queues of System V."""

    def attempt(self) -> None:
        """Make a queue."""
        _done(_LIBC.msgget(0, 0o600))


@cheat("", wall=DENIED)
class RowsInPosixQueues(_Attempt):
    """Keeps rows in message queues of POSIX."""

    def attempt(self) -> None:
        """Make a queue."""
        _done(_LIBC.mq_open(b"/rows", os.O_RDWR | os.O_CREAT, 0o600, None))


@cheat("", wall=DENIED)
class RowsInKeys(_Attempt):
    """Keeps rows in keys of the kernel."""

    def attempt(self) -> None:
        """Add a key."""
        number = 248 if os.uname().machine == "x86_64" else 217
        _done(
            _LIBC.syscall(
                ctypes.c_long(number),
                b"user",
                b"rows",
                b"1",
                ctypes.c_size_t(1),
                ctypes.c_int(-2),
            )
        )


@cheat("", wall=DENIED)
class RowsInAttributes(_Attempt):
    """Keeps rows in extended attributes of files in memory."""

    def attempt(self) -> None:
        """Set an attribute."""
        os.setxattr(os.memfd_create("rows"), "user.rows", b"1")


@cheat("", wall=DENIED)
class ReadsAnothersMemory(_Attempt):
    """Reads rows from the memory of another process."""

    def attempt(self) -> None:
        """Read nothing yet."""
        _done(_LIBC.process_vm_readv(self.observer, None, 0, None, 0, 0))


@cheat("", wall=DENIED)
class WritesToAnothersMemory(_Attempt):
    """Writes to the memory of the process that measures it."""

    def attempt(self) -> None:
        """Write nothing yet."""
        _done(_LIBC.process_vm_writev(self.observer, None, 0, None, 0, 0))


@cheat("", wall=MISSING)
class OpensAnothersMemory(_Attempt):
    """Opens the memory of another process as a file."""

    def attempt(self) -> None:
        """Open it."""
        Path(f"/proc/{self.observer}/mem").open("rb").close()


@cheat("", wall=DENIED)
class TracesAnother(_Attempt):
    """Traces the process that measures it."""

    def attempt(self) -> None:
        """Attach to it."""
        _done(_LIBC.ptrace(_PTRACE_ATTACH, self.observer, None, None))


@cheat("", wall=DENIED)
class TakesADescriptor(_Attempt):
    """Takes an open file from another process."""

    def attempt(self) -> None:
        """Take the standard input of the first process."""
        _done(
            _LIBC.syscall(
                ctypes.c_long(438), os.pidfd_open(1), ctypes.c_int(0), ctypes.c_uint(0)
            )
        )


@cheat("", wall=_PROCESS)
class StopsTheObserver(_Attempt):
    """Stops the orchestrator, so that no look happens."""

    def attempt(self) -> None:
        """Stop it."""
        os.kill(self.observer, signal.SIGSTOP)


@cheat("", wall=READ_ONLY)
class WritesOutsideItsScratch(_Attempt):
    """Keeps rows in a file beside its scratch folder."""

    def attempt(self) -> None:
        """Make a file."""
        (self.system.runtime.scratch.parent / "rows").write_bytes(b"1")


@cheat("", wall=MISSING)
class ReadsOtherRuns(_Attempt):
    """Reads the records and measurements of other runs."""

    def attempt(self) -> None:
        """List the folders beside the one of its dataset."""
        beside = self.system.workload.dataset.path.parent.parent / "results" / "cache"
        next(beside.iterdir())


@cheat("", wall=MISSING)
class ReadsTheSalt(_Attempt):
    """Reads the salt of the generated features, with which it could compute each
    row."""

    def attempt(self) -> None:
        """Read it."""
        root = self.system.workload.dataset.path.parent
        (root / FOLDER / "salt").read_text()


@cheat("", wall=DENIED)
class MountsAnotherView(_Attempt):
    """Mounts the control groups, in which it could leave its cap."""

    def attempt(self) -> None:
        """Mount them."""
        _done(_LIBC.mount(b"none", b"/tmp", b"cgroup2", ctypes.c_ulong(0), None))


@cheat("", wall=DENIED)
class MakesANameSpace(_Attempt):
    """Makes a user space, in which it has every capability."""

    def attempt(self) -> None:
        """Make it."""
        _done(_LIBC.unshare(0x10000000))


@cheat("", wall=READ_ONLY)
class DropsCaches(_Attempt):
    """Drops the caches of the host, so that its peers start cold."""

    def attempt(self) -> None:
        """Drop them."""
        Path("/proc/sys/vm/drop_caches").write_text("1")


@cheat("")
class TriesEveryWall(Act):
    """Tries everything that the cheats of this module try; the run fails if one of them
    is possible."""

    def prepare(self) -> None:
        """Try all."""
        for name, act in CHEATS.items():
            if issubclass(act, _Attempt):
                try:
                    act(self.system).prepare()
                except OSError as error:
                    if error.strerror == act.wall:
                        continue
                    raise
                raise AssertionError(f"{name} is possible")
