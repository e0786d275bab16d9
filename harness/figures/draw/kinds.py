"""Drawings that most figures share: one axis, a line or a bar for each series, declared in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.compare.evidence import Evidence, Planned
from harness.compare.points import Group, Point, epoch_seconds
from harness.compare.rounds import Value
from harness.figures.base import Drawing, add_caption, caption, left_out
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.lines import draw_lines
from harness.figures.draw.looks import Looks
from harness.figures.draw.panels import legend_above, many_panels

Draw = Callable[[Evidence], Drawing]
Note = Callable[[Group], str]


@dataclass(frozen=True)
class Axis:
    """The x axis of a figure.

    Attributes:
        label: text below the axis, with the unit.
        full: the paper's values, or their number where ours are scaled; a caption names omitted values.
        what: noun of the values in the sentence of a reduced grid.
        tick: maps a value to its label.
    """

    label: str
    full: Sequence[Any] | int = ()
    what: str = ""
    tick: Callable[[Any], str] = str

    def missing(self, group: Group) -> str:
        """Return the sentence of a reduced grid; empty where no value is left out."""
        drawn = list(dict.fromkeys(point.x for point in group.points))
        if isinstance(self.full, int):
            few = len(drawn) < self.full
            return f"reduced grid: {len(drawn)} of {self.full} {self.what}" if few else ""
        return left_out([self.tick(x) for x in drawn], [self.tick(x) for x in self.full], self.what)


def no_note(group: Group) -> str:
    """Return no text for the caption."""
    return ""


def lines(
    plan: Planned,
    axis: Axis,
    *,
    title: str,
    ylabel: str = "epoch time (s)",
    value: Value = epoch_seconds,
    note: Note = no_note,
) -> Draw:
    """Return the `draw` of a figure with one line for each series over the axis; logarithmic y.

    Args:
        plan: maps an experiment as plain data to the figure's cells.
        value: maps a measured epoch to the drawn number.
        note: maps the drawn group to text for the caption.
    """

    def draw(evidence: Evidence) -> Drawing:
        group = evidence.points(plan, value)
        extra = "; ".join(part for part in (note(group), axis.missing(group)) if part)
        return draw_lines(group, title=title, xlabel=axis.label, ylabel=ylabel, tick=axis.tick, extra=extra)

    return draw


def bars(
    plan: Planned,
    axis: Axis,
    *,
    title: str,
    ylabel: str = "epoch time (s)",
    value: Value = epoch_seconds,
    log: bool = False,
    numbers: str = ".2g",
    looks: Looks | None = None,
    note: Note = no_note,
    columns: Mapping[str, Callable[[Point], Any]] = {},
) -> Draw:
    """Return the `draw` of a figure with one bar for each series at each value of the axis.

    Args:
        plan, value, note: as in `lines`.
        log, numbers, looks: as in `draw_bars`.
        columns: further columns of the table; each maps a point to its cell.
    """

    def draw(evidence: Evidence) -> Drawing:
        group = evidence.points(plan, value)
        table = group.frame()
        for name, of in columns.items():
            table[name] = [of(point) for point in group.points]
        rows = table.rename(columns={"x": "group", "system": "series"})
        canvas, _ = draw_bars(
            rows, title=title, ylabel=ylabel, xlabel=axis.label, log=log, tick=axis.tick, numbers=numbers, looks=looks
        )
        text = caption(group, extra="; ".join(part for part in (note(group), axis.missing(group)) if part))
        add_caption(canvas, text)
        return Drawing(canvas, table, text, group.runs())

    return draw


def curves(
    plan: Planned, axis: Axis, *, ylabel: str = "epoch time (s)", value: Value = epoch_seconds, note: Note = no_note
) -> Draw:
    """Return the `draw` of a figure with one panel per plan panel, one curve per series, both axes logarithmic.

    Args:
        plan, value, note: as in `lines`.
    """

    def draw(evidence: Evidence) -> Drawing:
        group = evidence.points(plan, value)
        table = group.frame().assign(panel=[point.panel for point in group.points])
        titles = list(dict.fromkeys(table["panel"]))
        canvas, panels = many_panels(len(titles), wide=len(titles) > 1, height=2.4)
        rows = table.rename(columns={"system": "series", "value": "y"})
        for number, (axes, title) in enumerate(zip(panels, titles, strict=True)):
            draw_curves(
                rows[rows["panel"] == title],
                title=title,
                xlabel=axis.label,
                ylabel="" if number else ylabel,
                xlog=True,
                ylog=True,
                axes=axes,
            )
        legend_above(canvas, panels, style.ordered(group.systems()))
        text = caption(group, extra="; ".join(part for part in (note(group), axis.missing(group)) if part))
        add_caption(canvas, text)
        return Drawing(canvas, table, text, group.runs())

    return draw
