"""PaGraph Table 1: device utilisation of DGL, by model and sampler."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid, joined
from harness.compare.points import NotDrawn, Point
from harness.figures.base import Figure, Plain, Sheet, caption, published, register
from harness.figures.draw.sheets import sheet
from harness.figures.pagraph.grid import HIDDEN, NAMES, layerwise, setting

SAMPLERS = {"neighbor": "neighbour", "layerwise": "layer-wise"}


def planned(profile: Plain) -> Plan:
    """Plan DGL with both models and both samplers."""
    ways: dict[str, Plain] = {"neighbor": {}, "layerwise": layerwise()}
    plans = [
        grid(
            setting(profile),
            ["dgl"],
            {model: {"model": model, "hidden": HIDDEN[model], **changes} for model in reversed(HIDDEN)},
            panel=SAMPLERS[sampler],
        )
        for sampler, changes in ways.items()
    ]
    return joined(plans)


def device_memory_share(record: Plain) -> float | None:
    """Return the per cent of device memory that the run's buffers take, by its memory plan."""
    have = record["config"].get("device_memory_bytes")
    planned = [item["bytes"] for item in record["memory"]["plan"] if item["tier"] == "device"]
    return 100.0 * sum(planned) / have if have and planned else None


def row_of(point: Point) -> Plain:
    """Return the row of one model and sampler, with the paper's numbers."""
    table = published("pagraph-tab1")
    busy = point.record["summary"].get("accelerator_utilisation")
    row: dict[str, Any] = {
        "model": NAMES[str(point.x)],
        "sampling": point.panel,
        "computation (%)": None if busy is None else 100.0 * busy,
        "memory (%)": device_memory_share(point.record),
        "run": point.record["run_id"],
    }
    for what in ("computation", "memory"):
        key = f"{NAMES[str(point.x)]} {point.panel}"
        known = table.loc[(table["series"] == key) & (table["x"] == what), "value"]
        row[f"{what}, paper (%)"] = float(known.iloc[0]) if len(known) else None
    return row


def draw(evidence: Evidence) -> Sheet:
    """Return one row per model and sampler; raise NotDrawn without a measured epoch."""
    group = evidence.points(planned, least=1)
    points = [point for point in group.points if point.value is not None]
    if not points:
        raise NotDrawn("no run of dgl with the paper's workload (pagraph-tab1)")
    rows = [row_of(point) for point in points]
    columns = {
        "model": "",
        "sampling": "",
        "computation (%)": ".1f",
        "computation, paper (%)": ".1f",
        "memory (%)": ".1f",
        "memory, paper (%)": ".1f",
    }
    extra = (
        "computation: training alone over the epoch (rule 20); memory: the run's device buffers over the device, "
        "without what training itself takes, which an emulated device does not need"
    )
    text = caption(group, points, extra)
    return sheet(pd.DataFrame(rows), columns, text, runs=[point.record["run_id"] for point in points])


register(Figure("pagraph-tab1", planned, draw))
