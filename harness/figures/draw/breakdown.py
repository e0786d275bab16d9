"""Wall time of an epoch by part: spans of stages laid over each other by priority, so
that the parts sum to the epoch.

Stages of a pipeline overlap, and their sums exceed the epoch. The papers' breakdowns
show instead the device's work at each moment or, while it is idle, its reason to wait;
here a moment belongs to the first part with an open span.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.compare.verdicts import NotDrawn
from harness.results import store as results
from harness.results.table import each, measured_epochs
from workloads.arraytypes import JsonDict
from workloads.errors import OutcoreError

#: Parts of an epoch and their stages: a moment belongs to the first part with an open
#: span, else to one without stages.
Parts = Mapping[str, Sequence[str]]


def covered_seconds(
    starts: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]
) -> float:
    """Return the seconds in which at least one span is open."""
    if not len(starts):
        return 0.0
    order = np.argsort(starts)
    first = starts[order]
    last = np.maximum.accumulate(ends[order])
    # A span adds the time after the last end of all spans before it.
    before = np.concatenate([[first[0]], last[:-1]])
    return float(np.maximum(0.0, last - np.maximum(first, before)).sum())


def split_epoch(
    spans: pd.DataFrame, epoch: Mapping[str, Any], parts: Parts
) -> dict[str, float]:
    """Return seconds of an epoch by part; they sum to its wall time.

    Args:
        spans: columns `stage`, `start`, `end`, seconds on the run's clock
            (`stages.parquet`).
        epoch: epoch of the record, with `start_s` and `seconds`.
    """
    begin = float(epoch["start_s"])
    end = begin + float(epoch["seconds"])
    inside = spans[(spans.end > begin) & (spans.start < end)]
    inside = inside.assign(
        start=inside.start.clip(lower=begin), end=inside.end.clip(upper=end)
    )
    found: dict[str, float] = {}
    taken: list[str] = []
    so_far = 0.0
    for part, stages in parts.items():
        taken += stages
        open_spans = inside[inside.stage.isin(taken)]
        total = covered_seconds(
            open_spans.start.to_numpy(float), open_spans.end.to_numpy(float)
        )
        found[part] = total - so_far
        so_far = total
    idle = max(0.0, end - begin - so_far)
    return {part: seconds if parts[part] else idle for part, seconds in found.items()}


def run_table(
    cell: Any, name: Literal["stages", "telemetry", "batches"]
) -> pd.DataFrame:
    """Return a table of a cell's newest run (`harness.results.store.table`); raise
    NotDrawn without it."""
    try:
        return results.table(Path(cell.path), name)
    except OutcoreError as error:
        raise NotDrawn(str(error)) from error


def run_breakdown(cell: Any, parts: Parts) -> dict[str, float]:
    """Return mean seconds of the measured epochs of a cell's newest run by part.

    Args:
        cell: row of `Cells.medians`, with attributes `run`, `path` and `record`.

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
    splits = [
        split_epoch(spans[spans.epoch == epoch["epoch"]], epoch, parts)
        for epoch in epochs
    ]
    return {str(part): mean for part, mean in pd.DataFrame(splits).mean().items()}


def stack_rows(
    cells: pd.DataFrame,
    parts: Sequence[str],
    split: Callable[[Any], Mapping[str, float]],
) -> pd.DataFrame:
    """Return a row for each part of each cell's epoch, as stacks are drawn; of a cell
    without a value its status.

    Args:
        cells: rows of `Cells.medians`.
        parts: the drawn parts, in the order of the rows.
        split: function from a cell to its seconds by part.

    Returns:
        Columns `panel` (the cell's x), `bar` (its system), `part`, `value` (s),
        `status` and `run`.

    Raises:
        NotDrawn: as in `run_breakdown`.
    """
    rows: list[JsonDict] = []
    for cell in each(cells):
        place = {"panel": cell.x, "bar": cell.system}
        if pd.isna(cell.value):
            rows.append(
                {**place, "part": parts[0], "value": None, "status": cell.status}
            )
            continue
        found = split(cell)
        own = {**place, "status": "ok", "run": cell.run}
        rows += [{**own, "part": part, "value": found[part]} for part in parts]
    return pd.DataFrame(
        rows, columns=["panel", "bar", "part", "value", "status", "run"]
    )


def seconds_by_part(table: pd.DataFrame, parts: Parts) -> pd.DataFrame:
    """Return the parts of the epoch of each row of `Cells.medians` that has a value;
    arguments as `run_breakdown`.

    Returns:
        Columns `system`, `x`, `run`, `part` and `seconds`.
    """
    rows = stack_rows(
        table.dropna(subset="value"),
        list(parts),
        lambda cell: run_breakdown(cell, parts),
    )
    named = rows.rename(columns={"bar": "system", "panel": "x", "value": "seconds"})
    return named[["system", "x", "run", "part", "seconds"]]
