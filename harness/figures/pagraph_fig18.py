"""PaGraph Fig. 18: epoch time as caching, partitions and pipelining are added one after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.figures.bars import draw_bars
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register
from harness.figures.evidence import Evidence
from harness.figures.pagraph_devices import NOTE, point_rate
from harness.figures.pagraph_grid import HIDDEN, NAMES, NEIGHBOURS, device_bytes, setting
from harness.figures.query import NotDrawn, group_runs

DEVICES = 2
# The paper's friendster fits a quarter of its rows into four devices; here two devices hold about as much.
DEVICE_SHARE = 0.2
STEPS = {
    "loader alone": {"options": {"cache": "0x", "pipeline": False}, "partition": "none"},
    "+ cache": {"options": {"cache": "auto", "pipeline": False}, "partition": "none"},
    "+ partitions": {"options": {"cache": "auto", "pipeline": False}, "partition": "self-reliant"},
    "+ pipelining": {"options": {"cache": "auto", "pipeline": True}, "partition": "self-reliant"},
}


def needs(profile: Plain) -> list[Plain]:
    """pagraph with its parts added one after another, on two small devices."""
    entries = [
        {"name": "pagraph", "options": step["options"], "run": {"partition": step["partition"]}}
        for step in STEPS.values()
    ]
    memory = device_bytes(profile, DEVICE_SHARE)
    return [
        {
            **setting(profile, model=model, ranks=DEVICES, device_memory=memory), "name": f"pagraph-fig18-{model}",
            "systems": entries, "grid": {},
        }
        for model in HIDDEN
    ]  # fmt: skip


def step_of(config: Mapping[str, Any]) -> str | None:
    """Which of `STEPS` a run is."""
    for name, step in STEPS.items():
        wanted: Any = step["options"]
        if config["partition"] == step["partition"] and all(
            config["options"].get(key) == value for key, value in wanted.items()
        ):
            return name
    return None


def draw(evidence: Evidence) -> Drawing:
    """A bar for each step and model: seconds for a million seed nodes."""
    group = group_runs(
        evidence.frame,
        axis=lambda config: f"{config['model']} {step_of(config)}",
        ignore=["model", "hidden", "partition"],
        where=lambda config: (
            config["system"] == "pagraph"
            and config["stages"] == "all"
            and config["memory"] == "none"
            and config["sampler"] == "neighbor"
            and config["fanout"] == [NEIGHBOURS] * 2
            and config["ranks"] == DEVICES
            and config["options"].get("ranking") == "out-degree"
            and step_of(config) is not None
        ),
        want_axis=len(STEPS),
    )
    rows = []
    for model in HIDDEN:
        found = {str(p.x).partition(" ")[2]: p for p in group.points if str(p.x).startswith(f"{model} ")}
        before: float | None = None
        for step in STEPS:
            if step not in found:
                continue
            rate = point_rate(found[step])
            value = 1000.0 / rate[0] if rate else None
            rows.append(
                {
                    "group": NAMES[model], "series": step, "value": value,
                    "low": 1000.0 / rate[2] if rate else None, "high": 1000.0 / rate[1] if rate else None,
                    "status": found[step].status,
                    "saved": 1.0 - value / before if value and before else None,
                    "run": found[step].record["run_id"],
                }
            )  # fmt: skip
            before = value
    data = pd.DataFrame(rows)
    if data.empty or data["value"].notna().sum() < 2:
        raise NotDrawn("no measured runs of pagraph's parts on two devices (pagraph-fig18)")
    canvas, _ = draw_bars(
        data, title="Adding caching, partitions, pipelining", ylabel="seconds for a million seed nodes", numbers=".2f"
    )
    saved = ", ".join(
        f"{row['group']} {row['series']} {100 * row['saved']:.0f} %"
        for row in data.to_dict("records")
        if pd.notna(row["saved"])
    )
    table = published("pagraph-fig18")
    paper = ", ".join(f"{row['series']} {row['x']} {row['value']:g} {row['unit']}" for row in table.to_dict("records"))
    extra = f"{DEVICES} devices; {NOTE}; saved by each step: {saved}; paper (friendster, 4 GPUs): {paper}"
    text = caption(group, [point for point in group.points if point.value is not None], extra)
    add_caption(canvas, text)
    return Drawing(canvas, data, text, group.runs())


register(
    Figure(
        "pagraph-fig18", "pagraph", "Adding each optimisation", needs, draw, claims=("pg-10", "pg-14"),
        full="friendster on 4 GPUs x GCN, GraphSAGE, preprocessing on",
    )
)  # fmt: skip
