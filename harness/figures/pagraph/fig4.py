"""PaGraph Fig. 4: data loading against computation in DGL, with neighbour and layer-wise sampling."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register
from harness.figures.draw.bars import draw_bars
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.stacks import draw_stacks
from harness.figures.pagraph.grid import layerwise, setting
from harness.figures.pagraph.parts import NOTE, PARTS, loading_share, part_rows

SAMPLERS = {"neighbor": "neighbour", "layerwise": "layer-wise"}


def by_sampler(profile: Plain) -> Plan:
    """Plan DGL with both samplers."""
    ways = {"neighbor": {}, "layerwise": layerwise()}
    return grid(setting(profile), ["dgl"], {SAMPLERS[sampler]: changes for sampler, changes in ways.items()})


def draw(evidence: Evidence) -> Drawing:
    """Draw an epoch by part (left), loading's share with the paper's (right); raise NotDrawn without an epoch."""
    group = evidence.points(by_sampler, least=1)
    points = [point for point in group.points if point.value is not None]
    if not points:
        raise NotDrawn("no run of dgl with the paper's workload (pagraph-fig4)")
    rows, shares = [], []
    table = published("pagraph-fig4")
    for point in points:
        label = str(point.x)
        rows.append(part_rows([point], label).assign(bar=label))
        paper = table.loc[table["series"] == label, "value"]
        shares.append(
            {
                "group": label,
                "series": "dgl",
                "value": loading_share(point),
                "paper": float(paper.iloc[0]) if len(paper) else None,
                "run": point.record["run_id"],
            }
        )
    parts, share = pd.concat(rows, ignore_index=True), pd.DataFrame(shares)
    canvas, panels = many_panels(2)
    shown = parts[parts["part"] != PARTS[3]] if not parts.loc[parts["part"] == PARTS[3], "value"].sum() else parts
    draw_stacks(shown, title="GCN by DGL", ylabel="epoch (s)", parts=PARTS, numbers=".2f", axes=panels[0])
    draw_bars(share, title="Share of data loading", ylabel="loading of loading + computation (%)", axes=panels[1])
    panels[1].set_ylim(0, 105)
    legend_above(canvas, panels, [*PARTS, "dgl", "paper"])
    extra = f"{NOTE}; paper: livejournal"
    if len(points) < len(SAMPLERS):
        extra += "; not run: the other way of sampling"
    text = caption(group, points, extra)
    add_caption(canvas, text)
    data = pd.concat([parts, share.rename(columns={"group": "bar"}).assign(part="loading share (%)")])
    return Drawing(canvas, data, text, [point.record["run_id"] for point in points])


register(Figure("pagraph-fig4", by_sampler, draw))
