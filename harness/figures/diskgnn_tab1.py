"""DiskGNN Table 1: time, disk access and accuracy of ginex, mariusgnn and diskgnn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.figures.accuracy_runs import best_accuracy
from harness.figures.base import Figure, Plain, Sheet, caption, gallery, published, register
from harness.figures.breakdown import run_breakdown
from harness.figures.diskgnn_fig8 import needs as accuracy_needs
from harness.figures.diskgnn_grid import SYSTEMS, entries, is_plain, preparation_s
from harness.figures.diskgnn_tab5 import TAB5, accuracy_of
from harness.figures.evidence import Evidence
from harness.figures.query import NotDrawn, Point, group_runs
from harness.figures.sheets import sheet

# Stages in which rows, partitions or graphs are read, by the systems' own names.
DISK = (("disk", ("extract", "read", "data_prep", "switch", "load", "load_graph")),)
UNITS = {
    "end-to-end": "s", "preprocessing": "s", "training": "s", "epoch": "s", "disk access": "s", "disk volume": "GB",
    "test accuracy": "%",
}  # fmt: skip


def needs(profile: Plain) -> list[Plain]:
    """The three systems as in the profile, and once more trained for real, for their accuracy."""
    short = gallery(profile)
    return [{**short, "name": "diskgnn-tab1", "systems": entries(short, SYSTEMS)}, accuracy_needs(profile)]


def _where(config: Mapping[str, Any]) -> bool:
    return is_plain(config) and config["system"] in SYSTEMS and config["model"] == "sage"


def _usual_memory(evidence: Evidence) -> str:
    """The memory of the runs whose budget comes nearest to the paper's usual tenth of the features; or empty."""
    away: dict[str, float] = {}
    for record in [] if evidence.frame.empty else evidence.frame["record"]:
        config, data = record["config"], record["config"]["dataset"]
        budget = record["memory"]["budget_bytes"]
        if budget and _where(config):
            features = data["num_nodes"] * data["dim"] * (2 if data["dtype"] == "float16" else 4)
            away[config["memory"]] = abs(budget / features - 0.1)
    return min(away, key=lambda memory: (away[memory], memory), default="")


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
        "end-to-end": before + training, "preprocessing": before, "training": training, "epoch": point.value,
        "disk access": disk, "disk volume": sum(volumes) / len(volumes) / 1e9 if volumes else None,
    }  # fmt: skip


def draw(evidence: Evidence) -> Sheet:
    """A row a measure, a column a system, the paper's beside ours."""
    memory = _usual_memory(evidence)
    group = group_runs(
        evidence.frame, axis=lambda config: config["system"], ignore=[], want_axis=1,
        where=lambda config: _where(config) and memory in ("", config["memory"]),
    )  # fmt: skip
    found: dict[str, dict[str, float | None]] = {}
    done = [point for point in group.points if point.value is not None]
    if not done:
        raise NotDrawn("none of ginex, mariusgnn and diskgnn has a measured epoch")
    for point in done:
        found[point.system] = _measures(point)
    runs = [str(point.record["run_id"]) for point in done]
    note = "accuracy: not run"
    try:
        judged = [point for point in accuracy_of(evidence, TAB5[0]).points if point.value is not None]
        for point in judged:
            best = best_accuracy(point.record)
            found.setdefault(point.system, {})["test accuracy"] = None if best is None else 100 * best
        runs += [str(point.record["run_id"]) for point in judged]
        note = "accuracy: of the runs of diskgnn-fig8" if judged else note
    except NotDrawn:
        pass
    rows = [_row(measure, unit, found) for measure, unit in UNITS.items()]
    failed = [f"{point.system} {point.status.upper()}" for point in group.points if point.value is None]
    epochs = len(done[0].record["epochs"])
    extra = [
        f"end to end: preprocessing and {epochs} epochs (paper: 50, in hours)", "disk access: time with a read open",
        note, *failed,
    ]  # fmt: skip
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


register(
    Figure(
        "diskgnn-tab1", "diskgnn", "Time, disk access and accuracy", needs, draw,
        claims=("dg-06", "dg-07", "dg-08", "dg-25", "dg-26"),
        full="papers100M, GraphSAGE, 50 epochs",
    )
)  # fmt: skip
