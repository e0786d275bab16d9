"""PaGraph's claims."""

from __future__ import annotations

from typing import Any

from harness.claims.gnndrive import accuracy_gap
from harness.claims.measured import Measured, NotRun, Number, median, ratio, saved
from harness.claims.pairs import Plain, Records, Side, compare, counter, describe, merge, stage_s
from harness.claims.query import answers, register, summarise, usual_settings

# These systems keep the features in host memory: no cap, any device memory.
_ANY: dict[str, Any] = {"memory": None, "batch_size": None, "fanout": None, "disk_class": None}


def _over(better: str, baseline: str, kind: str, **fixed: Any) -> Any:
    def run(records: Records) -> Measured:
        settings = usual_settings(records, [Side(better), Side(baseline)], **{**_ANY, **fixed})
        found = [compare(setting) for setting in settings]
        numbers = [measured.numbers[0] for measured in found]
        return merge(found, summarise(numbers, kind), [f"over {len(found)} settings"])

    return run


register("pg-01", "pagraph-fig11", _over("pagraph", "dgl", "least and most", model="gcn"))
register("pg-02", "pagraph-fig11", _over("pagraph", "dgl", "least and most", model="sage"))
register("pg-03", "pagraph-fig11", _over("pagraph+pp", "dgl", "most"))
register("pg-11", "pagraph-fig20", _over("pagraph", "dgl", "least and most", model="gcn", sampler="layerwise"))
register("pg-12", "pagraph-fig21", lambda records: accuracy_gap(records, "pagraph", "dgl", ranks=1, sampler="neighbor"))


def _hits(records: Records) -> tuple[Plain, str]:
    """Hit ratios at 20 % of the rows by what fills the cache, in per cent, and the study's key."""
    study = records.evidence.study("device-cache-hits", where=lambda params: 0.2 in params["shares"])
    at = study.result["shares"].index(0.2)
    return {name: 100 * found[at] for name, found in study.result["hit_ratio"].items()}, study.key


@answers("pg-04", "pagraph-fig13")
def _hit_ratio(records: Records) -> Measured:
    """Hit ratio of pagraph's cache of 20 % of the rows."""
    ratios, key = _hits(records)
    return Measured((Number.exact(ratios["PaGraph"]),), studies=[f"device-cache-hits {key}"], detail=_lines(ratios))


@answers("pg-05", "pagraph-fig13")
def _over_others(records: Records) -> Measured:
    """Its hit ratio over the better one of AliGraph's and random's."""
    ratios, key = _hits(records)
    others = max(ratios["AliGraph"], ratios["random"])
    if not others:
        raise NotRun("the other caches never hit")
    number = Number.exact(ratios["PaGraph"] / others)
    return Measured((number,), studies=[f"device-cache-hits {key}"], detail=_lines(ratios))


def _lines(ratios: Plain) -> list[str]:
    return [f"{name}: {share:.1f} %" for name, share in ratios.items()]


@answers("pg-06", "pagraph-tab4")
def _volume(records: Records) -> Measured:
    """Loaded bytes that pagraph saves of dgl's, GCN."""
    value = counter("bytes_loaded")
    setting = usual_settings(records, [Side("pagraph"), Side("dgl")], **_ANY, model="gcn")[0]
    ours, theirs = setting.cells
    if not any(theirs.samples(value)):
        raise NotRun("dgl's loaded bytes were not counted")
    number = saved(ratio(ours.samples(value), theirs.samples(value)))
    lines = [f"{cell.newest['system']}: {cell.samples(value)[-1] / 2**20:.0f} MiB an epoch" for cell in setting.cells]
    return Measured((number,), runs=[*ours.runs, *theirs.runs], setting=setting.shared, detail=lines)


@answers("pg-07", "pagraph-fig4")
def _loading(records: Records) -> Measured:
    """Share of loading (extract and transfer) in dgl's stage time, neighbour and layer-wise sampling, GCN."""
    numbers, runs, lines, shared = [], [], [], {}
    for sampler in ("neighbor", "layerwise"):
        setting = usual_settings(records, [Side("dgl")], **_ANY, model="gcn", sampler=sampler)[0]
        cell, shared = setting.cells[0], setting.shared
        loading, whole = stage_s("extract", "transfer"), stage_s("extract", "transfer", "train")
        pairs = zip(cell.samples(loading), cell.samples(whole), strict=True)
        numbers.append(median([100 * part / total for part, total in pairs if total]))
        runs += cell.runs
        lines.append(f"{sampler}: {describe(cell, loading)}")
    return Measured(
        tuple(numbers), runs=runs, setting=shared, detail=lines,
        differs=["sampling apart: of loading and computation together"],
    )  # fmt: skip


def _partitions(records: Records) -> tuple[list[Plain], str]:
    study = records.evidence.study("partition-quality")
    return sorted(study.result["partitions"], key=lambda entry: int(entry["count"])), study.key


@answers("pg-08", "pagraph-fig17")
def _with_partitions(records: Records) -> Measured:
    """Whether the hit ratio rises from one partition to four, and does not where devices share the graph."""
    found, key = _partitions(records)
    by_count = {entry["count"]: entry for entry in found}
    if not {1, 4} <= set(by_count):
        raise NotRun("partitions of one and four were not made")
    rises = by_count[4]["hit_ratio"] > by_count[1]["hit_ratio"]
    falls = by_count[4]["hit_ratio_shared"] <= by_count[1]["hit_ratio_shared"]
    lines = [
        f"{entry['count']} partitions: {100 * entry['hit_ratio']:.1f} %, shared {100 * entry['hit_ratio_shared']:.1f} %"
        for entry in found
    ]
    return Measured(holds=rises and falls, studies=[f"partition-quality {key}"], detail=lines)


@answers("pg-09", "pagraph-fig17")
def _replicas(records: Records) -> Measured:
    """Redundant nodes of one of eight partitions, of the whole graph."""
    found, key = _partitions(records)
    eight = [entry for entry in found if entry["count"] == 8]
    if not eight:
        raise NotRun("eight partitions were not made")
    number = Number.exact(100 * float(eight[0]["redundant"]))
    return Measured((number,), studies=[f"partition-quality {key}"])


@answers("pg-10", "pagraph-fig18")
def _pipelining(records: Records) -> Measured:
    """What loading while others train saves of the epoch, GCN and GraphSAGE."""
    numbers, found = [], []
    for model in ("gcn", "sage"):
        sides = [Side("pagraph", {"pipeline": True}), Side("pagraph", {"pipeline": False}, name="pagraph, no pipeline")]
        measured = compare(usual_settings(records, sides, **_ANY, ranks=None, model=model)[0])
        faster = measured.numbers[0]
        numbers.append(saved(Number(1 / faster.value, 1 / faster.high, 1 / faster.low, faster.kind)))
        found.append(measured)
    return merge(found, numbers)
