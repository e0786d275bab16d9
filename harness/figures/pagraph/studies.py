"""PaGraph's figures and tables drawn from studies: accesses (5), caches (13) and
partitions (17, Table 5)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import (
    Drawing,
    Sheet,
    drawn,
    figure,
    paper_values,
    published,
    sheet,
)
from harness.figures.draw.captions import (
    dataset_name,
    left_out,
    row_texts,
    study_caption,
)
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels, mark_range
from harness.figures.findings import plain, span
from harness.figures.grids import values
from harness.figures.pagraph.grid import LAYERWISE, small_study, study
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict


def accesses(profile: JsonDict) -> list[StudyNeed]:
    """Return the studies of one epoch's accesses, one per sampler."""
    return [
        study(profile, "access-frequency"),
        study(profile, "access-frequency", **LAYERWISE),
    ]


#: Names of both ways of sampling, and what the study found of each.
SAMPLERS = {"neighbor": "neighbour sampling", "layerwise": "layer-wise sampling"}
FOUND = (
    "{series}: nodes read more than one time have {out_degree_repeated:.0f} "
    "out-edges on average, the others {out_degree_others:.1f}"
)


@figure("pagraph-fig5", studies=accesses)
def fig5(evidence: Evidence) -> Drawing:
    """Draw a CDF of reads per row that is read, one per sampler."""
    newest = {
        record.params["sampler"]: record
        for record in evidence.all_studies("access-frequency")
    }
    records = [newest[sampler] for sampler in SAMPLERS if sampler in newest]
    found = pd.DataFrame([record.result for record in records]).fillna(0)
    found["series"] = [SAMPLERS[record.params["sampler"]] for record in records]
    found["percent"] = 100.0 * found.repeated
    found["study"] = [record.key for record in records]
    curves = found.explode("cdf", ignore_index=True)
    data = curves[["series"]].copy()
    data[["x", "y"]] = curves.cdf.tolist()
    data["y"] *= 100.0
    data["study"] = curves.study
    data = data.astype({"x": int})
    title = "How often a row is read in an epoch"
    ylabel = "rows read at most so often (%)"
    canvas, _ = draw_curves(
        data, title=title, xlabel="times read (log)", ylabel=ylabel, xlog=True
    )
    paper = row_texts(published("pagraph-fig5"), "{series} {value:g} {unit}", "; ")
    notes = [row_texts(found, FOUND, "; "), f"paper (wiki-talk): {paper}"]
    finding = _read_again(found.set_index("series").percent)
    return drawn(canvas, data, records[0], *notes, finding=finding)


def _read_again(percents: pd.Series[float]) -> str:
    """Return the sentence on the nodes that each way of sampling reads more than
    once."""
    first, *others = [f"{name} {percent:.0f} %" for name, percent in percents.items()]
    of_first = first.replace(" sampling ", " sampling reads ").capitalize()
    return ", ".join([f"{of_first} of the nodes more than once", *others])


# A study costs the same for any number of shares: none is left out at any size.
SHARES = [0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]


def caches(profile: JsonDict) -> list[StudyNeed]:
    """Return the study of one epoch of the paper's workload with caches of every
    share."""
    shares = {*SHARES, *values(profile, "cached_shares", [])}
    return [study(profile, "device-cache-hits", shares=sorted(shares))]


@figure("pagraph-fig13", studies=caches)
def fig13(evidence: Evidence) -> Drawing:
    """Draw the hit ratio over the cached share, a curve for each ranking and for the
    optimal static cache."""
    record = evidence.study("device-cache-hits")
    shares = record.result["shares"]
    ratios = 100.0 * pd.DataFrame(record.result["hit_ratio"], index=shares)
    data = ratios.melt(
        var_name="series", value_name="y", ignore_index=False
    ).reset_index(names="x")
    data["x"] *= 100.0
    data["paper"] = paper_values(
        "pagraph-fig13", data.series, data.x.map("{:g}".format)
    )
    data = data[["series", "x", "y", "paper"]]
    canvas, axes = draw_curves(
        data,
        title="Hit ratio of the device cache",
        xlabel="cached rows (%)",
        ylabel="hits (%)",
    )
    axes.set_ylim(0, 102)
    notes = [
        "optimal: the rows read most often in this very trace",
        "paper (livejournal): over 50 % at 20 % cached",
    ]
    reduced = left_out(shares, SHARES, "cached shares")
    return drawn(canvas, data, record, *notes, reduced, finding=_widest(data))


def _widest(data: pd.DataFrame) -> str:
    """Return the sentence on the hits of each ranking at the cached share at which they
    are furthest apart."""
    hits = data.groupby("x").y
    apart = hits.max() - hits.min()
    x: Any = apart.idxmax()
    widest = data[data.x == x].sort_values("y", ascending=False)
    return row_texts(
        widest,
        "{series} {y:.0f} %",
        before=f"Hits differ most with {plain(x)} % cached: ",
    )


def partitions(profile: JsonDict) -> list[StudyNeed]:
    """Return the study of one to eight partitions of a tenth of the graph."""
    return [small_study(profile, "partition-quality")]


#: Curves of both panels of Fig. 17 by their part of the study's result.
HITS = {"hit_ratio": "pagraph", "hit_ratio_shared": "dgl+cache"}
NODES = {"share": "nodes of a partition", "redundant": "of them replicas"}


@figure("pagraph-fig17", studies=partitions)
def fig17(evidence: Evidence) -> Drawing:
    """Draw hit ratios with and without partitions (left) and a partition's share of all
    nodes (right)."""
    record = evidence.study("partition-quality")
    found = pd.DataFrame(record.result["partitions"])
    hits = _percents(found, HITS)
    nodes = _percents(found, NODES)
    canvas, (left, right) = many_panels(2)
    draw_curves(
        hits, title="(a) Hit ratio", xlabel="devices", ylabel="hits (%)", axes=left
    )
    title = "(b) Size of a partition"
    ylabel = "share of all nodes (%)"
    draw_curves(nodes, title=title, xlabel="partitions", ylabel=ylabel, axes=right)
    for axes in (left, right):
        axes.set_xticks(found["count"])
    paper = published("pagraph-fig17")
    mark_range(right, paper.x, paper.value, "paper (range over its graphs)")
    replication = row_texts(found, "{replication:.2f} at {count}")
    cached = 100 * record.result["cached_share"]
    note = (
        f"every device caches {cached:.0f} % of the rows by out-degree; partitions "
        f"hold the {record.result['hops']}-hop in-neighbours of their training nodes; "
        f"replication {replication}"
    )
    data = pd.concat(
        [hits.assign(panel="hit ratio"), nodes.assign(panel="share of nodes")]
    )
    return drawn(
        canvas,
        data[["panel", "series", "x", "y"]],
        record,
        note,
        finding=_partitioned(found),
    )


def _partitioned(found: pd.DataFrame) -> str:
    """Return the sentence on hits and nodes of a partition with the most partitions;
    empty with one number only."""
    if len(found) < 2:
        return ""
    counts = found["count"].astype(int)
    hits = found.hit_ratio.map("{:.0%}".format).str.replace("%", " %")
    least = counts.iloc[0]
    most = counts.iloc[-1]
    share = 100.0 * found.share.iloc[-1]
    held = (
        f"each of the {most} holds {share:.0f} % of the nodes, in an even split "
        f"{plain(100 / most)} %"
    )
    partitions = "1 partition" if least == 1 else f"{least} partitions"
    return (
        f"Caches hit {hits.iloc[0]} with {partitions}, {hits.iloc[-1]} with {most}; "
        f"{held}"
    )


def _percents(found: pd.DataFrame, series: dict[str, str]) -> pd.DataFrame:
    """Return some columns of a study as curves over the number of partitions, in
    percent."""
    rows = found.rename(columns={"count": "x", **series}).melt(
        "x", list(series.values()), "series", "y"
    )
    rows["y"] *= 100.0
    return rows


#: Columns of Table 5 and their formats.
COST = {
    "dataset": "",
    "training nodes": "count",
    "partitions": ".0f",
    "seconds": ".1f",
    "training nodes / s": ",.0f",
    "largest over mean": ".3f",
    "replication": ".2f",
    "source": "",
}


@figure("pagraph-tab5", studies=partitions)
def tab5(evidence: Evidence) -> Sheet:
    """Return the one-time cost of partitioning: one row per number of partitions, then
    one per graph of the paper."""
    record = evidence.study("partition-quality")
    found = pd.DataFrame(record.result["partitions"])
    ours = found.rename(columns={"count": "partitions", "balance": "largest over mean"})
    ours["dataset"] = dataset_name(record)
    ours["training nodes"] = record.dataset.train_nodes if record.dataset else None
    ours["training nodes / s"] = ours["training nodes"] / ours.seconds
    paper = published("pagraph-tab5").rename(columns={"series": "dataset"})
    paper["seconds"] = 60.0 * paper["value"]
    rows = pd.concat(
        [ours.assign(source="measured"), paper.assign(source="paper")],
        ignore_index=True,
    )
    hops = record.result["hops"]
    text = study_caption(
        record,
        f"seconds of partitioning on this host, {hops} hops; largest over mean: "
        "training nodes",
    )
    text = text.replace(", not timed", "")
    most = ours.sort_values("partitions").tail(1)
    copies = row_texts(
        most, "with {partitions:.0f} partitions a node is held {replication:.2g} times"
    )
    finding = f"Partitioning takes {span(ours.seconds)} s; {copies}"
    return sheet(rows[list(COST)], COST, text, finding=finding)
