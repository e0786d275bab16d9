"""Ginex Fig. 6: time of an iteration's sampling alone, its gathering alone, and of both in a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, gallery, register
from harness.figures.draw.looks import SERIES
from harness.figures.draw.panels import legend_above, one_panel
from harness.figures.ginex.grid import systems_of
from harness.results import store as results
from workloads.errors import OutcoreError

SYSTEM = "pyg+"
# Fewest mini-batches gathered alone for a median.
LEAST = 3
# Default of pyg+: the most sampled mini-batches that wait per sampler.
DEFAULT_AHEAD = 2


def kinds(profile: Plain) -> Plan:
    """Plan pyg+ with sampling only, with sampling and gathering, and with sampling free to run ahead to its end."""
    short = gallery(profile)
    batches = int(short["run"].get("max_batches", 0))
    # Two samplers or more together may then hold the whole epoch.
    ahead = min(64, max(DEFAULT_AHEAD + 1, -(-batches // 2))) if batches else 64
    runs: dict[str, Plain] = {
        "sample": {"stages": "sample"},
        "both": {"stages": "sample+extract"},
        "ahead": {"stages": "sample+extract", "options": {"prefetch": ahead}},
    }
    return grid(short, systems_of(short, [SYSTEM]), runs)


def gather_alone(stages: pd.DataFrame, epochs: list[Plain]) -> list[float]:
    """Return seconds of each gathering that began after the last sampling of its epoch had ended, without warm-up."""
    found: list[float] = []
    for epoch in epochs:
        if epoch["warmup"]:
            continue
        mine = stages[stages["epoch"] == epoch["epoch"]]
        sampled, gathered = (mine[mine["stage"] == stage] for stage in ("sample", "extract"))
        if len(sampled) and len(gathered):
            alone = gathered[gathered["start"] >= sampled["end"].max()]
            found += list((alone["end"] - alone["start"]).astype(float))
    return found


def draw(evidence: Evidence) -> Drawing:
    """Draw seconds per iteration of sampling alone, gathering alone, both; raise NotDrawn where one is missing."""
    group = evidence.points(
        kinds, lambda epoch: epoch["seconds"] / epoch["batches"] if epoch["batches"] else None, least=3
    )
    points = {str(point.x): point for point in group.points}
    missing = [kind for kind in ("sample", "both", "ahead") if points[kind].value is None]
    if missing:
        raise NotDrawn(f"{SYSTEM} did not finish its run of {' and '.join(missing)} (see its record)")
    alone = _alone(points["ahead"])
    rows = _rows(points, alone)
    return _bars(group, rows, len(alone))


def _alone(point: Point) -> list[float]:
    try:
        stages = results.stages(Path(point.path))
    except OutcoreError as error:
        raise NotDrawn(str(error)) from error
    alone = gather_alone(stages, point.record["epochs"])
    if len(alone) < LEAST:
        raise NotDrawn("sampling never ran far enough ahead for mini-batches to be gathered alone")
    return alone


def _rows(points: Mapping[str, Point], alone: list[float]) -> pd.DataFrame:
    low, middle, high = (float(value) for value in np.percentile(alone, [2.5, 50, 97.5]))
    sample, both = points["sample"], points["both"]
    return pd.DataFrame(
        [
            {
                "what": "sample alone",
                "value": sample.value,
                "low": sample.low,
                "high": sample.high,
                "samples": sample.samples,
                "run": sample.record["run_id"],
            },
            {
                "what": "gather alone",
                "value": middle,
                "low": low,
                "high": high,
                "samples": len(alone),
                "run": points["ahead"].record["run_id"],
            },
            {
                "what": "both in a pipeline",
                "value": both.value,
                "low": both.low,
                "high": both.high,
                "samples": both.samples,
                "run": both.record["run_id"],
            },
        ]
    ).assign(unit="s an iteration")


def _bars(group: Group, rows: pd.DataFrame, count: int) -> Drawing:
    canvas, axes = one_panel()
    for at, row in enumerate(rows.to_dict("records")[:2]):
        look = SERIES[at]
        error = [[max(0.0, row["value"] - row["low"])], [max(0.0, row["high"] - row["value"])]]
        axes.bar(
            at,
            row["value"],
            0.5,
            facecolor=look.color,
            hatch=look.hatch,
            edgecolor="black",
            linewidth=0.5,
            yerr=error,
            error_kw={"elinewidth": 0.8, "capsize": 2.0},
        )
    both = rows.iloc[2]
    axes.axhline(both["value"], color="black", linestyle=":", linewidth=1.6, label="sample and gather in a pipeline")
    axes.set_xticks([0, 1], list(rows["what"])[:2])
    axes.set_xlim(-0.6, 1.6)
    axes.set_ylim(0, 1.15 * max(float(rows["value"].max()), float(rows["high"].max())))
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("time an iteration (s)")
    axes.set_title(f"{SYSTEM}: alone and together", loc="left")
    legend_above(canvas, [axes])
    extra = (
        f"gather alone: {count} mini-batches of an epoch whose sampling had run ahead and was over (median, 95 % of "
        "them); nothing is trained"
    )
    text = caption(group, None, extra)
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, runs=group.runs())


register(Figure("ginex-fig6", kinds, draw))
