"""outcore-roofline: every system against the device's limit, by request size and by epoch time (rule 11)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.plan import Plain, Plan, first_setting, grid
from harness.compare.points import Group, NotDrawn, Point
from harness.compare.rounds import preparation_s
from harness.figures.base import Drawing, drawn, figure_of_runs
from harness.figures.draw import style
from harness.figures.draw.panels import many_panels, name_axes, plain_log
from harness.figures.grids import gallery, only_systems

MIB = 2**20
# Systems that keep their features on disk: the device limits no others.
ON_DISK = ["pyg+", "dgl-ondisk", "ali+pg", "ginex", "ginex-pg", "gnndrive", "diskgnn", "outcore"]


def planned(profile: Plain) -> Plan:
    """Plan every system that reads its features from disk, under the profile's cap."""
    return grid(first_setting(profile), only_systems(profile, ON_DISK), {"": {}})


@figure_of_runs("outcore-roofline", lambda profile: planned(gallery(profile)), otherwise=planned, least=1)
def roofline(group: Group) -> Drawing:
    """Draw the device's read rate over request size, its last point sequential, with each system's mean request (left).

    Right: epochs over the least device time of their traces, engine efficiency. Raise NotDrawn without an epoch.
    """
    order = style.ordered(group.systems())
    points = sorted(group.done, key=lambda point: order.index(point.system))
    if not points:
        raise NotDrawn("no capped run has a measured epoch")
    canvas, (left, right) = many_panels(2, height=3.1)
    rows = [*_roof(left, points), *_distance(right, points)]
    # Above both panels: inside, its markers would look like measurements.
    canvas.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=5)
    failed = [f"{point.system} {point.told}" for point in group.points if point.value is None]
    return drawn(canvas, pd.DataFrame(rows), group, *failed, points=points)


def _roof(axes: Any, points: list[Point]) -> list[Plain]:
    from matplotlib.ticker import FuncFormatter

    rows: list[Plain] = []
    for key, line, label in (("limited", "-", "device under the run's limits"), ("bare", ":", "bare device")):
        profile = points[-1].record.get("disk", {}).get(key) or {}
        best: dict[int, float] = {}
        for entry in profile.get("points", []):
            best[entry["block_bytes"]] = max(best.get(entry["block_bytes"], 0.0), entry["bytes_per_s"])
        if best:
            sizes = sorted(best)
            axes.plot(sizes, [best[size] / MIB for size in sizes], color="black", linestyle=line, label=label)
            head = {"panel": "roof", "name": key}
            rows += [{**head, "x": size, "y": best[size] / MIB, "unit": "MiB/s"} for size in sizes]
    for point in points:
        requests = sum(epoch["device_requests"] or 0 for epoch in point.epochs)
        moved = sum(epoch["device_bytes"] or 0 for epoch in point.epochs)
        seconds = sum(epoch["seconds"] for epoch in point.epochs)
        if not requests or not seconds:
            continue
        look = style.look(point.system)
        x, y = moved / requests, moved / seconds / MIB
        border = {"markersize": 7, "markeredgecolor": "black", "markeredgewidth": 0.5}
        axes.plot([x], [y], marker=look.marker, color=look.color, linestyle="none", label=point.system, **border)
        rows.append({"panel": "roof", "name": point.system, "x": x, "y": y, "unit": "MiB/s"})
    if not rows:
        axes.text(0.5, 0.5, "no device counters in the records", transform=axes.transAxes, ha="center")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v / 1024:g}K" if v >= 1024 else f"{v:g}"))
    plain_log(axes.yaxis)
    name_axes(axes, "How hard the device is driven", "mean request size (bytes)", "read over the epoch (MiB/s)")
    return rows


def _distance(axes: Any, points: list[Point]) -> list[Plain]:
    rows: list[Plain] = []
    # Seconds of preprocessing per epoch of the run, whether this run or an earlier one spent them.
    prepared = [preparation_s(point.record) / max(1, len(point.record["epochs"])) for point in points]
    longest = max(float(point.value or 0) + before for point, before in zip(points, prepared, strict=True))
    for at, (point, before) in enumerate(zip(points, prepared, strict=True)):
        summary = point.record["summary"]
        look = style.look(point.system)
        value = float(point.value or 0)
        if before > 0.005 * longest:
            axes.barh(at, before, 0.6, left=value, color="white", edgecolor="black", linewidth=0.5)
        axes.barh(at, value, 0.6, color=look.color, edgecolor="black", linewidth=0.5, hatch=look.hatch, alpha=0.9)
        distance, engine = summary.get("distance_to_limit"), summary.get("engine_efficiency")
        if distance is not None:
            least = distance * (value + before)
            axes.plot([least, least], [at - 0.42, at + 0.42], color="black", linewidth=2.0)
        shares = f"distance {_percent(distance)}, engine {_percent(engine)}"
        beside = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "ha": "left", "fontsize": 6.5}
        axes.annotate(shares, (value + before, at), **beside)
        row = {"panel": "distance", "name": point.system, "x": value, "y": distance, "engine_efficiency": engine}
        limit = summary.get("extra", {}).get("limit_s")
        rows.append({**row, "limit_s": limit, "preparation_s": before, "unit": "s"})
    axes.set_yticks(range(len(points)), [point.system for point in points])
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.75)
    axes.grid(axis="y", visible=False)
    title = "How far from the least that the trace needs (mark)"
    name_axes(axes, title, "epoch (s); in white its share of preparation")
    return rows


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"
