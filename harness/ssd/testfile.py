"""File that a profile reads: made in the requested folder, of incompressible bytes,
removed afterwards."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.isolation.mounts import IN_MEMORY, mount_of
from harness.isolation.processes import cap_name, is_left_over
from harness.progress import stages
from harness.ssd.device import BlockDevice, block_device, direct_block_bytes
from workloads.errors import DataIOError, HostError, InputError
from workloads.units import format_bytes

_PREFIX = ".outcore-ssd-"
_CHUNK = 8 << 20
# Space left free, so that a test does not fill the file system.
_SPARE = 64 << 20
_NETWORK = (
    "nfs nfs4 cifs smb3 smbfs 9p ceph glusterfs lustre afs fuse.sshfs virtiofs beegfs "
    "fuse.s3fs fuse.rclone fuse.gcsfuse"
).split()


def check_folder(folder: Path, proc: Path = Path("/proc")) -> BlockDevice:
    """Return the device under a folder, checked to be one that can be profiled. Raises
    InputError: the folder is missing or cannot be written; HostError: it is in memory,
    on a network file system, or on no block device."""
    if not folder.is_dir():
        fix = (
            "give the folder, not the device"
            if folder.is_block_device()
            else "give an existing folder on the drive"
        )
        raise InputError(f"{folder} is not a folder", fix)
    kind = mount_of(folder, proc).kind
    place = f"{folder} is on {kind}"
    fix = "give a folder on the drive"
    if kind in IN_MEMORY:
        raise HostError(f"{place}, which is memory and no drive", fix)
    if kind in _NETWORK:
        message = (
            f"{place}, a file system over the network, so no drive of this host is "
            "under it"
        )
        raise HostError(message, "run this on the host that has the drive")
    device = block_device(folder, proc=proc)
    if not device.number and "overlay" in kind:
        message = (
            f"{place}, whose upper folder is not visible from here, so the drive is "
            "unknown"
        )
        raise HostError(
            message, "give a folder that is mounted from the drive itself (a volume)"
        )
    if not device.number:
        raise HostError(f"{place}, which has no block device", fix)
    if not os.access(folder, os.W_OK):
        raise InputError(
            f"{folder} cannot be written", "give a folder of your own on the drive"
        )
    return device


@contextmanager
def one_at_a_time(device: BlockDevice) -> Iterator[None]:
    """Hold a device, since two concurrent profiles would measure each other. Raises
    HostError: another process measures the device."""
    # An abstract socket, not a file: the kernel removes it when its process ends, for
    # any reason.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        try:
            lock.bind(f"\0outcore-ssd-{device.number}")
        except OSError as error:
            raise HostError(
                f"another outcore measures {device.name} now", "wait until it has ended"
            ) from error
        yield


@contextmanager
def own_file(
    folder: Path,
    size: int,
    *,
    smaller: str = "--file-size",
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[Path]:
    """Yield a file of `size` bytes on the disk and out of the page cache; remove it at
    the end, leftovers before.

    Args:
        folder: folder for the file; files of killed profiles in it are removed.
        smaller: option that would need less space, for the error message.

    Raises:
        HostError: not enough free space, or the file system refuses direct I/O.
        DataIOError: the file cannot be written.
    """
    sweep(folder)
    free = shutil.disk_usage(folder).free
    if free < size + _SPARE:
        message = (
            f"{folder} has {format_bytes(free)} free, and the file to read takes "
            f"{format_bytes(size)}"
        )
        less = (
            f", or give a smaller {smaller} (at most "
            f"{format_bytes(max(0, free - _SPARE))})"
            if smaller
            else ""
        )
        raise HostError(message, f"free some space{less}")
    file = folder / f"{_PREFIX}{cap_name('file')}.bin"
    try:
        write_file(file, size, progress=progress)
        if direct_block_bytes(file) is None:
            kind = mount_of(folder).kind
            raise HostError(
                f"{folder} on {kind} allows no direct I/O",
                "give a folder on ext4 or xfs",
            )
        yield file
    finally:
        with suppress(OSError):
            file.unlink()


def sweep(folder: Path) -> list[str]:
    """Remove files of killed profiles; return their names."""
    gone = []
    for file in folder.glob(f"{_PREFIX}*.bin"):
        if is_left_over(file.name.removeprefix(_PREFIX).removesuffix(".bin")):
            with suppress(OSError):
                file.unlink()
                gone.append(file.name)
    return gone


def write_file(
    file: Path,
    size: int,
    fix: str = "give another folder",
    *,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Write a new file of `size` incompressible bytes, on the disk and out of the page
    cache. Raises DataIOError: the file cannot be written; the error carries `fix`."""
    import numpy as np

    rng = np.random.default_rng()
    try:
        with file.open("xb") as out:
            reported = stages(progress)
            for at in range(0, size, _CHUNK):
                reported(f"writing {format_bytes(size)} to read", at / size)
                out.write(rng.bytes(min(_CHUNK, size - at)))
            out.flush()
            os.fsync(out.fileno())
            os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        raise DataIOError.of(
            error, "the file to read could not be written", file, fix
        ) from error
