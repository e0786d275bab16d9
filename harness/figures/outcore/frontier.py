"""outcore-frontier: epoch time against memory, and the Pareto set: the runs that no other beats on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.compare.plan import Plain, Plan, first_setting, grid, joined
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.base import Drawing, drawn, figure_of_runs, specs
from harness.figures.draw import style
from harness.figures.draw.panels import around, draw_line, legend_above, name_axes, one_panel, plain_log
from harness.figures.grids import gallery, only_systems, values
from workloads.units import parse_bytes

SPEC = specs(__file__)
MIB = 2**20


def over_memory(profile: Plain) -> Plan:
    """Plan the systems at the profile's budget and multiples of it, and in-memory without a cap as the upper bound.

    A profile whose grid sweeps budgets has its own runs planned, at the first values of its other axes.
    """
    if budgets := (profile.get("grid") or {}).get("memory", []):
        return grid(first_setting(profile), profile["systems"], {memory: {"memory": memory} for memory in budgets})
    base = gallery(profile)
    memory = str(base["run"]["memory"])
    budgets = [_times(memory, factor) for factor in values(profile, "memory_factors", SPEC["factors"])]
    whole = grid(base, ["in-memory"], {"none": {"memory": "none"}})
    return joined(
        [grid(base, only_systems(profile, SPEC["systems"]), {size: {"memory": size} for size in budgets}), whole]
    )


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
        order = rows.sort_values("seconds").to_dict("records")
        if len(order) > 1:
            first, second = order[:2]
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


def _row(point: Point) -> Plain:
    summary = point.record.get("summary") or {}
    start_up, epochs = summary.get("start_up_s"), point.record["config"]["epochs"]
    counted = point.value is not None and start_up is not None
    return {
        "system": point.system,
        "budget_bytes": budget_bytes(point.record),
        "seconds": point.value,
        "low": point.low,
        "high": point.high,
        "start_up_s": start_up,
        "start_up_bytes": summary.get("start_up_bytes"),
        "with_start_up": point.value + start_up / epochs if counted else None,
        "graph_over_budget": summary.get("topology_over_budget"),
        "status": point.status,
        "run": point.run,
    }


@figure_of_runs("outcore-frontier", over_memory)
def frontier(group: Group) -> Drawing:
    """Draw one marker per run, joined by system, the frontier as a step line; raise NotDrawn below two budgets."""
    data = pd.DataFrame([row for row in map(_row, group.points) if row["budget_bytes"] is not None])
    done = data[data["seconds"].notna()] if len(data) else data
    if len(done) < 2 or done["budget_bytes"].nunique() < 2:
        raise NotDrawn("no comparable runs at two budgets (outcore-frontier)")
    flags = pareto(list(zip(done["budget_bytes"].astype(float), done["seconds"].astype(float), strict=True)))
    data["pareto"] = pd.Series(flags, index=done.index).reindex(data.index, fill_value=False)
    canvas = _draw(data)
    best = data[data["pareto"]].sort_values("budget_bytes")
    names = ", ".join(f"{row['system']} at {row['budget_bytes'] / MIB:,.0f} MiB" for row in best.to_dict("records"))
    failed = data[data["seconds"].isna()].to_dict("records")
    notes = [
        f"fastest: {leaders(data)}",
        f"on the frontier: {names}",
        *(f"{row['system']} {row['status']} at {row['budget_bytes'] / MIB:,.0f} MiB" for row in failed),
        SPEC["note"],
    ]
    return drawn(canvas, data.reset_index(drop=True), group, *notes, points=group.done)


def _draw(data: pd.DataFrame) -> Any:
    canvas, axes = one_panel(height=2.7)
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
    best = data[data["pareto"]].sort_values("budget_bytes")
    line: Any = {"color": "#000000", "linewidth": 2.6, "alpha": 0.25, "label": "frontier", "zorder": 1}
    axes.step(best["budget_bytes"] / MIB, best["seconds"], where="post", **line)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted(set(data["budget_bytes"]))
    axes.set_xticks([size / MIB for size in sizes], [f"{size / MIB:,.0f}" for size in sizes])
    axes.minorticks_off()
    plain_log(axes.yaxis)
    name_axes(axes, *SPEC["axes"])
    legend_above(canvas, [axes])
    return canvas
