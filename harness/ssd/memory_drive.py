"""A drive in memory, as fast as any: ext4 on a loop device whose file is in memory that
belongs to no run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.isolation.files import read_text
from workloads.errors import HostError, InputError
from workloads.units import format_bytes

#: Name of the drive in `outcore ssd emulate`.
MEMORY = "memory"
DEFAULT_SIZE = "4GiB"
_LEAST_BYTES = 64 << 20
# Share of the available memory that a drive may take.
_MOST_SHARE = 0.75
_PREFIX = "outcore-memory-"
# ext4 writes all of its tables now, not while a run measures, and discards nothing: the
# kernel would give the pages back, and charge new ones to the run that writes them.
_EXT4 = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"


@contextmanager
def memory_drive(nbytes: int) -> Iterator[Path]:
    """Yield the mount point of a new drive of `nbytes` in memory; remove it at the end,
    and those of killed processes before.

    All pages are allocated by this process, so that no run's cap is charged for them,
    and reads and writes of the drive are direct.

    Raises:
        InputError: the size is too small, or larger than three quarters of the
            available memory.
        HostError: this process is not root, or the host cannot make such a drive.
    """
    _check(nbytes)
    sweep()
    root = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    root.chmod(0o755)
    memory = root / "memory"
    drive = root / "drive"
    with ExitStack() as stack:
        stack.callback(_remove, root)
        memory.mkdir()
        drive.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={nbytes + (1 << 20)}", MEMORY, memory)
        image = memory / "image"
        with image.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
        device = _run("losetup", "--find", "--show", "--direct-io=on", image)
        try:
            _run("mkfs.ext4", "-q", "-F", "-E", _EXT4, device)
            _run("mount", device, drive)
        finally:
            # The kernel does it once the device is mounted no more.
            _run("losetup", "--detach", device)
        yield drive


def _check(nbytes: int) -> None:
    if os.geteuid() != 0:
        raise HostError("a drive in memory needs root", "run this command as root")
    available = _available_bytes()
    size = format_bytes(nbytes)
    if nbytes < _LEAST_BYTES:
        least = f"give at least {format_bytes(_LEAST_BYTES)}"
        raise InputError(f"{size} is too small for a drive", least)
    if nbytes > _MOST_SHARE * available:
        raise InputError(
            f"a drive of {size} leaves too little of the {format_bytes(available)} of "
            "available memory",
            f"give at most {format_bytes(_MOST_SHARE * available)}",
        )


def _available_bytes() -> int:
    for line in read_text(Path("/proc/meminfo")).splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) << 10
    return 0


def sweep() -> None:
    """Remove the drives of processes that are gone."""
    for root in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        number = root.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdecimal() and not Path("/proc", number).exists():
            _remove(root)


def _remove(root: Path) -> None:
    for name in ("drive", "memory"):
        if (root / name).is_mount():
            _unmount(root / name)
    shutil.rmtree(root, ignore_errors=True)


def _unmount(point: Path) -> None:
    """Unmount; lazily, if a file in it stays in use for 5 s (the kernel closes those of
    a program that used io_uring a moment after its end)."""
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        done = subprocess.run(["umount", point], capture_output=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(0.1)
    _run("umount", "--lazy", point)


def _run(program: str, *arguments: str | Path) -> str:
    """Run a program of the host and return what it prints. Raises HostError: it is not
    installed, or fails."""
    try:
        command = [program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise HostError(f"{program} is not installed", "install it") from error
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit status {done.returncode}"
        raise HostError(f"no drive in memory can be made: {reason}", "")
    return done.stdout.strip()
