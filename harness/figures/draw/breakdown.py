"""Where an epoch's wall time goes: its stages' spans laid over each other by priority, so that parts make the whole.

Stages of a pipeline overlap, and their sums exceed the epoch. The papers' breakdowns ask instead what the device did at
each moment and, where it stood still, what it waited for; here a moment belongs to the first part that has a span open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness import results
from harness.compare.points import NotDrawn, Point
from workloads.errors import OutcoreError

Order = Sequence[tuple[str, Sequence[str]]]


def covered_seconds(starts: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]) -> float:
    """Seconds in which at least one span was open."""
    if not len(starts):
        return 0.0
    order = np.argsort(starts)
    first, last = starts[order], np.maximum.accumulate(ends[order])
    # A span adds what lies beyond everything before it.
    before = np.concatenate([[first[0]], last[:-1]])
    return float(np.maximum(0.0, last - np.maximum(first, before)).sum())


def split_epoch(spans: pd.DataFrame, epoch: Mapping[str, Any], order: Order, rest: str) -> dict[str, float]:
    """Seconds of an epoch by part; they sum to its wall time.

    Args:
        spans: columns `stage`, `start`, `end`, seconds on the run's clock (`stages.parquet`).
        epoch: of the record: `start_s` and `seconds`.
        order: parts, each with the stages it is made of; the first with an open span has the moment.
        rest: the part of all other moments.
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


def run_breakdown(point: Point, order: Order, rest: str) -> dict[str, float]:
    """Mean seconds an epoch by part, over the measured epochs of a point's newest run.

    Raises:
        NotDrawn: the run has no table of stages, or no measured epoch.
    """
    try:
        spans = results.stages(Path(point.path))
    except (OutcoreError, OSError) as error:
        raise NotDrawn(f"run {point.record.get('run_id', '')} has no table of stages") from error
    measured = [epoch for epoch in point.record["epochs"] if not epoch["warmup"]]
    if not measured:
        raise NotDrawn(f"run {point.record.get('run_id', '')} has no measured epoch")
    splits = [split_epoch(spans[spans["epoch"] == epoch["epoch"]], epoch, order, rest) for epoch in measured]
    return {part: float(np.mean([split[part] for split in splits])) for part in splits[0]}
