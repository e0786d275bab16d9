"""DiskGNN Table 1: time, disk access and accuracy of ginex, mariusgnn and diskgnn."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn, Point
from harness.figures.accuracy_runs import best_accuracy
from harness.figures.base import Figure, Plain, Sheet, caption, gallery, published, register
from harness.figures.diskgnn.fig8 import planned as accuracy_plan
from harness.figures.diskgnn.grid import SYSTEMS, entries, preparation_s
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.sheets import sheet

# Stages in which rows, partitions or graphs are read, by the systems' own names.
DISK = (("disk", ("extract", "read", "data_prep", "switch", "load", "load_graph")),)
UNITS = {
    "end-to-end": "s",
    "preprocessing": "s",
    "training": "s",
    "epoch": "s",
    "disk access": "s",
    "disk volume": "GB",
    "test accuracy": "%",
}


def planned(profile: Plain) -> Plan:
    """Plan the three systems with the profile's settings."""
    short = gallery(profile)
    return grid(short, entries(short, SYSTEMS), {"": {}})


def judged(profile: Plain) -> list[Plain]:
    """Return the experiment that measures the three systems' test accuracy."""
    return [accuracy_plan(profile).experiment("diskgnn-tab1-accuracy")]


def _measures(point: Point) -> dict[str, float | None]:
    record = point.record
    measured = [epoch for epoch in record["epochs"] if not epoch["warmup"]]
    training = sum(float(epoch["seconds"]) for epoch in record["epochs"])
    volumes = [float(epoch["device_bytes"]) for epoch in measured if epoch["device_bytes"] is not None]
    before = preparation_s(record)
    try:
        disk: float | None = run_breakdown(point, DISK, "rest")["disk"]
    except NotDrawn:
        disk = None
    return {
        "end-to-end": before + training,
        "preprocessing": before,
        "training": training,
        "epoch": point.value,
        "disk access": disk,
        "disk volume": sum(volumes) / len(volumes) / 1e9 if volumes else None,
    }


def draw(evidence: Evidence) -> Sheet:
    """Return one row per measure, one column per system, with the paper's; raise NotDrawn without a measured epoch."""
    group = evidence.points(planned, least=1)
    found: dict[str, dict[str, float | None]] = {}
    done = [point for point in group.points if point.value is not None]
    if not done:
        raise NotDrawn("none of ginex, mariusgnn and diskgnn has a measured epoch")
    for point in done:
        found[point.system] = _measures(point)
    runs = [str(point.record["run_id"]) for point in done]
    note = "accuracy: not run"
    try:
        trained = [point for point in evidence.points(accuracy_plan, least=1).points if point.value is not None]
        for point in trained:
            best = best_accuracy(point.record)
            found.setdefault(point.system, {})["test accuracy"] = None if best is None else 100 * best
        runs += [str(point.record["run_id"]) for point in trained]
        note = "accuracy: of the runs of diskgnn-fig8" if trained else note
    except NotDrawn:
        pass
    rows = [_row(measure, unit, found) for measure, unit in UNITS.items()]
    failed = [f"{point.system} {point.status.upper()}" for point in group.points if point.value is None]
    epochs = len(done[0].record["epochs"])
    extra = [
        f"end to end: preprocessing and {epochs} epochs (paper: 50, in hours)",
        "disk access: time with a read open",
        note,
        *failed,
    ]
    columns: dict[str, str] = {"measure": "", "unit": "", **dict.fromkeys(SYSTEMS, ".3g")}
    columns |= {f"{system}, paper": ".4g" for system in SYSTEMS}
    return sheet(pd.DataFrame(rows), {**columns, "paper unit": ""}, caption(group, done, "; ".join(extra)), runs=runs)


def _row(measure: str, unit: str, found: Mapping[str, Mapping[str, float | None]]) -> Plain:
    table = published("diskgnn-tab1")
    row: Plain = {"measure": measure, "unit": unit}
    row |= {system: found.get(system, {}).get(measure) for system in SYSTEMS}
    for system in SYSTEMS:
        mine = table[(table["x"] == measure) & (table["series"] == system)]
        row[f"{system}, paper"] = float(mine["value"].iloc[0]) if len(mine) else None
        if len(mine):
            row["paper unit"] = str(mine["unit"].iloc[0])
    row.setdefault("paper unit", None)
    return row


register(Figure("diskgnn-tab1", planned, draw, beside=judged))
