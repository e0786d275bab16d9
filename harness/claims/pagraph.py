"""PaGraph's claims."""

from __future__ import annotations

from harness.claims.accuracy import AccuracyGap
from harness.claims.measured import Measured, NotRun, Number, quotient
from harness.claims.pairs import Plain, Records, Side, counter
from harness.claims.query import OverSettings, Ratio, Share, answers, register

OURS, DGL = Side("pagraph"), Side("dgl")

register("pg-01", Ratio(OURS, DGL))
register("pg-02", Ratio(OURS, DGL))
register("pg-03", OverSettings(Ratio(Side("pagraph+pp"), DGL), "most"))
register("pg-11", Ratio(OURS, DGL))
register("pg-12", AccuracyGap("pagraph", "dgl"))
register("pg-06", Ratio(OURS, DGL, counter("bytes_loaded"), kind="saved"))


def _loading() -> Share:
    """Return the query for the share of loading (extract and transfer) in the stage time of dgl."""
    whole = ("extract", "transfer", "train")
    return Share(DGL, whole[:2], whole, differs=("sampling apart: of loading and computation together",))


register("pg-07", _loading())
register("pg-13", _loading())


def _pipelining() -> Ratio:
    """Return the query for the per cent of the epoch that pipelining saves; both sides have partitions and cache."""
    parts = {"cache": "auto"}
    return Ratio(
        Side("pagraph", {**parts, "pipeline": True}),
        Side("pagraph", {**parts, "pipeline": False}, name="pagraph, no pipeline"),
        kind="saved",
    )


register("pg-10", _pipelining())
register("pg-14", _pipelining())


def _hits(records: Records) -> tuple[Plain, str]:
    """Return the hit ratios (per cent) at 20 % of the rows by cache ranking, and the study's key. Raises NotRun."""
    (study,) = records.studies("device-cache-hits")
    if 0.2 not in study.result["shares"]:
        raise NotRun("the study device-cache-hits has no 20 %")
    at = study.result["shares"].index(0.2)
    return {name: 100 * found[at] for name, found in study.result["hit_ratio"].items()}, study.key


@answers("pg-04")
def _hit_ratio(records: Records) -> Measured:
    """Return the hit ratio of a pagraph cache of 20 % of the rows."""
    ratios, key = _hits(records)
    return Measured(Number.exact(ratios["PaGraph"]), studies=[f"device-cache-hits {key}"], detail=_lines(ratios))


@answers("pg-05")
def _over_others(records: Records) -> Measured:
    """Return the hit ratio of pagraph's cache over the higher one of AliGraph's and the random cache's."""
    ratios, key = _hits(records)
    others = max(ratios["AliGraph"], ratios["random"])
    if not others:
        raise NotRun("the other caches never hit")
    number = Number.exact(ratios["PaGraph"] / others)
    return Measured(number, studies=[f"device-cache-hits {key}"], detail=_lines(ratios))


def _lines(ratios: Plain) -> list[str]:
    return [f"{name}: {share:.1f} %" for name, share in ratios.items()]


def _partitions(records: Records, *counts: int) -> tuple[list[Plain], str]:
    """Return the partitions of these counts and the study's key. Raises NotRun where one is missing."""
    (study,) = records.studies("partition-quality")
    by_count = {int(entry["count"]): entry for entry in study.result["partitions"]}
    missing = [count for count in counts if count not in by_count]
    if missing:
        raise NotRun(f"partitions of {' and '.join(map(str, missing))} were not made")
    return [by_count[count] for count in counts], study.key


def _four_over_one(claim: str, column: str) -> None:
    def run(records: Records) -> Measured:
        found, key = _partitions(records, 1, 4)
        one, four = (Number.exact(float(entry[column])) for entry in found)
        if not one.value:
            raise NotRun("the cache of one partition never hits")
        lines = [f"one: {100 * one.value:.1f} %, four: {100 * four.value:.1f} %"]
        return Measured(quotient(four, one), studies=[f"partition-quality {key}"], detail=lines)

    register(claim, run)


_four_over_one("pg-08", "hit_ratio")
_four_over_one("pg-15", "hit_ratio_shared")


@answers("pg-09")
def _replicas(records: Records) -> Measured:
    """Return the redundant nodes of one of eight partitions, in per cent of all nodes."""
    (eight,), key = _partitions(records, 8)
    return Measured(Number.exact(100 * float(eight["redundant"])), studies=[f"partition-quality {key}"])
