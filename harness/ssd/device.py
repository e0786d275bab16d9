"""The drive under a path: through partitions, volumes and overlays down to the disk
that can be limited; its model, firmware, link, queue limits and the layers above it,
without its serial number by default."""

from __future__ import annotations

import mmap
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from harness.isolation.blocks import chain, whole_disks
from harness.isolation.files import first_text
from harness.isolation.mounts import Mount, mount_of
from harness.ssd.identity import drive_key, serial_number

_LAYERED = ("overlay", "fuse.fuse-overlayfs")
# Mount options that may name folders, users or hosts.
_TELLTALE = re.compile(
    r"(\w*dir|\w*uid|\w*gid|\w*user\w*|\w*name|\w*addr|prjquota|usrquota|grpquota)="
)


@dataclass(frozen=True)
class BlockDevice:
    """Disk under a path.

    Attributes:
        name: kernel name of the whole disk (`nvme0n1`), empty where the file system has
            none (tmpfs, network).
        number: `major:minor` of the whole disk, which limits apply to.
        numbers: `major:minor` of every disk under the path; several for a volume or an
            array.
        holder: `major:minor` of the device that the file system is on (a partition, a
            volume, a loop).
        page_cached: loop devices above the disk that read their file through the page
            cache.
        drive, drive_known_by: identity of the drive, and the facts behind it, see
            `harness.ssd.identity`.
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
    drive: str = ""
    drive_known_by: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for the run record."""
        return asdict(self) | {
            "numbers": list(self.numbers),
            "page_cached": list(self.page_cached),
        }


def block_device(
    path: Path, sys: Path = Path("/sys"), proc: Path = Path("/proc")
) -> BlockDevice:
    """Return the disk under `path`."""
    mount = mount_of(path, proc)
    folder = path
    if mount.kind in _LAYERED and mount.upper and Path(mount.upper).is_dir():
        folder = Path(mount.upper)
        lower = mount_of(folder, proc)
        mount = replace(
            lower, kind=f"{mount.kind} on {lower.kind}", options=mount.options
        )
    holder = mount.device
    if holder.startswith("0:") and Path(mount.source).is_block_device():
        # btrfs and some others show an anonymous device, for the file as well; the
        # mount's source is the real one.
        number = Path(mount.source).stat().st_rdev
        holder = f"{os.major(number)}:{os.minor(number)}"
    members = _members(mount, sys) or [holder]
    disks = list(
        dict.fromkeys(disk for member in members for disk in whole_disks(member, sys))
    )
    chains = list(
        dict.fromkeys(layer for member in members for layer in chain(member, sys))
    )
    loops = [layer for layer in chains if (layer / "loop/dio").exists()]
    key = drive_key(mount, folder, chains, sys)
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
        scheduler=scheduler[scheduler.find("[") + 1 : scheduler.find("]")]
        if "[" in scheduler
        else scheduler,
        read_ahead_kib=int(read("read_ahead_kb")),
        rotational=read("rotational") == "1",
        size_bytes=int(first_text(disks[0], "size")) * 512 if disks else 0,
        max_request_kib=int(read("max_sectors_kb")),
        page_cached=tuple(
            loop.name for loop in loops if first_text(loop, "loop/dio") != "1"
        ),
        drive=key.id,
        drive_known_by=key.known_by,
    )


def direct_block_bytes(path: Path) -> int | None:
    """Return the smallest aligned O_DIRECT read at `path` (a file of 64 KiB or more),
    None where it is refused. Found by reading: device and file system both round, so
    the device's logical block size alone does not suffice."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with mmap.mmap(-1, 1 << 16) as buffer:
            for block in (512, 1024, 2048, 4096, 8192, 16384):
                with suppress(OSError):
                    if os.preadv(fd, [memoryview(buffer)[:block]], block) == block:
                        return block
        return None
    finally:
        os.close(fd)


def _members(mount: Mount, sys: Path) -> list[str]:
    """Return `major:minor` of the devices of a btrfs; empty for other file systems,
    which have one."""
    folders = (
        (sys / "fs/btrfs").glob("*/devices") if mount.kind.endswith("btrfs") else ()
    )
    name = Path(mount.source).resolve().name
    members = (
        member
        for folder in folders
        if (folder / name).exists()
        for member in sorted(folder.iterdir())
    )
    return [first_text(member, "dev") for member in members]


def _model(disk: Path) -> str:
    """Return the model of a disk; never its serial number."""
    if text := first_text(disk, "device/model", "dm/name", "md/level"):
        return text
    driver = disk / "device/driver"
    return driver.resolve().name if driver.exists() else ""


class Identity(BaseModel, extra="forbid"):
    """Drive and its attachment; empty or None where the kernel reports nothing.

    Attributes:
        layers: kernel names from the file system's own device down to the disks, each
            with its kind, like `dm-0 (LVM)`, `md0 (raid0)`, `nvme0n1p2 (partition)`,
            `nvme0n1 (disk)`.
        link: `PCIe 16.0 GT/s x4` for NVMe, `SATA 6.0 Gbps` for SATA.
        queue: limits and features of the request queue, by the kernel's names.
        drive, drive_known_by: which drive it is, without its serial number
            (`harness.ssd.identity`); empty in profiles of older versions.
        serial: serial number, only on request.
    """

    name: str
    model: str
    vendor: str = ""
    firmware: str = ""
    bus: str = ""
    link: str = ""
    capacity_bytes: int = 0
    disks: int = 1
    rotational: bool = False
    layers: list[str] = Field(default_factory=list)
    file_system: str = ""
    mount_options: str = ""
    scheduler: str = ""
    read_ahead_kib: int = 0
    logical_block_bytes: int = 512
    physical_block_bytes: int = 512
    queue: dict[str, str] = Field(default_factory=dict)
    drive: str = ""
    drive_known_by: str = ""
    serial: str | None = None


def identify(
    path: Path,
    *,
    serial: bool = False,
    sys: Path = Path("/sys"),
    proc: Path = Path("/proc"),
    device: BlockDevice | None = None,
) -> Identity:
    """Return the drive under `path`; for an array or a volume over several disks, the
    first disk's identity.

    Args:
        serial: whether to include the serial number.
        device: result of `block_device(path)`, where known.
    """
    device = device or block_device(path, sys, proc)
    disk = sys / "block" / device.name
    vendor = first_text(disk, "device/vendor")
    options = (device.mount_options or mount_of(path, proc).options).split(",")
    same = (
        "name model rotational file_system scheduler read_ahead_kib "
        "logical_block_bytes physical_block_bytes"
    ).split()
    same += ["drive", "drive_known_by"]
    return Identity(
        **{field: getattr(device, field) for field in same},
        # A virtual or PCI device has a number here, which its model already covers.
        vendor="" if vendor.startswith("0x") else vendor,
        firmware=first_text(disk, "device/firmware_rev", "device/rev"),
        bus=_bus(disk),
        link=_link(disk, sys),
        capacity_bytes=device.size_bytes,
        disks=max(1, len(device.numbers)),
        layers=layers(device.holder, sys),
        mount_options=",".join(
            dict.fromkeys(option for option in options if not _TELLTALE.match(option))
        ),
        queue=_queue(disk),
        serial=serial_number(disk) if serial else None,
    )


def layers(number: str, sys: Path = Path("/sys")) -> list[str]:
    """Return every block device from `major:minor` down to the disks, as `name
    (kind)`."""
    return [f"{folder.name} ({_kind(folder)})" for folder in chain(number, sys)]


def _kind(folder: Path) -> str:
    if (folder / "partition").exists():
        return "partition"
    if (folder / "dm").is_dir():
        # `CRYPT-LUKS2-…` and `LVM-…` begin with their kind; the rest identifies the
        # volume.
        return first_text(folder, "dm/uuid").partition("-")[0] or "device mapper"
    if (folder / "md").is_dir():
        return first_text(folder, "md/level") or "md"
    if (folder / "loop").is_dir():
        return "loop"
    return "disk"


def _bus(disk: Path) -> str:
    if not disk.exists():
        return ""
    if transport := first_text(disk, "device/transport"):
        return f"nvme ({transport})"
    kinds = {
        "nvme": "nvme",
        "ata": "sata",
        "virtio": "virtio",
        "usb": "usb",
        "host": "scsi",
        "virtual/": "virtual",
    }
    return next(
        (bus for part, bus in kinds.items() if f"/{part}" in str(disk.resolve())), ""
    )


def _link(disk: Path, sys: Path) -> str:
    speed, width = (
        first_text(disk, f"device/device/current_link_{what}")
        for what in ("speed", "width")
    )
    if speed and width:
        return f"PCIe {speed.removesuffix(' PCIe')} x{width}"
    if disk.exists() and (port := re.search(r"/ata(\d+)/", str(disk.resolve()))):
        speed = first_text(sys / "class/ata_link" / f"link{port.group(1)}", "sata_spd")
        return f"SATA {speed}" if speed and "unknown" not in speed else "SATA"
    return ""


def _queue(disk: Path) -> dict[str, str]:
    queue = disk / "queue"
    found = {
        "nr_requests": first_text(queue, "nr_requests"),
        "max_request_kib": first_text(queue, "max_sectors_kb"),
        "max_segments": first_text(queue, "max_segments"),
        "write_cache": first_text(queue, "write_cache"),
        "discard": {"": "", "0": "no"}.get(
            first_text(queue, "discard_max_bytes"), "yes"
        ),
        "hardware_queues": str(
            sum(entry.is_dir() for entry in (disk / "mq").glob("*")) or ""
        ),
        "device_depth": first_text(disk, "device/queue_depth", "device/sqsize"),
    }
    return {key: value for key, value in found.items() if value}
