"""Derived quantities that rows of `harness/published/queries.yaml` name: from studies, figure tables, or runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.claims.measured import Measured, NotRun, Number, quotient, ratio, summarise
from harness.compare.plan import Plain
from harness.records.study import StudyRecord

if TYPE_CHECKING:
    import pandas as pd

Studies = Sequence[StudyRecord]
# Edges of papers100M, whose reordering time Data Tiering publishes.
_PAPER_EDGES = 3.2e9


def _exact(value: float, detail: list[str] | None = None, runs: list[str] | None = None) -> Measured:
    return Measured(Number.exact(value), runs=runs or [], detail=detail or [])


def async_over_sync(studies: Studies) -> Measured:
    """Divide one thread's best asynchronous bandwidth by the best of synchronous threads, 512 B direct reads."""
    points = [p for p in studies[0].result["points"] if p["block_bytes"] == 512 and p["direct"]]
    deep = max((p for p in points if p["engine"] != "sync"), key=lambda p: p["bytes_per_s"], default=None)
    wide = max((p for p in points if p["engine"] == "sync"), key=lambda p: p["bytes_per_s"], default=None)
    if deep is None or wide is None:
        raise NotRun("the study fio-grid lacks synchronous or asynchronous points")
    rates = {f"depth {deep['depth']}": deep["bytes_per_s"], f"{wide['threads']} threads": wide["bytes_per_s"]}
    lines = [f"{name}: {rate / 1e6:.1f} MB/s" for name, rate in rates.items()]
    return Measured(ratio([deep["bytes_per_s"]], [wide["bytes_per_s"]]), detail=lines)


def buffered_over_direct(studies: Studies) -> Measured:
    """Return the per cent by which buffered 512 B reads exceed direct ones (or fall short) at the deepest queue."""
    points = [p for p in studies[0].result["points"] if p["block_bytes"] == 512 and p["engine"] != "sync"]
    depth = max((p["depth"] for p in points), default=0)
    rates = {p["direct"]: p["bytes_per_s"] for p in points if p["depth"] == depth}
    if set(rates) != {True, False}:
        raise NotRun("the study fio-grid lacks buffered or direct points")
    return _exact(100 * (rates[False] / rates[True] - 1), [f"at depth {depth}"])


def search_quotient(studies: Studies, key: str, *, least: bool) -> Measured:
    """Return the least or greatest quotient of both searches, over the cases in which both found a layout.

    It is of `seconds`, brute force's over the heuristic's, or of `amplification`, the heuristic's over brute force's.
    """
    both = [case for case in studies[0].result["cases"] if case["heuristic"] and case["brute_force"]]
    if not both:
        raise NotRun("in no case did both searches find a layout")
    above, below = ("brute_force", "heuristic") if key == "seconds" else ("heuristic", "brute_force")
    numbers = [Number.exact(case[above][key] / max(1e-9, case[below][key])) for case in both]
    told = "{} {seconds:.3g} s, amplification {amplification:.3f}".format
    lines = [
        f"limit {case['limit']:g} of packing alone: {told('heuristic', **case['heuristic'])}, "
        f"{told('brute force', **case['brute_force'])}"
        for case in both
    ]
    return Measured(summarise(numbers, "least" if least else "most"), detail=lines)


def packed_share(studies: Studies, above: float) -> Measured:
    """Divide packed bytes by the feature table's, at the next share of memory `above` one, greatest over the graphs."""
    found = []
    for study in studies:
        points = [entry for entry in study.result["points"] if entry["memory_share"] > above]
        if not points:
            raise NotRun("the study disk-space was not made with more than a fifth of the rows in memory")
        found.append((min(points, key=lambda entry: float(entry["memory_share"])), study))
    worst, study = max(found, key=lambda entry: float(entry[0]["packed_x"]))
    accesses = study.result["accesses"] / study.dataset.num_nodes if study.dataset else 0.0
    line = f"{accesses:.2f} accesses for each row of the table, {100 * worst['memory_share']:g} % of them in memory"
    return _exact(worst["packed_x"], [line])


def third_hop(studies: Studies) -> Measured:
    """Divide the packed bytes with three hops by those with two, at one batch size."""
    two = next((study for study in studies if len(study.params["fanout"]) == 2), None)
    three = [study for study in studies if len(study.params["fanout"]) == 3]
    three = [study for study in three if two and study.params["batch_size"] == two.params["batch_size"]]
    if two is None or not three:
        raise NotRun("the study disk-space was not made with two hops and with a third")
    used = [two, three[0]]
    a, b = (float(study.result["points"][0]["packed_bytes"]) for study in used)
    told = " and ".join(str(study.params["fanout"]) for study in used)
    return Measured(Number.exact(b / a), studies=[f"{s.study} {s.key}" for s in used], detail=[f"fan-outs {told}"])


def hottest_share(studies: Studies) -> Measured:
    """Return the per cent of accesses to the 1 % of nodes asked for most, on the profile's first graph."""
    first = studies[0]
    return Measured(Number.exact(100 * first.result["shares"][0]), studies=[f"{first.study} {first.key}"])


def reads_over(studies: Studies, policy: str, other: str) -> Measured:
    """Return the greatest ratio of two cache policies' reads, over graphs and cache sizes below all rows."""
    from harness.studies.accesses import read_ratios

    lines, worst = [], 0.0
    for record in studies:
        if not {policy, other} <= {entry["policy"] for entry in record.result["policies"]}:
            raise NotRun("the study miss-ratios has not both policies")
        best, static = read_ratios(record.result, policy), read_ratios(record.result, other)
        worst = max(worst, *(a / b if b else 1.0 for a, b in zip(best, static, strict=True)))
        pairs = zip(record.result["shares"], best, static, strict=True)
        lines += [f"{100 * share:g} % of the rows: {100 * a:.1f} % against {100 * b:.1f} %" for share, a, b in pairs]
    return _exact(worst, lines)


def covered(studies: Studies, share: float, score: str = "") -> Measured:
    """Return the per cent of accesses to the first `share` of the rows by `score`; the least of all without one."""
    lines: list[str] = []
    covers: list[float] = []
    for record in studies:
        if share not in record.result["shares"]:
            raise NotRun(f"the study access-coverage has no {100 * share:g} %")
        at, names = record.result["shares"].index(share), [score] if score else record.params["scores"]
        found = {name: 100 * seen[at] for name, seen in record.result["coverage"].items() if name in names}
        if not found:
            raise NotRun(f"the study of five hops has no score {score}")
        covers += found.values()
        if not score:
            lines += [f"fan-out {record.params['fanout']}, {name}: {seen:.1f} %" for name, seen in found.items()]
    return _exact(min(covers), lines)


def lead_of(studies: Studies, score: str, others: Sequence[str]) -> Measured:
    """Return the points by which a score covers more than the best of `others`, the least over graphs and shares."""
    lines, least = [], 100.0
    for record in studies:
        coverage = record.result["coverage"]
        for at, share in enumerate(record.result["shares"]):
            best, other = coverage[score][at], max(coverage[name][at] for name in others)
            least = min(least, 100 * (best - other))
            lines.append(f"first {100 * share:g} %: {100 * best:.2f} % against {100 * other:.2f} %")
    return _exact(least, lines)


def hit_ratio(studies: Studies, share: float, over: Sequence[str] = ()) -> Measured:
    """Return the hit ratio (per cent) of PaGraph's cache of a share of the rows, or over the best of other rankings."""
    result = studies[0].result
    if share not in result["shares"]:
        raise NotRun(f"the study device-cache-hits has no {100 * share:g} %")
    at = result["shares"].index(share)
    ratios = {name: 100 * found[at] for name, found in result["hit_ratio"].items()}
    others = max((ratios[name] for name in over), default=1.0)
    if not others:
        raise NotRun("the other caches never hit")
    return _exact(ratios["PaGraph"] / others, [f"{name}: {seen:.1f} %" for name, seen in ratios.items()])


def four_partitions_over_one(studies: Studies, column: str) -> Measured:
    """Divide the hit ratio with four partitions by that with one."""
    one, four = (Number.exact(float(entry[column])) for entry in _partitions(studies, 1, 4))
    if not one.value:
        raise NotRun("the cache of one partition never hits")
    line = f"one: {100 * one.value:.1f} %, four: {100 * four.value:.1f} %"
    return Measured(quotient(four, one), detail=[line])


def redundant_nodes(studies: Studies) -> Measured:
    """Return the redundant nodes of one of eight partitions, in per cent of all nodes."""
    (eight,) = _partitions(studies, 8)
    return _exact(100 * float(eight["redundant"]))


def _partitions(studies: Studies, *counts: int) -> list[Plain]:
    by_count = {int(entry["count"]): entry for entry in studies[0].result["partitions"]}
    if missing := [count for count in counts if count not in by_count]:
        raise NotRun(f"partitions of {' and '.join(map(str, missing))} were not made")
    return [by_count[count] for count in counts]


def stalled(table: pd.DataFrame) -> Measured:
    """Return the per cent of pyg+'s epochs in which the device neither computes nor copies."""
    rows = table[(table["panel"] == "time") & (table["part"] == "data preparation")]
    return _exact(float(rows["percent"].iloc[0]), runs=sorted(set(rows["run"])))


def late_misses(table: pd.DataFrame) -> Measured:
    """Return the page cache's miss ratio over the last third of the iterations."""
    seen = table[table["panel"] == "miss ratio"]["miss_percent"].dropna()
    last = [float(value) for value in seen.iloc[-max(1, len(seen) // 3) :]]
    number = Number(sum(last) / len(last), min(last), max(last), "range")
    return Measured(number, detail=[f"mean over the last {len(last)} of {len(seen)} iterations"])


def reorder_seconds(runs: Sequence[Plain]) -> Measured:
    """Return the seconds that reordering the paper's 3.2 billion edges would take at our measured rate."""
    found = [run for run in runs if run["facts"].get("reorder_s")]
    if not found:
        raise NotRun("no run of data-tiering says how long reordering took")
    record = max(found, key=lambda seen: str(seen["run_id"]))
    edges, seconds = record["config"]["dataset"]["num_edges"], record["facts"]["reorder_s"]
    number, line = Number.exact(_PAPER_EDGES / (edges / seconds)), f"{edges:,} edges and their rows in {seconds:.2f} s"
    return Measured(number, [record["run_id"]], setting=record["config"], detail=[line])


#: Every function of this module that a query may name.
FUNCTIONS: dict[str, Callable[..., Measured]] = {
    name: value
    for name, value in list(globals().items())
    if getattr(value, "__module__", "") == __name__ and not name.startswith("_")
}
