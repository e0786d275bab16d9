"""PaGraph Fig. 18: epoch time as caching, partitions and pipelining are added one after another."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register
from harness.figures.draw.bars import draw_bars
from harness.figures.pagraph.devices import NOTE, point_rate
from harness.figures.pagraph.grid import HIDDEN, NAMES, by_model, device_bytes

DEVICES = 2
# Four devices hold a quarter of friendster's rows in the paper; here two devices hold about as much.
DEVICE_SHARE = 0.2
STEPS: dict[str, Plain] = {
    "loader alone": {"options": {"cache": "0x", "pipeline": False}, "partition": "none"},
    "+ cache": {"options": {"cache": "auto", "pipeline": False}, "partition": "none"},
    "+ partitions": {"options": {"cache": "auto", "pipeline": False}, "partition": "self-reliant"},
    "+ pipelining": {"options": {"cache": "auto", "pipeline": True}, "partition": "self-reliant"},
}


def steps(profile: Plain) -> Plan:
    """Plan pagraph with its parts added one after another, on two small devices."""
    entries = [
        {"name": "pagraph", "series": name, "options": step["options"], "run": {"partition": step["partition"]}}
        for name, step in STEPS.items()
    ]
    return by_model(profile, entries, ranks=DEVICES, device_memory=device_bytes(profile, DEVICE_SHARE))


def draw(evidence: Evidence) -> Drawing:
    """Draw seconds per million seed nodes by step and model; raise NotDrawn with fewer than two measured bars."""
    group = evidence.points(steps, least=1)
    rows = []
    for model in HIDDEN:
        found = {point.system: point for point in group.points if point.x == model}
        before: float | None = None
        for step in STEPS:
            if step not in found:
                continue
            rate = point_rate(found[step])
            value = 1000.0 / rate[0] if rate else None
            rows.append(
                {
                    "group": NAMES[model],
                    "series": step,
                    "value": value,
                    "low": 1000.0 / rate[2] if rate else None,
                    "high": 1000.0 / rate[1] if rate else None,
                    "status": found[step].status,
                    "saved": 1.0 - value / before if value and before else None,
                    "run": found[step].record["run_id"],
                }
            )
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


register(Figure("pagraph-fig18", steps, draw))
