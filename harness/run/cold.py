"""Cold starts: evict a run's files from the page cache and report the bytes still resident (methodology rule 2)."""

from __future__ import annotations

import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.records.record import EvictionReading
from workloads.manifest import MANIFEST_NAME

if TYPE_CHECKING:
    from workloads.dataset import Dataset

# A page under writeback or being read survives the first request.
_ATTEMPTS = 3
# Smaller files are not a run's data.
_LEAST_BYTES = 1 << 20


def _libraries(packages: Path) -> tuple[str, ...]:
    """Return the folders of libraries, those that an environment's folder of packages links to included.

    The holder keeps libraries resident on purpose, for every run alike.
    """
    linked = [path.resolve() for path in packages.iterdir() if path.is_symlink() and path.is_dir()]
    folders = {sys.prefix, sys.base_prefix, str(packages), *map(str, linked)}
    return ("/usr/", "/lib", "/proc/", "/sys/", "/dev/", *(f"{folder}/" for folder in sorted(folders)))


_LIBRARIES = _libraries(Path(sysconfig.get_path("purelib")))


def dataset_files(dataset: Dataset) -> list[Path]:
    """Return every file of a dataset that a system may read."""
    return [dataset.file(part) for part in ("indptr", "indices", "features", "labels", "train", "valid", "test")]


def identities(dataset: Dataset) -> set[tuple[Path, tuple[int, ...] | None]]:
    """Return each file of a dataset with what the kernel changes when it is written or replaced; None: it is gone."""

    def identity(path: Path) -> tuple[int, ...] | None:
        try:
            status = path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    return {(path, identity(path)) for path in [*dataset_files(dataset), dataset.path / MANIFEST_NAME]}


def evict_files(files: Iterable[Path], when: str) -> EvictionReading:
    """Evict `files` (folders: the files in them) and measure the bytes still resident.

    `when` labels the reading for the record: `before` or `after_prepare`.
    """
    from systems.engine.io.memory import evict

    present = sorted(set(_plain_files(files)))
    total = sum(path.stat().st_size for path in present)
    resident = 0
    for path in present:
        left = 0
        for _ in range(_ATTEMPTS):
            left = evict(path)
            if left == 0:
                break
        resident += left
    return EvictionReading(when=when, files=len(present), total_bytes=total, resident_bytes=resident)


def resident(files: Iterable[Path]) -> int:
    """Return the bytes of `files` (folders: the files in them) in the page cache, whatever cgroup is charged."""
    from systems.engine.io.memory import resident_bytes
    from workloads.errors import DataIOError

    found = 0
    for path in set(_plain_files(files)):
        try:
            found += resident_bytes(path)
        except DataIOError:
            continue  # removed by the run meanwhile
    return found


def open_files(pids: Iterable[int]) -> list[Path]:
    """Return the files of a mebibyte or more that processes have open or mapped, except libraries."""
    found: set[str] = set()
    for pid in pids:
        # The process may end, or close a file, meanwhile, or belong to another user: what is left counts.
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    found.add(str(link.readlink()))
        with suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            found |= {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/" in line and " r-x" not in line}
    names = (name for name in found if name.startswith("/") and not name.startswith(_LIBRARIES))
    return sorted(path for path in map(Path, names) if _is_data(path))


def _is_data(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size >= _LEAST_BYTES


def _plain_files(files: Iterable[Path]) -> Iterator[Path]:
    for path in files:
        try:
            inner = [entry for entry in path.rglob("*") if entry.is_file()] if path.is_dir() else [path]
        except OSError:
            continue
        yield from (entry.resolve() for entry in inner if entry.is_file())
