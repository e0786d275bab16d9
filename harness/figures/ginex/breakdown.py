"""Normalised breakdowns of an epoch as in Ginex's Figures 14 and 15: the device's work, and its reasons to wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from harness.compare.points import Group, NotDrawn, Point
from harness.figures.draw.breakdown import run_breakdown

#: From the bottom of a bar up. Data preparation is the time without any other part: the device's stall.
PARTS = ["compute", "transfer", "cache update", "switch", "inspect", "data preparation"]
ORDER = (
    ("compute", ("train", "lane:compute")),
    ("transfer", ("transfer", "lane:copy")),
    ("cache update", ("cache_update",)),
    ("switch", ("switch",)),
    ("inspect", ("inspect",)),
)
NOTE = "a moment counts for the first open of compute, transfer, cache update, switch, inspect; all else is preparation"


def in_order(group: Group, models: Sequence[str]) -> list[Point]:
    """Return the measured points in the order of `models`: a caption takes its setting from the first point."""
    measured = [point for point in group.points if point.value is not None]
    return sorted(measured, key=lambda point: models.index(str(point.x)))


def breakdowns(
    group: Group, systems: Sequence[str], models: Sequence[str], base: str, more: Callable[[Point], dict[str, Any]]
) -> pd.DataFrame:
    """Return a row per model, system and part: seconds, and their ratio to the epoch of `base` with the same model.

    Args:
        base: system whose epoch is 1; a model without it has no rows.
        more: maps a measured point to further columns.

    Raises:
        NotDrawn: `base` has no measured epoch with any model.
    """
    points = {(str(point.x), point.system): point for point in group.points}
    rows: list[dict[str, Any]] = []
    for model in models:
        whole = points.get((model, base))
        if whole is None or whole.value is None:
            continue
        for system in systems:
            point = points.get((model, system))
            head = {"model": model, "system": system, "bar": f"{system}\n{model}"}
            if point is None or point.value is None:
                status = "not run" if point is None else point.status
                rows.append({**head, "part": PARTS[0], "seconds": None, "value": None, "status": status})
                continue
            found = run_breakdown(point, ORDER, PARTS[-1])
            scale = point.value / sum(found.values()) / whole.value
            for part in PARTS:
                rows.append(
                    {
                        **head,
                        "part": part,
                        "seconds": found[part],
                        "value": found[part] * scale,
                        "status": "ok",
                        "epoch_s": point.value,
                        "low": point.low,
                        "high": point.high,
                        "speedup": whole.value / point.value,
                        "run": point.record["run_id"],
                        **more(point),
                    }
                )
    if not rows:
        raise NotDrawn(f"no measured epoch of {base} to compare with")
    return pd.DataFrame(rows)
