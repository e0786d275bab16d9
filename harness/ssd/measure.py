"""Quick or full profile of a drive: one fio job per point, each saved at once, so that a stopped profile resumes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.atomic import whole_file
from harness.isolation import select, sweep_all
from harness.isolation.base import Cap, IoLimit, Isolation, Limits
from harness.ssd import grid
from harness.ssd.classes import DiskClass
from harness.ssd.device import direct_block_bytes
from harness.ssd.drive import FOLDER, Condition, Drive, Mode, Point, drive_path, read_drive, save_drive, slug
from harness.ssd.fio import FioJob, SteadyState, fio_path, fio_tool, run_fio
from harness.ssd.identity import Identity, identify
from harness.ssd.smart import health
from harness.ssd.testfile import check_folder, one_at_a_time, own_file
from workloads.errors import HostError, InputError

# A stopped profile older than this says little about the drive's present state.
RESUME_S = 24 * 3600.0
# Longest preconditioning in seconds; it ends earlier once its rate is steady.
_PRECONDITION_S: dict[Mode, float] = {"quick": 15.0, "full": 120.0}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """Settings of `ssd profile`.

    Attributes:
        folder: folder on the drive, for the test file.
        name: name to save the profile under; None: from the model and the class.
        disk_class: class whose limits apply; None for the bare device.
        file_bytes, seconds: size of the test file and duration of a point; None: by the mode.
        fresh: whether to ignore a stopped profile.
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

    @property
    def size(self) -> int:
        """Bytes of the test file."""
        return self.file_bytes or grid.FILE_BYTES[self.mode]

    @property
    def point_s(self) -> float:
        """Seconds of a point."""
        return self.seconds or grid.POINT_S[self.mode]

    @property
    def precondition_bytes(self) -> int:
        """Bytes that preconditioning may write beside the file itself, estimated as two passes at most."""
        return 2 * self.size

    def settings(self, identity: Identity) -> dict[str, Any]:
        """Return all that a stopped profile must agree in to be resumed."""
        return {
            "mode": self.mode,
            "class": self.disk_class.name if self.disk_class else "",
            "file_bytes": self.size,
            "seconds": self.point_s,
            "precondition": self.precondition,
            "model": identity.model,
            "capacity_bytes": identity.capacity_bytes,
            "name": identity.name,
            "fio": fio_tool(),
        }


class _Part(BaseModel):
    """Profile in progress; it is resumed only where `settings` agree."""

    model_config = ConfigDict(extra="forbid")

    settings: dict[str, Any]
    saved_at: float = 0.0
    seconds: float = 0.0
    precondition_bytes: int = 0
    steady: SteadyState | None = None
    points: dict[str, Point] = Field(default_factory=dict)

    def keep(self, path: Path) -> None:
        """Write the profile in progress."""
        self.saved_at = time.time()
        with whole_file(path, "the profile") as partial:
            partial.write_text(json.dumps(self.model_dump(mode="json")))


def measure(wanted: Wanted, results_root: Path, progress: Progress = lambda text: None) -> tuple[Drive, Path]:
    """Profile the drive under a folder and save the profile; return it and its path.

    Raises:
        InputError: the folder is missing or cannot be written, or the name belongs to another drive's profile.
        HostError: no drive under the folder, no space, fio missing or failing, the class cannot be enforced, or another
            profile of the device is in progress.
    """
    device = check_folder(wanted.folder)
    if fio_path() is None:
        run_fio([])  # raises
    identity = identify(wanted.folder, serial=wanted.serial, device=device)
    # A virtual disk has no model of its own, so the kernel's name goes with it.
    model = identity.model or "disk"
    own = model if identity.firmware or identity.vendor else f"{model}-{identity.name}"
    name = wanted.name or (wanted.disk_class.name if wanted.disk_class else own)
    _check_free(results_root, name, identity)
    limits = wanted.disk_class.limits(device) if wanted.disk_class else ()
    with one_at_a_time(device), _class_cap(limits) as cap:
        part_path = results_root / FOLDER / f"{slug(name)}.part"
        part = _part(part_path, wanted, identity, progress)
        before, missing = health(device.name)
        began = time.monotonic()
        with own_file(wanted.folder, wanted.size, progress=progress) as file:
            if wanted.precondition and not part.precondition_bytes:
                part.precondition_bytes = precondition(wanted, file, progress)
            part.seconds += time.monotonic() - began
            least = direct_block_bytes(file) or 4096
            jobs = grid.jobs(wanted.mode, file, least, wanted.point_s, limits)
            left = [job for job in jobs if grid.key_of(job) not in part.points]
            todo = [job for job in left if not job.write_percent]
            todo += [grid.steady_job(wanted.mode, file, wanted.point_s)] if part.steady is None else []
            todo += [job for job in left if job.write_percent]
            done = len(jobs) - len(left)
            for job in todo:
                done += job.steady is None
                said = "waiting until the rate has settled"
                progress(said if job.steady else f"{done} of {len(jobs)}: {grid.words(job)}")
                began = time.monotonic()
                result = run_fio([job], cap)[0]
                part.seconds += time.monotonic() - began
                if job.steady:
                    part.steady = result.steady
                else:
                    part.points[grid.key_of(job)] = grid.point_of(result)
                part.keep(part_path)
        usage = shutil.disk_usage(wanted.folder)
        drive = Drive(
            name=name,
            mode=wanted.mode,
            disk_class=wanted.disk_class.name if wanted.disk_class else "",
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


def _check_free(results_root: Path, name: str, identity: Identity) -> None:
    """Refuse to replace the profile of another kind of drive."""
    path = drive_path(results_root, name)
    if not path.exists():
        return
    try:
        other = read_drive(path).identity
    except InputError:
        return  # damaged
    if not other.same_drive(identity):
        raise InputError(
            f"{path} is the profile of another drive ({other.model or other.name})", "give this one another --name"
        )


def _class_cap(limits: tuple[IoLimit, ...]) -> AbstractContextManager[Cap | None]:
    return limiting().create("ssd-profile", Limits(None, limits)) if limits else nullcontext()


def limiting() -> Isolation:
    """Return a backend that can limit devices here; remove leftovers of killed processes first. Raises HostError: no
    backend of this host limits devices."""
    sweep_all()
    chosen = select()
    if not chosen.availability.io_limits:
        reason = chosen.availability.reason or f"{chosen.backend.name} limits no devices"
        raise HostError(f"no device can be limited here: {reason}", "run as root on a host with blkio or io cgroups")
    return chosen.backend


def precondition(wanted: Wanted, file: Path, progress: Progress) -> int:
    """Write random 4 KiB blocks over the file until the rate is steady or the time is up; return the bytes written."""
    progress("preconditioning: random 4 KiB writes over the file")
    rule = grid.steady_job(wanted.mode, file, wanted.point_s).steady
    longest = _PRECONDITION_S[wanted.mode] * min(1.0, wanted.point_s / grid.POINT_S[wanted.mode])
    job = FioJob(file=file, block_bytes=4096, depth=32, seconds=max(3.0, longest), write_percent=100, steady=rule)
    return run_fio([job])[0].bytes_read


def _part(path: Path, wanted: Wanted, identity: Identity, progress: Progress) -> _Part:
    """Return the stopped profile with the same settings, else an empty one."""
    settings = wanted.settings(identity)
    empty = _Part(settings=settings)
    if wanted.fresh:
        return empty
    try:
        found = _Part.model_validate_json(path.read_text())
    except (OSError, ValidationError, ValueError):
        return empty
    if found.settings != settings or not 0 <= time.time() - found.saved_at < RESUME_S:
        return empty
    # The file that was preconditioned no longer exists.
    found.precondition_bytes = 0
    progress(f"going on with a stopped profile: {len(found.points)} points are measured")
    return found
