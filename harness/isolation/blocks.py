"""Block devices of the host: their layers, so that no read is counted twice, and the
disks whose reads count."""

from __future__ import annotations

import os
from pathlib import Path

from harness.isolation.files import read_text
from harness.isolation.mounts import IN_MEMORY, mount_of

_NO_DISKS = ("loop", "ram", "zram", "sr", "fd")


def disks(sys: Path = Path("/sys")) -> list[Path]:
    """Return the /sys folders of the host's disks, without memory, removable media and
    loops, except loops of files in memory."""
    return sorted(
        disk
        for disk in (sys / "block").iterdir()
        if not disk.name.startswith(_NO_DISKS) or _is_memory_drive(disk)
    )


def _is_memory_drive(disk: Path) -> bool:
    """Return whether a device is a loop whose file is in memory."""
    backing = disk / "loop/backing_file"
    if not backing.exists():
        return False
    file = Path(read_text(backing).strip())
    return file.exists() and mount_of(file).kind in IN_MEMORY


def layer_below(folder: Path) -> list[str]:
    """Return `major:minor` of the devices below the block device at /sys `folder`;
    empty for a disk."""
    if (folder / "loop/backing_file").exists():
        # The file may be deleted or in another mount namespace: then only the loop is
        # known.
        file = Path(read_text(folder / "loop/backing_file").strip())
        try:
            made = file.stat()
        except OSError:
            return []
        # A loop may also be attached to a block device.
        number = made.st_rdev if file.is_block_device() else made.st_dev
        return [f"{os.major(number)}:{os.minor(number)}"]
    if (folder / "partition").exists():
        return [read_text(folder.parent / "dev").strip()]
    slaves = (
        sorted((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    )
    return [read_text(slave / "dev").strip() for slave in slaves]


def chain(number: str, sys: Path = Path("/sys")) -> list[Path]:
    """Return the /sys folders of the block device `major:minor` and of all devices
    below it, each after its upper."""
    link = sys / "dev/block" / number
    if not link.exists():
        return []
    found = [link.resolve()]
    for below in layer_below(found[0]):
        found += [folder for folder in chain(below, sys) if folder not in found]
    return found


def whole_disks(number: str, sys: Path = Path("/sys")) -> list[Path]:
    """Return the /sys folders of the disks under `major:minor`: of a partition its
    disk, of a volume or an array its members, of a loop the disk of its file; the
    device itself where nothing is known below it."""
    known = sys / "dev/block"
    return [
        disk
        for disk in chain(number, sys)
        if not any((known / below).exists() for below in layer_below(disk))
    ]


def is_stacked(number: str, sys: Path = Path("/sys")) -> bool:
    """Return whether a block device keeps its data on another device, whose counters
    repeat its reads."""
    link = sys / "dev/block" / number
    if not link.exists():
        return False
    folder = link.resolve()
    return bool(layer_below(folder)) and not _is_memory_drive(folder)
