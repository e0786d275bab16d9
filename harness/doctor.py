"""Checks of the host's abilities by trial: each is ok, degraded or missing, with a fix.

A new check is an entry of `CHECKS`: its name, and a function of the data root, which
may not exist yet.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from harness.isolation import BACKENDS, mounts, select
from harness.isolation.mounts import existing
from harness.isolation.walls import sandbox
from harness.records import environment
from harness.run.places import Places, is_writable
from harness.ssd.device import block_device, direct_block_bytes
from harness.ssd.fio import INSTALL, best_engine, fio_path
from workloads.errors import OutcoreError
from workloads.units import format_bytes

Status = Literal["ok", "degraded", "missing"]
# Status, detail and, where something is wrong, the fix.
Found = tuple[Status, str] | tuple[Status, str, str]
_TRIAL_S = 300.0  # a driver's first start and a first compilation
_QUICK_BENCH_BYTES = 6 << 30
_REGISTERED_BUFFERS = 64 << 20
_BUILD = "pip install -e . with liburing-dev installed"
# The system call has this number on every architecture.
_IO_URING_SETUP = 425


@dataclass(frozen=True)
class Finding:
    """Result of one check; `fix` is empty where nothing is wrong."""

    name: str
    status: Status
    detail: str
    fix: str = ""


def diagnose(data_root: Path, places: Places | None = None) -> list[Finding]:
    """Run every check in order; a check that fails is itself a finding. `places`: by
    default under the data root."""
    findings = []
    written = partial(_folders, places=places or Places.below(data_root))
    checks: dict[str, Callable[[Path], Found]] = {**CHECKS, "folders": written}
    for name, function in checks.items():
        try:
            findings.append(Finding(name, *function(data_root)))
        except ImportError as error:
            findings.append(
                Finding(
                    name, "missing", f"the native parts are not built ({error})", _BUILD
                )
            )
        except (OutcoreError, OSError, subprocess.SubprocessError) as error:
            findings.append(
                Finding(
                    name,
                    "missing",
                    f"could not be tried: {error}",
                    getattr(error, "fix", ""),
                )
            )
    return findings


def as_dict(findings: list[Finding]) -> dict[str, Any]:
    """Return the findings as `outcore doctor --json` prints them."""
    worst = next(
        (s for s in ("missing", "degraded") if any(f.status == s for f in findings)),
        "ok",
    )
    return {"status": worst, "checks": [asdict(finding) for finding in findings]}


def _memory_cap(_: Path) -> Found:
    chosen = select()
    if chosen.availability.proves_memory:
        return "ok", f"{chosen.backend.name}; the host has cgroup {mounts.version()}"
    reasons = "; ".join(
        f"{name}: {reason}" for name, reason in chosen.passed_over.items()
    )
    # The strictest unavailable backend that asks for root.
    fixes = (
        found.fix
        for found in (backend.available() for backend in BACKENDS)
        if not found.ok
    )
    fix = next(
        (fix for fix in fixes if "root" in fix),
        "run as root on a host with memory cgroups",
    )
    return "missing", f"nothing can cap memory here ({reasons})", fix


def _sandbox(_: Path) -> Found:
    found = sandbox.walls()
    if found.kind:
        return (
            "ok",
            f"{found.kind} starts workers behind walls ({', '.join(found.walls)})",
        )
    return (
        "degraded",
        f"none: {found.missing}; runs are not sandboxed, a caveat in every record",
        found.fix,
    )


def _device_limits(_: Path) -> Found:
    chosen = select()
    if chosen.availability.io_limits:
        return "ok", f"{chosen.backend.name} can hold a run to an SSD class"
    message = (
        f"no SSD class can be enforced ({chosen.availability.reason}); runs use the "
        "bare device, with a caveat"
    )
    return "degraded", message, "run as root, or delegate the io controller"


def _swap(_: Path) -> Found:
    swap = environment.memory()["swap_bytes"]
    if swap == 0 or select().availability.proves_memory:
        return "ok", f"{format_bytes(swap)} on the host, off inside caps"
    return (
        "degraded",
        f"{format_bytes(swap)} of swap, and no cap to turn it off",
        "swapoff -a",
    )


def _io_uring(_: Path) -> Found:
    parameters = (ctypes.c_char * 120)()
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(
        ctypes.c_long(_IO_URING_SETUP), ctypes.c_uint(2), ctypes.byref(parameters)
    )
    if ring >= 0:
        os.close(ring)
        return "ok", "the kernel gives rings to this user"
    code = ctypes.get_errno()
    allow = (
        "sysctl kernel.io_uring_disabled=0; in a container allow it in the seccomp "
        "profile"
    )
    fix = "use Linux 5.6 or newer" if code == errno.ENOSYS else allow
    return "degraded", f"{os.strerror(code)}: reads use a pool of pread threads", fix


def _engine(root: Path) -> Found:
    from systems.engine.io.reader import RowReader

    with _sample_file(root) as file:
        reader = RowReader(file, data_offset=0, num_rows=64, row_bytes=512, depth=8)
        mode = reader.mode
        reader.close()
    if mode.startswith("io_uring"):
        return "ok", f"reads with {mode}"
    return (
        "degraded",
        f"reads with {mode}",
        _BUILD if "liburing" in mode else "see io_uring above",
    )


def _memlock(_: Path) -> Found:
    limit = environment.memlock_bytes()
    root = os.geteuid() == 0
    if limit is None or limit >= _REGISTERED_BUFFERS or root:
        found = "no limit" if limit is None else format_bytes(limit)
        return ("ok", f"{found} (root is exempt)" if root else found)
    fix = "ulimit -l unlimited, or `* - memlock unlimited` in /etc/security/limits.conf"
    return (
        "degraded",
        f"{format_bytes(limit)}: io_uring's buffers may stay unregistered",
        fix,
    )


def _direct(root: Path) -> Found:
    device = block_device(root)
    where = f"{device.file_system} on {device.name or 'no block device'}"
    with _sample_file(root) as file:
        block = direct_block_bytes(file)
    if not device.numbers:
        return (
            "degraded",
            f"{where}: nothing is read from a disk there",
            "keep the data on a disk",
        )
    if block is None:
        return "missing", f"{where} refuses O_DIRECT", "keep the data on ext4 or xfs"
    if block > 512:
        return (
            "degraded",
            f"{where}: {block} bytes at least, so 512-byte rows cost more",
        )
    return "ok", f"{where}: reads of {block} bytes"


def _page_cache(root: Path) -> Found:
    from harness.run.cold import evict_files

    with _sample_file(root) as file:
        kept = evict_files([file], "before").resident_bytes
    if kept:
        return (
            "missing",
            "a file stays cached after POSIX_FADV_DONTNEED",
            "keep the data on ext4 or xfs",
        )
    whole = os.access("/proc/sys/vm/drop_caches", os.W_OK)
    return (
        "ok",
        "files can be "
        f"evicted{'; the whole cache can be dropped too' if whole else ''}",
    )


def _fio(_: Path) -> Found:
    if fio_path() is None:
        return (
            "degraded",
            "not installed: device profiles are lower bounds, with a caveat",
            INSTALL,
        )
    return "ok", f"{environment.versions().get('fio', '')} with {best_engine()}"


def _gpu(_: Path) -> Found:
    if not (gpus := environment.gpus()):
        return (
            "degraded",
            "none: use --device cpu or emulated:NAME",
            "install the NVIDIA driver, if there is a GPU",
        )
    detail = ", ".join(
        f"{gpu['model']} ({format_bytes(gpu['memory_bytes'])})" for gpu in gpus
    )
    reported = tried_out("cuda")
    if reported["failed"]:
        fix = (
            "install torch for this driver's CUDA (README), or raise the memlock limit"
        )
        return "missing", f"{detail}; {reported['failed']}", fix
    if reported["notes"]:
        fix = "install a C compiler and Python's headers (python3-dev)"
        return "degraded", f"{detail}; {'; '.join(reported['notes'].values())}", fix
    return "ok", f"{detail}: allocates, pins, copies, reads host memory and compiles"


def tried_out(device: str) -> dict[str, Any]:
    """Try a device in a process of its own, since a fault of a driver may end it;
    return the trial's JSON object."""
    command = [
        sys.executable,
        "-m",
        "workloads.accelerators.trial",
        device,
        "128",
        "float32",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TRIAL_S, check=False
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[
            -1
        ]
        return {"failed": f"the trial of {device} ended early: {last}", "notes": {}}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _docker(_: Path) -> Found:
    from harness.isolation.docker.backend import Docker

    found = Docker.available()
    if not found.ok:
        return "degraded", f"no containers: {found.reason}", found.fix
    about = Docker().describe()
    detail = (
        f"engine {about['engine']}: containers of {about['image']} start and are capped"
    )
    missing = [f"no io_uring in them: {found.reason}"] if found.reason else []
    missing += [] if found.io_limits else ["no device limits in them"]
    if missing:
        return "degraded", f"{detail}; {'; '.join(missing)}", "see docs/containers.md"
    return "ok", f"{detail}, with io_uring and device limits"


def _space(root: Path) -> Found:
    free = shutil.disk_usage(existing(root)).free
    detail = f"{format_bytes(free)} free at the data root"
    if free >= _QUICK_BENCH_BYTES:
        return "ok", detail
    return (
        "degraded",
        detail,
        f"free {format_bytes(_QUICK_BENCH_BYTES)} for the quick bench, or move the "
        "root",
    )


def _folders(root: Path, places: Places) -> Found:
    """Check the folders that runs write to: that they can be written, and that they lie
    on the disk of the data."""
    for folder, option in (
        (places.scratch, "--scratch"),
        (places.artefacts, "--artefacts"),
    ):
        if not is_writable(existing(folder)):
            message = f"runs cannot write to {folder}"
            return (
                "missing",
                message,
                f"give a folder that can be written by {option} "
                f"($OUTCORE_{option[2:].upper()})",
            )
        if block_device(existing(folder)).numbers != block_device(root).numbers:
            message = (
                f"{folder} is on another disk than the data: a run that reads data "
                "there is INVALID"
            )
            return (
                "degraded",
                message,
                f"give a folder on the disk of the data by {option}",
            )
    return "ok", "scratch files and artefacts are on the disk of the datasets"


def _pressure(_: Path) -> Found:
    if Path("/proc/pressure/io").exists():
        return "ok", "the kernel reports stalls (PSI)"
    return "degraded", "no PSI: telemetry has no stall columns", "boot with psi=1"


CHECKS: dict[str, Callable[[Path], Found]] = {
    "memory cap": _memory_cap,
    "sandbox": _sandbox,
    "device limits": _device_limits,
    "swap": _swap,
    "io_uring": _io_uring,
    "engine": _engine,
    "locked memory": _memlock,
    "direct I/O": _direct,
    "page cache": _page_cache,
    "fio": _fio,
    "GPU": _gpu,
    "Docker": _docker,
    "disk space": _space,
    "pressure": _pressure,
}


@contextmanager
def _sample_file(root: Path) -> Iterator[Path]:
    """Yield a synced temporary file of 64 KiB on the data root's file system."""
    with tempfile.NamedTemporaryFile(
        prefix=".outcore-doctor-", dir=existing(root)
    ) as file:
        file.write(bytes(1 << 16))
        file.flush()
        os.fsync(file.fileno())
        yield Path(file.name)
