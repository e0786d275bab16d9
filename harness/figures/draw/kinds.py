"""Figures of a common kind, each declared in one call: one axis, a line, a bar or a curve for each series."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.compare.evidence import Planned
from harness.compare.plan import Plain
from harness.compare.points import Group, Point, Value, epoch_seconds
from harness.figures.base import FORMATS, Drawing, Needs, drawn, figure_of_runs, nothing
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import left_out
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import around, draw_hollow, draw_line, many_panels, mark_missing, name_axes, plain_log

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

#: Function from the drawn group to texts for the caption.
Note = Callable[[Group], list[str]]


@dataclass(frozen=True)
class Axis:
    """The x axis of a figure, as its declaration has it.

    Attributes:
        label: text below the axis, with the unit.
        full: the paper's values, or their number where ours are scaled; a caption names omitted values.
        what: noun of the values in the sentence of a reduced grid.
        format: name in `FORMATS` of the labels' format.
    """

    label: str
    full: Sequence[Any] | int = ()
    what: str = ""
    format: str = ""

    def tick(self, x: Any) -> str:
        """Return the label of a value."""
        return FORMATS.get(self.format, str)(x)

    def missing(self, group: Group) -> str:
        """Return the sentence of a reduced grid; empty where no value is left out."""
        shown = list(dict.fromkeys(point.x for point in group.points))
        if isinstance(self.full, int):
            few = len(shown) < self.full
            return f"reduced grid: {len(shown)} of {self.full} {self.what}" if few else ""
        return left_out([self.tick(x) for x in shown], [self.tick(x) for x in self.full], self.what)


def lines(figure_id: str, plan: Planned, *, axis: Plain, title: str, beside: Needs = nothing) -> None:
    """Add a figure of epoch times with a line for each series over the axis, its values equally spaced; logarithmic y.

    Args:
        plan: maps an experiment as plain data to the figure's cells.
        axis: attributes of `Axis`.
        beside: as in `Figure`.
    """

    @figure_of_runs(figure_id, plan, beside=beside)
    def draw(group: Group) -> Drawing:
        own = Axis(**axis)
        notes = (own.missing(group), _others(group))
        return drawn(_draw_lines(group, own, title), _table(group), group, *notes, bottom=-0.04)


def bars(
    figure_id: str,
    plan: Planned,
    *,
    axis: Plain,
    value: Value = epoch_seconds,
    ylabel: str = "epoch time (s)",
    numbers: str = ".2g",
    note: Note = lambda group: [],
    columns: Mapping[str, Callable[[Point], Any]] = {},
    **how: Any,
) -> None:
    """Add a figure with one bar for each series at each value of the axis.

    Args:
        plan, axis: as in `lines`.
        value: maps a measured epoch to the drawn number.
        note: maps the drawn group to texts for the caption.
        columns: further columns of the table; each maps a point to its cell.
        ylabel, numbers, how: as in `draw_bars`.
    """

    @figure_of_runs(figure_id, plan, value)
    def draw(group: Group) -> Drawing:
        own = Axis(**axis)
        empty = [None] * len(group.foreign)
        cells = {name: [*(of(point) for point in group.points), *empty] for name, of in columns.items()}
        table = _table(group).assign(**cells)
        rows = table.rename(columns={"x": "group", "system": "series"})
        canvas, _ = draw_bars(rows, ylabel=ylabel, xlabel=own.label, tick=own.tick, numbers=numbers, **how)
        return drawn(canvas, table, group, *note(group), own.missing(group), _others(group))


def curves(figure_id: str, plan: Planned, *, axis: Plain, note: Note = lambda group: []) -> None:
    """Add a figure of epoch times with one panel per plan panel, one curve per series, both axes logarithmic.

    Args:
        plan, axis, note: as in `bars`.
    """

    @figure_of_runs(figure_id, plan)
    def draw(group: Group) -> Drawing:
        own = Axis(**axis)
        table = _table(group).assign(panel=[point.panel for point in [*group.points, *group.foreign]])
        panels = list(table.rename(columns={"system": "series", "value": "y"}).groupby("panel", sort=False))
        canvas, places = many_panels(len(panels), wide=len(panels) > 1, height=2.4)
        for axes, (title, rows) in zip(places, panels, strict=True):
            ylabel = "epoch time (s)" if axes is places[0] else ""
            draw_curves(rows, title=str(title), xlabel=own.label, ylabel=ylabel, xlog=True, ylog=True, axes=axes)
        notes = (*note(group), own.missing(group), _others(group))
        return drawn(canvas, table, group, *notes, order=style.ordered(group.systems()))


def _table(group: Group) -> pd.DataFrame:
    """Return the points as a table, then those of other code, which are drawn hollow."""
    if not group.foreign:
        return group.frame()
    return group.frame([*group.points, *group.foreign]).assign(
        hollow=[False] * len(group.points) + [True] * len(group.foreign)
    )


def _others(group: Group) -> str:
    """Return the sentence on measurements by other code; empty without one."""
    names = ", ".join(dict.fromkeys(point.system for point in group.foreign))
    return f"hollow, as told by others and not judged: {names}" if names else ""


def _draw_lines(group: Group, axis: Axis, title: str) -> Canvas:
    """Draw one line per system, log y; a missing value is marked at the top of its x, off all lines."""
    import matplotlib.pyplot as plt

    xs = sorted({point.x for point in group.points}, key=_order)
    place = {x: index for index, x in enumerate(xs)}
    canvas, axes = plt.subplots(figsize=(style.COLUMN_INCHES, 2.5))
    systems = style.ordered(group.systems())
    table = group.frame().assign(place=[place[point.x] for point in group.points]).sort_values("place")
    for index, system in enumerate(systems):
        mine = table[(table["system"] == system) & table["value"].notna()].astype({"value": float})
        shifted = mine["place"] + (index - (len(systems) - 1) / 2) * 0.06
        spread = around(mine["value"], mine["low"], mine["high"])
        draw_line(axes, shifted, mine["value"], spread, style.look(system), system)
    for index, name in enumerate(dict.fromkeys(point.system for point in group.foreign)):
        theirs = [point for point in group.foreign if point.system == name and point.x in place]
        draw_hollow(axes, [place[point.x] for point in theirs], [point.value for point in theirs], name, index)
    axes.set_yscale("log")
    axes.set_xticks(range(len(xs)), [axis.tick(x) for x in xs])
    axes.set_xlim(-0.4, len(xs) - 0.6)
    name_axes(axes, title, axis.label, "epoch time (s)")
    plain_log(axes.yaxis)
    level: dict[int, int] = {}
    missing = [point for point in group.points if point.value is None]
    for point in sorted(missing, key=lambda point: systems.index(point.system)):
        at = place[point.x]
        mark_missing(axes, at, level.get(at, 0), point.status, point.system, style.look(point.system).color)
        level[at] = level.get(at, 0) + 1
    if level:
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** (0.13 * max(level.values())))
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.1), borderaxespad=0.0, handlelength=2.2)
    return canvas


def _order(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))
