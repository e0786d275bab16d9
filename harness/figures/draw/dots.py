"""Dots on a logarithmic axis, for values too far apart for bars; a missing value names its system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.figures.draw import panels
from harness.figures.draw.bars import plain_number
from harness.figures.draw.style import LEAST_POINTS, looks_of
from harness.results.table import each

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

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
        rows: columns `group` (x, in the order given), `series` (a system or any label), `value`, `low` and `high`
            (interval), `status` (label of a missing value).
        column: column of the drawn values; another one than `value` has no interval.
        tick: maps a group to its label.
        numbers: format of the number above each dot, like `.1f`; none by default.
        joined: whether lines join the dots of a series.
        axes: axes to draw into; the caller then makes canvas and legend.
    """
    if column != "value":
        rows = rows.assign(value=rows[column], low=None, high=None)
    groups = list(dict.fromkeys(rows["group"]))
    series, look_of = looks_of(list(rows["series"]), None)
    canvas, axes = panels.one_panel(axes)
    width = (JOINED if joined else GROUP) / len(series)
    rows = rows.assign(place=_places(rows, groups, series, width))
    known = rows.dropna(subset="value")
    texts = [plain_number(value, numbers) for value in known["value"]] if numbers else []
    beside = 1 if joined else max(known["group"].value_counts(), default=1)
    between = GROUP / beside
    rotation = panels.rotation_of(texts, panels.points_of(axes, between / (len(groups) + 0.2)))
    levels: dict[Any, int] = {}
    for name in series:
        look = look_of(name)
        own = rows[rows["series"] == name]
        known = own[own["value"].notna()]
        values = known["value"].astype(float)
        spread = panels.around(values, known["low"].fillna(values), known["high"].fillna(values))
        shown = look if joined else replace(look, line="none")
        panels.draw_line(axes, known["place"], values, spread, shown, name)
        for row in each(known) if numbers else ():
            _number(axes, row, plain_number(row.value, numbers), rotation or 0)
        for row in each(own[own["value"].isna()]):
            level = levels.get(row.group, 0)
            levels[row.group] = level + 1
            panels.mark_missing(axes, row.place, level, str(row.status or "not run"), name)
    axes.set_yscale("log")
    panels.plain_log(axes.yaxis)
    _make_room(axes, max(levels.values(), default=0), upright=bool(rotation))
    panels.set_ticks(axes, [tick(group) for group in groups])
    panels.name_axes(axes, title, xlabel, ylabel)
    return canvas, axes


def _places(rows: pd.DataFrame, groups: list[Any], series: list[str], width: float) -> pd.Series[float]:
    """Return the x of each row: its group's, and its series' place beside the others."""
    group = rows["group"].map(groups.index)
    beside = rows["series"].map(series.index) - (len(series) - 1) / 2
    return group + beside * width


def _number(axes: Any, row: Any, text: str, rotation: float) -> None:
    beside = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "va": "bottom"}
    top = row.value if pd.isna(row.high) else row.high
    axes.annotate(text, (row.place, top), fontsize=LEAST_POINTS, rotation=rotation, **beside)


def _make_room(axes: Any, labels: int, *, upright: bool) -> None:
    """Raise the upper edge above the numbers, upright ones too, and `labels` missing values of one group."""
    low, high = axes.get_ylim()
    room = (high / low) ** ((0.18 if upright else 0.1) + 0.16 * labels)
    axes.set_ylim(low, high * room)
