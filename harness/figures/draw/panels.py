"""Canvases of panels with one legend, and what drawings share: marks of published
values, intervals, labels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.figures.draw import style
from harness.figures.draw.style import LEAST_POINTS, SOFT, Look, looks_of
from harness.results.table import each

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def one_panel(
    axes: Any = None, *, wide: bool = False, height: float = 2.5
) -> tuple[Canvas, Any]:
    """Create a canvas with one pair of axes, `height` in inches; with `axes` return
    these and their canvas."""
    if axes is not None:
        return axes.figure, axes
    canvas, panels = many_panels(1, wide=wide, height=height)
    return canvas, panels[0]


def many_panels(
    count: int,
    *,
    columns: int = 0,
    wide: bool = True,
    height: float = 2.2,
    sharey: bool = False,
) -> tuple[Canvas, list[Any]]:
    """Create a canvas of `count` panels.

    Args:
        columns: panels in a row, 0 for all.
        wide: page width instead of column width.
        height: inches of each row.
    """
    import matplotlib.pyplot as plt

    columns = columns or count
    rows = -(-count // columns)
    width = style.PAGE_INCHES if wide else style.COLUMN_INCHES
    canvas, grid = plt.subplots(
        rows,
        columns,
        figsize=(width, height * rows),
        squeeze=False,
        sharey=sharey,
        constrained_layout=True,
    )
    panels = list(grid.flat)
    for extra in panels[count:]:
        extra.set_visible(False)
    return canvas, panels[:count]


def legend_above(
    canvas: Canvas, panels: Sequence[Any], order: Sequence[str] = ()
) -> None:
    """Draw one legend above all panels, each label once, labels of `order` first; the
    canvas grows by the legend."""
    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    order = order or looks_of(list(entries), None)[0]
    entries = {
        **{label: entries[label] for label in order if label in entries},
        **entries,
    }
    width, height = canvas.get_size_inches()
    longest = max(len(label) for label in entries)
    columns = max(1, min(len(entries), int(width * 15 / (longest + 7))))
    rows = -(-len(entries) // columns)
    canvas.set_size_inches(width, height + 0.16 * rows)
    spacing = {"handlelength": 2.2, "columnspacing": 1.2}
    canvas.legend(
        list(entries.values()),
        list(entries),
        loc="outside upper left",
        ncols=columns,
        **spacing,
    )


def has_intervals(canvas: Canvas) -> bool:
    """Return whether a drawing shows intervals, as bars or bands."""
    from matplotlib.collections import PolyCollection
    from matplotlib.container import ErrorbarContainer

    for axes in canvas.axes:
        if any(isinstance(one, PolyCollection) for one in axes.collections):
            return True
        for held in axes.containers:
            if isinstance(held, ErrorbarContainer) and any(map(_has_length, held[2])):
                return True
    return False


def _has_length(bars: Any) -> bool:
    """Return whether any of the bars of an `errorbar` is longer than a point."""
    return any(low[1] < high[1] for low, high in bars.get_segments())


def set_ticks(axes: Any, labels: Sequence[str]) -> None:
    """Set labels at 0, 1, 2, … of the x axis without grid lines, slanted where they
    would overlap."""
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.grid(axis="x", visible=False)
    spec = axes.get_subplotspec()
    width = axes.figure.get_size_inches()[0] / (
        spec.get_gridspec().ncols if spec is not None else 1
    )
    crowded = sum(
        max(len(line) for line in label.split("\n")) + 1 for label in labels
    ) > 14.5 * (width - 0.6)
    slant = (
        {"rotation": 28, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    )
    axes.set_xticks(range(len(labels)), list(labels), **slant)


def plain_log(axis: Any) -> None:
    """Set the ticks of a log axis at 1, 2 and 5 times powers of ten, as plain
    numbers."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


#: Share of the axes' height that is left when labels and legends have their space.
LAID_OUT = 0.8
#: Label of a missing value by its status.
MARK = {"oom": "OOM", "timeout": "OOT", "failed": "failed", "unsupported": "n/a"}


def name_axes(axes: Any, title: str, xlabel: str = "", ylabel: str = "") -> None:
    """Set the title, at the left, and the labels of axes."""
    axes.set_title(title, loc="left")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def mark_paper(axes: Any, xs: Any, ys: Any, label: str, **changes: Any) -> None:
    """Draw published values as hollow diamonds; without values nothing. `changes`:
    other keywords of `plot`."""
    look = {
        "marker": "D",
        "linestyle": "none",
        "markerfacecolor": "white",
        "markeredgecolor": "black",
    }
    if len(xs):
        axes.plot(xs, ys, label=label, **{**look, "markersize": 4.5, **changes})


def mark_range(axes: Any, xs: Any, ys: Any, label: str, **changes: Any) -> None:
    """Draw a published range as a line between hollow diamonds."""
    own = {
        "linestyle": "-",
        "color": "black",
        "linewidth": 0.8,
        "markersize": 4,
        **changes,
    }
    mark_paper(axes, xs, ys, label, **own)


def around(rows: pd.DataFrame, column: str = "value") -> list[Any]:
    """Return the intervals of rows, `low` to `high` around a column, as `yerr` of
    matplotlib.

    No bound is beyond its value; a missing bound is at it.
    """
    values = rows[column].astype(float)
    below = values - rows.low.astype(float)
    above = rows.high.astype(float) - values
    return [below.clip(lower=0).fillna(0), above.clip(lower=0).fillna(0)]


def draw_line(
    axes: Any, xs: Any, rows: pd.DataFrame, look: Look, label: str, **changes: Any
) -> None:
    """Draw `value` of rows over `xs` as a line with their intervals; `changes`: other
    keywords of `errorbar`."""
    bars = {"yerr": around(rows), "capsize": 2.0, "elinewidth": 0.8}
    border = {"markeredgecolor": "black", "markeredgewidth": 0.4}
    axes.errorbar(
        xs, rows.value, label=label, **bars, **look.stroke, **border | changes
    )


def draw_others(axes: Any, rows: pd.DataFrame) -> None:
    """Draw each series measured by other code (columns `series`, `x`, `y`): hollow
    markers, a thin dotted line."""
    look = {
        "linestyle": ":",
        "color": "#555555",
        "linewidth": 0.8,
        "markerfacecolor": "none",
        "markersize": 6,
    }
    for marker, (name, own) in zip(
        cycle("oDs^v"), rows.groupby("series", sort=False), strict=False
    ):
        axes.plot(own.x, own.y, label=str(name), marker=marker, **look)


def name_absent(axes: Any, rows: pd.DataFrame) -> None:
    """Label each missing value of lines with its status and series at the upper edge,
    above all lines.

    Args:
        rows: columns `x`, `series` and `status`; labels at one x stand below each
            other.
    """
    if rows.empty:
        return
    levels = rows.groupby("x").cumcount()
    raise_edge(axes, 0.16 * (levels.max() + 1))
    look = {
        "ha": "center",
        "va": "top",
        "fontsize": LEAST_POINTS,
        "color": SOFT,
        "linespacing": 1.05,
    }
    for row, level in zip(each(rows), levels, strict=True):
        below = -2.4 * LEAST_POINTS * level
        place = {
            "xycoords": ("data", "axes fraction"),
            "xytext": (0, below),
            "textcoords": "offset points",
        }
        axes.annotate(
            f"{MARK.get(row.status, row.status)}\n{row.series}",
            (row.x, 1.0),
            **place,
            **look,
        )


def raise_edge(axes: Any, share: float) -> None:
    """Raise the upper edge of the y axis, linear or logarithmic, by a share of its
    length."""
    to_data = (axes.transScale + axes.transLimits).inverted()
    _, top = to_data.transform((0.0, 1.0 + share))
    axes.set_ylim(top=top)


def missing_text(series: str, status: str) -> str:
    """Return the label of a missing bar: its series and its status, like `ginex OOM`.

    A status that names a system itself, like `pyg+: oom`, stays. A ratio of a measured
    system without its base is n/a.
    """
    if ": " in status:
        return status
    word = "n/a" if status == "ok" else MARK.get(status, status)
    return f"{series} {word}"


def mark_missing_bar(axes: Any, x: float, text: str, share: float = 0.0) -> None:
    """Label a missing bar, upright where the text exceeds the bar's `share` of the
    axes' width."""
    look = {"fontsize": LEAST_POINTS, "ha": "center", "va": "bottom", "color": SOFT}
    rotation = 90 if text_points(text) > 0.8 * points_of(axes, share) else 0
    axes.annotate(
        text, (x, 0.02), xycoords=("data", "axes fraction"), rotation=rotation, **look
    )


def points_of(axes: Any, share: float) -> float:
    """Return the points of a share of the axes' width, as wide as the axes are before
    their labels take space."""
    return float(72.0 * axes.bbox.width / axes.figure.dpi * share)


def text_points(text: str) -> float:
    """Return about the width in points of a text of the least size."""
    return 0.6 * LEAST_POINTS * len(text)


def margin_of(axes: Any, points: float) -> float:
    """Return a text's height in points as a share of what is left of the axes' height
    below it."""
    height = LAID_OUT * 72.0 * axes.bbox.height / axes.figure.dpi
    return float(points / max(points, height - points))


def number_all(
    axes: Any, rows: pd.DataFrame, spec: str, points: float, above: float
) -> float:
    """Write the value of each row above its interval, `above` in points, upright where
    they would overlap.

    Args:
        rows: columns `x`, `value` and `high`.
        spec: format of a number, like `.1f`.
        points: space of each number; none is written where not even upright ones fit.

    Returns:
        Height of the largest number in points, with the space below it; 0 where none is
        written.
    """
    texts = [plain_number(value, spec) for value in rows.value]
    fit = all(text_points(text) <= points for text in texts)
    if not fit and points < LEAST_POINTS:
        return 0.0
    rotation = 0 if fit else 90
    tops = rows.high.fillna(rows.value)
    for x, top, text in zip(rows.x, tops, texts, strict=True):
        number_over(axes, x, top, text, rotation, above)
    height = LEAST_POINTS if fit else max(map(text_points, texts), default=0.0)
    return above + height


def number_over(
    axes: Any, x: float, top: float, text: str, rotation: float = 0, above: float = 1.5
) -> None:
    """Write a number over a bar."""
    look = {
        "ha": "center",
        "va": "bottom",
        "fontsize": LEAST_POINTS,
        "rotation": rotation,
    }
    axes.annotate(text, (x, top), xytext=(0, above), textcoords="offset points", **look)


def plain_number(value: float, spec: str) -> str:
    """Return `value` in the format `spec`, without an exponent: `480` for `4.8e+02`."""
    text = f"{value:{spec}}"
    return f"{float(text):,.0f}" if "e+" in text else text
