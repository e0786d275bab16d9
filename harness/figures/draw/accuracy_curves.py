"""Test accuracy over epochs and over time: the drawing that the papers' convergence figures share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from harness.compare.points import Group, NotDrawn, Point
from harness.figures.accuracy_runs import accuracy_curve, common_target, epochs_to, origin, time_to
from harness.figures.base import Drawing, drawn, ids
from harness.figures.draw import style
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import legend_above, many_panels


def draw_by_system(
    group: Group, systems: Sequence[str], titles: Sequence[str], memory: Callable[[list[Point]], str]
) -> Drawing:
    """Draw accuracy over epochs (left) and over training time (right), one line per system, with the common target.

    Args:
        systems: systems of the figure; the caption names those without a run.
        memory: maps the measured points to caption text on their memory.

    Raises:
        NotDrawn: no run has test accuracy.
    """
    from matplotlib.ticker import MaxNLocator

    order = style.ordered(group.systems())
    points = sorted(group.points, key=lambda point: order.index(point.system))
    done = [point for point in points if point.value is not None]
    curves = [(point, accuracy_curve(point.record)) for point in done]
    tables = [
        curve.assign(series=point.system, run=point.record["run_id"], accuracy=100 * curve["accuracy"])
        for point, curve in curves
        if len(curve)
    ]
    if not tables:
        raise NotDrawn("no run judged its model on test nodes after every epoch")
    rows = pd.concat(tables, ignore_index=True)
    target = common_target([point.record for point in done])
    canvas, panels = many_panels(2, height=2.4, sharey=True)
    xlabels = {"epoch": "epoch", "seconds": "training time (s)"}
    for axes, title, (column, xlabel) in zip(panels, titles, xlabels.items(), strict=True):
        ylabel = "test accuracy (%)" if column == "epoch" else ""
        draw_curves(
            rows.assign(x=rows[column], y=rows["accuracy"]), title=title, xlabel=xlabel, ylabel=ylabel, axes=axes
        )
        if target is not None:
            axes.axhline(100 * target, color="#666666", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    legend_above(canvas, panels)
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
