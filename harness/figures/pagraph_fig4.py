"""PaGraph Fig. 4: data loading against computation in DGL, neighbour and layer-wise sampling."""

from __future__ import annotations

import pandas as pd

from harness.figures.bars import draw_bars
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register
from harness.figures.evidence import Evidence
from harness.figures.pagraph_grid import both_models, by_model, layerwise
from harness.figures.pagraph_parts import NOTE, PARTS, loading_share, part_rows
from harness.figures.panels import legend_above, many_panels
from harness.figures.query import NotDrawn
from harness.figures.stacks import draw_stacks

SAMPLERS = {"neighbor": "neighbour", "layerwise": "layer-wise"}


def needs(profile: Plain) -> list[Plain]:
    """DGL under both ways of sampling."""
    samplers = {"neighbor": {}, "layerwise": layerwise()}
    return [
        experiment
        for sampler, changes in samplers.items()
        for experiment in both_models(profile, f"pagraph-fig4-{sampler}", ["dgl"], **changes)
        if experiment["run"]["model"] == "gcn"
    ]


def draw(evidence: Evidence) -> Drawing:
    """Left: an epoch by part; right: loading over loading and computation, beside the paper's."""
    rows, shares, groups = [], [], []
    table = published("pagraph-fig4")
    for sampler, label in SAMPLERS.items():
        try:
            group = by_model(evidence.frame, sampler, ["dgl"])
        except NotDrawn:
            continue
        point = next((p for p in group.points if p.x == "gcn" and p.value is not None), None)
        if point is None:
            continue
        groups.append((group, point))
        rows.append(part_rows([point], label).assign(bar=label))
        paper = table.loc[table["series"] == label, "value"]
        shares.append(
            {
                "group": label, "series": "dgl", "value": loading_share(point),
                "paper": float(paper.iloc[0]) if len(paper) else None, "run": point.record["run_id"],
            }
        )  # fmt: skip
    if not rows:
        raise NotDrawn("no run of dgl with the paper's workload (pagraph-fig4)")
    parts, share = pd.concat(rows, ignore_index=True), pd.DataFrame(shares)
    canvas, panels = many_panels(2)
    shown = parts[parts["part"] != PARTS[3]] if not parts.loc[parts["part"] == PARTS[3], "value"].sum() else parts
    draw_stacks(shown, title="GCN by DGL", ylabel="epoch (s)", parts=PARTS, numbers=".2f", axes=panels[0])
    draw_bars(share, title="Share of data loading", ylabel="loading of loading + computation (%)", axes=panels[1])
    panels[1].set_ylim(0, 105)
    legend_above(canvas, panels, [*PARTS, "dgl", "paper"])
    extra = f"{NOTE}; paper: livejournal"
    if len(groups) < len(SAMPLERS):
        extra += "; not run: the other way of sampling"
    text = caption(groups[0][0], [point for _, point in groups], extra)
    add_caption(canvas, text)
    data = pd.concat([parts, share.rename(columns={"group": "bar"}).assign(part="loading share (%)")])
    return Drawing(canvas, data, text, [point.record["run_id"] for _, point in groups])


register(
    Figure(
        "pagraph-fig4", "pagraph", "Data loading and computation by way of sampling", needs, draw,
        claims=("pg-07", "pg-13"),
        full="livejournal, lj-large, enwiki x neighbour, layer-wise",
    )
)  # fmt: skip
