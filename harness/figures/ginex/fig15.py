"""Ginex Fig. 15: ginex with PaGraph's static cache and with its own optimal one: time by part, and miss ratio."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import Point
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, gallery, register
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.stacks import draw_stacks
from harness.figures.ginex.breakdown import NOTE, PARTS, breakdowns, in_order
from harness.figures.ginex.grid import systems_of

SYSTEMS = ["ginex-pg", "ginex"]
MODELS = ["sage", "gcn"]


def by_model(profile: Plain) -> Plan:
    """Plan both systems under both models."""
    short = gallery(profile)
    return grid(short, systems_of(short, SYSTEMS), {model: {"model": model} for model in MODELS})


def miss_ratios(point: Point) -> dict[str, float]:
    """Return misses in per cent of the requested rows, without and with the initial fills of the cache."""
    rows = misses = filled = 0.0
    for epoch in point.record["epochs"]:
        if epoch["warmup"]:
            continue
        counters = epoch["counters"]
        rows += counters.get("rows", 0)
        misses += counters.get("misses", 0)
        filled += (counters.get("observed") or {}).get("initial_rows", 0)
    if not rows:
        return {}
    return {"miss_percent": 100 * misses / rows, "miss_percent_with_fills": 100 * (misses + filled) / rows}


def draw(evidence: Evidence) -> Drawing:
    """Draw normalised time by part (left) and miss ratio without and with the cache's initial rows (right)."""
    group = evidence.points(by_model, least=1)
    rows = breakdowns(group, SYSTEMS, MODELS, SYSTEMS[0], miss_ratios)
    canvas, panels = many_panels(2, height=2.4)
    draw_stacks(rows, title="Epoch time by part", ylabel="epoch time over ginex-pg's", parts=PARTS, axes=panels[0])
    ratios = _ratios(rows)
    draw_bars(
        ratios, title="Rows read from disk", ylabel="rows read of those asked for (%)", numbers=".0f", axes=panels[1]
    )
    legend_above(canvas, panels, PARTS)
    text = caption(
        group,
        in_order(group, MODELS),
        NOTE + "; `+ fills`: the rows that the cache begins with counted too, which the paper leaves out",
    )
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, runs=group.runs())


def _ratios(rows: pd.DataFrame) -> pd.DataFrame:
    found: list[dict[str, Any]] = []
    for (model, system), part in rows.groupby(["model", "system"], sort=False):
        first = part.iloc[0]
        for column, label in (("miss_percent", "misses"), ("miss_percent_with_fills", "+ fills")):
            value = first.get(column)
            found.append({"group": f"{model}\n{label}", "series": system, "value": value, "status": first["status"]})
    order = list(dict.fromkeys(f"{model}\n{label}" for model in MODELS for label in ("misses", "+ fills")))
    table = pd.DataFrame(found)
    return table.sort_values("group", key=lambda column: column.map(order.index), kind="stable")


register(Figure("ginex-fig15", by_model, draw))
