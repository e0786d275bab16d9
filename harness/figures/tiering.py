"""Data Tiering Figures 7 and 9 (accesses covered by top-ranked rows), 8, 10 and 11
(epochs with rows on the device)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd

from harness.compare.cells import Cells, with_absent
from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, grid, joined
from harness.compare.verdicts import NotDrawn
from harness.figures.base import (
    Drawing,
    Sheet,
    drawn,
    figure,
    figure_of_cells,
    paper_frame,
    published,
)
from harness.figures.draw.bars import draw_stacks
from harness.figures.draw.breakdown import seconds_by_part
from harness.figures.draw.captions import left_out, row_texts
from harness.figures.draw.charts import Axis
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels, mark_paper
from harness.figures.draw.style import Looks, named_looks
from harness.figures.findings import plain, span, wide
from harness.figures.grids import feature_bytes, gallery, study_of, systems_of, values
from harness.records.study import StudyRecord
from harness.results.table import each
from harness.studies.accesses import MEASURED
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict
from workloads.units import format_bytes, parse_bytes

#: The paper's comparison: systems, and their names in its figures.
SYSTEMS = {"dgl": "CPU gather", "uva": "zero-copy", "data-tiering": "tiering"}
TIERING = "data-tiering"
#: Shares of the rows in device memory in Fig. 10, and the one in Fig. 8.
HOT_SHARES = [0.0, 0.05, 0.1, 0.25]
SHARE = 0.1
#: Parts of an epoch in Fig. 8 by their stages.
PARTS = {
    "bus": ["transfer", "lane:copy"],
    "compute": ["train", "lane:compute"],
    "gather": ["extract", "assemble"],
    "sample": ["sample"],
    "other": [],
}
COLUMNS = (
    "group series system value low high status speedup_over_previous run panel bar part"
).split()
DEGREE = "degree"
RANKED = "rows, best ranked first (%)"
#: Scores that rank rows, and their labels; MEASURED ranks by the accesses themselves,
#: which no score can excel.
SCORES = {
    DEGREE: "degree",
    "reverse-pagerank": "reverse PageRank",
    "weighted-reverse-pagerank": "weighted reverse PageRank",
    MEASURED: "by the accesses themselves",
}
#: Fan-outs of ogbn-papers100M and WikiKG90M, and of MAG240M (Section 5.1), and
#: mini-batches of a study.
FANOUTS = [[12, 12, 12], [25, 15]]
BATCHES = 200
#: Depths of Fig. 9. Five hops reach a large part of the graph per mini-batch, so that
#: few make enough accesses.
HOPS = [2, 3, 4, 5]
DEEP_BATCHES = 16
DEEP_SCORES = ["weighted-reverse-pagerank", DEGREE]


def host_profile(profile: JsonDict) -> JsonDict:
    """Return the gallery's profile with all features in host memory, and device memory
    for the largest hot share, too.

    Epochs are whole: with all data in memory a short one would end too soon to be
    timed. A profile may set another dataset and mini-batch size (`tiering_dataset`,
    `tiering_batch`), so that the bus counts beside sampling.
    """
    short = gallery(profile)
    run = short["run"]
    run |= {"memory": "none", "max_batches": 0}
    (run["dataset"],) = values(profile, "tiering_dataset", [run["dataset"]])
    (run["batch_size"],) = values(profile, "tiering_batch", [run["batch_size"]])
    if run.get("device_memory") is not None:
        hot_bytes = round(max(HOT_SHARES) * feature_bytes(short))
        run["device_memory"] = parse_bytes(run["device_memory"]) + hot_bytes
    return short


def hot_rows(profile: JsonDict, shares: list[float]) -> Plan:
    """Plan data-tiering with each share of the rows hot; x is the share."""
    over = {share: {"options": {"cache": f"{share:g}x"}} for share in shares}
    return grid(profile, systems_of(profile, [TIERING]), over)


def three_ways(profile: JsonDict) -> Plan:
    """Plan the three systems without a cap, tiering with a tenth of the rows hot."""
    changed = host_profile(profile)
    others = systems_of(changed, ["dgl", "uva"])
    return joined([grid(changed, others, {SHARE: {}}), hot_rows(changed, [SHARE])])


def over_shares(profile: JsonDict) -> Plan:
    """Plan data-tiering at the hot shares of Fig. 10."""
    return hot_rows(host_profile(profile), values(profile, "hot_shares", HOT_SHARES))


def wide_rows(cells: Cells) -> str:
    """Return caption text on rows chosen wide enough for the bus to matter; empty for
    rows of usual width."""
    dim = cells.shared["dataset"]["dim"]
    if dim <= 128:
        return ""
    return f"rows of {dim} columns so that the bus shows beside sampling"


@figure_of_cells("tiering-fig8", three_ways, least=1)
def fig8(cells: Cells) -> Drawing:
    """Draw epoch time by part, with each step's speedup and the paper's below; raise
    NotDrawn without an epoch."""
    table = with_absent(cells.medians(), list(SYSTEMS), [SHARE])
    if table.value.isna().all():
        raise NotDrawn("none of the systems finished an epoch")
    times = table.assign(series=table.system.map(SYSTEMS), group="epoch", panel="time")
    times["speedup_over_previous"] = times.value.shift() / times.value
    parts = seconds_by_part(table, PARTS)
    stacks = times[["system", "series", "status"]].merge(parts, on="system", how="left")
    stacks = stacks.rename(columns={"series": "bar", "seconds": "value"})

    speedups = times.set_index("series").speedup_over_previous.dropna()
    paper = paper_frame("tiering-fig8").rename_axis("step").reset_index()
    paper["speedup"] = paper.step.str.partition(" over ")[0].map(speedups)
    known = paper.dropna(subset="speedup")
    xlabel = row_texts(
        known, "{step}: {speedup:.2f}x (paper {least:g}–{most:g}x)", "\n"
    )
    title = "Epoch time by part"
    ylabel = "epoch time (s)"
    canvas, _ = draw_stacks(
        stacks, parts=list(PARTS), title=title, xlabel=xlabel, ylabel=ylabel
    )

    measured = stacks.dropna(subset="value")[["bar", "part", "value", "run"]]
    data = pd.concat([times, measured.assign(panel="parts")])[COLUMNS]
    hot = "10 % of the rows hot in tiering"
    order = "where parts overlap, the first of bus, compute, gather and sample counts"
    return drawn(
        canvas, data, cells, hot, order, wide_rows(cells), finding=_steps(speedups)
    )


def _steps(speedups: pd.Series[float]) -> str:
    """Return the sentence on the speed of each system over the one before it; empty
    where no two follow each other."""
    before = {after: first for first, after in pairwise(SYSTEMS.values())}
    parts = [
        f"{name} is {plain(times)} times as fast as {before[str(name)]}"
        for name, times in speedups.items()
    ]
    return ", ".join(parts)


@figure_of_cells("tiering-fig10", over_shares)
def fig10(cells: Cells) -> Drawing:
    """Draw bus bytes and time saved by hot rows, and the paper's; raise NotDrawn
    without a run without hot rows."""
    medians = cells.medians()
    medians["bytes_loaded"] = cells.medians("counters.bytes_loaded").value
    table = medians.dropna(subset="value").sort_values("x")
    without = table[table.x == 0.0]
    if without.empty:
        raise NotDrawn("no run without hot rows to compare with")
    (none,) = each(without)
    if not none.bytes_loaded > 0:
        raise NotDrawn("the run without hot rows did not count what it loaded")
    rows = pd.DataFrame(
        {
            "hot_percent": 100 * table.x,
            "epoch_s": table.value,
            "bytes_loaded": table.bytes_loaded,
        }
    )
    rows[["time_percent", "low", "high"]] = (
        100 * table[["value", "low", "high"]] / none.value
    )
    rows["traffic_percent"] = 100 * table.bytes_loaded / none.bytes_loaded
    rows["run"] = table.run

    saved = pd.DataFrame(
        {
            "traffic saved": 100 - rows.traffic_percent,
            "time saved": 100 - rows.time_percent,
        }
    )
    lines = saved.assign(x=rows.hot_percent).melt(
        "x", var_name="series", value_name="y"
    )
    paper = published("tiering-fig10")[["series", "x", "value"]].rename(
        columns={"value": "paper"}
    )
    lines = lines.merge(paper, on=["series", "x"], how="left")
    title = (
        f"Saved of {format_bytes(int(none.bytes_loaded))} and {none.value:.3g} s an "
        "epoch"
    )
    canvas, _ = draw_curves(
        lines, title=title, xlabel="rows in device memory (%)", ylabel="saved (%)"
    )

    traffic = "traffic: bytes of feature rows over the bus"
    axis = Axis("", HOT_SHARES, "hot rows", "{:.0%}".format)
    return drawn(
        canvas,
        rows,
        cells,
        traffic,
        axis.omitted(list(table.x)),
        wide_rows(cells),
        finding=_saved(rows),
    )


def _saved(rows: pd.DataFrame) -> str:
    """Return the sentence on traffic and time saved with the most hot rows; empty
    without hot rows."""
    most = rows.iloc[-1]
    if not most.hot_percent > 0:
        return ""
    traffic = _less(most.traffic_percent)
    seconds = _less(most.time_percent)
    return (
        f"With {plain(most.hot_percent)} % of the rows in device memory: {traffic} "
        f"traffic, {seconds} time"
    )


def _less(percent: float) -> str:
    """Return a share of the whole as the words on its change, like `87 % less`."""
    word = "less" if percent <= 100 else "more"
    return f"{abs(100 - percent):.0f} % {word}"


@figure("tiering-fig11")
def fig11(evidence: Evidence) -> Sheet:
    """Raise NotDrawn: in this figure devices read each other's memory, and one CPU
    samples for all devices.

    An emulated device is private to its process, so one device per rank would show
    neither.
    """
    raise NotDrawn(
        "its devices read rows from each other's memory over NVLink: that needs "
        "several real GPUs. An emulated device is private to its process, and "
        "data-tiering runs on one device"
    )


def both_fanouts(profile: JsonDict) -> list[StudyNeed]:
    """Return the coverage studies of the profile's graph, one for each fan-out."""
    short = gallery(profile)
    return [
        study_of(short, "access-coverage", max_batches=BATCHES, fanout=fanout)
        for fanout in FANOUTS
    ]


def deep(profile: JsonDict) -> list[StudyNeed]:
    """Return the coverage studies of the profile's graph, one for each depth."""
    short = gallery(profile)
    how: JsonDict = {"max_batches": DEEP_BATCHES, "scores": DEEP_SCORES}
    return [
        study_of(short, "access-coverage", **how, fanout=[10] * hops)
        for hops in values(profile, "hops", HOPS)
    ]


def coverage_studies(
    evidence: Evidence, fanouts: list[list[int]], scores: list[str]
) -> list[StudyRecord]:
    """Return the newest coverage study of each fan-out, of the newest study's dataset;
    raise NotDrawn without any."""

    def wanted(params: Any) -> bool:
        return params["fanout"] in fanouts and set(scores) <= {
            *params["scores"],
            MEASURED,
        }

    found = evidence.all_studies("access-coverage", where=wanted)
    newest = max(found, key=lambda record: record.started_at)
    own = {
        str(record.params["fanout"]): record
        for record in found
        if record.dataset == newest.dataset
    }
    return sorted(
        own.values(), key=lambda record: fanouts.index(record.params["fanout"])
    )


def covered(record: StudyRecord, scores: list[str]) -> pd.DataFrame:
    """Return the accesses covered by the rows that each score ranks first.

    Returns:
        Columns `fanout`, `score`, `series` (label of the score), `x` (% of the rows),
        `y` (% of the accesses), and `accesses`, the number of all.
    """
    result = record.result
    shares = pd.DataFrame({**result["coverage"], "x": result["shares"]})
    percents = 100 * shares[["x", *scores]]
    table = percents.melt("x", var_name="score", value_name="y")
    table["series"] = table.score.map(SCORES)
    table["fanout"] = ",".join(map(str, record.params["fanout"]))
    table["accesses"] = result["accesses"]
    return table["fanout score series x y accesses".split()]


def draw_covered(
    axes: Any,
    rows: pd.DataFrame,
    title: str,
    paper: pd.DataFrame,
    label: str,
    looks: Looks | None = None,
) -> None:
    """Draw a panel of accesses covered over rows, published values as hollow
    diamonds."""
    draw_curves(
        rows,
        title=title,
        xlabel=RANKED,
        ylabel="row accesses covered (%)",
        looks=looks,
        axes=axes,
    )
    mark_paper(axes, paper.x, paper.value, label, zorder=6)
    axes.set(xlim=(0, 60), ylim=(0, 103))
    axes.label_outer()


@figure("tiering-fig7", studies=both_fanouts)
def fig7(evidence: Evidence) -> Drawing:
    """Draw coverage by degree and by actual accesses, the upper bound, above what the
    other scores add to degree's.

    Lines of coverage by the three scores would lie on each other.
    """
    scores = list(SCORES)
    records = coverage_studies(evidence, FANOUTS, scores)
    tables = [covered(record, scores) for record in records]
    looks = named_looks(list(SCORES.values()))
    paper = published("tiering-fig7")
    canvas, panels = many_panels(2 * len(records), columns=len(records), height=1.9)
    lower = panels[len(records) :]
    for above, below, rows in zip(panels, lower, tables, strict=False):
        by_degree = rows[rows.score.isin([DEGREE, MEASURED])]
        label = "paper, least of its datasets and scores"
        draw_covered(above, by_degree, f"fan-out {rows.fanout[0]}", paper, label, looks)
        if below is not lower[0]:
            below.sharey(lower[0])
        draw_added(below, rows, looks)
        below.label_outer()
    reduced = left_out(
        [record.params["fanout"] for record in records], FANOUTS, "fan-out"
    )
    data = pd.concat(tables)
    names = list(SCORES.values())
    note = "fan-outs above the panels"
    found = _by_scores(data)
    return drawn(canvas, data, records[0], note, reduced, order=names, finding=found)


def draw_added(axes: Any, rows: pd.DataFrame, looks: Looks) -> None:
    """Draw a panel of accesses that rows ranked by each score cover beyond those ranked
    by degree."""
    by_score = wide(rows, "y", columns="series")
    others = by_score.drop(columns=[SCORES[DEGREE], SCORES[MEASURED]])
    added = others.sub(by_score[SCORES[DEGREE]], axis=0)
    lines = added.melt(ignore_index=False, value_name="y").reset_index()
    ylabel = "more than by degree\n(percentage points)"
    draw_curves(lines, title="", xlabel=RANKED, ylabel=ylabel, looks=looks, axes=axes)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xlim(0, 60)


def _by_scores(data: pd.DataFrame) -> str:
    """Return the sentence on coverage by the first tenth of the rows, and on the
    scores' distance from each other."""
    tenth = wide(data[data.x.round(9) == 10], "y", "fanout", "score")
    if tenth.empty:
        return ""
    scores = tenth.drop(columns=MEASURED)
    apart = (scores.max(axis=1) - scores.min(axis=1)).max()
    missed = tenth[MEASURED] - scores.max(axis=1)
    every = span(pd.Series(scores.to_numpy().ravel()))
    first = (
        f"The 10 % of the rows that a score ranks first cover {every} % of the accesses"
    )
    best = f"the best possible ranking {span(missed)} points more"
    return f"{first}, {best}; the scores are at most {plain(apart, 1)} points apart"


@figure("tiering-fig9", studies=deep)
def fig9(evidence: Evidence) -> Drawing:
    """Draw one panel per score, one line per depth, the paper's values of five hops as
    hollow marks."""
    records = coverage_studies(evidence, [[10] * hops for hops in HOPS], DEEP_SCORES)
    depths = [len(record.params["fanout"]) for record in records]
    paper = published("tiering-fig9")
    counts = [
        record.result["accesses"] / record.result["batches"] for record in records
    ]
    tables = [covered(record, DEEP_SCORES) for record in records]
    data = pd.concat(
        [
            rows.assign(series=f"{hops} hops")
            for hops, rows in zip(depths, tables, strict=True)
        ]
    )
    canvas, panels = many_panels(len(DEEP_SCORES), sharey=True)
    for axes, score in zip(panels, DEEP_SCORES, strict=True):
        own = data[data.score == score]
        draw_covered(
            axes, own, SCORES[score], paper[paper.series == score], "paper, 5 hops"
        )
    reached = pd.DataFrame({"hops": depths, "rows": counts})
    data = data.sort_values(
        "score", key=lambda score: score.map(DEEP_SCORES.index), kind="stable"
    )
    note = (
        "fan-out 10 at every hop, "
        f"{row_texts(reached, '{hops} hops: {rows:,.0f} rows a mini-batch', '; ')}"
    )
    reduced = left_out(depths, HOPS, "hops")
    return drawn(canvas, data, records[-1], note, reduced, finding=_by_depth(data))


def _by_depth(data: pd.DataFrame) -> str:
    """Return the sentence on coverage by the first tenth of the rows at the least and
    the largest depth."""
    tenth = data[data.x.round(9) == 10].groupby("series", sort=False).y.agg(span)
    if len(tenth) < 2:
        return ""
    ends = row_texts(tenth.iloc[[0, -1]].reset_index(), "{y} % with {series}")
    return f"Of the accesses, the 10 % of the rows ranked first cover {ends}"
