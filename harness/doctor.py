"""Checks of the host's abilities by trial: each is ok, degraded or missing, with a fix.

A new check is a function under `@check(name)`; the command, `--json` and the docs list the registered checks.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.isolation import mounts, select
from harness.isolation.mounts import existing
from harness.isolation.select import BACKENDS
from harness.records import environment
from harness.ssd.device import block_device, direct_block_bytes
from harness.ssd.fio import INSTALL, best_engine, fio_path
from workloads.errors import OutcoreError
from workloads.units import format_bytes

Status = Literal["ok", "degraded", "missing"]
_QUICK_BENCH_BYTES = 6 << 30
_REGISTERED_BUFFERS = 64 << 20
# The system call has this number on every architecture.
_IO_URING_SETUP = 425


@dataclass(frozen=True)
class Finding:
    """Result of one check; `fix` is empty where nothing is wrong."""

    name: str
    status: Status
    detail: str
    fix: str = ""


_CHECKS: dict[str, Callable[[Path], Finding]] = {}


def check(name: str) -> Callable[[Callable[[Path], Finding]], Callable[[Path], Finding]]:
    """Register a check; its argument is the data root, which may not exist yet."""

    def register(function: Callable[[Path], Finding]) -> Callable[[Path], Finding]:
        _CHECKS[name] = function
        return function

    return register


def diagnose(data_root: Path) -> list[Finding]:
    """Run every check in order; a check that fails is itself a finding."""
    findings = []
    for name, function in _CHECKS.items():
        try:
            findings.append(function(data_root))
        except (OutcoreError, OSError, subprocess.SubprocessError) as error:
            findings.append(Finding(name, "missing", f"could not be tried: {error}", getattr(error, "fix", "")))
    return findings


def as_dict(findings: list[Finding]) -> dict[str, Any]:
    """Return the findings as `outcore doctor --json` prints them."""
    worst = next((s for s in ("missing", "degraded") if any(f.status == s for f in findings)), "ok")
    return {"status": worst, "checks": [asdict(finding) for finding in findings]}


@check("memory cap")
def _memory_cap(_: Path) -> Finding:
    chosen = select()
    text = f"{chosen.backend.name}; the host has cgroup {mounts.version()}"
    if chosen.availability.proves_memory:
        return Finding("memory cap", "ok", text)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in chosen.passed_over.items())
    return Finding("memory cap", "missing", f"nothing can cap memory here ({reasons})", _first_fix())


@check("device limits")
def _device_limits(_: Path) -> Finding:
    chosen = select()
    if chosen.availability.io_limits:
        return Finding("device limits", "ok", f"{chosen.backend.name} can hold a run to an SSD class")
    return Finding(
        "device limits",
        "degraded",
        f"no SSD class can be enforced ({chosen.availability.reason}); runs use the bare device, with a caveat",
        "run as root, or delegate the io controller",
    )


@check("swap")
def _swap(_: Path) -> Finding:
    swap = environment.memory()["swap_bytes"]
    if swap == 0 or select().availability.proves_memory:
        return Finding("swap", "ok", f"{format_bytes(swap)} on the host, off inside caps")
    return Finding("swap", "degraded", f"{format_bytes(swap)} of swap, and no cap to turn it off", "swapoff -a")


@check("io_uring")
def _io_uring(_: Path) -> Finding:
    parameters = (ctypes.c_char * 120)()
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(ctypes.c_long(_IO_URING_SETUP), ctypes.c_uint(2), ctypes.byref(parameters))
    if ring >= 0:
        os.close(ring)
        return Finding("io_uring", "ok", "the kernel gives rings to this user")
    code = ctypes.get_errno()
    fix = (
        "use Linux 5.6 or newer"
        if code == errno.ENOSYS
        else "sysctl kernel.io_uring_disabled=0; in a container allow it in the seccomp profile"
    )
    return Finding("io_uring", "degraded", f"{os.strerror(code)}: reads use a pool of pread threads", fix)


@check("engine")
def _engine(root: Path) -> Finding:
    name, build = "engine", "pip install -e . with liburing-dev installed"
    try:
        from systems.engine.io.reader import RowReader
    except ImportError as error:
        return Finding(name, "missing", f"the native parts are not built ({error})", build)
    with _sample_file(root) as file:
        reader = RowReader(file, data_offset=0, num_rows=64, row_bytes=512, depth=8)
        mode = reader.mode
        reader.close()
    if mode.startswith("io_uring"):
        return Finding(name, "ok", f"reads with {mode}")
    return Finding(name, "degraded", f"reads with {mode}", build if "liburing" in mode else "see io_uring above")


@check("locked memory")
def _memlock(_: Path) -> Finding:
    limit = environment.memlock_bytes()
    if limit is None or limit >= _REGISTERED_BUFFERS or os.geteuid() == 0:
        text = "no limit" if limit is None else format_bytes(limit)
        return Finding("locked memory", "ok", f"{text}{' (root is exempt)' if os.geteuid() == 0 else ''}")
    return Finding(
        "locked memory",
        "degraded",
        f"{format_bytes(limit)}: io_uring's buffers may stay unregistered",
        "ulimit -l unlimited, or `* - memlock unlimited` in /etc/security/limits.conf",
    )


@check("direct I/O")
def _direct(root: Path) -> Finding:
    device = block_device(root)
    where = f"{device.file_system} on {device.name or 'no block device'}"
    with _sample_file(root) as file:
        block = direct_block_bytes(file)
    if not device.numbers:
        return Finding(
            "direct I/O", "degraded", f"{where}: nothing is read from a disk there", "keep the data on a disk"
        )
    if block is None:
        return Finding("direct I/O", "missing", f"{where} refuses O_DIRECT", "keep the data on ext4 or xfs")
    if block > 512:
        return Finding("direct I/O", "degraded", f"{where}: {block} bytes at least, so 512-byte rows cost more", "")
    return Finding("direct I/O", "ok", f"{where}: reads of {block} bytes")


@check("page cache")
def _page_cache(root: Path) -> Finding:
    with _sample_file(root) as file:
        cold = _evicted(file)
    whole = os.access("/proc/sys/vm/drop_caches", os.W_OK)
    detail = f"files can be evicted{'; the whole cache can be dropped too' if whole else ''}"
    if cold:
        return Finding("page cache", "ok", detail)
    return Finding(
        "page cache", "missing", "a file stays cached after POSIX_FADV_DONTNEED", "keep the data on ext4 or xfs"
    )


@check("fio")
def _fio(_: Path) -> Finding:
    if fio_path() is None:
        return Finding("fio", "degraded", "not installed: device profiles are lower bounds, with a caveat", INSTALL)
    return Finding("fio", "ok", f"{environment.versions().get('fio', '')} with {best_engine()}")


@check("GPU")
def _gpu(_: Path) -> Finding:
    gpus = environment.gpus()
    if not gpus:
        return Finding(
            "GPU", "degraded", "none: use --device cpu or emulated:NAME", "install the NVIDIA driver, if there is a GPU"
        )
    return Finding("GPU", "ok", ", ".join(f"{gpu['model']} ({format_bytes(gpu['memory_bytes'])})" for gpu in gpus))


@check("Docker")
def _docker(_: Path) -> Finding:
    from harness.isolation.docker.backend import Docker

    found = Docker.available()
    if not found.ok:
        return Finding("Docker", "degraded", f"no containers: {found.reason}", found.fix)
    about = Docker().describe()
    detail = f"engine {about['engine']}: containers of {about['image']} start and are capped"
    missing = [f"no io_uring in them: {found.reason}"] if found.reason else []
    missing += [] if found.io_limits else ["no device limits in them"]
    if missing:
        return Finding("Docker", "degraded", f"{detail}; {'; '.join(missing)}", "see docs/containers.md")
    return Finding("Docker", "ok", f"{detail}, with io_uring ({about['seccomp']}) and device limits")


@check("disk space")
def _space(root: Path) -> Finding:
    free = shutil.disk_usage(existing(root)).free
    detail = f"{format_bytes(free)} free at the data root"
    if free >= _QUICK_BENCH_BYTES:
        return Finding("disk space", "ok", detail)
    return Finding(
        "disk space",
        "degraded",
        detail,
        f"free {format_bytes(_QUICK_BENCH_BYTES)} for the quick bench, or move the root",
    )


@check("pressure")
def _pressure(_: Path) -> Finding:
    if Path("/proc/pressure/io").exists():
        return Finding("pressure", "ok", "the kernel tells stalls (PSI)")
    return Finding("pressure", "degraded", "no PSI: telemetry has no stall columns", "boot with psi=1")


class _sample_file:
    """A synced temporary file of 64 KiB on the data root's file system."""

    def __init__(self, root: Path) -> None:
        self._folder = existing(root)
        self._path: Path | None = None

    def __enter__(self) -> Path:
        handle, name = tempfile.mkstemp(prefix=".outcore-doctor-", dir=self._folder)
        os.write(handle, bytes(1 << 16))
        os.fsync(handle)
        os.close(handle)
        self._path = Path(name)
        return self._path

    def __exit__(self, *exc: object) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _evicted(file: Path) -> bool:
    """Return whether the file can be evicted: a read with `RWF_NOWAIT` then finds no cached page."""
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            return os.preadv(fd, [bytearray(4096)], 0, os.RWF_NOWAIT) == 0
        except BlockingIOError:
            return True
        except OSError:
            return False  # the file system has no RWF_NOWAIT, or is itself memory
    finally:
        os.close(fd)


def _first_fix() -> str:
    """Return the fix of the strictest unavailable backend that asks for root."""
    for backend in BACKENDS:
        availability = backend.available()
        if not availability.ok and "root" in availability.fix:
            return availability.fix
    return "run as root on a host with memory cgroups"
