"""Figures of Outcore's runs: outcore-ssd (classes), -frontier (memory), -roofline (the device), and the ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.compare.plan import Plain, Plan, first_setting, grid, joined
from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_runs, ids, specs
from harness.figures.draw import style
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.captions import left_out
from harness.figures.draw.panels import around, draw_line, many_panels, name_axes, one_panel, plain_log
from harness.figures.grids import gallery, only_systems, values
from harness.records.cost import TrainingCost
from workloads.units import parse_bytes

SPEC = specs(__file__)
MIB = 2**20
WHOLE = "whole"


def _ablation(id_: str, system: str, variants: dict[str, Plain], note: str, run: Mapping[str, Any] = {}) -> None:
    """Add the figure of a system without one of its parts each, with a bar per variant beside the whole."""
    over = {name: {"options": own, **run} for name, own in variants.items()}

    @figure_of_runs(id_, lambda profile: grid(gallery(profile), [system], over), least=1)
    def draw(group: Group) -> Drawing:
        found = [group.at(system, name) for name in variants]
        whole = found[0].value
        if whole is None or len(group.points) < 2:
            raise NotDrawn(f"{system} was not measured whole and with a part switched off, in one setting ({id_})")
        data = pd.DataFrame({"group": point.x, "series": system, **point.cells} for point in found)
        data["times"] = data["value"] / whole
        data["misses"] = [point.epochs[-1]["counters"].get("misses") if point.epochs else None for point in found]
        data["run"] = ids(found)
        canvas, _ = draw_bars(data, **SPEC["ablation"])
        others = data[(data["group"] != WHOLE) & data["times"].notna()].to_dict("records")
        said = ", ".join(f"{row['group']} {row['times']:.2f}x" for row in others)
        return drawn(canvas, data, group, f"epoch time over the whole's: {said}", note)


for _id, _own in SPEC["ablations"].items():
    _ablation(_id, **_own)

SYSTEMS = ["pyg+", "ginex", "gnndrive", "diskgnn", "agnes", "outcore"]
# A cloud SSD with few requests a second: unscaled, still fewer than the scaled class of the profiles.
SLOW = "aws-gp3"
BARE = "none"


def over_classes(profile: Plain) -> Plan:
    """Plan the capped systems on the profile's SSD class, one with fewer requests a second, and the bare device."""
    own = str(profile["run"].get("disk_class", BARE))
    classes = values(profile, "disk_classes", list(dict.fromkeys([own, SLOW, BARE])))
    return grid(gallery(profile), only_systems(profile, SYSTEMS), {name: {"disk_class": name} for name in classes})


def request_rate(record: Mapping[str, Any]) -> float:
    """Return the device's 4 KiB random reads per second under a run's limits, 0 if not measured."""
    rates = [p["iops"] for p in _read_points(record) if p["pattern"] == "random" and p["block_bytes"] == 4096]
    return float(max(rates, default=0.0))


def bandwidth(record: Mapping[str, Any]) -> float:
    """Return the device's most bytes read per second, at any size, under a run's limits, 0 if not measured."""
    return float(max((point["bytes_per_s"] for point in _read_points(record)), default=0.0))


def _read_points(record: Mapping[str, Any]) -> list[Plain]:
    """Return the points of the device's profile under a run's limits, else of the bare device's."""
    disk = record.get("disk", {})
    return list((disk.get("limited") or disk.get("bare") or {}).get("points", []))


@figure_of_runs("outcore-ssd", over_classes)
def ssd(group: Group) -> Drawing:
    """Draw a group of bars for each class, slowest first; raise NotDrawn below two measured classes."""
    rates: dict[str, float] = {}
    bandwidths: dict[str, float] = {}
    for point in group.points:
        name = str(point.x)
        rates[name] = max(rates.get(name, 0.0), request_rate(point.record))
        bandwidths[name] = max(bandwidths.get(name, 0.0), bandwidth(point.record))
    order = sorted(rates, key=lambda name: (rates[name], name == BARE))
    points = [group.at(system, name) for name in order for system in style.ordered(group.systems())]
    data = pd.DataFrame({"group": point.x, "series": point.system, **point.cells} for point in points)
    data["reads_per_s"] = [rates[point.x] or None for point in points]
    data["bytes_per_s"] = [bandwidths[point.x] or None for point in points]
    data["run"] = ids(points)
    if data.loc[data["value"].notna(), "group"].nunique() < 2:
        raise NotDrawn("no measured runs under two SSD classes (outcore-ssd)")

    def tick(name: str) -> str:
        shown = ["bare device" if name == BARE else name]
        shown += [f"{rates[name] / 1000:,.3g}k reads/s"] if rates[name] else []
        shown += [f"{bandwidths[name] / 1e6:,.0f} MB/s"] if bandwidths[name] else []
        return "\n".join(shown)

    canvas, _ = draw_bars(data, tick=tick, **SPEC["ssd"])
    note = (
        "classes in order of 4 KiB random reads/s; beside it the bandwidth of large reads, which decides where systems "
        "read large requests; both as measured under each class"
    )
    reduced = left_out(order, [*order, SLOW] if SLOW not in order else order, "SSD classes")
    return drawn(canvas, data, group, note, reduced, points=group.done)


def over_memory(profile: Plain) -> Plan:
    """Plan the systems at the profile's budget and multiples of it, and in-memory without a cap as the upper bound.

    A profile whose grid sweeps budgets has its own runs planned, at the first values of its other axes.
    """
    if budgets := (profile.get("grid") or {}).get("memory", []):
        return grid(first_setting(profile), profile["systems"], {memory: {"memory": memory} for memory in budgets})
    base = gallery(profile)
    memory = str(base["run"]["memory"])
    budgets = [_times(memory, factor) for factor in values(profile, "memory_factors", SPEC["frontier"]["factors"])]
    systems = only_systems(profile, SPEC["frontier"]["systems"])
    whole = grid(base, ["in-memory"], {"none": {"memory": "none"}})
    return joined([grid(base, systems, {size: {"memory": size} for size in budgets}), whole])


def _times(memory: str, factor: float) -> str:
    if memory.endswith("x"):
        return f"{float(memory[:-1]) * factor:g}x"
    return f"+{round(parse_bytes(memory.removeprefix('+')) * factor)}"


def budget_bytes(record: Mapping[str, Any]) -> int | None:
    """Return a run's host budget beyond floor and training; without a cap, its peak beyond both, None if unknown."""
    memory = record["memory"]
    if memory.get("budget_bytes"):
        return int(memory["budget_bytes"])
    text = str(record["config"]["memory"])
    if text.startswith("+"):
        return parse_bytes(text[1:])
    if text != "none":
        return None
    beyond = int(memory.get("peak_bytes", 0)) - int(memory.get("floor_bytes", 0)) - int(memory.get("training_bytes", 0))
    return beyond if beyond > 0 else None


def pareto(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return whether each (memory, seconds) is in the Pareto set: no other is at most equal in both and less in one."""
    return [
        not any(m <= memory and s <= seconds and (m, s) != (memory, seconds) for m, s in points)
        for memory, seconds in points
    ]


def fastest(data: pd.DataFrame) -> list[tuple[int, str, float, str]]:
    """Return (bytes, fastest system, speedup over the next, the next) of each budget with two systems, ascending."""
    found = []
    for _, rows in data[data["seconds"].notna()].groupby("budget_bytes"):
        if len(rows) > 1:
            first, second = rows.sort_values("seconds").to_dict("records")[:2]
            ratio = second["seconds"] / max(first["seconds"], 1e-9)
            found.append((int(first["budget_bytes"]), str(first["system"]), ratio, str(second["system"])))
    return found


def leaders(data: pd.DataFrame) -> str:
    """Return the fastest systems by budget: `a at 64 to 256 MiB (5.1 to 2 x the next), then b …`."""
    spans: list[tuple[str, list[int], list[float]]] = []
    for budget, system, ratio, _ in fastest(data):
        if not spans or spans[-1][0] != system:
            spans.append((system, [], []))
        spans[-1][1].append(budget)
        spans[-1][2].append(ratio)
    told = []
    for system, budgets, ratios in spans:
        sizes = f"{budgets[0] / MIB:,.0f}" + (f" to {budgets[-1] / MIB:,.0f}" if len(budgets) > 1 else "")
        times = " to ".join(dict.fromkeys(f"{ratio:.3g}" for ratio in (ratios[0], ratios[-1])))
        told.append(f"{system} at {sizes} MiB ({times} x the next)")
    return ", then ".join(told)


def row_of(point: Point) -> Plain:
    """Return a point of `over_memory` as a row: budget, seconds of a fresh epoch with all its work, terms of T(E)."""
    summary = point.record.get("summary") or {}
    cost = point.cost
    each_s = cost.each_s if cost else 0.0
    return {
        "system": point.system,
        "budget_bytes": budget_bytes(point.record),
        "seconds": cost.fresh_epoch_s if cost else None,
        "low": None if point.low is None else each_s + point.low,
        "high": None if point.high is None else each_s + point.high,
        "once_s": cost.once_s if cost else None,
        "first_s": cost.first_s if cost else None,
        "each_s": cost.each_s if cost else None,
        "prepared_bytes": summary.get("prepared_bytes"),
        "whole_training_s": cost.share_s(point.record["config"]["epochs"]) if cost else None,
        "graph_over_budget": summary.get("topology_over_budget"),
        "status": point.status,
        "run": point.run,
    }


@figure_of_runs("outcore-frontier", over_memory)
def frontier(group: Group) -> Drawing:
    """Draw one marker per run, joined by system, the frontier as a step line; raise NotDrawn below two budgets."""
    data = pd.DataFrame([row for row in map(row_of, group.points) if row["budget_bytes"] is not None])
    done = data[data["seconds"].notna()] if len(data) else data
    if len(done) < 2 or done["budget_bytes"].nunique() < 2:
        raise NotDrawn("no comparable runs at two budgets (outcore-frontier)")
    flags = pareto(list(zip(done["budget_bytes"].astype(float), done["seconds"].astype(float), strict=True)))
    data["pareto"] = pd.Series(flags, index=done.index).reindex(data.index, fill_value=False)
    canvas, axes = one_panel(height=2.7)
    draw_frontier(axes, data)
    best = data[data["pareto"]].sort_values("budget_bytes")
    names = ", ".join(f"{row['system']} at {row['budget_bytes'] / MIB:,.0f} MiB" for row in best.to_dict("records"))
    failed = data[data["seconds"].isna()].to_dict("records")
    missing = [f"{row['system']} {row['status']} at {row['budget_bytes'] / MIB:,.0f} MiB" for row in failed]
    notes = [f"fastest: {leaders(data)}", f"on the frontier: {names}", *missing, SPEC["frontier"]["note"]]
    return drawn(canvas, data.reset_index(drop=True), group, *notes, points=group.done)


def draw_frontier(axes: Any, data: pd.DataFrame, *, frontier_line: bool = True) -> None:
    """Draw rows of `row_of` as lines of systems over memory, and their Pareto set as a step line where asked."""
    for system in style.ordered(list(data["system"])):
        look = style.look(system)
        mine = data[(data["system"] == system) & data["seconds"].notna()].sort_values("budget_bytes")
        if mine.empty:
            continue
        seconds = mine["seconds"]
        spread = around(seconds, mine["low"].fillna(seconds), mine["high"].fillna(seconds))
        draw_line(axes, mine["budget_bytes"] / MIB, seconds, spread, look, system, linewidth=0.9)
    holds = data.loc[data["graph_over_budget"].astype(float) <= 1.0, "budget_bytes"]
    if len(holds):
        axes.axvspan(holds.min() / MIB / 2**0.5, holds.max() / MIB * 2**0.5, color="#f2f2f2", zorder=0)
        axes.annotate("the graph fits", (holds.min() / MIB, 0.97), xycoords=("data", "axes fraction"), va="top", size=6)
    if frontier_line:
        best = data[data["pareto"]].sort_values("budget_bytes")
        line: Any = {"color": "#000000", "linewidth": 2.6, "alpha": 0.25, "label": "frontier", "zorder": 1}
        axes.step(best["budget_bytes"] / MIB, best["seconds"], where="post", **line)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted(set(data["budget_bytes"]))
    axes.set_xticks([size / MIB for size in sizes], [f"{size / MIB:,.0f}" for size in sizes])
    axes.minorticks_off()
    plain_log(axes.yaxis)
    name_axes(axes, *SPEC["frontier"]["axes"])


# Systems that keep their features on disk: the device limits no others.
ON_DISK = ["pyg+", "dgl-ondisk", "ali+pg", "ginex", "ginex-pg", "gnndrive", "diskgnn", "agnes", "outcore"]


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
        keys = ("device_requests", "device_bytes", "seconds")
        requests, moved, seconds = (sum(epoch[key] or 0 for epoch in point.epochs) for key in keys)
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


def least_seconds(record: Mapping[str, Any]) -> float | None:
    """Return the least seconds of an epoch by a run's `distance_to_limit`, of its own epochs; None without one."""
    distance = (record.get("summary") or {}).get("distance_to_limit")
    cost = TrainingCost.of(record)
    return None if distance is None or cost is None else distance * cost.share_s(record["config"]["epochs"])


def _distance(axes: Any, points: list[Point]) -> list[Plain]:
    rows: list[Plain] = []
    costs = [(point, point.cost) for point in points if point.cost is not None]
    wholes = [cost.share_s(point.record["config"]["epochs"]) for point, cost in costs]
    longest = max(wholes, default=1.0)
    for at, ((point, cost), whole) in enumerate(zip(costs, wholes, strict=True)):
        summary = point.record["summary"]
        look = style.look(point.system)
        value = cost.mean_epoch_s
        before = whole - value
        if before > 0.005 * longest:
            axes.barh(at, before, 0.6, left=value, color="white", edgecolor="black", linewidth=0.5)
        axes.barh(at, value, 0.6, color=look.color, edgecolor="black", linewidth=0.5, hatch=look.hatch, alpha=0.9)
        distance, engine = summary.get("distance_to_limit"), summary.get("engine_efficiency")
        least = least_seconds(point.record)
        if least is not None:
            axes.plot([least, least], [at - 0.42, at + 0.42], color="black", linewidth=2.0)
        shares = f"distance {_percent(distance)}, engine {_percent(engine)}"
        beside = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "ha": "left", "fontsize": 6.5}
        axes.annotate(shares, (whole, at), **beside)
        row = {"panel": "distance", "name": point.system, "x": value, "y": distance, "engine_efficiency": engine}
        limit = summary.get("extra", {}).get("limit_s")
        rows.append({**row, "limit_s": limit, "least_s": least, "offline_s": before, "unit": "s"})
    axes.set_yticks(range(len(costs)), [point.system for point, _ in costs])
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.75)
    axes.grid(axis="y", visible=False)
    title = "How far from the least that the trace needs (mark)"
    name_axes(axes, title, "epoch (s); in white its share of offline work and of the first epoch")
    return rows


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"
