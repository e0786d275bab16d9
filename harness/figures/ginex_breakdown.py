"""Normalised breakdowns of an epoch as Ginex's Figures 14 and 15 have them: what the device did, or waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.figures.breakdown import run_breakdown
from harness.figures.evidence import Evidence
from harness.figures.ginex_grid import is_plain
from harness.figures.query import Group, NotDrawn, Point, group_runs

#: From the bottom of a bar up. Data preparation is the time in which nothing else was going on: the device's stall.
PARTS = ["compute", "transfer", "cache update", "switch", "inspect", "data preparation"]
ORDER = (
    ("compute", ("train", "lane:compute")),
    ("transfer", ("transfer", "lane:copy")),
    ("cache update", ("cache_update",)),
    ("switch", ("switch",)),
    ("inspect", ("inspect",)),
)
NOTE = "a moment counts for the first open of compute, transfer, cache update, switch, inspect; all else is preparation"


def runs_by_model(evidence: Evidence, systems: Sequence[str], models: Sequence[str]) -> Group:
    """Comparable plain runs of the systems, over both models where both were run.

    Raises:
        NotDrawn: none of the models has one.
    """

    def where(config: Mapping[str, Any]) -> bool:
        return is_plain(config) and config["system"] in systems and config["model"] in models

    def over(least: int) -> Group:
        return group_runs(
            evidence.frame, axis=lambda config: config["model"], ignore=["model"], where=where, want_axis=least
        )

    try:
        return over(2)
    except NotDrawn:
        return over(1)


def in_order(group: Group, models: Sequence[str]) -> list[Point]:
    """The measured points, those of the first model first: a caption takes its setting from the first."""
    measured = [point for point in group.points if point.value is not None]
    return sorted(measured, key=lambda point: models.index(str(point.x)))


def breakdowns(
    group: Group, systems: Sequence[str], models: Sequence[str], base: str, more: Callable[[Point], dict[str, Any]]
) -> pd.DataFrame:
    """A row for each model, system and part: seconds, and normalised to the epoch of `base` with the same model.

    Args:
        more: further columns of a measured point.

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
                        **head, "part": part, "seconds": found[part], "value": found[part] * scale, "status": "ok",
                        "epoch_s": point.value, "low": point.low, "high": point.high,
                        "speedup": whole.value / point.value, "run": point.record["run_id"], **more(point),
                    }
                )  # fmt: skip
    if not rows:
        raise NotDrawn(f"no measured epoch of {base} to compare with")
    return pd.DataFrame(rows)
