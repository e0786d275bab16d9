"""outcore-roofline: how hard each system drives the device, and how far its epoch is from the least possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare.cells import Cells
from harness.compare.plan import Plain, Plan, first_setting, grid
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_cells
from harness.figures.draw import style
from harness.figures.draw.panels import many_panels, name_axes, plain_log
from harness.figures.grids import gallery, only_systems
from harness.figures.outcore.memory import cost_of
from harness.records.cost import TrainingCost
from harness.results.table import each, measured_epochs

MIB = 2**20
#: Systems that keep their features on disk: the device limits no others.
ON_DISK = ["pyg+", "dgl-ondisk", "ali+pg", "ginex", "ginex-pg", "gnndrive", "diskgnn", "agnes", "outcore"]
COLUMNS = ["panel", "name", "x", "y", "unit", "engine_efficiency", "limit_s", "least_s", "offline_s"]


def of_the_bench(profile: Plain) -> Plan:
    """Plan every system that reads its features from disk, under the profile's cap."""
    return grid(first_setting(profile), only_systems(profile, ON_DISK), {"": {}})


def of_the_gallery(profile: Plain) -> Plan:
    """Plan these systems in the gallery's shorter runs."""
    return of_the_bench(gallery(profile))


@figure_of_cells("outcore-roofline", of_the_bench, otherwise=of_the_gallery, least=1)
def roofline(cells: Cells) -> Drawing:
    """Draw the device's read rate over request size with each system's mean request (left).

    Right: epochs over the least device time of their traces, engine efficiency. Raise NotDrawn without an epoch.
    """
    medians = cells.medians()
    measured = medians[medians["value"].notna()].set_index("system", drop=False)
    if measured.empty:
        raise NotDrawn("no capped run has a measured epoch")
    measured = measured.loc[style.ordered(list(measured.index))]
    canvas, (left, right) = many_panels(2, height=3.1)
    device = _draw_device(left, measured["record"].iloc[-1])
    driven = _draw_requests(left, measured)
    distances = _draw_distances(right, measured[measured["mean_epoch_s"].notna()])
    # Above both panels: inside, its markers would look like measurements.
    canvas.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=5)
    absent = medians[medians["value"].isna()]
    failed = [f"{row.system} {row.status.upper()}" for row in each(absent)]
    table = pd.concat([device, driven, distances], ignore_index=True)[COLUMNS]
    return drawn(canvas, table, cells, *failed, rows=measured)


def _draw_device(axes: Any, record: Plain) -> pd.DataFrame:
    """Draw the read rate of the device over request size, under the run's limits and bare."""
    found = []
    for name, line, label in (("limited", "-", "device under the run's limits"), ("bare", ":", "bare device")):
        profile = record.get("disk", {}).get(name) or {}
        points = pd.DataFrame(profile.get("points", []), columns=["block_bytes", "bytes_per_s"])
        best = points.groupby("block_bytes")["bytes_per_s"].max() / MIB
        if len(best):
            axes.plot(best.index, best, color="black", linestyle=line, label=label)
        found.append(pd.DataFrame({"panel": "roof", "name": name, "x": best.index, "y": best, "unit": "MiB/s"}))
    return pd.concat(found)


def _draw_requests(axes: Any, cells: pd.DataFrame) -> pd.DataFrame:
    """Draw bytes a second of each system over its mean request."""
    rows = []
    for cell in each(cells):
        epochs = pd.DataFrame(measured_epochs(cell.record))
        requests, moved, seconds = (epochs[name].sum() for name in ("device_requests", "device_bytes", "seconds"))
        if not requests or not seconds:
            continue
        look = style.look(cell.system)
        size, rate = moved / requests, moved / seconds / MIB
        border = {"markersize": 7, "markeredgecolor": "black", "markeredgewidth": 0.5}
        axes.plot([size], [rate], marker=look.marker, color=look.color, linestyle="none", label=cell.system, **border)
        rows.append({"panel": "roof", "name": cell.system, "x": size, "y": rate, "unit": "MiB/s"})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda size, _: f"{size / 1024:g}K" if size >= 1024 else f"{size:g}")
    plain_log(axes.yaxis)
    name_axes(axes, "How hard the device is driven", "mean request size (bytes)", "read over the epoch (MiB/s)")
    return pd.DataFrame(rows)


def least_seconds(record: Mapping[str, Any]) -> float | None:
    """Return the least seconds of an epoch by a run's `distance_to_limit`, of its own epochs; None without one."""
    distance = (record.get("summary") or {}).get("distance_to_limit")
    cost = TrainingCost.of(record)
    return None if distance is None or cost is None else distance * cost.share_s(record["config"]["epochs"])


def _draw_distances(axes: Any, cells: pd.DataFrame) -> pd.DataFrame:
    """Draw each system's epoch, its share of work before the epochs, and the least seconds that its trace needs."""
    wholes = [cost_of(cell).share_s(cell.record["config"]["epochs"]) for cell in each(cells)]
    longest = max(wholes, default=1.0)
    rows = []
    for at, (cell, whole) in enumerate(zip(each(cells), wholes, strict=True)):
        summary = cell.record["summary"]
        look = style.look(cell.system)
        epoch_s, before_s = cell.mean_epoch_s, whole - cell.mean_epoch_s
        if before_s > 0.005 * longest:
            axes.barh(at, before_s, 0.6, left=epoch_s, color="white", edgecolor="black", linewidth=0.5)
        axes.barh(at, epoch_s, 0.6, color=look.color, edgecolor="black", linewidth=0.5, hatch=look.hatch, alpha=0.9)
        least = least_seconds(cell.record)
        if least is not None:
            axes.plot([least, least], [at - 0.42, at + 0.42], color="black", linewidth=2.0)
        distance, engine = summary.get("distance_to_limit"), summary.get("engine_efficiency")
        beside: Any = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": 6.5}
        axes.annotate(f"distance {_percent(distance)}, engine {_percent(engine)}", (whole, at), **beside)
        row = {"panel": "distance", "name": cell.system, "x": epoch_s, "y": distance, "unit": "s"}
        row |= {"engine_efficiency": engine, "limit_s": summary.get("extra", {}).get("limit_s")}
        rows.append({**row, "least_s": least, "offline_s": before_s})
    axes.set_yticks(range(len(cells)), list(cells["system"]))
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.75)
    axes.grid(axis="y", visible=False)
    title = "How far from the least that the trace needs (mark)"
    name_axes(axes, title, "epoch (s); in white its share of offline work and of the first epoch")
    return pd.DataFrame(rows)


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"
