"""Identity of the drive under a path: model, firmware, link, queue limits, layers above it; no serial by default."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from harness.isolation.blocks import chain
from harness.isolation.mounts import mount_of
from harness.ssd.device import BlockDevice, block_device
from harness.ssd.device import first_text as _first

# Mount options that may name folders, users or hosts.
_TELLTALE = re.compile(r"(\w*dir|\w*uid|\w*gid|\w*user\w*|\w*name|\w*addr|prjquota|usrquota|grpquota)=")


class Identity(BaseModel):
    """Drive and its attachment; empty or None where the kernel reports nothing.

    Attributes:
        layers: kernel names from the file system's own device down to the disks, each with its kind, like `dm-0 (LVM)`,
            `md0 (raid0)`, `nvme0n1p2 (partition)`, `nvme0n1 (disk)`.
        link: `PCIe 16.0 GT/s x4` for NVMe, `SATA 6.0 Gbps` for SATA.
        queue: limits and features of the request queue, by the kernel's names.
        serial: serial number, only on request.
    """

    model_config = ConfigDict(extra="forbid")

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
    serial: str | None = None

    def same_drive(self, other: Identity) -> bool:
        """Return whether `other` is a drive of the same kind: model, firmware, capacity, disks, file system."""
        keys = ("model", "firmware", "capacity_bytes", "disks", "file_system")
        return all(getattr(self, key) == getattr(other, key) for key in keys)


def identify(
    path: Path,
    *,
    serial: bool = False,
    sys: Path = Path("/sys"),
    proc: Path = Path("/proc"),
    device: BlockDevice | None = None,
) -> Identity:
    """Return the drive under `path`; for an array or a volume over several disks, the first disk's identity.

    Args:
        serial: whether to include the serial number.
        device: result of `block_device(path)`, where known.
    """
    device = device or block_device(path, sys, proc)
    disk = sys / "block" / device.name
    vendor, options = _first(disk, "device/vendor"), (device.mount_options or mount_of(path, proc).options).split(",")
    same = "name model rotational file_system scheduler read_ahead_kib logical_block_bytes physical_block_bytes".split()
    return Identity(
        **{field: getattr(device, field) for field in same},
        # A virtual or PCI device has a number here, which its model already covers.
        vendor="" if vendor.startswith("0x") else vendor,
        firmware=_first(disk, "device/firmware_rev", "device/rev"),
        bus=_bus(disk),
        link=_link(disk, sys),
        capacity_bytes=device.size_bytes,
        disks=max(1, len(device.numbers)),
        layers=layers(device.holder, sys),
        mount_options=",".join(dict.fromkeys(option for option in options if not _TELLTALE.match(option))),
        queue=_queue(disk),
        serial=_serial(disk) if serial else None,
    )


def layers(number: str, sys: Path = Path("/sys")) -> list[str]:
    """Return every block device from `major:minor` down to the disks, as `name (kind)`."""
    return [f"{folder.name} ({_kind(folder)})" for folder in chain(number, sys)]


def _kind(folder: Path) -> str:
    if (folder / "partition").exists():
        return "partition"
    if (folder / "dm").is_dir():
        # `CRYPT-LUKS2-…` and `LVM-…` begin with their kind; the rest identifies the volume.
        return _first(folder, "dm/uuid").partition("-")[0] or "device mapper"
    if (folder / "md").is_dir():
        return _first(folder, "md/level") or "md"
    if (folder / "loop").is_dir():
        return "loop"
    return "disk"


def _bus(disk: Path) -> str:
    if not disk.exists():
        return ""
    if transport := _first(disk, "device/transport"):
        return f"nvme ({transport})"
    real = str(disk.resolve())
    for part, bus in (("/nvme", "nvme"), ("/ata", "sata"), ("/virtio", "virtio"), ("/usb", "usb"), ("/host", "scsi")):
        if part in real:
            return bus
    return "virtual" if "/virtual/" in real else ""


def _link(disk: Path, sys: Path) -> str:
    speed, width = (_first(disk, f"device/device/current_link_{what}") for what in ("speed", "width"))
    if speed and width:
        return f"PCIe {speed.removesuffix(' PCIe')} x{width}"
    if disk.exists() and (port := re.search(r"/ata(\d+)/", str(disk.resolve()))):
        speed = _first(sys / "class/ata_link" / f"link{port.group(1)}", "sata_spd")
        return f"SATA {speed}" if speed and "unknown" not in speed else "SATA"
    return ""


def _queue(disk: Path) -> dict[str, str]:
    queue = disk / "queue"
    found = {
        "nr_requests": _first(queue, "nr_requests"),
        "max_request_kib": _first(queue, "max_sectors_kb"),
        "max_segments": _first(queue, "max_segments"),
        "write_cache": _first(queue, "write_cache"),
        "discard": {"": "", "0": "no"}.get(_first(queue, "discard_max_bytes"), "yes"),
        "hardware_queues": str(sum(entry.is_dir() for entry in (disk / "mq").glob("*")) or ""),
        "device_depth": _first(disk, "device/queue_depth", "device/sqsize"),
    }
    return {key: value for key, value in found.items() if value}


def _serial(disk: Path) -> str | None:
    if text := _first(disk, "device/serial", "serial"):
        return text
    try:
        page = (disk / "device/vpd_pg80").read_bytes()
    except OSError:
        return None
    return page[4:].decode("ascii", "replace").strip() or None
