"""PaGraph Table 1: how much of the device DGL uses, by model and way of sampling."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.figures.base import Figure, Plain, Sheet, caption, published, register
from harness.figures.evidence import Evidence
from harness.figures.pagraph_grid import HIDDEN, NAMES, both_models, by_model, layerwise
from harness.figures.query import Group, NotDrawn, Point
from harness.figures.sheets import sheet

SAMPLERS = {"neighbor": "neighbour", "layerwise": "layer-wise"}


def needs(profile: Plain) -> list[Plain]:
    """DGL, both models, both ways of sampling."""
    return [
        *both_models(profile, "pagraph-tab1", ["dgl"]),
        *both_models(profile, "pagraph-tab1-layerwise", ["dgl"], **layerwise()),
    ]


def device_memory_share(record: Plain) -> float | None:
    """Percent of the device's memory that the run's buffers take, by its plan."""
    have = record["config"].get("device_memory_bytes")
    planned = [item["bytes"] for item in record["memory"]["plan"] if item["tier"] == "device"]
    return 100.0 * sum(planned) / have if have and planned else None


def row_of(point: Point, sampler: str) -> Plain:
    """One model under one way of sampling, beside the paper's numbers."""
    table = published("pagraph-tab1")
    busy = point.record["summary"].get("accelerator_utilisation")
    row: dict[str, Any] = {
        "model": NAMES[str(point.x)], "sampling": SAMPLERS[sampler],
        "computation (%)": None if busy is None else 100.0 * busy,
        "memory (%)": device_memory_share(point.record), "run": point.record["run_id"],
    }  # fmt: skip
    for what in ("computation", "memory"):
        key = f"{NAMES[str(point.x)]} {SAMPLERS[sampler]}"
        known = table.loc[(table["series"] == key) & (table["x"] == what), "value"]
        row[f"{what}, paper (%)"] = float(known.iloc[0]) if len(known) else None
    return row


def draw(evidence: Evidence) -> Sheet:
    """A row for each model and way of sampling."""
    rows: list[Plain] = []
    drawn: list[tuple[Group, Point]] = []
    for sampler in SAMPLERS:
        try:
            group = by_model(evidence.frame, sampler, ["dgl"])
        except NotDrawn:
            continue
        for model in reversed(HIDDEN):
            for point in group.points:
                if point.x == model and point.value is not None:
                    rows.append(row_of(point, sampler))
                    drawn.append((group, point))
    if not rows:
        raise NotDrawn("no run of dgl with the paper's workload (pagraph-tab1)")
    columns = {
        "model": "", "sampling": "", "computation (%)": ".1f", "computation, paper (%)": ".1f", "memory (%)": ".1f",
        "memory, paper (%)": ".1f",
    }  # fmt: skip
    extra = (
        "computation: training alone over the epoch (rule 20); memory: the run's device buffers over the device, "
        "without what training itself takes, which an emulated device does not need"
    )
    text = caption(drawn[0][0], [point for _, point in drawn], extra)
    return sheet(pd.DataFrame(rows), columns, text, runs=[point.record["run_id"] for _, point in drawn])


register(
    Figure(
        "pagraph-tab1", "pagraph", "Device utilisation of DGL", needs, draw,
        full="GraphSAGE, GCN x neighbour, layer-wise",
    )
)  # fmt: skip
