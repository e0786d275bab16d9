"""Data Tiering Fig. 9: share of the row accesses covered by top-ranked rows, for sampling of two to five hops."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    add_caption,
    left_out,
    no_runs,
    published,
    register,
    study_caption,
    values,
)
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.looks import SERIES
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.tiering.fig7 import SCORES, coverage_rows
from harness.figures.tiering.grid import coverage_needs, coverage_studies
from harness.studies.base import StudyNeed

HOPS = [2, 3, 4, 5]
PANELS = {score: SCORES[score] for score in ("weighted-reverse-pagerank", "degree")}
# Five hops reach a large part of the graph per mini-batch, so that few mini-batches make enough accesses.
BATCHES = 16


def _fanouts(hops: list[int]) -> list[list[int]]:
    return [[10] * count for count in hops]


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the coverage studies of the profile's graph, one per depth."""
    return coverage_needs(profile, _fanouts(values(profile, "hops", HOPS)), BATCHES, scores=list(PANELS))


def draw(evidence: Evidence) -> Drawing:
    """Draw one panel per score, one line per depth, the paper's values of five hops as hollow marks."""
    records = coverage_studies(evidence, _fanouts(HOPS), list(PANELS))
    depths = {f"{len(record.params['fanout'])} hops": record for record in records}
    looks = {label: SERIES[at] for at, label in enumerate(depths)}
    canvas, panels = many_panels(len(PANELS), height=2.4, sharey=True)
    paper = published("tiering-fig9")
    tables = []
    for axes, (score, label) in zip(panels, PANELS.items(), strict=True):
        rows = pd.DataFrame(
            [
                {**row, "series": depth}
                for depth, record in depths.items()
                for row in coverage_rows(record, {score: label})
            ]
        )
        tables.append(rows)
        draw_curves(
            rows,
            title=label,
            xlabel="rows, best ranked first (%)",
            ylabel="row accesses covered (%)",
            looks=lambda name: looks[name],
            axes=axes,
        )
        mine = paper[paper["series"] == score]
        if len(mine):
            axes.plot(
                mine["x"].astype(float),
                mine["value"],
                marker="D",
                linestyle="none",
                markerfacecolor="white",
                markeredgecolor="black",
                markersize=4.5,
                label="paper, 5 hops",
                zorder=6,
            )
        axes.set_xlim(0, 60)
        axes.set_ylim(0, 103)
    for axes in panels[1:]:
        axes.set_ylabel("")
    legend_above(canvas, panels, list(depths))
    reduced = left_out([len(record.params["fanout"]) for record in records], HOPS, "hops")
    reached = "; ".join(
        f"{depth}: {record.result['accesses'] / max(1, record.result['batches']):,.0f} rows a mini-batch"
        for depth, record in depths.items()
    )
    text = study_caption(records[-1], f"fan-out 10 at every hop, {reached}" + (f"; {reduced}" if reduced else ""))
    add_caption(canvas, text)
    return Drawing(canvas, pd.concat(tables, ignore_index=True), text)


register(Figure("tiering-fig9", no_runs, draw, studies=studies))
