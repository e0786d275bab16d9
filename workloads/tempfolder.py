"""Temporary folders of writers: locked while the writer lives, removed by the next
writer if it was killed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write under `folder` (which need not
    exist yet)."""
    place = next(
        place for place in (folder, *folder.absolute().parents) if place.exists()
    )
    return shutil.disk_usage(place).free


class TemporaryFolder:
    """Context manager of a private temporary folder under `root`, for files that will
    be called `name`.

    The folder is removed at the end, unless renamed by then; after a kill of the
    process, the next temporary folder under `root` removes it. Temporary folders can be
    nested.
    """

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._prefix = temporary_prefix(name)

    def __enter__(self) -> Path:
        remove_stale(self._root)
        while not self._make():
            pass
        return self._path

    def _make(self) -> bool:
        """Make and lock a folder; return False where another process removed it in
        between, as one without a lock."""
        self._path = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self._root))
        try:
            self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return False
        mine = True
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mine = False
        except OSError:  # a file system without locks, where no folder is ever stale
            pass
        if mine and self._path.exists():
            return True
        os.close(self._lock)
        return False

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def remove_stale(root: Path) -> list[Path]:
    """Remove the temporary folders of killed writers; return their paths.

    A living writer holds a lock on its folder; process ids would mislead: containers
    share and kernels reuse them.
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
    """Return the first characters of the names of dataset `name`'s temporary
    folders."""
    return f".{name}.outcore-tmp-"


def try_lock(handle: int) -> bool:
    """Lock an open folder unless another process holds it; return whether this process
    holds it now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (
        OSError
    ):  # held by another, or a file system without locks, where no folder is ever stale
        return False
    return True


def into_place(folder: Path, target: Path) -> bool:
    """Rename a finished folder; return False where `target` is a file, or a folder with
    anything in it."""
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    return True


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
