"""outcore-pipeline: one epoch as a timeline of mini-batches and stages, one panel per system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from harness.compare.plan import Plain, Plan, first_setting, grid
from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_runs, ids
from harness.figures.draw import style
from harness.figures.draw.panels import many_panels, name_axes
from harness.figures.grids import gallery, only_systems
from harness.results import store as results
from workloads.errors import InputError

SYSTEMS = ["pyg+", "ginex", "gnndrive", "diskgnn"]
# A longer epoch is drawn in part: else a mini-batch would be too narrow to see.
MAX_BATCHES = 80
# Begin and length in seconds, and row.
Box = tuple[float, float, int]
_LANES = {f"lane:{name}": f"device: {name}" for name in ("copy", "zero-copy", "compute")}


def planned(profile: Plain) -> Plan:
    """Plan capped runs of `SYSTEMS`."""
    return grid(first_setting(profile), only_systems(profile, SYSTEMS), {"": {}})


@figure_of_runs("outcore-pipeline", lambda profile: planned(gallery(profile)), otherwise=planned, least=1)
def pipeline(group: Group) -> Drawing:
    """Draw each system's measured epoch nearest to its runs' median; raise NotDrawn if none has a table of stages."""
    shown: list[tuple[Point, Plain, pd.DataFrame]] = []
    missing = []
    for point in map(group.at, SYSTEMS):
        epoch, spans = _epoch_of(point) if point.value is not None else ({}, pd.DataFrame())
        if spans.empty:
            missing.append(f"{'no stages recorded' if epoch else point.told}: {point.system}")
        else:
            shown.append((point, epoch, spans))
    if not shown:
        raise NotDrawn(f"no run has an epoch with stages ({'; '.join(missing)})")
    rows = max(len(_rows(spans)) for _, _, spans in shown)
    canvas, panels = many_panels(len(shown), columns=min(2, len(shown)), height=0.62 + 0.135 * rows)
    notes, tables = [], []
    for axes, (point, epoch, spans) in zip(panels, shown, strict=True):
        notes += _panel(axes, point, epoch, spans)
        tables.append(spans.assign(system=point.system, run=point.run))
    extra = "neighbouring mini-batches alternate in shade, the path of one is black, work of no single one hatched"
    points = [point for point, _, _ in shown]
    columns = ["system", "run", "epoch", "batch", "stage", "thread", "start", "end"]
    data = pd.concat(tables, ignore_index=True)[columns]
    return drawn(canvas, data, group, extra, *notes, *missing, points=points, runs=ids(points))


def _epoch_of(point: Point) -> tuple[Plain, pd.DataFrame]:
    """Return the drawn epoch and its spans in seconds from its begin."""
    epoch = min(point.epochs, key=lambda entry: abs(entry["seconds"] - float(point.value or 0.0)))
    try:
        table = results.table(Path(point.path), "stages")
    except InputError:
        return epoch, pd.DataFrame()
    spans = table[table["epoch"] == epoch["epoch"]].copy()
    for column in ("start", "end"):
        spans[column] = (spans[column].astype(float) - epoch["start_s"]).clip(lower=0.0)
    return epoch, spans.sort_values("start")


def _rows(spans: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (stage, thread) of each row from the top: stages by begin, the device's lanes last."""
    first = spans.groupby("stage")["start"].min()
    stages = sorted(first.index, key=lambda stage: (stage in _LANES, first[stage], stage))
    return [(stage, thread) for stage in stages for thread in sorted(set(spans.loc[spans["stage"] == stage, "thread"]))]


def _panel(axes: Any, point: Point, epoch: Plain, spans: pd.DataFrame) -> list[str]:
    """Draw one system; return its notes for the caption."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    rows = _rows(spans)
    place = {row: index for index, row in enumerate(rows)}
    batches = sorted({int(batch) for batch in spans["batch"] if batch >= 0})
    marked = batches[len(batches) // 2] if batches else -1
    color = style.look(point.system).color
    tint = tuple(0.25 * part + 0.75 for part in to_rgb(color))
    fills: dict[str, tuple[dict[str, Any], list[Box]]] = {
        "none": ({"facecolor": "white", "edgecolor": "#666666", "hatch": "//////"}, []),
        "even": ({"facecolor": color, "edgecolor": "black"}, []),
        "odd": ({"facecolor": tint, "edgecolor": "black"}, []),
        # A box too short for a black border has one in its own colour, to stay visible.
        "short": ({"facecolor": color, "edgecolor": color}, []),
        "marked": ({"facecolor": "black", "edgecolor": "black"}, []),
    }
    short = 0.006 * float(epoch["seconds"]) * min(1.0, MAX_BATCHES / max(1, len(batches)))
    columns = (spans[name].tolist() for name in ("stage", "thread", "batch", "start", "end"))
    for stage, thread, batch, start, end in zip(*columns, strict=True):
        fill = "none" if batch < 0 else "marked" if batch == marked else "odd" if batch % 2 else "even"
        if fill in ("odd", "even") and end - start < short:
            fill = "short"
        fills[fill][1].append((start, end - start, place[stage, thread]))
    for looks, boxes in fills.values():
        corners = [[(x, y - 0.4), (x + width, y - 0.4), (x + width, y + 0.4), (x, y + 0.4)] for x, width, y in boxes]
        axes.add_collection(PolyCollection(corners, linewidths=0.25, **looks))
    path = sorted(fills["marked"][1])
    axes.plot([x + width / 2 for x, width, _ in path], [y for _, _, y in path], color="black", linewidth=0.8)
    _label_rows(axes, rows)
    length, long = float(epoch["seconds"]), len(batches) > MAX_BATCHES
    shown = length * MAX_BATCHES / len(batches) if long else length
    axes.set_xlim((length - shown) / 2, shown + (length - shown) / 2)
    name_axes(axes, f"{point.system}: epoch of {length:.3g} s", "time since the epoch began (s)")
    return [f"{point.system}: the middle {MAX_BATCHES} of {len(batches)} mini-batches' time"] if long else []


def _label_rows(axes: Any, rows: list[tuple[str, str]]) -> None:
    """Label each stage in the middle of its threads' rows; draw a line between two stages."""
    names: dict[str, list[int]] = {}
    for index, (stage, _) in enumerate(rows):
        names.setdefault(stage, []).append(index)
    ticks = [sum(indices) / len(indices) for indices in names.values()]
    labels = [
        _LANES.get(stage, stage.replace("_", " ")) + (f" ×{len(indices)}" if len(indices) > 1 else "")
        for stage, indices in names.items()
    ]
    axes.set_yticks(ticks, labels, fontsize=6.5)
    axes.tick_params(axis="y", length=0)
    for indices in list(names.values())[1:]:
        axes.axhline(indices[0] - 0.5, color="#bbbbbb", linewidth=0.4)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
