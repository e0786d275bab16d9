"""One command under the limits of an SSD class: the limits checked by fio, root
dropped, nothing left behind."""

from __future__ import annotations

import math
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Any, Literal

from harness.cache import Cache, digest_of
from harness.isolation.base import Cap, IoLimit, Isolation, Limits
from harness.ssd.classes import DiskClass, parse_disk_class
from harness.ssd.device import BlockDevice
from harness.ssd.fio import FioJob, run_fio
from harness.ssd.memory_drive import memory_drive
from harness.ssd.profile import expected, shallow
from harness.ssd.testfile import own_file
from workloads.errors import HostError, InputError

AUTO = "auto"
# Largest relative deviation of fio's rate from a limit.
TOLERANCE = 0.03
MAX_AGE_S = 3600.0
# Large enough that pages are rarely read twice, no larger than the limits need.
_LEAST_BYTES = 64 << 20
_MOST_BYTES = 512 << 20
_SECONDS = 3.0
_BARE_S = 1.0
# The limiter's first slice and the filling of a deep queue are not the steady rate.
_RAMP_S = 0.8
# Seconds between two samples of a cgroup's counter during buffered reads; fewer samples
# give no rate.
_LOOK_S = 0.02
_LEAST_LOOKS = 8
# Bytes, depth and order of the direct reads by the name of their check. Reads in order
# are small enough that few bytes are in flight (see `shallow`), large enough that bytes
# and not requests are the limit.
_JOBS: dict[str, tuple[int, int, Literal["random", "sequential"]]] = {
    "randread_4k_iops": (4096, 128, "random"),
    "randread_512_iops": (512, 128, "random"),
    "seqread_bytes_per_s": (256 << 10, 32, "sequential"),
}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Check:
    """One measured rate and the rate that the class allows at that block size.
    `buffered_reads_per_s` is counted by the kernel at the device, so that page cache
    hits do not count."""

    name: str
    measured: float
    allowed: float

    @property
    def error(self) -> float:
        """Share by which the measured rate is above (or, negative, below) the limit."""
        return self.measured / self.allowed - 1.0


def verify(
    isolation: Isolation,
    limits: Sequence[IoLimit],
    folder: Path,
    *,
    seconds: float | None = None,
    progress: Progress = lambda text: None,
) -> list[Check]:
    """Measure with fio inside the limits, direct and through the page cache, on a
    temporary file.

    Args:
        isolation, limits: backend, and the limits that it enforces.
        folder: folder on the limited disk, for the temporary file.
        seconds: duration of each measurement, 3 by default.

    Raises:
        HostError: no space for the file, or fio fails.
    """
    seconds = seconds or _SECONDS
    pages = expected(limits, 4096) * seconds
    size = int(min(_MOST_BYTES, max(_LEAST_BYTES, 4 * 4096 * pages)))
    with (
        own_file(folder, size, smaller="", progress=progress) as file,
        isolation.create("ssd-verify", Limits(None, tuple(limits))) as cap,
    ):
        progress("fio inside the limits")
        found = _direct(file, cap, limits, seconds)
        progress("fio inside the limits, through the page cache")
        return found + _buffered(file, cap, limits, seconds)


def bare_rates(
    folder: Path, *, progress: Progress = lambda text: None
) -> dict[str, float]:
    """Measure the device without limits; return its rates by the names of `Check`."""
    with own_file(folder, _LEAST_BYTES * 2, smaller="", progress=progress) as file:
        progress("fio on the bare device")
        return {
            check.name: check.measured for check in _direct(file, None, (), _BARE_S)
        }


def fitting_factor(disk_class: DiskClass, bare: dict[str, float]) -> int:
    """Return the least power of two to divide a class by, so that this device emulates
    it with 10 % to spare."""
    limits = [IoLimit("", disk_class.read_iops, disk_class.read_bytes_per_s)]
    wanted = {
        name: expected(limits, block)
        for name, block in (("randread_4k_iops", 4096), ("randread_512_iops", 512))
    }
    wanted["seqread_bytes_per_s"] = disk_class.read_bytes_per_s or math.inf
    most = max(
        (rate / bare[name] for name, rate in wanted.items() if math.isfinite(rate)),
        default=1.0,
    )
    return 1 if most <= 1.0 else 1 << math.ceil(math.log2(most * 1.1))


def resolve_class(
    text: str, folder: Path, *, progress: Progress = lambda text: None
) -> DiskClass:
    """Return `aws-nvme/16` as a class; for `aws-nvme/auto` measure the device and
    divide by the factor that fits. Raises InputError: the class is unknown, or
    `none`."""
    name, _, factor = text.partition("/")
    found = parse_disk_class(name if factor == AUTO else text)
    if found is None:
        raise InputError(
            "disk class is none, which limits nothing",
            "name a class of `outcore ssd list`",
        )
    if factor != AUTO:
        return found
    least = fitting_factor(found, bare_rates(folder, progress=progress))
    progress(f"{name} is divided by {least}")
    return found if least == 1 else found.divided(least)


def verified(
    isolation: Isolation,
    disk_class: DiskClass,
    device: BlockDevice,
    folder: Path,
    cache: Path | None,
    *,
    progress: Progress = lambda text: None,
) -> list[Check]:
    """Return the checks of a class on a device, at most an hour old and each within 3
    %.

    Args:
        isolation: backend that enforces the limits.
        folder: folder on the device, for the temporary file.
        cache: folder of kept checks; None keeps none.

    Raises:
        HostError: the device is slower than the class (the fix has the factor that
            fits), or the limits do not hold.
    """
    limits = disk_class.limits(device)
    key = digest_of(
        [
            device.drive,
            device.numbers,
            device.model,
            isolation.name,
            [asdict(limit) for limit in limits],
        ]
    )
    kept = Cache(cache).get("emulate", key, MAX_AGE_S) if cache else None
    try:
        checks = [Check(**check) for check in (kept or {})["checks"]]
    except (KeyError, TypeError):  # missing or damaged
        checks = verify(isolation, limits, folder, progress=progress)
        if cache and not problem(checks):
            plain = {
                "measured_at": time.time(),
                "checks": [asdict(check) for check in checks],
            }
            Cache(cache).put("emulate", key, plain)
    if message := problem(checks):
        fix = "run it on a quiet device"
        if any(check.error < -TOLERANCE for check in checks):
            whole = parse_disk_class(disk_class.name.partition("/")[0]) or disk_class
            factor = fitting_factor(whole, bare_rates(folder, progress=progress))
            if factor > disk_class.divided_by:
                fix = f"this device is slower than the class: use {whole.name}/{factor}"
        raise HostError(
            f"{disk_class.name} is not what fio finds inside its limits: {message}", fix
        )
    return checks


def problem(checks: Sequence[Check]) -> str:
    """Describe the rates further than 3 % from their limit; empty without any. Buffered
    reads may be slower."""
    wrong = []
    for check in checks:
        low = -math.inf if check.name.startswith("buffered") else -TOLERANCE
        if math.isfinite(check.allowed) and not low <= check.error <= TOLERANCE:
            wrong.append(
                f"{check.name} {check.measured:,.0f} of {check.allowed:,.0f} "
                f"({check.error:+.1%})"
            )
    return "; ".join(wrong)


def _direct(
    file: Path, cap: Cap | None, limits: Sequence[IoLimit], seconds: float
) -> list[Check]:
    shared: dict[str, Any] = {
        "file": file,
        "seconds": seconds,
        "ramp_seconds": _RAMP_S,
        "exact_latency": False,
    }
    checks = []
    for name, (size, depth, pattern) in _JOBS.items():
        job = FioJob(
            block_bytes=size,
            depth=shallow(size, depth, limits, seconds),
            pattern=pattern,
            **shared,
        )
        factor = size if name.endswith("bytes_per_s") else 1
        # One fio per job, so that the limiter's debt of one job does not slow the next.
        checks.append(
            Check(
                name,
                run_fio([job], cap)[0].iops * factor,
                expected(limits, size) * factor,
            )
        )
    return checks


def _buffered(
    file: Path, cap: Cap, limits: Sequence[IoLimit], seconds: float
) -> list[Check]:
    job = FioJob(
        file=file,
        block_bytes=4096,
        depth=1,
        threads=32,
        engine="psync",
        direct=False,
        seconds=seconds,
    )
    counted: list[tuple[float, int]] = []
    with ThreadPoolExecutor(1) as beside:
        fio = beside.submit(run_fio, [job], cap)
        while not fio.done():
            if (now := cap.io()) is not None:
                counted.append((time.monotonic(), now.read_requests))
            time.sleep(_LOOK_S)
        fio.result()
    reads = rate(counted)
    return (
        []
        if reads is None
        else [Check("buffered_reads_per_s", reads, expected(limits, 4096))]
    )


def rate(counted: Sequence[tuple[float, int]]) -> float | None:
    """Return a counter's growth per second, from samples (seconds, count) in order of
    time; None from too few samples. The straight line through the middle eight tenths
    of the growth excludes the start and end of the process and the limiter's first
    slice, and absorbs a late sample."""
    grew = [at for at in range(1, len(counted)) if counted[at][1] > counted[at - 1][1]]
    if not grew:
        return None
    first = counted[grew[0]][0]
    last = counted[grew[-1]][0]
    edge = 0.1 * (last - first)
    middle = [
        (when, count) for when, count in counted if first + edge <= when <= last - edge
    ]
    if len(middle) < _LEAST_LOOKS:
        return None
    return linear_regression(*zip(*middle, strict=True)).slope


def caller(user: str | None) -> pwd.struct_passwd | None:
    """Return the user that runs the command: `user` (name or uid), else the caller of
    sudo or pkexec. None where this process is not root, where `user` is root, and where
    root logged in directly (as in a container) and gave no user: there is no privilege
    to drop, or nobody to drop it to. Raises InputError: the user does not exist."""
    if os.geteuid() != 0:
        return None
    user = user or os.environ.get("SUDO_UID") or os.environ.get("PKEXEC_UID")
    if not user:
        return None
    try:
        entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError as error:
        if user.isdigit():
            return pwd.struct_passwd(
                (
                    user,
                    "x",
                    int(user),
                    int(os.environ.get("SUDO_GID", user)),
                    "",
                    "/",
                    "",
                )
            )
        raise InputError(
            f"there is no user {user!r}", "name one of this host, by name or number"
        ) from error
    return entry if entry.pw_uid else None


def run_limited(
    isolation: Isolation,
    limits: Sequence[IoLimit],
    command: Sequence[str],
    who: pwd.struct_passwd | None,
) -> int:
    """Run a command inside the limits on this process's own streams; return its exit
    status: 128 + n after signal n, 127 with a message where the command cannot be
    started.

    Args:
        isolation, limits: backend, and the limits that it enforces.
        who: user to run as; None keeps the present user.
    """
    with isolation.create("ssd-emulate", Limits(None, tuple(limits))) as cap:
        return _run_as(who, command, cap.command, dict(os.environ))


def run_in_memory(
    nbytes: int, command: Sequence[str], who: pwd.struct_passwd | None
) -> int:
    """Run a command beside a drive in memory, on which its datasets lie: the variable
    `OUTCORE_DATA` names a folder there. Return its exit status as `run_limited` does.

    Args:
        nbytes: size of the drive.
        who: user to run as, who owns the drive; None keeps the present user.
    """
    with memory_drive(nbytes) as drive:
        data = drive / "data"
        data.mkdir()
        if who is not None:
            os.chown(data, who.pw_uid, who.pw_gid)
        return _run_as(who, command, list, {**os.environ, "OUTCORE_DATA": str(data)})


def _run_as(
    who: pwd.struct_passwd | None,
    command: Sequence[str],
    inside: Callable[[list[str]], list[str]],
    environment: dict[str, str],
) -> int:
    """Run a command as a user, `inside` a cap's command where there is one."""
    become = str(Path(__file__).parent / "programs" / "become.py")
    identity = ["-", "-", "-"]
    if who is not None:
        identity = [str(who.pw_uid), str(who.pw_gid), who.pw_name]
        environment |= {"HOME": who.pw_dir, "USER": who.pw_name, "LOGNAME": who.pw_name}
    wrapped = [sys.executable, "-S", "-E", become, *identity, "--", *command]
    child = subprocess.Popen(inside(wrapped), env=environment)
    # Ctrl-C is for the command; this process stays to remove the cap and the drive.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return 128 - status if status < 0 else status
