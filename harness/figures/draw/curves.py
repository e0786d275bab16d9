"""Curves over a numeric axis: one line per series, markers thinned out where points are
many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.figures.draw import panels
from harness.figures.draw.bars import OPTIONAL
from harness.figures.draw.style import Look, Looks, looks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# About this many markers distinguish a line from others and leave it visible.
MARKERS = 12
# Most values of a logarithmic axis at which each value is a tick.
COLUMN_TICKS = 9


def draw_curves(
    rows: pd.DataFrame,
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    xlog: bool = False,
    ylog: bool = False,
    looks: Looks | None = None,
    axes: Any = None,
) -> tuple[Canvas, Any]:
    """Draw one line for each series, its points ordered by x.

    Args:
        rows: columns `series` (a system or any label), `x`, `y` (numbers); optional
            `low` and `high` (interval), `status` (label at the upper edge where y is
            missing), `paper` (published value, a hollow marker) and `hollow` (whether
            other code measured it).
        looks: looks of the series; by default the systems' own.
        axes: axes to draw into.
    """
    every = rows.reindex(columns=["series", "x", "y", *OPTIONAL])
    every = every.astype({"series": str, "y": float, "status": object}).fillna(
        {"status": "not run"}
    )
    hollow = every.hollow.eq(True)
    rows = every[~hollow].sort_values("x", kind="stable")
    series, look_of = looks_of(list(every.series[~hollow]), looks)
    canvas, axes = panels.one_panel(axes)
    for number, name in enumerate(series):
        own = rows[rows.series == name]
        _draw_curve(axes, own, look_of(name), number / len(series))
    panels.draw_others(axes, every[hollow])
    if xlog:
        _set_log(axes, sorted(set(rows.x)))
    if ylog:
        axes.set_yscale("log")
        panels.plain_log(axes.yaxis)
    panels.name_absent(axes, rows[rows.y.isna()])
    panels.name_axes(axes, title, xlabel, ylabel)
    return canvas, axes


def _draw_curve(axes: Any, rows: pd.DataFrame, look: Look, shift: float) -> None:
    """Draw the line of one series, its markers `shift`ed by a share of their distance,
    and its published values."""
    name = rows.series.iloc[0]
    known = rows.dropna(subset="y")
    every = max(1, len(known) // MARKERS)
    start = int(shift * every)
    markers = {
        "markevery": (start, every),
        "markeredgecolor": "black",
        "markeredgewidth": 0.4,
    }
    axes.plot(known.x, known.y, label=name, **markers, **look.stroke)
    paper = rows.dropna(subset="paper")
    own = {
        "marker": look.marker,
        "markersize": None,
        "markerfacecolor": "none",
        "markeredgecolor": look.color,
    }
    panels.mark_paper(axes, paper.x, paper.paper, f"{name} (paper)", **own)
    bounded = known.dropna(subset=["low", "high"])
    if len(bounded) > 2 * MARKERS:
        axes.fill_between(
            bounded.x,
            bounded.low,
            bounded.high,
            color=look.color,
            alpha=0.2,
            linewidth=0.0,
        )
    elif len(bounded):
        bars = {
            "color": look.color,
            "linestyle": "none",
            "capsize": 2.0,
            "elinewidth": 0.8,
        }
        axes.errorbar(bounded.x, bounded.y, panels.around(bounded, "y"), **bars)


def _set_log(axes: Any, values: list[float]) -> None:
    """Set a logarithmic x axis with a tick at each of the values, if they are few."""
    axes.set_xscale("log")
    panels.plain_log(axes.xaxis)
    if len(values) <= COLUMN_TICKS:
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
