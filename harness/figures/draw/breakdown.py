"""Wall time of an epoch by part: spans of stages laid over each other by priority, so that the parts sum to the epoch.

Stages of a pipeline overlap, and their sums exceed the epoch. The papers' breakdowns show instead the device's work at
each moment or, while it is idle, its reason to wait; here a moment belongs to the first part with an open span.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.compare.plan import Plain
from harness.compare.verdicts import NotDrawn
from harness.results import store as results
from harness.results.table import each, measured_epochs
from workloads.errors import OutcoreError

Order = Sequence[tuple[str, Sequence[str]]]


def covered_seconds(starts: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]) -> float:
    """Return the seconds in which at least one span is open."""
    if not len(starts):
        return 0.0
    order = np.argsort(starts)
    first, last = starts[order], np.maximum.accumulate(ends[order])
    # A span adds the time after the last end of all spans before it.
    before = np.concatenate([[first[0]], last[:-1]])
    return float(np.maximum(0.0, last - np.maximum(first, before)).sum())


def split_epoch(spans: pd.DataFrame, epoch: Mapping[str, Any], order: Order, rest: str) -> dict[str, float]:
    """Return seconds of an epoch by part; they sum to its wall time.

    Args:
        spans: columns `stage`, `start`, `end`, seconds on the run's clock (`stages.parquet`).
        epoch: epoch of the record, with `start_s` and `seconds`.
        order: parts with their stages; a moment belongs to the first part with an open span.
        rest: name of the part for all other moments.
    """
    begin = float(epoch["start_s"])
    end = begin + float(epoch["seconds"])
    inside = spans[(spans["end"] > begin) & (spans["start"] < end)]
    starts = inside["start"].clip(lower=begin).to_numpy(dtype=np.float64)
    ends = inside["end"].clip(upper=end).to_numpy(dtype=np.float64)
    taken = np.zeros(len(inside), dtype=bool)
    found: dict[str, float] = {}
    so_far = 0.0
    for part, stages in order:
        taken |= inside["stage"].isin(list(stages)).to_numpy()
        total = covered_seconds(starts[taken], ends[taken])
        found[part] = total - so_far
        so_far = total
    found[rest] = found.get(rest, 0.0) + max(0.0, end - begin - so_far)
    return found


def run_table(cell: Any, name: Literal["stages", "telemetry", "batches"]) -> pd.DataFrame:
    """Return a table of a cell's newest run (`harness.results.store.table`); raise NotDrawn without it."""
    try:
        return results.table(Path(cell.path), name)
    except OutcoreError as error:
        raise NotDrawn(str(error)) from error


def run_breakdown(cell: Any, order: Order, rest: str) -> dict[str, float]:
    """Return mean seconds of the measured epochs of a cell's newest run by part.

    Args:
        cell: row of `Cells.medians`, with attributes `run`, `path` and `record`.
        order, rest: as in `split_epoch`.

    Raises:
        NotDrawn: the run has no table of stages, or no measured epoch.
    """
    try:
        spans = results.table(Path(cell.path), "stages")
    except (OutcoreError, OSError) as error:
        raise NotDrawn(f"run {cell.run} has no table of stages") from error
    epochs = measured_epochs(cell.record)
    if not epochs:
        raise NotDrawn(f"run {cell.run} has no measured epoch")
    splits = [split_epoch(spans[spans["epoch"] == epoch["epoch"]], epoch, order, rest) for epoch in epochs]
    return {part: float(np.mean([split[part] for split in splits])) for part in splits[0]}


def seconds_by_part(table: pd.DataFrame, order: Order, rest: str) -> pd.DataFrame:
    """Return the parts of the epoch of each row of `Cells.medians` that has a value.

    Args:
        table: at least one row with a value.
        order, rest: as in `split_epoch`.

    Returns:
        Columns `system`, `x`, `run`, `part` and `seconds`.

    Raises:
        NotDrawn: as in `run_breakdown`.
    """
    tables = []
    for cell in each(table.dropna(subset="value")):
        found = run_breakdown(cell, order, rest)
        parts = pd.DataFrame({"part": list(found), "seconds": list(found.values())})
        tables.append(parts.assign(system=cell.system, x=cell.x, run=cell.run))
    return pd.concat(tables, ignore_index=True)


def part_rows(cell: Any, parts: Sequence[str], split: Callable[[Any], Mapping[str, float]], **head: Any) -> list[Plain]:
    """Return a row for each part of a cell's epoch, as stacks are drawn; of a cell without a value its status.

    Args:
        cell: row of `Cells.medians`.
        parts: the drawn parts, in the order of the rows.
        split: function from the cell to its seconds by part.
        head: further columns, before the others.
    """
    if pd.isna(cell.value):
        return [{**head, "part": parts[0], "value": None, "status": cell.status}]
    found = split(cell)
    return [{**head, "part": part, "value": found[part], "status": "ok", "run": cell.run} for part in parts]


def stack_rows(cells: pd.DataFrame, parts: Sequence[str], split: Callable[[Any], Mapping[str, float]]) -> pd.DataFrame:
    """Return the rows of `part_rows` of each cell, with the columns `panel` (its x) and `bar` (its system)."""
    rows = []
    for cell in each(cells):
        rows += part_rows(cell, parts, split, panel=cell.x, bar=cell.system)
    return pd.DataFrame(rows)
