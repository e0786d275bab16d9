"""Canvases of one or several panels at column or page width, with one legend above all panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.figures.draw import style
from harness.figures.draw.style import looks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def one_panel(axes: Any = None, *, wide: bool = False, height: float = 2.5) -> tuple[Canvas, Any]:
    """Create a canvas with one pair of axes, `height` in inches; with `axes` return these and their canvas."""
    if axes is not None:
        return axes.figure, axes
    canvas, panels = many_panels(1, wide=wide, height=height)
    return canvas, panels[0]


def many_panels(
    count: int, *, columns: int = 0, wide: bool = True, height: float = 2.2, sharey: bool = False
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
        rows, columns, figsize=(width, height * rows), squeeze=False, sharey=sharey, constrained_layout=True
    )
    panels = list(grid.flat)
    for extra in panels[count:]:
        extra.set_visible(False)
    return canvas, panels[:count]


def legend_above(canvas: Canvas, panels: Sequence[Any], order: Sequence[str] = ()) -> None:
    """Draw one legend above all panels, each label once, labels of `order` first; the canvas grows by the legend."""
    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        return
    order = order or looks_of(list(entries), None)[0]
    entries = {**{label: entries[label] for label in order if label in entries}, **entries}
    width, height = canvas.get_size_inches()
    longest = max(len(label) for label in entries)
    columns = max(1, min(len(entries), int(width * 15 / (longest + 7))))
    rows = -(-len(entries) // columns)
    canvas.set_size_inches(width, height + 0.16 * rows)
    canvas.legend(
        list(entries.values()),
        list(entries),
        loc="outside upper left",
        ncols=columns,
        handlelength=2.2,
        columnspacing=1.2,
    )


def set_ticks(axes: Any, labels: Sequence[str]) -> None:
    """Set labels at 0, 1, 2, … of the x axis, slanted where they would overlap."""
    spec = axes.get_subplotspec()
    width = axes.figure.get_size_inches()[0] / (spec.get_gridspec().ncols if spec is not None else 1)
    crowded = sum(max(len(line) for line in label.split("\n")) + 1 for label in labels) > 14.5 * (width - 0.6)
    slant = {"rotation": 28, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(labels)), list(labels), **slant)


def plain_log(axis: Any) -> None:
    """Set the ticks of a log axis at 1, 2 and 5 times powers of ten, as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
