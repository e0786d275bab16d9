"""Wear of a drive by trainings: bytes written by each system, and the drive's rating
held against them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from harness.drives.whatif import usable, workload_name
from harness.judge.wear import Wear
from harness.records.record import Record


@dataclass(frozen=True)
class Use:
    """Planned use of a drive: epochs of a training, trainings a day."""

    epochs: int
    trainings_a_day: float


@dataclass(frozen=True)
class Rating:
    """Capacity of a drive, and how often it may be written over each day (None:
    unknown)."""

    capacity_bytes: int | None
    writes_a_day: float | None


@dataclass(frozen=True)
class WearRow:
    """Wear by a system on a workload: bytes written once, for an epoch and by a
    training; drive writes a day, and their share of the rating (None: unknown)."""

    system: str
    workload: str
    once_bytes: float
    epoch_bytes: float
    training_bytes: float
    drive_writes_a_day: float | None
    share_of_rating: float | None
    runs: tuple[str, ...]


def wear_rows(records: Iterable[Record], use: Use, rating: Rating) -> list[WearRow]:
    """Return the wear of each system on each workload, by the medians of its runs that
    count, the most writing first."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in filter(usable, records):
        groups.setdefault((record.system, workload_name(record)), []).append(record)
    rows = []
    for (system, workload), runs in groups.items():
        wears = [wear for wear in map(Wear.of, runs) if wear is not None]
        trainings = [wear.training_bytes(use.epochs) for wear in wears]
        training_bytes = statistics.median(trainings)
        writes = _drive_writes(training_bytes * use.trainings_a_day, rating)
        row = WearRow(
            system=system,
            workload=workload,
            once_bytes=statistics.median(wear.once_bytes for wear in wears),
            epoch_bytes=statistics.median(wear.fresh_epoch_bytes for wear in wears),
            training_bytes=training_bytes,
            drive_writes_a_day=writes,
            share_of_rating=_share(writes, rating),
            runs=tuple(run.run_id for run in runs),
        )
        rows.append(row)
    return sorted(rows, key=lambda row: row.training_bytes, reverse=True)


def _drive_writes(bytes_a_day: float, rating: Rating) -> float | None:
    return bytes_a_day / rating.capacity_bytes if rating.capacity_bytes else None


def _share(writes_a_day: float | None, rating: Rating) -> float | None:
    if writes_a_day is None or not rating.writes_a_day:
        return None
    return writes_a_day / rating.writes_a_day
