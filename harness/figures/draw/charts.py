"""Charts of a figure's cells over one axis: lines, grouped bars, or curves in panels,
with table and caption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.compare.cells import Cells
from harness.figures.base import Drawing, drawn
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import left_out
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.dots import draw_dots
from harness.figures.draw.panels import many_panels
from harness.figures.over_axis import Places

EPOCH_TIME = "epoch time (s)"
LOG_TIME = "epoch time (s, log)"
#: Columns of `Cells.medians` in the table beside a chart.
SHOWN = [
    "system",
    "x",
    "status",
    "value",
    "low",
    "high",
    "samples",
    "interval",
    "verdict",
    "run",
]


@dataclass(frozen=True)
class Axis:
    """The x axis of a chart.

    Attributes:
        label: text below the axis, with the unit.
        full: the paper's values, or their number where ours are scaled; the caption
            names omitted values.
        what: noun of the values in the sentence on omitted ones.
        text: function from a value to its label.
    """

    label: str
    full: Sequence[Any] | int = ()
    what: str = ""
    text: Callable[[Any], str] = str

    def places(self, cells: Cells) -> Places:
        """Return the values of the axis that cells have, in words."""
        return Places(cells.xs, self.text)

    def omitted(self, xs: Sequence[Any]) -> str:
        """Return the sentence on values of the paper that are not among `xs`; empty
        where all are."""
        if isinstance(self.full, int):
            few = len(xs) < self.full
            return f"reduced grid: {len(xs)} of {self.full} {self.what}" if few else ""
        return left_out(
            [self.text(x) for x in xs], [self.text(x) for x in self.full], self.what
        )


def lines(cells: Cells, axis: Axis, title: str, finding: str = "") -> Drawing:
    """Draw epoch times, a line for each system over the values of the axis, equally
    spaced; y is logarithmic."""
    table = with_others(cells)
    rows = table.rename(columns={"x": "group", "system": "series"})
    canvas, _ = draw_dots(
        rows,
        title=title,
        xlabel=axis.label,
        ylabel=LOG_TIME,
        tick=axis.text,
        joined=True,
    )
    return drawn(
        canvas,
        table,
        cells,
        axis.omitted(cells.xs),
        others_note(cells),
        finding=finding,
        places=axis.places(cells),
    )


def bars(
    cells: Cells,
    axis: Axis,
    *,
    title: str,
    rows: pd.DataFrame | None = None,
    others: bool = True,
    ylabel: str = EPOCH_TIME,
    numbers: str = ".2g",
    notes: Sequence[str] = (),
    finding: str = "",
    **how: Any,
) -> Drawing:
    """Draw one bar for each system at each value of the axis.

    Args:
        rows: rows of `Cells.medians`, with further columns for the table; by default of
            the epochs' seconds.
        others: whether measurements by other code, which are seconds of epochs, are
            drawn beside the rows.
        notes: texts for the caption.
        finding: as in `drawn`.
        ylabel, numbers, how: as in `draw_bars`.
    """
    table = with_others(cells, rows, others=others)
    shown = table.rename(columns={"x": "group", "system": "series"})
    canvas, _ = draw_bars(
        shown,
        title=title,
        ylabel=ylabel,
        xlabel=axis.label,
        tick=axis.text,
        numbers=numbers,
        **how,
    )
    every = [*notes, axis.omitted(cells.xs), others_note(cells)]
    return drawn(
        canvas,
        table,
        cells,
        *every,
        rows=rows,
        finding=finding,
        places=axis.places(cells),
    )


def curves(
    cells: Cells, axis: Axis, notes: Sequence[str] = (), finding: str = ""
) -> Drawing:
    """Draw epoch times with one panel for each panel of the plan, one curve for each
    system; both axes logarithmic."""
    table = with_others(cells, panel=True)
    panels = list(
        table.rename(columns={"system": "series", "value": "y"}).groupby(
            "panel", sort=False
        )
    )
    canvas, places = many_panels(
        len(panels), wide=len(panels) > 1, height=2.4, sharey=True
    )
    for axes, (title, rows) in zip(places, panels, strict=True):
        ylabel = LOG_TIME if axes is places[0] else ""
        xlabel = f"{axis.label} (log)"
        draw_curves(
            rows,
            title=str(title),
            xlabel=xlabel,
            ylabel=ylabel,
            xlog=True,
            ylog=True,
            axes=axes,
        )
    order = style.ordered(cells.systems)
    return drawn(
        canvas,
        table,
        cells,
        *notes,
        axis.omitted(cells.xs),
        others_note(cells),
        order=order,
        finding=finding,
    )


def with_others(
    cells: Cells,
    rows: pd.DataFrame | None = None,
    *,
    panel: bool = False,
    others: bool = True,
) -> pd.DataFrame:
    """Return the table of a chart: medians of the cells, then epoch times by other
    code, which are drawn hollow."""
    medians = cells.medians()
    table = medians if rows is None else rows
    added = [name for name in table if name not in medians]
    shown = [*SHOWN, *added, *(["panel"] if panel else [])]
    if cells.foreign.empty or not others:
        return table[shown]
    joined = pd.concat([table.assign(hollow=False), cells.foreign], ignore_index=True)
    return joined[[*shown, "hollow"]]


def others_note(cells: Cells) -> str:
    """Return the sentence on measurements by other code; empty without one."""
    names = ", ".join(cells.foreign.system.unique())
    return f"hollow, reported by others and not judged: {names}" if names else ""
