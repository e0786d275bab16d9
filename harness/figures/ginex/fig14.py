"""Ginex Fig. 14: epoch time by part in pyg+, ali+pg and ginex, normalised to pyg+."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, gallery, published, register
from harness.figures.draw.panels import legend_above, one_panel
from harness.figures.draw.stacks import draw_stacks
from harness.figures.ginex.breakdown import NOTE, PARTS, breakdowns, in_order
from harness.figures.ginex.grid import SYSTEMS, systems_of

MODELS = ["sage", "gcn"]
BASE = SYSTEMS[0]


def by_model(profile: Plain) -> Plan:
    """Plan the three systems under both models."""
    short = gallery(profile)
    return grid(short, systems_of(short, SYSTEMS), {model: {"model": model} for model in MODELS})


def draw(evidence: Evidence) -> Drawing:
    """Draw a stacked bar for each system and model, and the paper's range beside ginex."""
    group = evidence.points(by_model, least=1)
    rows = breakdowns(group, SYSTEMS, MODELS, BASE, lambda point: {})
    canvas, axes = one_panel()
    draw_stacks(
        rows, title="Epoch time by what the device did", ylabel="epoch time over pyg+'s", parts=PARTS, axes=axes
    )
    rows = _with_paper(axes, rows)
    legend_above(canvas, [axes], PARTS)
    drawn = [model for model in MODELS if model in set(rows["model"])]
    missing = [model for model in MODELS if model not in drawn]
    extra = NOTE + "; gcn takes the same fan-out as sage (the paper's has two layers)"
    if missing:
        extra += f"; not run: {', '.join(missing)}"
    text = caption(group, in_order(group, MODELS), extra)
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, runs=group.runs())


def _with_paper(axes: Any, rows: pd.DataFrame) -> pd.DataFrame:
    """Mark the published range of ginex over pyg+ on its bars; return the rows with the range in two more columns."""
    table = published("ginex-fig14")
    rows = rows.assign(paper_low=None, paper_high=None)
    label: str | None = "paper (range)"
    for at, bar in enumerate(dict.fromkeys(rows["bar"])):
        mine = rows["bar"] == bar
        model, system = rows.loc[mine, "model"].iloc[0], rows.loc[mine, "system"].iloc[0]
        speedups = table.loc[table["series"] == f"{model} {system} over {BASE}", "value"]
        if speedups.empty:
            continue
        low, high = 1 / speedups.max(), 1 / speedups.min()
        rows.loc[mine, ["paper_low", "paper_high"]] = [low, high]
        middle = (low + high) / 2
        axes.errorbar(
            at + 0.42,
            middle,
            yerr=[[middle - low], [high - middle]],
            marker="D",
            markerfacecolor="white",
            markeredgecolor="black",
            ecolor="black",
            markersize=4,
            capsize=2.5,
            elinewidth=0.9,
            linestyle="none",
            label=label,
        )
        label = None
    return rows


register(Figure("ginex-fig14", by_model, draw))
