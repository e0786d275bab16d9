"""Stacked bars: the parts of a whole, distinct in greyscale by lightness and hatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.figures.draw.panels import legend_above, mark_missing_bar, name_axes, number_over, one_panel, set_ticks
from harness.figures.draw.style import part_fill

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLUMN_BARS = 10


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
    canvas, axes = one_panel(axes, wide=len(bars) > COLUMN_BARS)
    labelled: set[str] = set()
    for at, bar in enumerate(bars):
        mine = rows[rows["bar"] == bar]
        known = mine[mine["value"].notna()]
        if known.empty:
            status = str(mine.iloc[0].get("status") or "not run")
            mark_missing_bar(axes, at, status)
            continue
        total = float(known["value"].sum())
        scale = 100.0 / total if share and total > 0 else 1.0
        bottom = 0.0
        for index, part in enumerate(parts):
            value = float(known.loc[known["part"] == part, "value"].sum()) * scale
            if value <= 0:
                continue
            label = part if part not in labelled else None
            labelled.add(part)
            axes.bar(at, value, 0.62, bottom=bottom, label=label, **part_fill(index))
            bottom += value
        if numbers:
            number_over(axes, at, bottom, f"{total:{numbers}}", 6.0)
    if share:
        axes.set_ylim(0, 108 if numbers else 100)
    elif numbers:
        axes.margins(y=0.1)
    axes.set_xlim(-0.6, len(bars) - 0.4)
    set_ticks(axes, [str(bar) for bar in bars])
    axes.grid(axis="x", visible=False)
    name_axes(axes, title, xlabel, ylabel)
    if alone:
        legend_above(canvas, [axes], parts)
    return canvas, axes
