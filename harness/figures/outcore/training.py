"""outcore-training: which system is fastest, and from how many epochs on: T(E) at one budget, a fresh epoch at all."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.points import Group, Point
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure_of_runs
from harness.figures.draw import style
from harness.figures.draw.panels import legend_above, many_panels, name_axes, plain_log
from harness.figures.outcore.runs import budget_bytes, draw_frontier, over_memory, row_of
from harness.records.cost import TrainingCost, episode_epochs, leaders
from harness.results.table import measured_epochs
from workloads.units import format_bytes

#: Numbers of epochs at which T(E) / E is drawn.
EPOCHS = (1, 2, 3, 5, 8, 13, 20, 30, 50, 80, 130, 200, 300, 500, 1000)
#: The papers' regime: the budget holds the graph with room for rows, and a part of the features.
MOST_GRAPH = 0.7
LEAST_FEATURES = 3.0


@figure_of_runs("outcore-training", over_memory)
def training(group: Group) -> Drawing:
    """Draw T(E) / E at the budget nearest to the papers' (left), and a fresh epoch over memory (right).

    Raises:
        NotDrawn: no budget has two systems with a measured epoch.
    """
    budget = paper_budget(group.done)
    points = [point for point in group.done if point.cost is not None and budget_bytes(point.record) == budget]
    if budget is None or len(points) < 2:
        raise NotDrawn("no budget has two systems with a measured epoch")
    canvas, (left, right) = many_panels(2, height=2.9)
    rows = []
    for system in style.ordered([point.system for point in points]):
        point = next(point for point in points if point.system == system)
        rows += _draw_training(left, point)
    left.set_xscale("log")
    left.set_yscale("log")
    plain_log(left.xaxis)
    plain_log(left.yaxis)
    name_axes(left, f"A training, {format_bytes(budget)} budget", "epochs of the training, E", "T(E) / E (s)")
    memory = pd.DataFrame([row for row in map(row_of, group.points) if row["budget_bytes"] is not None])
    draw_frontier(right, memory, frontier_line=False)
    legend_above(canvas, [left, right])
    costs = {point.system: point.cost for point in points if point.cost is not None}
    notes = [f"least time: {leaders(costs)}", "marks: measured epochs with all work so far", "grey: the graph fits"]
    shared = {point.system: episode_epochs(point.record) for point in points}
    notes += [f"{system} prepared {count} epochs together" for system, count in shared.items() if count]
    table = pd.concat([pd.DataFrame(rows).assign(panel="training"), memory.assign(panel="memory")])
    return drawn(canvas, table.reset_index(drop=True), group, *notes, points=group.done)


def paper_budget(points: list[Point]) -> int | None:
    """Return the least budget in the papers' regime, else the one with most systems; None without any."""
    systems: dict[int, set[str]] = {}
    regime: dict[int, bool] = {}
    for point in points:
        budget = budget_bytes(point.record)
        if budget is None:
            continue
        systems.setdefault(budget, set()).add(point.system)
        graph = (point.record.get("summary") or {}).get("topology_over_budget")
        regime[budget] = graph is not None and graph <= MOST_GRAPH and _features(point) >= LEAST_FEATURES * budget
    fitting = [budget for budget, fits in regime.items() if fits and len(systems[budget]) > 1]
    if fitting:
        return min(fitting)
    return max(systems, key=lambda budget: (len(systems[budget]), -budget), default=None)


def _features(point: Point) -> int:
    data = point.record["config"]["dataset"]
    width = {"float16": 2, "float32": 4}.get(str(data["dtype"]), 4)
    return int(data["num_nodes"]) * int(data["dim"]) * width


def _draw_training(axes: Any, point: Point) -> list[dict[str, Any]]:
    """Draw one system's line with a mark for each measured epoch; return its rows."""
    cost = point.cost
    assert cost is not None
    look = style.look(point.system)
    shares = [cost.share_s(epochs) for epochs in EPOCHS]
    axes.plot(EPOCHS, shares, color=look.color, linestyle=look.line, linewidth=1.1, label=point.system)
    measured = _so_far(point, cost)
    axes.plot(*zip(*measured, strict=True), color=look.color, marker=look.marker, linestyle="none", markersize=4)
    rows = [
        {"system": point.system, "epochs": epochs, "seconds": share, "kind": "T(E) / E", "run": point.run}
        for epochs, share in zip(EPOCHS, shares, strict=True)
    ]
    return rows + [
        {"system": point.system, "epochs": epochs, "seconds": share, "kind": "measured", "run": point.run}
        for epochs, share in measured
    ]


def _so_far(point: Point, cost: TrainingCost) -> list[tuple[int, float]]:
    """Return seconds of an epoch with all work so far, after each measured epoch of the newest run."""
    spent = cost.before_s
    warmup = len(point.record["epochs"]) - len(measured_epochs(point.record))
    found = []
    for number, epoch in enumerate(point.record["epochs"], start=1):
        offline = float((epoch.get("offline") or {}).get("seconds", 0.0))
        seconds = cost.mean_epoch_s if number <= warmup else float(epoch["seconds"]) - offline
        spent += cost.each_s + seconds
        if number > warmup:
            found.append((number, spent / number))
    return found
