"""Curves over a numeric axis: one line per series, markers thinned out where points are many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.figures.draw.panels import (
    around,
    draw_hollow,
    legend_above,
    mark_missing,
    mark_paper,
    name_axes,
    one_panel,
    plain_log,
)
from harness.figures.draw.style import Looks, looks_of

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
        rows: columns `series` (a system or any label), `x`, `y` (numbers); optional `low` and `high` (interval),
            `status` (label at the upper edge where y is missing), `paper` (published value, a hollow marker) and
            `hollow` (whether other code measured it).
        looks: looks of the series; by default the systems' own.
        axes: axes to draw into; the caller then makes canvas and legend.
    """
    from matplotlib.ticker import NullLocator

    others = rows[rows["hollow"]] if "hollow" in rows else rows[:0]
    rows = rows.drop(others.index)
    series, look_of = looks_of([str(name) for name in rows["series"]], looks)
    alone = axes is None
    canvas, axes = one_panel(axes)
    missing: dict[float, int] = {}
    for number, name in enumerate(series):
        look = look_of(name)
        mine = rows[rows["series"].astype(str) == name].sort_values("x")
        known = mine[mine["y"].notna()]
        every = max(1, len(known) // MARKERS)
        start = (number * every) // max(1, len(series))
        markers = {"markevery": (start, every) if every > 1 else None, "markeredgecolor": "black"}
        axes.plot(known["x"], known["y"], label=name, markeredgewidth=0.4, **markers, **look.stroke)
        _intervals(axes, known, look.color)
        if "paper" in mine:
            published = mine[mine["paper"].notna()]
            own = {"marker": look.marker, "markersize": None, "markerfacecolor": "none", "markeredgecolor": look.color}
            mark_paper(axes, list(published["x"]), list(published["paper"]), f"{name} (paper)", **own)
        for row in mine[mine["y"].isna()].to_dict("records"):
            level = missing.get(row["x"], 0)
            missing[row["x"]] = level + 1
            mark_missing(axes, row["x"], level, str(row.get("status") or "not run"), name)
    for number, (label, theirs) in enumerate(others.groupby("series", sort=False)):
        draw_hollow(axes, list(theirs["x"]), list(theirs["y"]), str(label), number)
    if xlog:
        axes.set_xscale("log")
        plain_log(axes.xaxis)
        values = sorted(set(rows["x"]))
        if len(values) <= COLUMN_TICKS:
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.xaxis.set_minor_locator(NullLocator())
    if ylog:
        axes.set_yscale("log")
        plain_log(axes.yaxis)
    if missing:
        # Space for the labels at the upper edge.
        low, high = axes.get_ylim()
        share = 0.16 * max(missing.values())
        axes.set_ylim(low, high * (high / low) ** share if ylog else high + (high - low) * share)
    name_axes(axes, title, xlabel, ylabel)
    if alone:
        legend_above(canvas, [axes])
    return canvas, axes


def _intervals(axes: Any, known: pd.DataFrame, color: str) -> None:
    """Draw intervals: a band where a line has many points, error bars where it has few."""
    if "low" not in known or "high" not in known:
        return
    bounded = known[known["low"].notna() & known["high"].notna()]
    if bounded.empty:
        return
    if len(bounded) > 2 * MARKERS:
        axes.fill_between(bounded["x"], bounded["low"], bounded["high"], color=color, alpha=0.2, linewidth=0.0)
        return
    spread = around(bounded["y"], bounded["low"], bounded["high"])
    axes.errorbar(bounded["x"], bounded["y"], yerr=spread, color=color, linestyle="none", capsize=2.0, elinewidth=0.8)
