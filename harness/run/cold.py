"""Cold starts: evict a run's files from the page cache and report the bytes still
resident (methodology rule 2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from harness.records.record import EvictionReading
from systems.engine.io.memory import evict, resident_bytes
from workloads.dataset import Dataset
from workloads.errors import DataIOError

_ATTEMPTS = 3  # a page under writeback or being read survives the first request


def dataset_files(dataset: Dataset) -> list[Path]:
    """Return every file of a dataset: a system may read each of them."""
    return [dataset.file(part) for part in dataset.manifest.parts]


def evict_files(files: Iterable[Path], when: str) -> EvictionReading:
    """Evict `files` (folders: all inside) and measure bytes still resident; `when`:
    `before` or `after_prepare`."""
    present = sorted(set(_plain_files(files)))
    total = resident = 0
    for path in present:
        try:
            total += path.stat().st_size
            left = evict(path)
            for _ in range(_ATTEMPTS - 1):
                left = left and evict(path)
            resident += left
        except (OSError, DataIOError):
            if path.exists():  # else closed or removed by the run meanwhile
                raise
    return EvictionReading(
        when=when, files=len(present), total_bytes=total, resident_bytes=resident
    )


def resident(files: Iterable[Path]) -> int:
    """Return the bytes of `files` (folders: the files in them) in the page cache,
    charged to any cgroup."""
    found = 0
    for path in set(_plain_files(files)):
        with suppress(DataIOError):  # removed by the run meanwhile
            found += resident_bytes(path)
    return found


def _plain_files(files: Iterable[Path]) -> Iterator[Path]:
    for path in files:
        with suppress(OSError):
            inner = path.rglob("*") if path.is_dir() else [path]
            # A link below /proc leads to its file, even where the file's name was
            # removed.
            real = (
                entry if entry.is_relative_to("/proc") else entry.resolve()
                for entry in inner
                if entry.is_file()
            )
            yield from list(real)
