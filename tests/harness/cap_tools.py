"""Helpers for tests of caps: backends that work here, small programs to run inside,
files on a real disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.isolation import Cap
from harness.isolation.cgroup1 import Cgroup1
from harness.isolation.cgroup2 import Cgroup2
from harness.isolation.files import first_text, read_text

MIB = 1 << 20
REPOSITORY = Path(__file__).resolve().parents[2]
CAPPING = [backend for backend in (Cgroup2, Cgroup1) if backend.available().ok]
_WHY = "; ".join(
    f"{backend.name}: {backend.available().reason}" for backend in (Cgroup2, Cgroup1)
)
needs_cap = pytest.mark.skipif(
    not CAPPING, reason=f"no memory cgroup can be made here ({_WHY})"
)
needs_io = pytest.mark.skipif(
    not any(backend.available().io_limits for backend in CAPPING),
    reason="no cgroup here can limit a device",
)
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root to become another user"
)


def limit_of(folder: Path) -> int | None:
    """Return the memory limit of a group in bytes; None for no limit."""
    text = first_text(folder, "memory.max", "memory.limit_in_bytes")
    limit = int(text) if text.isdigit() else None
    return None if limit is None or limit >= 1 << 62 else limit


def on_disk() -> Iterator[Path]:
    """Yield a folder on a disk; /tmp may be in memory, which has no page cache of a
    device."""
    for base in (os.environ.get("OUTCORE_TEST_DISK"), "/var/tmp", str(REPOSITORY)):
        if base and Path(base).is_dir():
            with tempfile.TemporaryDirectory(
                prefix="outcore-test-", dir=base
            ) as folder:
                yield Path(folder)
            return


def python(code: str, *arguments: str) -> list[str]:
    """Return the command line of a Python program that needs a few MiB."""
    return [sys.executable, "-S", "-E", "-c", code, *arguments]


def run_in(
    cap: Cap, code: str, *arguments: str, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        cap.command(python(code, *arguments)),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def start_in(cap: Cap, code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program and wait for its first line."""
    child = subprocess.Popen(
        cap.command(python(code, *arguments)), stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline()
    return child


def cold_file(folder: Path, size: int) -> Path:
    """Write a file that is on the disk and not in the page cache."""
    path = folder / f"cold-{size}"
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def holds_within(seconds: float, condition: Callable[[], object]) -> bool:
    """Ask again and again until the condition holds; return whether it did within the
    seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def alive(pid: int) -> bool:
    """Return whether `pid` runs; a zombie does not."""
    state = read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return bool(state) and state[0] not in ("Z", "X")


def groups_named(text: str) -> list[Path]:
    """Return the cgroups whose name contains `text`, anywhere on the host."""
    return [path for path in Path("/sys/fs/cgroup").rglob(f"*{text}*") if path.is_dir()]
