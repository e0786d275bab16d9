"""Temporary folders of dataset writers: locked while the writer lives, removed by the next writer if it was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write under `folder` (which need not exist yet)."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


def remove_stale(root: Path) -> list[Path]:
    """Remove the temporary folders of killed writers; return their paths.

    A living writer holds a lock on its folder; process ids would mislead: containers share and kernels reuse them.
    """
    removed = []
    for path in root.glob(".*.outcore-tmp-*"):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # gone meanwhile, or another user's
            continue
        try:
            if try_lock(handle):
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
        finally:
            os.close(handle)
    return removed


def temporary_prefix(name: str) -> str:
    """Return the first characters of the names of dataset `name`'s temporary folders."""
    return f".{name}.outcore-tmp-"


def try_lock(handle: int) -> bool:
    """Lock an open folder unless another process holds it; return whether this process holds it now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another, or a file system without locks, where no folder is ever stale
        return False
    return True


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the root's lock, so that no process takes a folder for stale between its creation and its locking."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
    finally:
        os.close(handle)


def temporary_folder(root: Path, name: str) -> tuple[Path, int]:
    """Make a temporary folder under `root`, which must exist, and remove those of killed processes.

    Returns:
        the folder, and an open handle that holds its lock until closed.
    """
    with locked(root):
        remove_stale(root)
        folder = Path(tempfile.mkdtemp(prefix=temporary_prefix(name), dir=root))
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try_lock(handle)
    return folder, handle


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
