"""Walls of a worker's sandbox: what must not be done is impossible, and what runs need
works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.isolation import probe, select
from harness.isolation.walls import sandbox
from harness.isolation.walls.needs import Needs
from harness.isolation.walls.sandbox import Walls
from harness.isolation.walls.syscalls import Sockets

pytestmark = pytest.mark.skipif(
    not sandbox.walls().kind, reason=f"no sandbox here: {sandbox.walls().missing}"
)

_PREFACE = """
import ctypes, mmap, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def done(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""
#: Programs that would break a wall, and the error that stops each.
IMPOSSIBLE = {
    "trace a process": ("done(libc.ptrace(16, os.getppid(), 0, 0))", "PermissionError"),
    "read another process": (
        "done(libc.process_vm_readv(1, None, 0, None, 0, 0))",
        "PermissionError",
    ),
    "take a descriptor": (
        "ring = os.pidfd_open(1); done(libc.syscall(ctypes.c_long(438), ring, 0, 0))",
        "PermissionError",
    ),
    "stop the observer": (
        f"os.kill({os.getpid()}, signal.SIGSTOP)",
        "ProcessLookupError",
    ),
    "see the observer": (f"open('/proc/{os.getpid()}/mem', 'rb')", "FileNotFoundError"),
    "open a socket": ("socket.socket()", "PermissionError"),
    "open a pair of sockets": ("socket.socketpair()", "PermissionError"),
    "keep bytes in a message queue": ("done(libc.msgget(0, 0o600))", "PermissionError"),
    "keep bytes in a key": (
        "done(libc.syscall(ctypes.c_long(248), b'user', b'k', b'v', 1, -2))",
        "PermissionError",
    ),
    "keep bytes in an attribute": (
        "os.setxattr('/dev/shm', 'user.a', b'1')",
        "PermissionError",
    ),
    "take reserved huge pages": (
        "mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)",
        "PermissionError",
    ),
    "mount": (
        "done(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
        "PermissionError",
    ),
    "make a user space": ("done(libc.unshare(0x10000000))", "PermissionError"),
    "make a user space by clone": (
        "done(libc.syscall(ctypes.c_long(56), 0x10000000 | 17, 0, 0, 0, 0))",
        "Permission",
    ),
    "write to code": ("open(os.__file__, 'ab')", "Read-only file system"),
    "write to the root folder": ("open('/file', 'wb')", "Read-only file system"),
    "drop caches": ("open('/proc/sys/vm/drop_caches', 'wb')", "Read-only file system"),
    "see control groups": (
        "open('/sys/fs/cgroup/memory/cgroup.procs')",
        "FileNotFoundError",
    ),
    "see passwords": ("open('/etc/shadow')", "FileNotFoundError"),
    "make memory visible": (
        "open('/sys/fs/cgroup/file', 'wb')",
        "Read-only file system",
    ),
}


def inside(program: str, needs: Needs | None = None) -> str:
    """Run a program in a sandbox; return the last line that it prints."""
    command, descriptors = sandbox.command(
        [sys.executable, "-S", "-E", "-c", _PREFACE + program], needs or Needs()
    )
    try:
        done = subprocess.run(
            command, pass_fds=descriptors, capture_output=True, text=True, timeout=60
        )
    finally:
        sandbox.close(descriptors)
    return (
        (done.stdout + done.stderr).strip().splitlines()
        or [f"exit code {done.returncode}"]
    )[-1]


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_it_is_impossible_to(what: str) -> None:
    program, error = IMPOSSIBLE[what]
    assert error in inside(f"{program}; print('possible')")


def test_bytes_sent_over_the_loopback_device_need_ranks() -> None:
    program = (
        "server = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(server.getsockname()); print('connected')"
    )
    assert inside(program, Needs(sockets="loopback")) == "connected"
    assert "PermissionError" in inside(program, Needs(sockets="unix"))


@pytest.mark.parametrize("sockets", ["none", "unix"])
def test_a_ring_cannot_send_over_a_loopback_device_that_is_down(
    sockets: Sockets,
) -> None:
    """Seccomp does not see io_uring's sockets, so the network itself must carry
    nothing."""
    if os.geteuid():
        pytest.skip("without root the loopback device is up")
    assert "127.0.0.1" not in inside(
        "print(repr(open('/proc/net/fib_trie').read()))", Needs(sockets=sockets)
    )


def test_files_of_others_are_hidden_and_needed_ones_are_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    mine = tmp_path / "data" / "mine"
    other = tmp_path / "data" / "other"
    for folder in (mine, other, tmp_path / "scratch"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("rows")
    needs = Needs(read_only=(mine,), writable=(tmp_path / "scratch",), hidden=(data,))
    assert inside(f"print(open('{mine}/file').read())", needs) == "rows"
    assert "Read-only" in inside(f"open('{mine}/file', 'w')", needs)
    assert "FileNotFoundError" in inside(f"open('{other}/file')", needs)
    assert (
        inside(f"open('{tmp_path}/scratch/made', 'w'); print('made')", needs) == "made"
    )
    assert (tmp_path / "scratch" / "made").exists()


def test_a_folder_of_data_that_holds_the_code_stays_visible() -> None:
    needs = Needs(hidden=(Path(sys.prefix).parent, Path(sys.prefix)))
    assert inside("print('starts')", needs) == "starts"


def test_a_worker_locks_more_memory_than_its_limit_for_rings() -> None:
    if os.geteuid():
        pytest.skip("needs root")
    program = (
        "memory = mmap.mmap(-1, 64 << 20); address = "
        "ctypes.addressof(ctypes.c_char.from_buffer(memory)); "
    )
    program += (
        "done(libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(64 << 20))); "
        "print('locked')"
    )
    assert inside(program) == "locked"


def test_the_probe_names_no_kind_of_memory_in_a_sandbox_and_some_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = select("auto")
    if not chosen.availability.proves_memory:
        pytest.skip("no memory cgroup on this host")
    escapes: list[str] = []
    probe._keeps(chosen.backend, escapes)
    assert escapes == []
    monkeypatch.setattr(sandbox, "walls", lambda: Walls(missing="a test"))
    probe._keeps(chosen.backend, escapes)
    if chosen.backend.name == "cgroup1":
        assert any("TCP sockets" in one for one in escapes)
