"""DiskGNN Tables 5 and 6: test accuracy and end-to-end time, by model and sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.compare.points import Group, NotDrawn, Point
from harness.figures.accuracy_runs import (
    accuracy_curve,
    accuracy_plan,
    accuracy_profile,
    best_accuracy,
    common_target,
    origin,
    time_to,
)
from harness.figures.base import Figure, Plain, Sheet, caption, published, register
from harness.figures.diskgnn.grid import SYSTEMS, entries
from harness.figures.draw.sheets import sheet

#: A row's label, model, sampler, and the systems that support them.
Part = tuple[str, str, str, list[str]]
TAB5: list[Part] = [("sage", "sage", "neighbor", SYSTEMS), ("gat", "gat", "neighbor", SYSTEMS)]
# MariusGNN's sampling is built into it: the paper has no ShaDow for it either.
TAB6: list[Part] = [("gcn", "gcn", "neighbor", SYSTEMS), ("shadow", "sage", "shadow", ["ginex", "diskgnn"])]


def plan_of(part: Part) -> Callable[[Plain], Plan]:
    """Return the plan of the accuracy runs of one part of a table."""
    _, model, sampler, systems = part

    def plan(profile: Plain) -> Plan:
        return accuracy_plan(profile, entries(accuracy_profile(profile, model), systems), model, sampler)

    return plan


def needs_tab5(profile: Plain) -> list[Plain]:
    """Return the experiments of GraphSAGE and GAT."""
    return [plan_of(part)(profile).experiment(f"diskgnn-tab5-{part[0]}") for part in TAB5]


def needs_tab6(profile: Plain) -> list[Plain]:
    """Return the experiments of GCN, and of GraphSAGE on ShaDow's subgraphs."""
    return [plan_of(part)(profile).experiment(f"diskgnn-tab6-{part[0]}") for part in TAB6]


def _row(label: str, point: Point | None, system: str, target: float | None, paper: pd.DataFrame) -> Plain:
    row: Plain = {"model": label, "system": system}
    if point is None or point.value is None:
        row["accuracy (%)"] = "not run" if point is None else point.status.upper()
    else:
        best, curve = best_accuracy(point.record), accuracy_curve(point.record)
        if best is not None:
            row |= {
                "accuracy (%)": 100 * best,
                "end to end (s)": float(curve["end_to_end"].iloc[-1]),
                "epochs": len(curve),
                "run": point.record["run_id"],
            }
            if target is not None:
                row["to the target (s)"] = time_to(point.record, target, end_to_end=True)
    mine = paper[paper["series"] == f"{label} {system}"]
    for x, value in zip(mine["x"], mine["value"], strict=True):
        graph, _, what = str(x).rpartition(" ")
        if graph == "Papers100M":
            row["paper (%)" if what == "accuracy" else "paper (h)"] = float(value)
    return row


def _draw(evidence: Evidence, table: str, parts: Sequence[Part]) -> Sheet:
    rows: list[Plain] = []
    runs: list[str] = []
    shown: tuple[Group, list[Point]] | None = None
    said: list[str] = []
    for part in parts:
        try:
            group = evidence.points(plan_of(part), least=1)
        except NotDrawn:
            rows += [_row(part[0], None, system, None, published(table)) for system in part[3]]
            continue
        points = {point.system: point for point in group.points}
        done = [point for point in group.points if point.value is not None]
        target = common_target([point.record for point in done])
        if target is not None:
            said.append(f"{part[0]} target {100 * target:.1f} %")
        rows += [_row(part[0], points.get(system), system, target, published(table)) for system in part[3]]
        runs += [str(point.record["run_id"]) for point in done]
        if shown is None and done:
            shown = (group, done)
    if shown is None:
        raise NotDrawn("no run judged its model on test nodes after every epoch")
    data = pd.DataFrame(rows)
    columns = {
        "model": "",
        "system": "",
        "accuracy (%)": ".2f",
        "end to end (s)": ".1f",
        "to the target (s)": ".1f",
        "epochs": ".0f",
        "paper (%)": ".2f",
        "paper (h)": ".2f",
    }
    for name in columns:
        if name not in data:
            data[name] = None
    extra = [
        origin(shown[1][0].record),
        "best test accuracy of any epoch; end to end: preprocessing and all epochs",
        *said,
        "paper: papers100M",
    ]
    if len(parts) > 1:
        extra.append(f"models and sampling: {', '.join(part[0] for part in parts)}")
    return sheet(data, columns, caption(shown[0], shown[1], "; ".join(extra)), runs=runs)


def draw_tab5(evidence: Evidence) -> Sheet:
    """Return one row per model and system of Table 5."""
    return _draw(evidence, "diskgnn-tab5", TAB5)


def draw_tab6(evidence: Evidence) -> Sheet:
    """Return one row per model and system of Table 6."""
    return _draw(evidence, "diskgnn-tab6", TAB6)


register(Figure("diskgnn-tab5", needs_tab5, draw_tab5))
register(Figure("diskgnn-tab6", needs_tab6, draw_tab6))
