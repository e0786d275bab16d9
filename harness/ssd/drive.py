"""Saved profile of a drive: identity, condition, every point measured by fio; written
whole or not at all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from harness.atomic import whole_file
from harness.ssd.device import Identity
from harness.ssd.fio import SteadyState
from systems.readings import DiskPoint, DiskProfile
from workloads.errors import InputError

SCHEMA = 2  # 2: the identity of the drive
FOLDER = "ssd"
Mode = Literal["quick", "full"]


class Point(BaseModel, extra="forbid"):
    """One fio job: `depth` is per thread; engine `sync` means read calls, `async`
    io_uring or libaio. `latency_s`: percentile -> completion latency.
    `cpu_s_per_request`: processor seconds on fio's own threads."""

    pattern: Literal["random", "sequential"]
    block_bytes: int
    depth: int
    threads: int = 1
    engine: Literal["sync", "async"] = "async"
    direct: bool = True
    write_percent: int = 0
    iops: float
    bytes_per_s: float
    write_iops: float = 0.0
    requests: int = 0
    seconds: float = 0.0
    mean_latency_s: float = 0.0
    latency_s: dict[str, float] = Field(default_factory=dict)
    cpu_s_per_request: float = 0.0

    @property
    def in_flight(self) -> int:
        """Requests in flight over all threads."""
        return self.depth * self.threads

    @property
    def reads_directly(self) -> bool:
        """Whether the job only read, past the page cache."""
        return self.direct and not self.write_percent


class Condition(BaseModel, extra="forbid"):
    """State of the drive while it was measured.

    Attributes:
        fill: used share of the file system.
        file_bytes: size of the file that was read.
        preconditioned, precondition_bytes: whether random 4 KiB writes came before the
            reads, and their bytes.
        discard: whether the file system reports free blocks to the drive (mount option
            `discard`).
        health, health_after, health_missing: `smart.health` before and after, and the
            reason where there is none.
    """

    fill: float
    file_bytes: int
    preconditioned: bool = False
    precondition_bytes: int = 0
    discard: bool = False
    steady: SteadyState | None = None
    health: dict[str, Any] = Field(default_factory=dict)
    health_after: dict[str, Any] = Field(default_factory=dict)
    health_missing: str = ""


class Drive(BaseModel, extra="forbid", populate_by_name=True):
    """One profile of `outcore ssd profile`.

    Attributes:
        disk_class: emulated class, like `aws-nvme/16`; empty for the bare device.
        host_label: operator's label of the host in a fleet; empty without one.
        seconds: duration of the profile, resumed parts included.
        fio: version and asynchronous engine of fio.
    """

    schema_version: int = Field(default=SCHEMA, alias="schema")
    name: str
    mode: Mode
    disk_class: str = ""
    host_label: str = ""
    measured_at: str = ""
    seconds: float = 0.0
    fio: str = ""
    identity: Identity
    condition: Condition
    points: list[Point] = Field(default_factory=list)

    def disk_profile(self) -> DiskProfile:
        """Return the direct asynchronous reads as the profile that runs and predictions
        use."""
        points = tuple(
            DiskPoint(p.block_bytes, p.depth, p.iops, p.bytes_per_s, p.pattern)
            for p in self.points
            if p.reads_directly and p.engine == "async"
        )
        return DiskProfile(points, self.identity.logical_block_bytes, self.fio)

    def best(self, block_bytes: int, pattern: str = "random") -> Point | None:
        """Return the fastest direct read point of a block size and pattern; None
        without any."""
        kind = (block_bytes, pattern)
        found = (
            p
            for p in self.points
            if (p.block_bytes, p.pattern) == kind and p.reads_directly
        )
        return max(found, key=lambda p: p.iops, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return plain data with the keys of the file."""
        # Versions that know no labels read profiles without one.
        unlabelled = set() if self.host_label else {"host_label"}
        return self.model_dump(mode="json", by_alias=True, exclude=unlabelled)


def drive_path(results_root: Path, name: str) -> Path:
    """Return the path of a profile by its name."""
    return Path(results_root) / FOLDER / f"{slug(name)}.json"


def slug(name: str) -> str:
    """Return a name as a file name: `aws-nvme/16` as `aws-nvme-16`. Raises InputError:
    no character of the name is usable."""
    text = re.sub(r"[^A-Za-z0-9._+]+", "-", name).strip("-.")[:80]
    if not text:
        raise InputError(
            f"profile name is {name!r}", "give letters and digits, like --name my-drive"
        )
    return text


def save_drive(results_root: Path, drive: Drive) -> Path:
    """Write a profile whole or not at all; return its path. Raises DataIOError: no
    space or no permission."""
    out = drive_path(results_root, drive.name)
    with whole_file(out, "the profile") as partial:
        partial.write_text(json.dumps(drive.to_json(), indent=1) + "\n")
    return out


def read_drive(path: Path) -> Drive:
    """Read a profile, made on this host or another. Raises InputError: the file is
    missing, damaged, or of a newer schema."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fix = "make one with `outcore ssd profile`"
        if isinstance(error, OSError):
            raise InputError.from_os(error, f"{path} cannot be read", fix) from error
        raise InputError(f"{path} is not a drive profile", fix) from error
    made_by = content.get("schema") if isinstance(content, dict) else None
    if isinstance(made_by, int) and made_by > SCHEMA:
        raise InputError(
            f"{path} has schema {made_by}, newer than this Outcore knows",
            "update Outcore",
        )
    try:
        return Drive.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise InputError(
            f"{path} is not a drive profile ({where}: {first['msg']})", "make it anew"
        ) from error


def saved_drives(results_root: Path) -> tuple[list[Drive], list[str]]:
    """Return (profiles of a results root, sorted by file name; messages for unreadable
    files)."""
    drives = []
    bad = []
    for path in sorted((Path(results_root) / FOLDER).glob("*.json")):
        try:
            drives.append(read_drive(path))
        except InputError as error:
            bad.append(error.message)
    return drives, bad
