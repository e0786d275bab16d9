"""PaGraph Fig. 19: epoch time over the number of sampled neighbours."""

from __future__ import annotations

import pandas as pd

from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, left_out, register, unlabelled, values
from harness.figures.curves import draw_curves
from harness.figures.evidence import Evidence
from harness.figures.pagraph_grid import FAMILY, setting, usual_options
from harness.figures.query import group_runs

NEIGHBOURS = [2, 4, 8, 16]


def needs(profile: Plain) -> Plain:
    """The four systems, GCN, at each number of neighbours."""
    fanouts = [[count, count] for count in values(profile, "neighbours", NEIGHBOURS)]
    return {**setting(profile), "name": "pagraph-fig19", "systems": list(FAMILY), "grid": {"fanout": fanouts}}


def draw(evidence: Evidence) -> Drawing:
    """A line a system, logarithmic."""
    group = group_runs(
        evidence.frame,
        axis=lambda config: config["fanout"][0],
        ignore=["fanout"],
        where=lambda config: (
            unlabelled(config)
            and config["system"] in FAMILY
            and config["memory"] == "none"
            and config["model"] == "gcn"
            and config["sampler"] == "neighbor"
            and len(config["fanout"]) == 2
            and config["fanout"][0] == config["fanout"][1]
            and config["ranks"] == 1
            and usual_options(config["options"])
        ),
    )
    rows = pd.DataFrame(
        [
            {
                "series": point.system, "x": point.x, "y": point.value, "low": point.low, "high": point.high,
                "status": point.status, "run": point.record["run_id"],
            }
            for point in group.points
        ]
    )  # fmt: skip
    base = {point.x: point.value for point in group.points if point.system == "dgl"}
    rows["speedup"] = [base[x] / y if base.get(x) and y else None for x, y in zip(rows["x"], rows["y"], strict=True)]
    canvas, _ = draw_curves(
        rows, title="GCN epoch over sampled neighbours", xlabel="neighbours a node and layer", ylabel="epoch (s)",
        xlog=True, ylog=True,
    )  # fmt: skip
    counts = sorted(set(rows["x"]))
    text = caption(
        group, None, "both layers take as many neighbours; " + left_out(counts, NEIGHBOURS, "neighbours")
    ).replace("; .", ".")
    add_caption(canvas, text)
    return Drawing(canvas, rows, text, group.runs())


register(
    Figure(
        "pagraph-fig19", "pagraph", "Epoch time over sampled neighbours", needs, draw,
        full="livejournal, lj-link x 2, 4, 8, 16 neighbours",
    )
)  # fmt: skip
