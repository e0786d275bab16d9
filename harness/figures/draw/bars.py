"""Grouped and stacked bars; a missing value is labelled and never drawn as zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.figures.draw import panels
from harness.figures.draw.style import Looks, looks_of, part_fill
from harness.results.table import each

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# More bars than this, or numbers over them, do not fit a column's width.
COLUMN_BARS = 30
COLUMN_NUMBERS = 16
COLUMN_STACKS = 10
# A value with its interval, the columns of a bar, and columns of bars and dots that a
# figure may leave out.
ENDS = ["value", "low", "high"]
BARS = ["group", "series", *ENDS, "status", "run"]
OPTIONAL = ["low", "high", "status", "hollow", "paper", "paper_low", "paper_high"]
# Status of a bar that has none.
NOT_RUN = pd.Series("not run")
# Least share of the bars' height that the numbers over them take.
LEAST_MARGIN = 0.13
# Keywords of a bar that other code measured.
HOLLOW = {
    "facecolor": "none",
    "edgecolor": "#555555",
    "linestyle": "--",
    "linewidth": 0.9,
}


def draw_bars(
    rows: pd.DataFrame,
    *,
    title: str,
    ylabel: str,
    xlabel: str = "",
    column: str = "value",
    tick: Callable[[Any], str] = str,
    looks: Looks | None = None,
    numbers: str = "",
    axes: Any = None,
) -> tuple[Canvas, Any]:
    """Draw one bar for each row.

    Args:
        rows: columns `group` (x, in the order given), `series` (a system or any label),
            `value`; optional `low` and `high` (interval), `status` (of a missing value,
            labelled with its series and status), `paper` (published value, a hollow
            diamond at the bar), `paper_low` and `paper_high` (published range) and
            `hollow` (whether other code measured it, which is drawn without a fill).
        column: column of the drawn values; another one than `value` has no interval.
        tick: maps a group to its label.
        looks: looks of the series; by default the systems' own.
        numbers: format of the number over each bar, like `.1f`; none by default, and
            none where they do not fit.
        axes: axes to draw into.
    """
    rows = complete(rows, column)
    groups = list(rows.group.unique())
    series, look_of = looks_of(list(rows.series[~rows.hollow]), looks)
    theirs = sorted(set(rows.series[rows.hollow]))
    fills = {name: look_of(name).fill for name in series} | dict.fromkeys(
        theirs, HOLLOW
    )
    most = COLUMN_NUMBERS if numbers else COLUMN_BARS
    canvas, axes = panels.one_panel(axes, wide=len(groups) * len(fills) > most)
    width = 0.8 / len(fills)
    share = width / (len(groups) + 0.2)
    rows["x"] = places(rows, groups, list(fills), width)
    known = rows.dropna(subset="value")
    for name, own in known.groupby("series", sort=False):
        look = {
            "label": str(name),
            "error_kw": {"elinewidth": 0.8, "capsize": 1.8},
            **fills[str(name)],
        }
        axes.bar(own.x, own.value, width, **look)
        bounded = own.dropna(subset=["low", "high"])
        bars = {
            "linestyle": "none",
            "color": "black",
            "elinewidth": 0.8,
            "capsize": 1.8,
        }
        axes.errorbar(bounded.x, bounded.value, panels.around(bounded), **bars)
    for row in each(rows[rows.value.isna()]):
        panels.mark_missing_bar(
            axes, row.x, panels.missing_text(row.series, row.status), share
        )
    margin = 0.05
    if numbers:
        points = panels.points_of(axes, share)
        height = panels.number_all(axes, known, numbers, points, 1.5)
        margin = max(LEAST_MARGIN, panels.margin_of(axes, height))
    _mark_published(axes, rows, 0.3 * width, beside=bool(numbers))
    axes.margins(y=margin)
    panels.set_ticks(axes, list(map(tick, groups)))
    panels.name_axes(axes, title, xlabel, ylabel)
    return canvas, axes


def complete(rows: pd.DataFrame, column: str = "value") -> pd.DataFrame:
    """Return rows of bars or dots with all their columns, and a column's values as
    those that are drawn."""
    every = rows.reindex(
        columns=[*rows, *(name for name in OPTIONAL if name not in rows)]
    )
    if column != "value":
        every = every.assign(value=every[column], low=None, high=None)
    every["status"] = every.status.astype(object).fillna("not run")
    every["hollow"] = every.hollow.eq(True)
    return every.astype({**dict.fromkeys(ENDS, float), "series": str})


def places(
    rows: pd.DataFrame, groups: Sequence[Any], series: Sequence[str], width: float
) -> pd.Series[float]:
    """Return the x of each row: its group's, and its series' place beside the
    others."""
    group = rows.group.map(groups.index)
    beside = rows.series.map(series.index) - (len(series) - 1) / 2
    return group + beside * width


def _mark_published(
    axes: Any, rows: pd.DataFrame, shift: float, *, beside: bool
) -> None:
    """Draw published values, `beside` the numbers over the bars, which they would
    cover, and published ranges."""
    paper = rows.dropna(subset="paper")
    xs = paper.x + (shift if beside else 0.0)
    panels.mark_paper(axes, xs, paper.paper, "paper", markerfacecolor="none", zorder=5)
    label = "paper (range)"
    for row in each(rows.dropna(subset="paper_low")):
        ends = [row.paper_low, row.paper_high]
        panels.mark_range(
            axes, [row.x + shift] * 2, ends, label, markeredgecolor="black", zorder=5
        )
        label = ""


def as_bars(rows: pd.DataFrame, base: Any = 1.0) -> pd.DataFrame:
    """Return rows of `Cells.medians` as those of `draw_bars`, values over a base: a
    number, or one for each row."""
    bars = rows.rename(columns={"x": "group", "system": "series"})[BARS]
    bars[ENDS] = bars[ENDS].div(base, axis=0)
    return bars


def draw_stacks(
    rows: pd.DataFrame,
    *,
    title: str,
    ylabel: str,
    xlabel: str = "",
    parts: list[str],
    share: bool = False,
    numbers: str = "",
    axes: Any = None,
) -> tuple[Canvas, Any]:
    """Draw one bar for each `bar`, its parts stacked in the order of `parts`.

    Args:
        rows: columns `bar`, `part`, `value`; a part missing from a bar takes no space;
            a bar without any value is labelled with its `status` (optional column; by
            default `not run`).
        parts: all parts, from the bottom up.
        share: scale each bar to 100 %.
        numbers: format of the sum over each bar, like `.1f`; with `share` the sum
            before scaling.
        axes: axes to draw into.
    """
    known = rows.dropna(subset="value").astype({"value": float})
    bars = list(rows.bar.unique())
    sums = known.pivot_table(index="bar", columns="part", values="value", aggfunc="sum")
    heights = sums.reindex(index=bars, columns=parts).fillna(0.0)
    totals = heights.sum(axis=1)
    if share:
        heights = 100 * heights.div(totals, axis=0)
    canvas, axes = panels.one_panel(axes, wide=len(bars) > COLUMN_STACKS)
    bottoms = heights.cumsum(axis=1) - heights
    for index, part in enumerate(parts):
        if heights[part].any():
            axes.bar(
                range(len(bars)),
                heights[part],
                0.62,
                bottom=bottoms[part],
                label=part,
                **part_fill(index),
            )
    for at, bar in enumerate(bars):
        if bar not in sums.index:
            status = str(rows[rows.bar == bar].get("status", NOT_RUN).iloc[0])
            panels.mark_missing_bar(axes, at, panels.MARK.get(status, status))
        elif numbers:
            panels.number_over(
                axes, at, heights.loc[bar].sum(), f"{totals[bar]:{numbers}}"
            )
    if share:
        axes.set_ylim(0, 108 if numbers else 100)
    elif numbers:
        axes.margins(y=0.1)
    panels.set_ticks(axes, list(map(str, bars)))
    panels.name_axes(axes, title, xlabel, ylabel)
    return canvas, axes
