"""Data tiering's claims."""

from __future__ import annotations

from harness.claims.measured import Measured, NotRun, Number
from harness.claims.pairs import Plain, Records, Samples, Side, counter, epoch_s
from harness.claims.query import Ratio, answers, register
from harness.studies.record import StudyRecord

# Edges of papers100M, whose reordering time the paper publishes.
_PAPER_EDGES = 3.2e9
#: Caveat of every claim of these runs (`gallery.grid.tiering_dataset` of the profile).
CHOSEN = "the profile may choose wide rows, so that the bus shows beside sampling: no claim about narrow ones"


def _hot(share: float) -> Side:
    return Side("data-tiering", {"cache": f"{share:g}x"}, name=f"data-tiering with {100 * share:g} % of the rows hot")


register("dt-02", Ratio(_hot(0.1), Side("uva"), differs=(CHOSEN,)))
register("dt-03", Ratio(Side("uva"), Side("dgl"), differs=(CHOSEN,)))


def _less(share: float, value: Samples) -> Ratio:
    """Return the query for the per cent that hot rows save against no hot rows."""
    return Ratio(_hot(share), _hot(0.0), value, kind="saved", differs=(CHOSEN,))


_TRAFFIC = counter("bytes_loaded")
register("dt-01", _less(0.1, _TRAFFIC))
register("dt-09", _less(0.25, _TRAFFIC))
register("dt-08", _less(0.05, epoch_s))
register("dt-12", _less(0.25, epoch_s))


def _at(record: StudyRecord, share: float) -> Plain:
    """Return the per cent of accesses that the first `share` of the rows cover, by score. Raises NotRun."""
    if share not in record.result["shares"]:
        raise NotRun(f"the study access-coverage has no {100 * share:g} %")
    at = record.result["shares"].index(share)
    coverage = record.result["coverage"].items()
    return {name: 100 * found[at] for name, found in coverage if name in record.params["scores"]}


def _least_cover(claim: str, share: float) -> None:
    def run(records: Records) -> Measured:
        found = records.studies("access-coverage")
        covers = [
            (percent, f"fan-out {record.params['fanout']}, {name}: {percent:.1f} %")
            for record in found
            for name, percent in _at(record, share).items()
        ]
        return Measured(
            Number.exact(min(percent for percent, _ in covers)),
            detail=[line for _, line in covers],
            studies=[f"access-coverage {record.key}" for record in found],
        )

    register(claim, run)


_least_cover("dt-04", 0.1)
_least_cover("dt-05", 0.25)


@answers("dt-06")
def _weighted_is_best(records: Records) -> Measured:
    """Return the points by which weighted reverse PageRank covers more than the best other score, least over shares."""
    found, lines, least = records.studies("access-coverage"), [], 100.0
    for record in found:
        coverage = record.result["coverage"]
        best = coverage["weighted-reverse-pagerank"]
        for at, share in enumerate(record.result["shares"]):
            other = max(coverage[name][at] for name in ("degree", "reverse-pagerank"))
            least = min(least, 100 * (best[at] - other))
            lines.append(f"first {100 * share:g} %: {100 * best[at]:.2f} % against {100 * other:.2f} %")
    return Measured(Number.exact(least), studies=[f"access-coverage {record.key}" for record in found], detail=lines)


def _five_hops(claim: str, score: str) -> None:
    def run(records: Records) -> Measured:
        (record,) = records.studies("access-coverage", lambda params: len(params["fanout"]) == 5)
        found = _at(record, 0.1)
        if score not in found:
            raise NotRun(f"the study of five hops has no score {score}")
        return Measured(Number.exact(found[score]), studies=[f"access-coverage {record.key}"])

    register(claim, run)


_five_hops("dt-07", "weighted-reverse-pagerank")
_five_hops("dt-11", "degree")


@answers("dt-10")
def _reordering(records: Records) -> Measured:
    """Return the seconds that reordering the paper's 3.2 billion edges would take at our measured rate."""
    found = [r for r in records.valid if r["system"] == "data-tiering" and r["facts"].get("reorder_s")]
    if not found:
        raise NotRun("no run of data-tiering says how long reordering took")
    record = max(found, key=lambda seen: str(seen["run_id"]))
    edges, seconds = record["config"]["dataset"]["num_edges"], record["facts"]["reorder_s"]
    line = f"{edges:,} edges and their rows in {seconds:.2f} s"
    return Measured(
        Number.exact(_PAPER_EDGES / (edges / seconds)),
        runs=[record["run_id"]],
        setting=record["config"],
        detail=[line],
        differs=["ours is scaled to the paper's edges; features are reordered with the graph"],
    )
