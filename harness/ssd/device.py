"""The block device under a path: through partitions, volumes and overlays down to the disk that can be limited."""

from __future__ import annotations

import mmap
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.isolation.blocks import layer_below
from harness.isolation.files import read_text
from harness.isolation.mounts import Mount, mount_of

_LAYERED = ("overlay", "fuse.fuse-overlayfs")


@dataclass(frozen=True)
class BlockDevice:
    """Disk under a path.

    Attributes:
        name: kernel name of the whole disk (`nvme0n1`), empty where the file system has none (tmpfs, network).
        number: `major:minor` of the whole disk, which limits apply to.
        numbers: `major:minor` of every disk under the path; several for a volume or an array.
        holder: `major:minor` of the device that the file system is on (a partition, a volume, a loop).
        page_cached: loop devices above the disk that read their file through the page cache.
    """

    name: str
    number: str
    numbers: tuple[str, ...]
    holder: str
    model: str
    file_system: str
    mount_options: str
    logical_block_bytes: int
    physical_block_bytes: int
    scheduler: str
    read_ahead_kib: int
    rotational: bool
    size_bytes: int
    max_request_kib: int
    page_cached: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for the run record."""
        return asdict(self) | {"numbers": list(self.numbers), "page_cached": list(self.page_cached)}


def block_device(path: Path, sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> BlockDevice:
    """Return the disk under `path`."""
    mount = mount_of(path, proc)
    if mount.kind in _LAYERED and mount.upper and Path(mount.upper).is_dir():
        lower = mount_of(Path(mount.upper), proc)
        mount = replace(lower, kind=f"{mount.kind} on {lower.kind}", options=mount.options)
    holder = mount.device
    if holder.startswith("0:") and Path(mount.source).is_block_device():
        # btrfs and some others show an anonymous device, for the file as well; the mount's source is the real one.
        number = Path(mount.source).stat().st_rdev
        holder = f"{os.major(number)}:{os.minor(number)}"
    found = [_whole_disks(member, sys) for member in _members(mount, sys) or [holder]]
    disks = list(dict.fromkeys(disk for own, _ in found for disk in own))
    page_cached = [loop for _, own in found for loop in own]
    numbers = tuple(first_text(disk, "dev") for disk in disks)

    def read(name: str, default: str = "0") -> str:
        return (first_text(disks[0] / "queue", name) if disks else "") or default

    scheduler = read("scheduler", "")
    return BlockDevice(
        name=disks[0].name if disks else "",
        number=numbers[0] if numbers else "",
        numbers=numbers,
        holder=holder,
        model=_model(disks[0]) if disks else "",
        file_system=mount.kind,
        mount_options=mount.options,
        logical_block_bytes=int(read("logical_block_size", "512")),
        physical_block_bytes=int(read("physical_block_size", "512")),
        scheduler=scheduler[scheduler.find("[") + 1 : scheduler.find("]")] if "[" in scheduler else scheduler,
        read_ahead_kib=int(read("read_ahead_kb")),
        rotational=read("rotational") == "1",
        size_bytes=int(first_text(disks[0], "size")) * 512 if disks else 0,
        max_request_kib=int(read("max_sectors_kb")),
        page_cached=tuple(page_cached),
    )


def direct_block_bytes(path: Path) -> int | None:
    """Return the smallest aligned O_DIRECT read at `path` (a file of 64 KiB or more), None where it is refused. Found
    by reading: device and file system both round, so the device's logical block size alone does not suffice."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with mmap.mmap(-1, 1 << 16) as buffer:
            for block in (512, 1024, 2048, 4096, 8192, 16384):
                try:
                    if os.preadv(fd, [memoryview(buffer)[:block]], block) == block:
                        return block
                except OSError:
                    continue
        return None
    finally:
        os.close(fd)


def _members(mount: Mount, sys: Path) -> list[str]:
    """Return `major:minor` of the devices of a btrfs; empty for other file systems, which have one."""
    folders = (sys / "fs/btrfs").glob("*/devices") if mount.kind.endswith("btrfs") else ()
    name = Path(mount.source).resolve().name
    return [
        first_text(member, "dev")
        for folder in folders
        if (folder / name).exists()
        for member in sorted(folder.iterdir())
    ]


def _whole_disks(number: str, sys: Path) -> tuple[list[Path], list[str]]:
    """Return /sys folders of the whole disks under `major:minor`, and loops above them that read through the page
    cache. A partition leads to its disk, a volume or an array to its members, a loop to the disk of its file."""
    link = sys / "dev/block" / number
    if not link.exists():
        return [], []
    folder = link.resolve()
    found: list[Path] = []
    cached: list[str] = []
    for below in layer_below(folder):
        disks, loops = _whole_disks(below, sys)
        found += [disk for disk in disks if disk not in found]
        cached += loops
    if (folder / "loop/dio").exists() and read_text(folder / "loop/dio").strip() != "1":
        cached.append(folder.name)
    return found or [folder], cached


def _model(disk: Path) -> str:
    """Return the model of a disk; never its serial number."""
    if text := first_text(disk, "device/model", "dm/name", "md/level"):
        return text
    driver = disk / "device/driver"
    return driver.resolve().name if driver.exists() else ""


def first_text(folder: Path, *names: str) -> str:
    """Return the text of the first of these files that has one; empty without any."""
    texts = (read_text(folder / name).strip().strip("\0") for name in names)
    return next((text for text in texts if text), "")
