"""Data Tiering Fig. 7: share of the row accesses covered by the top-ranked rows of each score."""

from __future__ import annotations

from typing import Any

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
)
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.looks import SERIES
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.tiering.grid import coverage_needs, coverage_studies
from harness.records.study import StudyRecord
from harness.studies.access_coverage import MEASURED
from harness.studies.base import StudyNeed

# Of ogbn-papers100M and WikiKG90M, and of MAG240M (Section 5.1).
FANOUTS = [[12, 12, 12], [25, 15]]
SCORES = {
    "degree": "degree",
    "reverse-pagerank": "reverse PageRank",
    "weighted-reverse-pagerank": "weighted reverse PageRank",
}
LOOKS = {label: SERIES[at] for at, label in enumerate(SCORES.values())}
BATCHES = 200


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the coverage studies of the profile's graph, one per fan-out."""
    return coverage_needs(profile, FANOUTS, BATCHES)


def coverage_rows(record: StudyRecord, scores: dict[str, str], share_limit: float = 1.0) -> list[dict[str, Any]]:
    """Return a row for each score and share: per cent of the rows, per cent of the accesses."""
    rows = []
    for score, label in scores.items():
        for share, value in zip(record.result["shares"], record.result["coverage"][score], strict=True):
            if share <= share_limit:
                rows.append(
                    {
                        "fanout": ",".join(map(str, record.params["fanout"])),
                        "score": score,
                        "series": label,
                        "x": 100 * share,
                        "y": 100 * value,
                        "accesses": record.result["accesses"],
                    }
                )
    return rows


def _at_ten(record: StudyRecord) -> str:
    """Return caption text with the coverage of a tenth of the rows, since lines may overlap in the drawing."""
    shares = record.result["shares"]
    if 0.1 not in shares:
        return ""
    known = {**SCORES, MEASURED: "accesses themselves"}
    at = shares.index(0.1)
    values = ", ".join(f"{label} {100 * record.result['coverage'][score][at]:.1f}" for score, label in known.items())
    return f"the first 10 % of the rows cover, in per cent: {values}"


def draw(evidence: Evidence) -> Drawing:
    """Draw one panel per fan-out, with the ranking by actual accesses as the upper bound."""
    records = coverage_studies(evidence, FANOUTS, list(SCORES))
    canvas, panels = many_panels(len(records), wide=len(records) > 1, height=2.4, sharey=True)
    tables = []
    paper = published("tiering-fig7")
    for axes, record in zip(panels, records, strict=True):
        rows = pd.DataFrame(coverage_rows(record, {**SCORES, MEASURED: "by the accesses themselves"}))
        tables.append(rows)
        best = rows[rows["score"] == MEASURED]
        axes.plot(best["x"], best["y"], color="#999999", linewidth=0.9, label="by the accesses themselves")
        draw_curves(
            rows[rows["score"] != MEASURED],
            title=f"fan-out {rows['fanout'].iloc[0]}",
            xlabel="rows, best ranked first (%)",
            ylabel="row accesses covered (%)",
            looks=lambda label: LOOKS[label],
            axes=axes,
        )
        if len(paper):
            axes.plot(
                paper["x"].astype(float),
                paper["value"],
                marker="D",
                linestyle="none",
                markerfacecolor="white",
                markeredgecolor="black",
                markersize=4.5,
                label="paper, least of its datasets and scores",
                zorder=6,
            )
        axes.set_xlim(0, 60)
        axes.set_ylim(0, 103)
    for axes in panels[1:]:
        axes.set_ylabel("")
    legend_above(canvas, panels, list(SCORES.values()))
    reduced = left_out([record.params["fanout"] for record in records], FANOUTS, "fan-out")
    text = " ".join(study_caption(record, _at_ten(record)) for record in records) + (f" {reduced}." if reduced else "")
    add_caption(canvas, text)
    return Drawing(canvas, pd.concat(tables, ignore_index=True), text)


register(Figure("tiering-fig7", no_runs, draw, studies=studies))
