"""Dots on a logarithmic axis, for values too far apart for bars; a missing value names
its system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.figures.draw import panels
from harness.figures.draw.bars import complete, places
from harness.figures.draw.style import looks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Least share of the axis above the dots.
LEAST_EDGE = 0.1
# Parts of a group's width that its dots take, alone and joined over groups.
GROUP = 0.7
JOINED = 0.25


def draw_dots(
    rows: pd.DataFrame,
    *,
    title: str,
    ylabel: str,
    xlabel: str = "",
    column: str = "value",
    tick: Callable[[Any], str] = str,
    numbers: str = "",
    joined: bool = False,
    axes: Any = None,
) -> tuple[Canvas, Any]:
    """Draw one dot for each row, y logarithmic.

    Args:
        rows: columns `group` (x, in the order given), `series` (a system or any label),
            `value`; optional `low` and `high` (interval), `status` (label of a missing
            value) and `hollow` (whether other code measured it).
        column: column of the drawn values; another one than `value` has no interval.
        tick: maps a group to its label.
        numbers: format of the number above each dot, like `.1f`; none by default.
        joined: whether lines join the dots of a series.
        axes: axes to draw into.
    """
    every = complete(rows, column)
    groups = list(every.group.unique())
    every["x"] = every.group.map(groups.index)
    theirs = every[every.hollow]
    rows = every[~every.hollow]
    series, look_of = looks_of(list(rows.series), None)
    canvas, axes = panels.one_panel(axes)
    width = (JOINED if joined else GROUP) / len(series)
    rows = rows.assign(x=places(rows, groups, series, width))
    known = rows.dropna(subset="value")
    for name in series:
        own = known[known.series == name]
        look = look_of(name) if joined else replace(look_of(name), line="none")
        panels.draw_line(axes, own.x, own, look, name)
    panels.draw_others(axes, theirs.rename(columns={"value": "y"}))
    axes.set_yscale("log")
    panels.plain_log(axes.yaxis)
    height = 0.0
    if numbers:
        beside = 1 if joined else max(known.group.value_counts(), default=1)
        between = GROUP / beside
        points = panels.points_of(axes, between / (len(groups) + 0.2))
        height = panels.number_all(axes, known, numbers, points, 4)
    panels.raise_edge(axes, max(LEAST_EDGE, panels.margin_of(axes, height)))
    panels.name_absent(axes, every[every.value.isna()])
    panels.set_ticks(axes, list(map(tick, groups)))
    panels.name_axes(axes, title, xlabel, ylabel)
    return canvas, axes
