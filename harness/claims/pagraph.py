"""Claims of PaGraph, measured by runs of their declared setting, or by studies of its
cache and its partitions."""

from __future__ import annotations

import pandas as pd

from harness.claims.comparison import Runs, one_setting, share
from harness.claims.measured import Measured, NotRun, Studies, studied
from harness.claims.registry import claim
from workloads.arraytypes import JsonDict


@claim("pg-04", study="device-cache-hits")
def hits(studies: Studies) -> Measured:
    """Return the hit ratio, in per cent, of the cache of a fifth of the rows."""
    ratios = _hits(studies)
    return studied(studies, ratios["PaGraph"], *_lines(ratios))


@claim("pg-05", study="device-cache-hits")
def hits_over_others(studies: Studies) -> Measured:
    """Divide the hit ratio of the cache of a fifth of the rows by the best of
    AliGraph's and random's."""
    ratios = _hits(studies)
    best = ratios[["AliGraph", "random"]].max()
    if not best:
        raise NotRun("the other caches never hit")
    return studied(studies, ratios["PaGraph"] / best, *_lines(ratios))


def _hits(studies: Studies) -> pd.Series[float]:
    """Return the hit ratio, in per cent, of each cache of a fifth of the rows."""
    result = studies[0].result
    if 0.2 not in result["shares"]:
        raise NotRun("the study device-cache-hits has no 20 %")
    return 100 * pd.DataFrame(result["hit_ratio"], index=result["shares"]).T[0.2]


def _lines(ratios: pd.Series[float]) -> list[str]:
    return [f"{name}: {hit:.1f} %" for name, hit in ratios.items()]


@claim("pg-07", "pg-13")
def loading(runs: Runs) -> Measured:
    """Return the share of loading in dgl's loading and computation."""
    loaded = ["stages_s.extract", "stages_s.transfer"]
    return share(one_setting(runs, "dgl"), *loaded, of=[*loaded, "stages_s.train"])


@claim("pg-08", study="partition-quality", column="hit_ratio")
@claim("pg-15", study="partition-quality", column="hit_ratio_shared")
def four_partitions(studies: Studies, column: str) -> Measured:
    """Divide the hit ratio with four partitions by that with one."""
    one, four = (_partitions(studies, count)[column] for count in (1, 4))
    if not one:
        raise NotRun("the cache of one partition never hits")
    return studied(
        studies, four / one, f"one: {100 * one:.1f} %, four: {100 * four:.1f} %"
    )


@claim("pg-09", study="partition-quality")
def redundant_nodes(studies: Studies) -> Measured:
    """Return the redundant nodes of one of eight partitions, in per cent of all
    nodes."""
    return studied(studies, 100 * _partitions(studies, 8)["redundant"])


def _partitions(studies: Studies, count: int) -> JsonDict:
    """Return the quality of a split into `count` partitions."""
    splits: list[JsonDict] = studies[0].result["partitions"]
    found = [split for split in splits if split["count"] == count]
    if not found:
        raise NotRun(f"partitions of {count} were not made")
    return found[0]
