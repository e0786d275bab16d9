"""Data Tiering Fig. 8: epoch time with rows gathered by the CPU, read by zero-copy, and tiered."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid, joined
from harness.compare.points import NotDrawn, Point
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.stacks import draw_stacks
from harness.figures.draw.style import look
from harness.figures.ginex.grid import systems_of
from harness.figures.tiering.grid import DEFAULT_SHARE, SYSTEMS, TIERING, chosen_rows, host_profile, hot_rows

PARTS = ["bus", "compute", "gather", "sample", "other"]
ORDER = (
    ("bus", ("transfer", "lane:copy")),
    ("compute", ("train", "lane:compute")),
    ("gather", ("extract", "assemble")),
    ("sample", ("sample",)),
)


def planned(profile: Plain) -> Plan:
    """Plan the three systems without a cap, tiering with a tenth of the rows hot."""
    changed = host_profile(profile)
    others = systems_of(changed, [name for name in SYSTEMS if name != TIERING])
    return joined([grid(changed, others, {DEFAULT_SHARE: {"memory": "none"}}), hot_rows(changed, [DEFAULT_SHARE])])


def draw(evidence: Evidence) -> Drawing:
    """Draw epoch time (left, speedups and the paper's below) and its parts (right); raise NotDrawn without an epoch."""
    group = evidence.points(planned, least=1)
    points = {point.system: point for point in group.points}
    rows = _rows(points)
    canvas, (left, right) = many_panels(2, height=2.4)
    draw_bars(
        rows,
        title="Epoch time",
        ylabel="epoch time (s)",
        numbers=".3g",
        looks=lambda label: look(_NAMES[label]),
        axes=left,
    )
    left.set_xticks([0], [""])
    left.set_xlabel(_compared(rows), fontsize=6.5)
    stacks = _stacks(points)
    if stacks.empty:
        raise NotDrawn("none of the systems finished an epoch")
    draw_stacks(stacks, title="By part", ylabel="share of the epoch (%)", parts=PARTS, share=True, axes=right)
    handles = left.get_legend_handles_labels()
    left.legend(*handles, loc="upper right", fontsize=6.0)
    legend_above(canvas, [right], PARTS)
    measured = [point for point in group.points if point.value is not None]
    chosen = chosen_rows(measured[0].record["config"])
    text = caption(
        group,
        measured,
        f"{100 * DEFAULT_SHARE:g} % of the rows hot in tiering; a moment counts for the first open of bus (copies and "
        "zero-copy reads), compute, gather, sample" + (f"; {chosen}" if chosen else ""),
    )
    add_caption(canvas, text)
    data = pd.concat([rows.assign(panel="time"), stacks.assign(panel="parts")], ignore_index=True)
    return Drawing(canvas, data, text, runs=group.runs())


_NAMES = {label: system for system, label in SYSTEMS.items()}


def _rows(points: dict[str, Point]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    before: Point | None = None
    for system, label in SYSTEMS.items():
        point = points.get(system)
        row: dict[str, Any] = {"group": "epoch", "series": label, "system": system}
        if point is None or point.value is None:
            rows.append({**row, "value": None, "status": "not run" if point is None else point.status})
            before = None
            continue
        speedup = None if before is None or not before.value else before.value / point.value
        rows.append(
            {
                **row,
                "value": point.value,
                "low": point.low,
                "high": point.high,
                "status": "ok",
                "speedup_over_previous": speedup,
                "run": point.record["run_id"],
            }
        )
        before = point
    return pd.DataFrame(rows)


def _compared(rows: pd.DataFrame) -> str:
    """Return the speedup of each step, ours and the paper's, as text below the bars."""
    paper = published("tiering-fig8")
    lines = []
    for series, label in (("zero-copy over CPU gather", "zero-copy"), ("tiering over zero-copy", "tiering")):
        mine = (
            rows.loc[rows["series"] == label, "speedup_over_previous"]
            if "speedup_over_previous" in rows
            else rows["value"][:0]
        )
        ours = f"{float(mine.iloc[0]):.2f}x" if len(mine) and pd.notna(mine.iloc[0]) else "not measured"
        theirs = paper.loc[paper["series"] == series, "value"]
        known = f" (paper {theirs.min():g}–{theirs.max():g}x)" if len(theirs) else ""
        lines.append(f"{series}: {ours}{known}")
    return "\n".join(lines)


def _stacks(points: dict[str, Point]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for system, label in SYSTEMS.items():
        point = points.get(system)
        if point is None or point.value is None:
            continue
        found = run_breakdown(point, ORDER, PARTS[-1])
        rows += [{"bar": label, "part": part, "value": found[part], "run": point.record["run_id"]} for part in PARTS]
    return pd.DataFrame(rows, columns=["bar", "part", "value", "run"])


register(Figure("tiering-fig8", planned, draw))
