"""CPU, GPU and I/O wait over time, one panel per run: the drawing of GNNDrive's Figures 3 and 11."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from harness.compare.points import Group, NotDrawn, Point
from harness.figures.base import Drawing, drawn, ids
from harness.figures.draw.panels import many_panels
from harness.results import store as results

# Samples (10 Hz) of the rolling mean: half a second makes a line readable.
SMOOTH = 5
LINES = (
    ("cpu_percent", "CPU", "#0B3C8C", "-"),
    ("gpu_percent", "GPU", "#E69F00", "--"),
    ("iowait_percent", "I/O wait", "#000000", ":"),
)


def draw_timelines(points: list[Point], group: Group, titles: list[str], note: str = "") -> Drawing:
    """Draw one panel per run on a shared percent axis; grey bands separate the epochs.

    Args:
        points: points of the runs, with `titles` of their panels; a run without telemetry of an epoch has no panel.
        group, note: group and further text for the caption.

    Raises:
        NotDrawn: no run has telemetry of an epoch.
    """
    tables = []
    for point, title in zip(points, titles, strict=True):
        table = results.table(Path(point.path), "telemetry")
        inside = table[(table["epoch"] >= 0)]
        if len(inside):
            tables.append((point, title, inside.sort_values("t")))
    if not tables:
        raise NotDrawn("the runs have no telemetry of an epoch")
    height = 1.35 + 0.5 / len(tables)
    canvas, panels = many_panels(len(tables), columns=1, wide=False, height=height, sharey=True)
    shown = [_panel(axes, *one) for axes, one in zip(panels, tables, strict=True)]
    panels[-1].set_xlabel("time since the first epoch began (s)")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, handlelength=2.6)
    extra = f"warm-up epoch hatched, {SMOOTH / 10:g} s rolling mean of 10 Hz samples" + (f", {note}" if note else "")
    data = pd.concat(shown, ignore_index=True)
    return drawn(canvas, data, group, extra, points=points, runs=ids([point for point, _, _ in tables]))


def _panel(axes: Any, point: Point, title: str, table: pd.DataFrame) -> pd.DataFrame:
    for epoch in point.record["epochs"]:
        start, end = epoch["start_s"], epoch["start_s"] + epoch["seconds"]
        if epoch["warmup"]:
            axes.axvspan(start, end, facecolor="none", edgecolor="#cccccc", hatch="///", linewidth=0.0)
        elif epoch["epoch"] % 2:
            axes.axvspan(start, end, color="#f0f0f0", linewidth=0.0)
        axes.axvline(end, color="#888888", linewidth=0.5)
    kept = ["t", "epoch"]
    for column, label, color, line in LINES:
        if column not in table or table[column].isna().all():
            continue
        smooth = table[column].rolling(SMOOTH, min_periods=1, center=True).mean()
        axes.plot(table["t"], smooth, color=color, linestyle=line, label=label, linewidth=1.1)
        kept.append(column)
    axes.set(ylim=(0, 102), xlim=(float(table["t"].min()), float(table["t"].max())), ylabel="%")
    axes.set_title(title, loc="left")
    return table[kept].assign(system=point.system, run=point.run)
