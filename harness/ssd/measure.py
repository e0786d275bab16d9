"""Quick or full profile of a drive: its points, one fio job each, saved at once, so
that a stopped profile resumes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from harness.atomic import whole_file
from harness.isolation import select, sweep_all
from harness.isolation.base import IoLimit, Isolation, Limits
from harness.progress import tracked
from harness.ssd.classes import DiskClass
from harness.ssd.device import Identity, direct_block_bytes, identify
from harness.ssd.drive import (
    FOLDER,
    Condition,
    Drive,
    Mode,
    Point,
    drive_path,
    read_drive,
    save_drive,
    slug,
)
from harness.ssd.fio import (
    FioJob,
    FioResult,
    SteadyRule,
    SteadyState,
    fio_path,
    fio_tool,
    run_fio,
)
from harness.ssd.profile import LIMITED_RAMP_S, shallow
from harness.ssd.smart import health
from harness.ssd.testfile import check_folder, one_at_a_time, own_file
from workloads.errors import HostError, InputError

# A stopped profile older than this says little about the drive's present state.
RESUME_S = 24 * 3600.0
# Longest preconditioning in seconds; it ends earlier once its rate is steady.
_PRECONDITION_S: dict[Mode, float] = {"quick": 15.0, "full": 120.0}
KIB = 1 << 10
FILE_BYTES: dict[Mode, int] = {"quick": 1 << 30, "full": 4 << 30}
POINT_S: dict[Mode, float] = {"quick": 0.8, "full": 2.5}
STEADY_S: dict[Mode, float] = {"quick": 8.0, "full": 60.0}
STEADY_WITHIN = 0.1
_RAMP_S = 0.2
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)
# Fields of a point with the names that they have in the job and in its result.
_OF_JOB = ("pattern", "block_bytes", "depth", "threads", "direct", "write_percent")
_OF_RESULT = (
    "iops",
    "bytes_per_s",
    "write_iops",
    "requests",
    "seconds",
    "mean_latency_s",
)

_ALL_DEPTHS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
_ALL_BLOCKS = [512, 1 * KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB]

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """Settings of `ssd profile`.

    Attributes:
        folder: folder on the drive, for the test file.
        name: name to save the profile under; None: from the model and the class.
        disk_class: class whose limits apply; None for the bare device.
        file_bytes, seconds: size of the test file and duration of a point; None: by the
            mode.
        fresh: whether to ignore a stopped profile.
        host_label: operator's label of this host in a fleet; empty without one.
    """

    folder: Path
    mode: Mode = "quick"
    name: str | None = None
    disk_class: DiskClass | None = None
    file_bytes: int | None = None
    seconds: float | None = None
    precondition: bool = False
    serial: bool = False
    fresh: bool = False
    host_label: str = ""

    @property
    def size(self) -> int:
        """Bytes of the test file."""
        return self.file_bytes or FILE_BYTES[self.mode]

    @property
    def point_s(self) -> float:
        """Seconds of a point."""
        return self.seconds or POINT_S[self.mode]

    def settings(self, identity: Identity) -> dict[str, Any]:
        """Return all that a stopped profile must agree in to be resumed."""
        return {
            "mode": self.mode,
            "class": self.disk_class.name if self.disk_class else "",
            "file_bytes": self.size,
            "seconds": self.point_s,
            "precondition": self.precondition,
            "drive": identity.drive,
            "model": identity.model,
            "capacity_bytes": identity.capacity_bytes,
            "name": identity.name,
            "fio": fio_tool(),
        }


class _Part(BaseModel, extra="forbid"):
    """Profile in progress; it is resumed only where `settings` agree."""

    settings: dict[str, Any]
    saved_at: float = 0.0
    seconds: float = 0.0
    precondition_bytes: int = 0
    steady: SteadyState | None = None
    points: dict[str, Point] = Field(default_factory=dict)

    @property
    def is_recent(self) -> bool:
        """Whether it was saved less than `RESUME_S` ago."""
        return 0 <= time.time() - self.saved_at < RESUME_S

    def keep(self, path: Path) -> None:
        """Write the profile in progress."""
        self.saved_at = time.time()
        with whole_file(path, "the profile") as partial:
            partial.write_text(json.dumps(self.model_dump(mode="json")))


def measure(
    wanted: Wanted, results_root: Path, progress: Progress = lambda text: None
) -> tuple[Drive, Path]:
    """Profile the drive under a folder and save the profile; return it and its path.

    Raises:
        InputError: the folder is missing or cannot be written, or the name belongs to
            another drive's profile.
        HostError: no drive under the folder, no space, fio missing or failing, the
            class cannot be enforced, or another profile of the device is in progress.
    """
    device = check_folder(wanted.folder)
    if fio_path() is None:
        run_fio([])  # raises
    identity = identify(wanted.folder, serial=wanted.serial, device=device)
    name = profile_name(wanted, results_root, identity)
    limits = wanted.disk_class.limits(device) if wanted.disk_class else ()
    with one_at_a_time(device), ExitStack() as stack:
        cap = (
            stack.enter_context(limiting().create("ssd-profile", Limits(None, limits)))
            if limits
            else None
        )
        part_path = _part_path(results_root, name)
        part = _part(part_path, wanted, identity, progress)
        before, missing = health(device.name)
        began = time.monotonic()
        with own_file(wanted.folder, wanted.size, progress=progress) as file:
            if wanted.precondition and not part.precondition_bytes:
                part.precondition_bytes = precondition(wanted, file, progress)
            part.seconds += time.monotonic() - began
            least = direct_block_bytes(file) or 4096
            jobs = profile_jobs(wanted.mode, file, least, wanted.point_s, limits)
            left = [job for job in jobs if key_of(job) not in part.points]
            todo = [job for job in left if not job.write_percent]
            todo += (
                [steady_job(wanted.mode, file, wanted.point_s)]
                if part.steady is None
                else []
            )
            todo += [job for job in left if job.write_percent]
            for job in tracked(progress, todo, "measuring", "points", words):
                began = time.monotonic()
                result = run_fio([job], cap)[0]
                part.seconds += time.monotonic() - began
                if job.steady:
                    part.steady = result.steady
                else:
                    part.points[key_of(job)] = point_of(result)
                part.keep(part_path)
        usage = shutil.disk_usage(wanted.folder)
        drive = Drive(
            name=name,
            mode=wanted.mode,
            disk_class=wanted.disk_class.name if wanted.disk_class else "",
            host_label=wanted.host_label,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=part.seconds,
            fio=fio_tool(),
            identity=identity,
            condition=Condition(
                fill=usage.used / usage.total if usage.total else 0.0,
                file_bytes=wanted.size,
                preconditioned=bool(part.precondition_bytes),
                precondition_bytes=part.precondition_bytes,
                discard="discard" in identity.mount_options.split(","),
                steady=part.steady,
                health=before,
                health_after=health(device.name)[0],
                health_missing=missing,
            ),
            points=list(part.points.values()),
        )
        path = save_drive(results_root, drive)
        part_path.unlink(missing_ok=True)
        return drive, path


def profile_name(wanted: Wanted, results_root: Path, identity: Identity) -> str:
    """Return the name to save a profile under: without `--name` that of the class or
    the model, with the beginning of the drive's identity where another drive has that
    name. Raises InputError: `--name` is that of another drive."""
    if wanted.name:
        if other := _other_drive(results_root, wanted.name, identity):
            raise InputError(
                f"{wanted.name} is the profile of another drive ({other})",
                "give this one another --name",
            )
        return wanted.name
    # A virtual disk has no model of its own, so the kernel's name goes with it.
    model = identity.model or "disk"
    own = model if identity.firmware or identity.vendor else f"{model}-{identity.name}"
    name = wanted.disk_class.name if wanted.disk_class else own
    return (
        f"{name}-{identity.drive[:6]}"
        if _other_drive(results_root, name, identity)
        else name
    )


def _other_drive(results_root: Path, name: str, identity: Identity) -> str:
    """Return in words the drive whose profile, finished or stopped, has a name; empty
    where it is this one or none."""
    try:
        other = read_drive(drive_path(results_root, name)).identity
    except InputError:
        return _stopped_drive(results_root, name, identity)  # missing or damaged
    model = other.model or other.name
    if not other.drive and other.model == identity.model:
        return f"{model}, of an older version that did not record which"
    return "" if other.drive == identity.drive else model


def _stopped_drive(results_root: Path, name: str, identity: Identity) -> str:
    """Return in words the drive of a stopped profile that can still be resumed; empty
    where it is this one or none."""
    try:
        part = _Part.model_validate_json(_part_path(results_root, name).read_text())
    except (OSError, ValueError):
        return ""
    model = part.settings.get("model")
    drive = part.settings.get("drive")
    same = not drive or drive == identity.drive
    return "" if same or not part.is_recent else f"{model}, stopped before its end"


def _part_path(results_root: Path, name: str) -> Path:
    return results_root / FOLDER / f"{slug(name)}.part"


def limiting() -> Isolation:
    """Return a backend that can limit devices here; remove leftovers of killed
    processes first. Raises HostError: no backend of this host limits devices."""
    sweep_all()
    chosen = select()
    if not chosen.availability.io_limits:
        reason = (
            chosen.availability.reason or f"{chosen.backend.name} limits no devices"
        )
        raise HostError(
            f"no device can be limited here: {reason}",
            "run as root on a host with blkio or io cgroups",
        )
    return chosen.backend


def precondition(wanted: Wanted, file: Path, progress: Progress) -> int:
    """Write random 4 KiB blocks over the file until the rate is steady or the time is
    up; return the bytes written."""
    progress("preconditioning: random 4 KiB writes over the file")
    rule = steady_job(wanted.mode, file, wanted.point_s).steady
    longest = _PRECONDITION_S[wanted.mode] * min(
        1.0, wanted.point_s / POINT_S[wanted.mode]
    )
    job = FioJob(
        file=file,
        block_bytes=4096,
        depth=32,
        seconds=max(3.0, longest),
        write_percent=100,
        steady=rule,
    )
    return run_fio([job])[0].bytes_read


def _part(path: Path, wanted: Wanted, identity: Identity, progress: Progress) -> _Part:
    """Return the stopped profile with the same settings, else an empty one."""
    empty = _Part(settings=wanted.settings(identity))
    try:
        found = (
            empty
            if wanted.fresh
            else _Part.model_validate_json(path.read_text(encoding="utf-8"))
        )
    except (OSError, ValueError):
        return empty
    if found.settings != empty.settings or not found.is_recent:
        return empty
    # The file that was preconditioned no longer exists.
    found.precondition_bytes = 0
    progress(
        f"going on with a stopped profile: {len(found.points)} points are measured"
    )
    return found


def profile_jobs(
    mode: Mode, file: Path, least: int, seconds: float, limits: Sequence[IoLimit] = ()
) -> list[FioJob]:
    """Return the jobs of a profile in order; mixed ones, which write to the file, come
    last.

    Args:
        file: file to read.
        least: smallest block that direct I/O takes; smaller sizes are raised to it.
        seconds: duration of a point.
        limits: limits of an emulated class; low ones reduce the depth
            (`profile.shallow`), and equal points merge.
    """
    ramp = LIMITED_RAMP_S if limits else _RAMP_S
    shared: dict[str, Any] = {"file": file, "seconds": seconds, "ramp_seconds": ramp}
    unique = {}
    for point in _points(mode):
        job = FioJob(**{**shared, **point})
        size = max(job.block_bytes, least)
        depth = (
            shallow(size, job.depth, limits, seconds)
            if limits and job.engine != "psync"
            else job.depth
        )
        held = job.model_copy(update={"block_bytes": size, "depth": depth})
        unique[key_of(held)] = held
    return list(unique.values())


def steady_job(mode: Mode, file: Path, seconds: float) -> FioJob:
    """Return a job of random 4 KiB reads until the rate is steady; shorter where points
    are shorter than the mode's."""
    longest = max(3.0, STEADY_S[mode] * min(1.0, seconds / POINT_S[mode]))
    rule = SteadyRule(
        within=STEADY_WITHIN,
        seconds=max(2, round(longest / 3)),
        ramp_seconds=1 if longest > 4 else 0,
    )
    return FioJob(
        file=file,
        block_bytes=4 * KIB,
        depth=64,
        seconds=longest,
        steady=rule,
        exact_latency=False,
    )


def key_of(job: FioJob) -> str:
    """Return a key that identifies a point within a profile."""
    calls = "sync" if job.engine == "psync" else "async"
    cache = "direct" if job.direct else "buffered"
    load = f"{job.pattern}:{job.block_bytes}:{job.depth}:{job.threads}"
    return f"{load}:{calls}:{cache}:{job.write_percent}"


def point_of(result: FioResult) -> Point:
    """Convert an fio result to a saved point."""
    job = result.job
    return Point(
        **job.model_dump(include=set(_OF_JOB)),
        **{name: getattr(result, name) for name in _OF_RESULT},
        engine="sync" if job.engine == "psync" else "async",
        latency_s={
            f"{share:g}": result.latency_s[share]
            for share in PERCENTILES
            if share in result.latency_s
        },
        cpu_s_per_request=result.cpu_seconds_per_request,
    )


def words(job: FioJob) -> str:
    """Describe a point in words, for progress messages."""
    if job.steady:
        return "until the rate is steady"
    how = f"{job.threads} threads" if job.engine == "psync" else f"depth {job.depth}"
    mixed = f", {job.write_percent} % writes" if job.write_percent else ""
    size = (
        f"{job.block_bytes} B"
        if job.block_bytes < KIB
        else f"{job.block_bytes // KIB} KiB"
    )
    return (
        f"{size} {job.pattern}, {how}, {'direct' if job.direct else 'buffered'}{mixed}"
    )


def _points(mode: Mode) -> list[dict[str, Any]]:
    """Return the points as settings of their jobs: random, blocking, buffered,
    sequential and mixed reads."""
    full = mode == "full"
    random = [(block, depth) for block in _ALL_BLOCKS for depth in _ALL_DEPTHS]
    if not full:
        random = [(block, 256) for block in (512, 4 * KIB, 16 * KIB, 64 * KIB)]
        random += [
            *((block, depth) for block in (512, 4 * KIB) for depth in (1, 4, 16, 64)),
            (64 * KIB, 16),
        ]
    blocking = {"block_bytes": 512, "depth": 1, "engine": "psync"}
    threads = [
        (count, direct)
        for direct in (True, False)
        for count in (_ALL_DEPTHS[:8] if full else (1, 32))
    ]
    blocks, depths = (
        ((128 * KIB, 1024 * KIB), (1, 8, 32)) if full else ((1024 * KIB,), (1, 32))
    )
    sequential = [(block, depth) for block in blocks for depth in depths]
    return [
        *({"block_bytes": block, "depth": depth} for block, depth in random),
        *(
            {**blocking, "threads": count, "direct": direct}
            for count, direct in threads
        ),
        *(
            {"block_bytes": 512, "depth": depth, "direct": False}
            for depth in (_ALL_DEPTHS if full else [1, 64])
        ),
        *(
            {"block_bytes": block, "depth": depth, "pattern": "sequential"}
            for block, depth in sequential
        ),
        *(
            {"block_bytes": 4 * KIB, "depth": 32, "write_percent": share}
            for share in ((10, 30, 50) if full else (30,))
        ),
    ]
