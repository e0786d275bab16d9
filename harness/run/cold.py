"""Cold starts: evict a run's files from the page cache and report the bytes still resident (methodology rule 2)."""

from __future__ import annotations

import math
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from harness.records.record import EvictionReading
from systems.engine.io.memory import evict, resident_bytes
from workloads.dataset import Dataset
from workloads.errors import DataIOError
from workloads.manifest import MANIFEST_NAME

_ATTEMPTS = 3  # a page under writeback or being read survives the first request
_LEAST_BYTES = 1 << 20  # smaller files are not a run's data


def _libraries(packages: Path) -> tuple[str, ...]:
    """Return the folders of libraries, those that an environment's folder of packages links to included. The holder
    keeps libraries resident on purpose, for every run alike."""
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
        with suppress(OSError):
            status = path.stat()
            return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        return None

    return {(path, identity(path)) for path in [*dataset_files(dataset), dataset.path / MANIFEST_NAME]}


def evict_files(files: Iterable[Path], when: str) -> EvictionReading:
    """Evict `files` (folders: all inside) and measure bytes still resident; `when`: `before` or `after_prepare`."""
    present = sorted(set(_plain_files(files)))
    total, resident = sum(path.stat().st_size for path in present), 0
    for path in present:
        left = evict(path)
        for _ in range(_ATTEMPTS - 1):
            left = left and evict(path)
        resident += left
    return EvictionReading(when=when, files=len(present), total_bytes=total, resident_bytes=resident)


def resident(files: Iterable[Path]) -> int:
    """Return the bytes of `files` (folders: the files in them) in the page cache, charged to any cgroup."""
    found = 0
    for path in set(_plain_files(files)):
        with suppress(DataIOError):  # removed by the run meanwhile
            found += resident_bytes(path)
    return found


def open_files(pids: Iterable[int]) -> list[Path]:
    """Return the files of a mebibyte or more that processes have open or mapped, except libraries: those of Python, of
    the system, and other ELF files mapped as code."""
    found: set[str] = set()
    code: set[str] = set()
    for pid in pids:
        # The process may end, or close a file, meanwhile, or belong to another user: the others count.
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    found.add(str(link.readlink()))
        with suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                if "/" in line:
                    (code if " r-x" in line else found).add(line.split(maxsplit=5)[5].rstrip("\n"))
    names = (name for name in found | code if name.startswith("/") and not name.startswith(_LIBRARIES))
    return sorted(path for path in map(Path, names) if _is_data(path, mapped_as_code=str(path) in code))


def born(path: Path) -> float:
    """Return the Unix seconds of a file's creation, or of its last change where the file system does not keep them."""
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        told = subprocess.run(["stat", "-c", "%W", path], capture_output=True, text=True, check=True, timeout=10)
        if (seconds := float(told.stdout)) > 0:
            return seconds
    with suppress(OSError):
        return path.stat().st_mtime
    return math.inf


def _is_data(path: Path, *, mapped_as_code: bool) -> bool:
    with suppress(OSError):
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size >= _LEAST_BYTES:
            return not mapped_as_code or path.open("rb").read(4) != b"\x7fELF"
    return False


def _plain_files(files: Iterable[Path]) -> Iterator[Path]:
    for path in files:
        with suppress(OSError):
            inner = path.rglob("*") if path.is_dir() else [path]
            yield from [entry.resolve() for entry in inner if entry.is_file()]
