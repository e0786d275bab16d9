"""Identity of the drive under a path: which drive, namespace, firmware and file system,
as a digest without a serial.

Two samples of one model, two firmwares of one sample, two partitions and two loop
devices on one disk are different drives. Profiles, records of runs and caches hold the
digest. It is salted with the machine's own id, which is recorded nowhere, so nobody can
find a serial number by trying; the same drive in another machine is therefore another
drive.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from harness.isolation.blocks import layer_below
from harness.isolation.files import first_text, read_text
from harness.isolation.mounts import IN_MEMORY, Mount, existing

MACHINE_ID = Path("/etc/machine-id")
_BY_UUID = Path("/dev/disk/by-uuid")
# FS_IOC_GETFSUUID (Linux 6.9): one byte of length, then 16 bytes.
_GET_UUID = 0x80111500
_UUID_BYTES = 16


@dataclass(frozen=True)
class DriveKey:
    """Identity of a drive on this machine.

    Attributes:
        id: 16 hex digits; empty where nothing identifies a drive, as for files in
            memory.
        known_by: facts behind it, in words: `serial number`, `WWN`, `backing file`,
            `volume`, `place in the machine`, `source of the mount`, `file system`.
    """

    id: str = ""
    known_by: str = ""


def drive_key(
    mount: Mount,
    folder: Path,
    chains: Sequence[Path],
    sys: Path = Path("/sys"),
    machine_id: Path = MACHINE_ID,
) -> DriveKey:
    """Return the identity of the drive under a folder.

    Args:
        mount: mount that holds the folder; of an overlay, that of its upper folder.
        folder: folder on the drive.
        chains: /sys folders of the file system's devices and of all devices below them,
            in any order.
        sys: mount point of sysfs.
        machine_id: file with the id of this machine, the salt; without one (some
            containers) there is no salt, and only the file system's UUID, which is
            random too, hides the serial number.
    """
    if mount.kind in IN_MEMORY:
        return DriveKey()
    layers = [_facts_of(layer, sys) for layer in chains]
    # `overlay on ext4` is on the drive of the ext4.
    system = {
        "kind": mount.kind.rpartition(" on ")[2],
        "uuid": file_system_uuid(folder, mount),
    }
    # A file system over the network has no device here: its source stands for it.
    source = "" if layers else mount.source
    facts = {
        "layers": sorted(layers, key=_as_text),
        "file system": system,
        "source": source,
    }
    names = [name for name in _KNOWN_BY if any(layer.get(name) for layer in layers)]
    names += ["source of the mount"] if source else []
    names += ["file system"] if system["uuid"] else []
    salt = read_text(machine_id).strip().encode()
    digest = hmac.new(
        b"outcore drive " + salt, _as_text(facts).encode(), hashlib.sha256
    )
    return DriveKey(digest.hexdigest()[:16], ", ".join(names))


# Facts of a layer that identify it, the strongest first.
_KNOWN_BY = ("WWN", "serial number", "backing file", "volume", "place in the machine")


def _facts_of(layer: Path, sys: Path) -> dict[str, Any]:
    """Return the facts that distinguish one block device from another of its kind."""
    if (layer / "partition").exists():
        return {}  # its file system distinguishes it
    if (layer / "loop").is_dir():
        return {"backing file": _backing_file(layer)}
    if (layer / "dm").is_dir():
        return {"volume": first_text(layer, "dm/uuid", "dm/name")}
    if layer_below(layer):
        return {}  # an array is its members
    found = {
        "WWN": first_text(layer, "wwid", "device/wwid"),
        "serial number": serial_number(layer) or "",
    }
    if not any(found.values()):
        found["place in the machine"] = _place(layer, sys)
    namespace = first_text(layer, "nsid") or "".join(
        re.findall(r"^nvme\d+n(\d+)$", layer.name)
    )
    return {
        **found,
        "namespace": namespace,
        "firmware": first_text(layer, "device/firmware_rev", "device/rev"),
    }


def serial_number(disk: Path) -> str | None:
    """Return the serial number of the disk at a /sys folder; None without one."""
    if text := first_text(disk, "device/serial", "serial"):
        return text
    try:
        page = (disk / "device/vpd_pg80").read_bytes()
    except OSError:
        return None
    return page[4:].decode("ascii", "replace").strip() or None


def _backing_file(loop: Path) -> str:
    """Return the inode of a loop's file and the file system that holds it; empty where
    the file is not visible."""
    file = Path(read_text(loop / "loop/backing_file").strip())
    try:
        status = file.stat()
    except OSError:
        return ""
    if file.is_block_device():
        return ""  # the device below is known by itself
    # The number of a device may change when the host starts again, the UUID does not.
    return f"{uuid_of_mounted(file) or status.st_dev} {status.st_ino}"


def _place(disk: Path, sys: Path) -> str:
    """Return the path in sysfs of the device behind a disk, without the disk's name,
    which depends on the order."""
    behind = disk / "device"
    real = behind.resolve() if behind.exists() else disk.resolve()
    root = sys.resolve()
    return str(real.relative_to(root)) if real.is_relative_to(root) else str(real)


def file_system_uuid(folder: Path, mount: Mount) -> str:
    """Return the UUID of the file system under a folder: from the kernel, from udev,
    else its id by `statvfs`; empty where it has none."""
    place = existing(folder)
    if uuid := uuid_of_mounted(place):
        return uuid
    for link in sorted(_BY_UUID.iterdir()) if _BY_UUID.is_dir() else ():
        with suppress(OSError):
            number = link.stat().st_rdev
            if f"{os.major(number)}:{os.minor(number)}" == mount.device:
                return link.name
    with suppress(OSError):
        if number := os.statvfs(place).f_fsid:
            return f"id {number}"
    return ""


def uuid_of_mounted(path: Path) -> str:
    """Return the UUID of the mounted file system that holds an existing file or folder;
    empty where the kernel (before 6.9) or the file system has none."""
    folder = path if path.is_dir() else path.parent
    answer = bytearray(1 + _UUID_BYTES)
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.ioctl(fd, _GET_UUID, answer)
    except OSError:
        return ""
    finally:
        os.close(fd)
    found = bytes(answer[1:])
    return str(UUID(bytes=found)) if answer[0] == _UUID_BYTES and any(found) else ""


def same_drive(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Return whether two recorded disks (`environment.disk` of a run, or a profile's
    identity) are one drive.

    None: one of them is of an older version or names no drive, so only model and
    capacity could be compared.
    """
    if not one.get("drive") or not other.get("drive"):
        return None
    return bool(one["drive"] == other["drive"])


def _as_text(facts: Any) -> str:
    return json.dumps(facts, sort_keys=True)
