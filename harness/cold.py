"""Cold starts: evict a run's files from the page cache and say what stayed (methodology rule 2)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.context import Eviction

if TYPE_CHECKING:
    from workloads.dataset import Dataset

# A page under writeback or just being read does not go at the first request.
_ATTEMPTS = 3


def dataset_files(dataset: Dataset) -> list[Path]:
    """Every file of a dataset that a system may read."""
    return [dataset.file(part) for part in ("indptr", "indices", "features", "labels", "train", "valid", "test")]


def evict_files(files: Iterable[Path], when: str) -> Eviction:
    """Evict `files` (folders: what is in them) and measure what is still resident.

    Args:
        files: dataset parts and the system's own files.
        when: `before` or `after_prepare`, for the record.
    """
    from systems.engine import evict

    found: list[Path] = []
    for path in files:
        found += [inner for inner in path.rglob("*") if inner.is_file()] if path.is_dir() else [path]
    present = sorted({path for path in found if path.is_file()})
    total = sum(path.stat().st_size for path in present)
    resident = 0
    for path in present:
        left = 0
        for _ in range(_ATTEMPTS):
            left = evict(path)
            if left == 0:
                break
        resident += left
    return Eviction(when, len(present), total, resident)
