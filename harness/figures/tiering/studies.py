"""Data Tiering Figures 7 and 9: share of the row accesses covered by the top-ranked rows, by score and by depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, drawn, figure, paper_rows
from harness.figures.draw.captions import add_caption, left_out, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.looks import SERIES, Looks
from harness.figures.draw.marks import mark_paper
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.grids import gallery, values
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
#: Depths and scores of Fig. 9.
HOPS = [2, 3, 4, 5]
PANELS = {score: SCORES[score] for score in ("weighted-reverse-pagerank", "degree")}
# Five hops reach a large part of the graph per mini-batch, so that few mini-batches make enough accesses.
DEEP_BATCHES = 16


def coverage_needs(profile: Plain, fanouts: Sequence[Sequence[int]], batches: int, **more: Any) -> list[StudyNeed]:
    """Return the coverage study of the profile's graph for each fan-out.

    Args:
        batches: number of mini-batches of each study.
    """
    short = gallery(profile)
    name = short["run"]["dataset"]
    shared = {"dataset": name, "batch_size": short["run"]["batch_size"], "max_batches": batches, **more}
    recipe = {name: short["datasets"][name]}
    return [StudyNeed("access-coverage", {**shared, "fanout": list(fanout)}, recipe) for fanout in fanouts]


def coverage_studies(evidence: Evidence, fanouts: Sequence[Sequence[int]], scores: Sequence[str]) -> list[StudyRecord]:
    """Return the newest coverage study of each fan-out, in that order, all of the newest study's dataset.

    Raises:
        NotDrawn: no study has these fan-outs and scores, or the newest has no dataset.
    """
    wanted = [list(fanout) for fanout in fanouts]
    found = evidence.all_studies(
        "access-coverage", where=lambda params: params["fanout"] in wanted and set(scores) <= set(params["scores"])
    )
    newest = max(found, key=lambda record: record.started_at).dataset
    if newest is None:
        raise NotDrawn("the studies of access coverage name no dataset")
    kept = {tuple(record.params["fanout"]): record for record in found if record.dataset == newest}
    return [kept[tuple(fanout)] for fanout in wanted if tuple(fanout) in kept]


def coverage_rows(record: StudyRecord, score: str, label: str) -> list[Plain]:
    """Return a row for each share of the rows that a score ranks first: per cent of the rows and of the accesses."""
    head = {"fanout": ",".join(map(str, record.params["fanout"])), "score": score, "series": label}
    shares = zip(record.result["shares"], record.result["coverage"][score], strict=True)
    tail = {"accesses": record.result["accesses"]}
    return [{**head, "x": 100 * share, "y": 100 * value, **tail} for share, value in shares]


def draw_coverage(axes: Any, rows: pd.DataFrame, title: str, looks: Looks, paper: list[Plain], label: str) -> None:
    """Draw a panel of accesses covered over rows, published values as hollow diamonds."""
    xlabel, ylabel = "rows, best ranked first (%)", "row accesses covered (%)"
    # Panels share their y axis: the first one has its label.
    first = axes is axes.figure.axes[0]
    draw_curves(rows, title=title, xlabel=xlabel, ylabel=ylabel if first else "", looks=looks, axes=axes)
    mark_paper(axes, [float(row["x"]) for row in paper], [row["value"] for row in paper], label, zorder=6)
    axes.set_xlim(0, 60)
    axes.set_ylim(0, 103)


def _at_ten(record: StudyRecord) -> str:
    """Return caption text with the coverage of a tenth of the rows, since lines may overlap in the drawing."""
    shares = record.result["shares"]
    if 0.1 not in shares:
        return ""
    known = {**SCORES, MEASURED: "accesses themselves"}
    at = shares.index(0.1)
    said = ", ".join(f"{label} {100 * record.result['coverage'][score][at]:.1f}" for score, label in known.items())
    return f"the first 10 % of the rows cover, in per cent: {said}"


@figure("tiering-fig7", studies=lambda profile: coverage_needs(profile, FANOUTS, BATCHES))
def fig7(evidence: Evidence) -> Drawing:
    """Draw one panel per fan-out, with the ranking by actual accesses as the upper bound."""
    records = coverage_studies(evidence, FANOUTS, list(SCORES))
    canvas, panels = many_panels(len(records), wide=len(records) > 1, height=2.4, sharey=True)
    tables = []
    bound = "by the accesses themselves"
    for axes, record in zip(panels, records, strict=True):
        scores = {**SCORES, MEASURED: bound}
        rows = pd.DataFrame([row for score, label in scores.items() for row in coverage_rows(record, score, label)])
        tables.append(rows)
        best = rows[rows["score"] == MEASURED]
        axes.plot(best["x"], best["y"], color="#999999", linewidth=0.9, label=bound)
        shown, title = rows[rows["score"] != MEASURED], f"fan-out {rows['fanout'].iloc[0]}"
        label = "paper, least of its datasets and scores"
        draw_coverage(axes, shown, title, LOOKS.__getitem__, paper_rows("tiering-fig7"), label)
    legend_above(canvas, panels, list(SCORES.values()))
    reduced = left_out([record.params["fanout"] for record in records], FANOUTS, "fan-out")
    text = " ".join(study_caption(record, _at_ten(record)) for record in records) + (f" {reduced}." if reduced else "")
    add_caption(canvas, text)
    return Drawing(canvas, pd.concat(tables, ignore_index=True), text)


def deep(profile: Plain) -> list[StudyNeed]:
    """Return the coverage studies of the profile's graph, one per depth."""
    fanouts = [[10] * hops for hops in values(profile, "hops", HOPS)]
    return coverage_needs(profile, fanouts, DEEP_BATCHES, scores=list(PANELS))


@figure("tiering-fig9", studies=deep)
def fig9(evidence: Evidence) -> Drawing:
    """Draw one panel per score, one line per depth, the paper's values of five hops as hollow marks."""
    records = coverage_studies(evidence, [[10] * hops for hops in HOPS], list(PANELS))
    depths = {f"{len(record.params['fanout'])} hops": record for record in records}
    looks = {label: SERIES[at] for at, label in enumerate(depths)}
    canvas, panels = many_panels(len(PANELS), height=2.4, sharey=True)
    tables = []
    for axes, (score, label) in zip(panels, PANELS.items(), strict=True):
        found = [(depth, row) for depth, record in depths.items() for row in coverage_rows(record, score, label)]
        tables.append(pd.DataFrame({**row, "series": depth} for depth, row in found))
        paper = paper_rows("tiering-fig9", score)
        draw_coverage(axes, tables[-1], label, looks.__getitem__, paper, "paper, 5 hops")
    legend_above(canvas, panels, list(depths))
    reached = "; ".join(
        f"{depth}: {record.result['accesses'] / max(1, record.result['batches']):,.0f} rows a mini-batch"
        for depth, record in depths.items()
    )
    reduced = left_out([len(record.params["fanout"]) for record in records], HOPS, "hops")
    data = pd.concat(tables, ignore_index=True)
    return drawn(canvas, data, records[-1], f"fan-out 10 at every hop, {reached}", reduced)
