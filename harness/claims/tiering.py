"""Claims of Data Tiering, measured by runs of their declared setting, or by the study
of how scores cover accesses.

`gallery.grid.tiering_dataset` of the profile has the rows of the runs.
"""

from __future__ import annotations

import pandas as pd

from harness.claims.comparison import Runs
from harness.claims.measured import Measured, NotRun, Number, Studies, lines_of, studied
from harness.claims.registry import claim
from harness.records.study import StudyRecord

# Edges of papers100M, whose reordering time the paper publishes.
_PAPER_EDGES = 3.2e9


def _coverage(study: StudyRecord) -> pd.DataFrame:
    """Return the share of accesses to the first rows: a row for each share of them, a
    column for each score."""
    return pd.DataFrame(study.result["coverage"], index=study.result["shares"])


def _covered(study: StudyRecord, share: float) -> pd.Series[float]:
    """Return the per cent of accesses to a share of the rows, by score."""
    by_score = _coverage(study).T
    if share not in by_score:
        raise NotRun(f"the study access-coverage has no {100 * share:g} %")
    return 100 * by_score.loc[by_score.index.isin(study.params["scores"]), share]


@claim("dt-04", study="access-coverage", share=0.1)
@claim("dt-05", study="access-coverage", share=0.25)
def least_covered(studies: Studies, share: float) -> Measured:
    """Return the per cent of accesses to the first rows, the least of all scores and
    graphs."""
    tables = []
    for study in studies:
        covered = _covered(study, share).rename_axis("score").reset_index(name="cover")
        tables.append(covered.assign(fanout=str(study.params["fanout"])))
    table = pd.concat(tables)
    return studied(
        studies,
        table["cover"].min(),
        *lines_of(table, "fan-out {fanout}, {score}: {cover:.1f} %"),
    )


@claim("dt-06", study="access-coverage")
def lead_of_weighted_reverse_pagerank(studies: Studies) -> Measured:
    """Return the points by which the score covers more than the better of two others,
    the least of all."""
    coverage = pd.concat(map(_coverage, studies)).reset_index(names="share")
    ours = coverage["weighted-reverse-pagerank"]
    theirs = coverage[["degree", "reverse-pagerank"]].max(axis="columns")
    table = coverage[["share"]].assign(ours=ours, theirs=theirs)
    lines = lines_of(
        100 * table, "first {share:g} %: {ours:.2f} % against {theirs:.2f} %"
    )
    return studied(studies, (100 * (ours - theirs)).min(), *lines)


@claim("dt-07", study="access-coverage", score="weighted-reverse-pagerank")
@claim("dt-11", study="access-coverage", score="degree")
def covered_with_five_hops(studies: Studies, score: str) -> Measured:
    """Return the per cent of accesses to the first tenth of the rows by a score."""
    deep = [study for study in studies if len(study.params["fanout"]) == 5]
    if not deep or any(score not in study.params["scores"] for study in deep):
        raise NotRun(f"the study of five hops has no score {score}")
    return studied(deep, min(_covered(study, 0.1)[score] for study in deep))


@claim("dt-10")
def reordering(runs: Runs) -> Measured:
    """Return the seconds that reordering the paper's 3.2 billion edges would take at
    our measured rate."""
    reordered = runs[runs["system"] == "data-tiering"].reindex(
        columns=["record", "facts.reorder_s"]
    )
    records = reordered.loc[reordered["facts.reorder_s"] > 0, "record"]
    if records.empty:
        raise NotRun("no run of data-tiering says how long reordering took")
    record = records.iloc[-1]
    edges = record["config"]["dataset"]["num_edges"]
    seconds = record["facts"]["reorder_s"]
    number = Number.exact(_PAPER_EDGES / (edges / seconds))
    line = f"{edges:,} edges and their rows in {seconds:.2f} s"
    return Measured(number, [record["run_id"]], setting=record["config"], detail=[line])
