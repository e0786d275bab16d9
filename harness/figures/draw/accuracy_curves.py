"""Test accuracy over epochs and over time: the drawing that the papers' convergence figures share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from harness.compare.points import Group, NotDrawn, Point
from harness.figures.accuracy_runs import accuracy_curve, common_target, epochs_to, origin, time_to
from harness.figures.base import Drawing, drawn, ids
from harness.figures.draw import style
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.looks import Looks
from harness.figures.draw.panels import legend_above, many_panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

XLABELS = {"epoch": "epoch", "seconds": "training time (s)", "end_to_end": "time, preprocessing included (s)"}


def curves_of(points: Sequence[Point], name: Callable[[Point], str] = lambda point: point.system) -> pd.DataFrame:
    """Return one row per run and epoch: `series`, `run`, and the columns of `accuracy_curve`, accuracy in per cent.

    Raises:
        NotDrawn: no run has test accuracy.
    """
    import pandas as pd

    tables = []
    for point in points:
        curve = accuracy_curve(point.record)
        if len(curve):
            tables.append(
                curve.assign(series=name(point), run=point.record["run_id"], accuracy=100 * curve["accuracy"])
            )
    if not tables:
        raise NotDrawn("no run judged its model on test nodes after every epoch")
    return pd.concat(tables, ignore_index=True)


def draw_accuracy(
    rows: pd.DataFrame,
    *,
    over: Sequence[str] = ("epoch", "seconds"),
    titles: Sequence[str] = (),
    xlog: bool = False,
    looks: Looks | None = None,
    target: float | None = None,
) -> tuple[Canvas, list[Any]]:
    """Draw one panel for each entry of `over`, with one line per series.

    Args:
        rows: table of `curves_of`.
        over: x of each panel: `epoch`, `seconds` or `end_to_end`.
        looks: looks of the series; by default the systems' own.
        target: accuracy (a share) to mark with a thin line.
    """
    from matplotlib.ticker import MaxNLocator

    canvas, panels = many_panels(len(over), wide=len(over) > 1, height=2.4, sharey=True)
    for index, (axes, column) in enumerate(zip(panels, over, strict=True)):
        draw_curves(
            rows.assign(x=rows[column], y=rows["accuracy"]),
            title=titles[index] if titles else "",
            xlabel=XLABELS[column],
            ylabel="test accuracy (%)" if index == 0 else "",
            xlog=xlog and column != "epoch",
            looks=looks,
            axes=axes,
        )
        if column == "epoch":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if target is not None:
            axes.axhline(100 * target, color="#666666", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    legend_above(canvas, panels)
    return canvas, panels


def draw_by_system(
    group: Group, systems: Sequence[str], titles: Sequence[str], memory: Callable[[list[Point]], str]
) -> Drawing:
    """Draw accuracy over epochs (left) and over training time (right), one line per system.

    Args:
        systems: systems of the figure; the caption names those without a run.
        memory: maps the measured points to caption text on their memory.

    Raises:
        NotDrawn: no run has test accuracy.
    """
    order = style.ordered(group.systems())
    points = sorted(group.points, key=lambda point: order.index(point.system))
    done = [point for point in points if point.value is not None]
    rows = curves_of(done)
    canvas, _ = draw_accuracy(rows, titles=titles, target=common_target([point.record for point in done]))
    missing = [f"{name} not run" for name in systems if name not in order]
    failed = [f"{point.system} {point.status.upper()}" for point in points if point.value is None]
    notes = [memory(done), accuracy_note(done), *failed, *missing]
    return drawn(canvas, rows, group, *notes, points=done, runs=ids(done))


def accuracy_note(points: Sequence[Point]) -> str:
    """Return caption text: origin of the labels, test nodes, and time of each run to the common target accuracy."""
    records = [point.record for point in points]
    target = common_target(records)
    parts = [origin(records[0]), f"{records[0]['config']['test_nodes']:,} test nodes after every epoch"]
    if target is not None:
        times = [
            f"{point.system} {seconds:.1f} s (epoch {epochs_to(point.record, target)})"
            for point in points
            if (seconds := time_to(point.record, target)) is not None
        ]
        parts.append(f"to {100 * target:.1f} %: {', '.join(times)}")
    return "; ".join(parts)
