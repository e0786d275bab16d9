"""Data tiering's claims."""

from __future__ import annotations

from typing import Any

from harness.claims.measured import Measured, NotRun, Number
from harness.claims.pairs import Plain, Records, Side, compare, merge
from harness.claims.query import answers, register, summarise, usual_settings
from harness.studies.record import StudyRecord

# Features in host memory, no cap; the device holds the hot rows.
_ANY: dict[str, Any] = {"memory": None, "batch_size": None, "fanout": None, "disk_class": None, "dim": None}
# The paper's published rate: the edges of papers100M in the seconds that it took.
_PAPER_EDGES = 3.2e9


def _over(better: Side, baseline: Side, claim: str, figure: str) -> None:
    def run(records: Records) -> Measured:
        found = [compare(setting) for setting in usual_settings(records, [better, baseline], **_ANY)]
        numbers = [measured.numbers[0] for measured in found]
        return merge(found, summarise(numbers, "least and most"), [f"over {len(found)} settings"])

    register(claim, figure, run)


_over(Side("data-tiering", {"cache": "0.1x"}), Side("uva"), "dt-02", "tiering-fig8")
_over(Side("uva"), Side("dgl"), "dt-03", "tiering-fig8")


def _less(claim: str, column: str, *percents: float) -> None:
    """What hot rows save of the bus traffic or of the epoch, against none."""

    def run(records: Records) -> Measured:
        table = records.drawn("tiering-fig10")
        numbers = []
        for percent in percents:
            rows = table[(table["hot_percent"] - percent).abs() < 0.01]
            if rows.empty:
                raise NotRun(f"data-tiering was not run with {percent:g} % of the rows hot")
            row = rows.iloc[0]
            value = 100 - float(row[column])
            exact = column == "traffic_percent"
            ends = (value, value) if exact else (100 - float(row["high"]), 100 - float(row["low"]))
            numbers.append(Number(value, *ends, "exact" if exact else "range"))
        return Measured(tuple(numbers), runs=sorted(set(table["run"])))

    register(claim, "tiering-fig10", run)


_less("dt-01", "traffic_percent", 10)
_less("dt-08", "time_percent", 5, 25)
_less("dt-09", "traffic_percent", 25)


def _coverage(records: Records, hops: int | None = None) -> StudyRecord:
    """The newest study that has all three scores, of the fan-out that the figure draws, or of so many hops."""
    return records.evidence.study(
        "access-coverage",
        where=lambda params: (
            len(params["scores"]) == 3
            and {0.1, 0.25} <= set(params["shares"])
            and (hops is None or len(params["fanout"]) == hops)
        ),
    )


def _at(record: StudyRecord, share: float) -> Plain:
    """Per cent of the accesses that the first `share` of the rows cover, by score."""
    at = record.result["shares"].index(share)
    coverage = record.result["coverage"].items()
    return {name: 100 * found[at] for name, found in coverage if name in record.params["scores"]}


def _least_cover(claim: str, share: float) -> None:
    def run(records: Records) -> Measured:
        record = _coverage(records)
        found = _at(record, share)
        lines = [f"{name}: {percent:.1f} %" for name, percent in found.items()]
        return Measured((Number.exact(min(found.values())),), studies=[f"access-coverage {record.key}"], detail=lines)

    register(claim, "tiering-fig7", run)


_least_cover("dt-04", 0.1)
_least_cover("dt-05", 0.25)


@answers("dt-06", "tiering-fig7")
def _weighted_is_best(records: Records) -> Measured:
    """Whether weighted reverse PageRank covers at least what the other scores do, at every share, to 0.1 points."""
    record = _coverage(records)
    coverage = record.result["coverage"]
    best = coverage["weighted-reverse-pagerank"]
    lines, holds = [], True
    for at, share in enumerate(record.result["shares"]):
        others = {name: coverage[name][at] for name in ("degree", "reverse-pagerank")}
        behind = max(others.values()) - best[at]
        holds &= behind <= 0.001
        lines.append(f"first {100 * share:g} %: {100 * best[at]:.2f} % against {100 * max(others.values()):.2f} %")
    return Measured(holds=holds, studies=[f"access-coverage {record.key}"], detail=lines)


@answers("dt-07", "tiering-fig9")
def _five_hops(records: Records) -> Measured:
    """Accesses that the first tenth covers with five hops, by weighted reverse PageRank and by degree."""
    record = records.evidence.study(
        "access-coverage", where=lambda params: len(params["fanout"]) == 5 and 0.1 in params["shares"]
    )
    found = _at(record, 0.1)
    names = ("weighted-reverse-pagerank", "degree")
    if not set(names) <= set(found):
        raise NotRun("the study of five hops has not both scores")
    return Measured(tuple(Number.exact(found[name]) for name in names), studies=[f"access-coverage {record.key}"])


@answers("dt-10", "tiering-fig8")
def _reordering(records: Records) -> Measured:
    """Seconds that the paper's 3.2 billion edges would take at the rate at which ours were reordered."""
    found = [r for r in records.valid if r["system"] == "data-tiering" and r.get("notes", {}).get("reorder_s")]
    if not found:
        raise NotRun("no run of data-tiering says how long reordering took")
    record = max(found, key=lambda seen: int(seen["config"]["dataset"]["num_edges"]))
    edges, seconds = record["config"]["dataset"]["num_edges"], float(record["notes"]["reorder_s"])
    line = f"{edges:,} edges and their rows in {seconds:.2f} s"
    return Measured(
        (Number.exact(_PAPER_EDGES / (edges / seconds)),), runs=[record["run_id"]], setting=record["config"],
        detail=[line], differs=["ours is scaled to the paper's edges; features are reordered with the graph"],
    )  # fmt: skip
