"""Grouped and stacked bars; a missing value is labelled and never drawn as zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.figures.draw import panels
from harness.figures.draw.style import Looks, looks_of, part_fill

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# More bars than this, or numbers over them, do not fit a column's width.
COLUMN_BARS = 30
COLUMN_NUMBERS = 16
COLUMN_STACKS = 10
# Label of the ends of a published range.
RANGE = "paper (range)"
# A value with its interval, and the columns of a bar.
ENDS = ["value", "low", "high"]
BARS = ["group", "series", *ENDS, "status", "run"]
# Keywords of a bar that other code measured.
HOLLOW: dict[str, Any] = {"facecolor": "none", "edgecolor": "#555555", "linestyle": "--", "linewidth": 0.9}


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
        rows: columns `group` (x, in the order given), `series` (a system or any label), `value`; optional `low` and
            `high` (interval), `status` (label of a missing value), `paper` (published value, a hollow diamond at the
            bar), `paper_low` and `paper_high` (published range) and `hollow` (whether other code measured it, which is
            drawn without a fill).
        column: column of the drawn values; another one than `value` has no interval.
        tick: maps a group to its label.
        looks: looks of the series; by default the systems' own.
        numbers: format of the number over each bar, like `.1f`; none by default, and none where they do not fit.
        axes: axes to draw into; the caller then makes canvas and legend.
    """
    if column != "value":
        rows = rows.assign(value=rows[column], low=None, high=None)
    groups = list(dict.fromkeys(rows["group"]))
    theirs = {str(row["series"]) for row in rows.to_dict("records") if row.get("hollow") is True}
    series, look_of = looks_of([name for name in map(str, rows["series"]) if name not in theirs], looks)
    series = [*series, *sorted(theirs)]
    alone = axes is None
    most = COLUMN_NUMBERS if numbers else COLUMN_BARS
    canvas, axes = panels.one_panel(axes, wide=len(groups) * len(series) > most)
    width = 0.8 / len(series)
    share = width / (len(groups) + 0.2)
    texts = [plain_number(value, numbers) for value in rows["value"].dropna()] if numbers else []
    rotation = panels.rotation_of(texts, panels.points_of(axes, share))
    place = {name: (index - (len(series) - 1) / 2) * width for index, name in enumerate(series)}
    labelled: set[str] = set()
    for row in rows.to_dict("records"):
        name = str(row["series"])
        x, fill = groups.index(row["group"]) + place[name], HOLLOW if name in theirs else look_of(name).fill
        value = row["value"]
        if pd.notna(row.get("paper")):
            # Beside the number over the bar, which it would cover.
            at, label = x + (0.3 * width if numbers else 0.0), None if "paper" in labelled else "paper"
            panels.mark_paper(axes, [at], [float(row["paper"])], label, markerfacecolor="none", zorder=5)
            labelled.add("paper")
        if pd.notna(row.get("paper_low")):
            ends = [row["paper_low"], row["paper_high"]]
            label = None if RANGE in labelled else RANGE
            panels.mark_range(axes, [x + 0.3 * width] * 2, ends, label, markeredgecolor="black", zorder=5)
            labelled.add(RANGE)
        if pd.isna(value):
            panels.mark_missing_bar(axes, x, str(row.get("status") or "not run"), share)
            continue
        error: Any = {"yerr": panels.interval(row), "error_kw": {"elinewidth": 0.8, "capsize": 1.8}}
        axes.bar(x, value, width, label=name if name not in labelled else None, **fill, **error)
        labelled.add(name)
        if numbers and rotation is not None:
            top: float = row["high"] if pd.notna(row.get("high")) else value
            panels.number_over(axes, x, top, plain_number(value, numbers), rotation)
    axes.margins(y=(0.22 if rotation else 0.13) if numbers else 0.05)
    panels.set_ticks(axes, [tick(group) for group in groups])
    panels.name_axes(axes, title, xlabel, ylabel)
    if alone:
        panels.legend_above(canvas, [axes], [*series, "paper"])
    return canvas, axes


def as_bars(rows: pd.DataFrame, base: Any = 1.0) -> pd.DataFrame:
    """Return rows of `Cells.medians` as those of `draw_bars`, values over a base: a number, or one for each row."""
    bars = rows.rename(columns={"x": "group", "system": "series"})[BARS]
    bars[ENDS] = bars[ENDS].div(base, axis=0)
    return bars


def plain_number(value: float, spec: str) -> str:
    """Return `value` in the format `spec`, without an exponent: `480` for `4.8e+02`."""
    text = f"{value:{spec}}"
    return f"{float(text):,.0f}" if "e+" in text else text


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
        rows: columns `bar`, `part`, `value`; a part missing from a bar takes no space; a bar without any value
            is labelled with its `status` (optional column; by default `not run`).
        parts: all parts, from the bottom up.
        share: scale each bar to 100 %.
        numbers: format of the sum over each bar, like `.1f`; with `share` the sum before scaling.
        axes: axes to draw into; the caller then makes canvas and legend.
    """
    bars = list(dict.fromkeys(rows["bar"]))
    alone = axes is None
    canvas, axes = panels.one_panel(axes, wide=len(bars) > COLUMN_STACKS)
    labelled: set[str] = set()
    for at, bar in enumerate(bars):
        mine = rows[rows["bar"] == bar]
        known = mine[mine["value"].notna()]
        if known.empty:
            panels.mark_missing_bar(axes, at, str(mine.iloc[0].get("status") or "not run"))
            continue
        total = float(known["value"].sum())
        scale = 100.0 / total if share and total > 0 else 1.0
        bottom = 0.0
        for index, part in enumerate(parts):
            value = float(known.loc[known["part"] == part, "value"].sum()) * scale
            if value <= 0:
                continue
            axes.bar(at, value, 0.62, bottom=bottom, label=None if part in labelled else part, **part_fill(index))
            labelled.add(part)
            bottom += value
        if numbers:
            panels.number_over(axes, at, bottom, f"{total:{numbers}}")
    if share:
        axes.set_ylim(0, 108 if numbers else 100)
    elif numbers:
        axes.margins(y=0.1)
    panels.set_ticks(axes, [str(bar) for bar in bars])
    panels.name_axes(axes, title, xlabel, ylabel)
    if alone:
        panels.legend_above(canvas, [axes], parts)
    return canvas, axes
