"""Temporary folders that live as long as their writer: locked while it lives, cleaned by the next if it was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write under `folder` (which need not exist yet)."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


def remove_stale(root: Path) -> list[Path]:
    """Remove temporary folders whose writer is gone (killed); returns them.

    A living writer holds a lock on its folder, so nothing depends on process ids, which containers share and kernels
    use again.
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
    """How the temporary folders of dataset `name` begin."""
    return f".{name}.outcore-tmp-"


def try_lock(handle: int) -> bool:
    """Lock an open folder unless another holds it; whether it is ours now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another, or a file system without locks: then nothing is ever taken for stale
        return False
    return True


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the root's lock: between a folder's creation and its locking nobody may take it for stale."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Bring a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
