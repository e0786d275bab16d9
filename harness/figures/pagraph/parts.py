"""Parts of an epoch of an in-memory loader: computation, exposed loading, and loading hidden behind computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.compare.points import Point
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.pagraph.grid import LOADING

COMPUTE, EXPOSED, OTHER, HIDDEN = "computation", "data loading", "waiting for samples, other", "hidden data loading"
PARTS = [COMPUTE, EXPOSED, OTHER, HIDDEN]
NOTE = (
    "computation, loading and the rest make the epoch; hidden loading went on during computation and is drawn on top "
    "of the epoch; loading: gathering on the host and copying to the device"
)


def epoch_parts(point: Point) -> dict[str, float]:
    """Return mean seconds of a measured epoch by part; all parts but hidden loading sum to its wall time.

    Raises:
        NotDrawn: the run has no table of stages, or no measured epoch.
    """
    parts = run_breakdown(point, [(COMPUTE, ["train"]), (EXPOSED, LOADING)], OTHER)
    loading = run_breakdown(point, [("loading", LOADING)], "rest")["loading"]
    return {**parts, HIDDEN: max(0.0, loading - parts[EXPOSED])}


def loading_share(point: Point) -> float:
    """Return loading over loading and computation, in percent, without sampling, which runs beside both (Fig. 4)."""
    parts = epoch_parts(point)
    loading = parts[EXPOSED] + parts[HIDDEN]
    return float(100.0 * loading / max(loading + parts[COMPUTE], np.finfo(float).tiny))


def part_rows(points: Sequence[Point], label: str) -> pd.DataFrame:
    """Return rows for stacks: bar (system), part, value (s); a point without a value has its status instead."""
    rows: list[dict[str, Any]] = []
    for point in points:
        if point.value is None:
            rows.append({"panel": label, "bar": point.system, "part": COMPUTE, "value": None, "status": point.status})
            continue
        run = point.record.get("run_id", "")
        rows += [
            {"panel": label, "bar": point.system, "part": part, "value": value, "status": "ok", "run": run}
            for part, value in epoch_parts(point).items()
        ]
    return pd.DataFrame(rows)
