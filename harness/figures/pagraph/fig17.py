"""PaGraph Fig. 17: hit ratio of each device with and without partitions, and a partition's share of the graph."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import Drawing, Figure, Plain, add_caption, no_runs, published, register, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.pagraph.grid import small_study
from harness.studies.base import StudyNeed


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the study of one to eight partitions of a tenth of the graph."""
    return [small_study(profile, "partition-quality")]


def draw(evidence: Evidence) -> Drawing:
    """Draw hit ratios with and without partitions (left) and a partition's share of all nodes (right)."""
    record = evidence.study("partition-quality")
    found = record.result["partitions"]
    hits = [
        {"panel": "hit ratio", "series": name, "x": entry["count"], "y": 100.0 * entry[key]}
        for name, key in (("pagraph", "hit_ratio"), ("dgl+cache", "hit_ratio_shared"))
        for entry in found
    ]
    sizes = [
        {"panel": "share of nodes", "series": name, "x": entry["count"], "y": 100.0 * entry[key]}
        for name, key in (("nodes of a partition", "share"), ("of them replicas", "redundant"))
        for entry in found
    ]
    counts = [entry["count"] for entry in found]
    canvas, panels = many_panels(2)
    draw_curves(pd.DataFrame(hits), title="(a) Hit ratio", xlabel="devices", ylabel="hits (%)", axes=panels[0])
    draw_curves(
        pd.DataFrame(sizes),
        title="(b) Size of a partition",
        xlabel="partitions",
        ylabel="share of all nodes (%)",
        axes=panels[1],
    )
    table = published("pagraph-fig17")
    known = table.loc[table["series"] == "of them replicas"]
    if len(known):
        panels[1].plot(
            known["x"].astype(float),
            known["value"],
            marker="D",
            color="black",
            linewidth=0.8,
            markerfacecolor="white",
            markersize=4,
            label="paper (range over its graphs)",
        )
    for axes in panels:
        axes.set_xticks(counts, [str(count) for count in counts])
    legend_above(canvas, panels)
    extra = (
        f"each device caches {100 * record.result['cached_share']:.0f} % of the rows by out-degree; partitions hold "
        f"the {record.result['hops']}-hop in-neighbours of their training nodes; replicas: beyond an even split of the "
        "nodes that any partition holds; replication "
        + ", ".join(f"{entry['replication']:.2f} at {entry['count']}" for entry in found)
    )
    text = study_caption(record, extra)
    add_caption(canvas, text)
    return Drawing(canvas, pd.DataFrame(hits + sizes), text)


register(Figure("pagraph-fig17", no_runs, draw, studies=studies))
