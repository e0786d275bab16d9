"""Studies of a workload's accesses: how often each row is read, which rows, what caches
miss of them, and pages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.studies.base import Shares, StudyContext, WorkloadParams, sample_all, study
from workloads.arraytypes import JsonDict

if TYPE_CHECKING:
    from systems.engine.rank.ranking import Method
    from workloads.workload import Workload

Counts = npt.NDArray[np.int64]
# A curve of more points looks no smoother on paper.
_MOST_POINTS = 200


def count_accesses(
    workload: Workload, epochs: int, *, threads: int = 1
) -> tuple[Counts, int]:
    """Return the row accesses of every node, int64 [N], and the number of mini-batches
    over some epochs."""
    counts = np.zeros(workload.dataset.num_nodes, dtype=np.int64)
    batches = 0
    for *_, batch in sample_all(workload, epochs, threads=threads):
        # A mini-batch's nodes are distinct, so indexed addition counts each.
        counts[batch.nodes] += 1
        batches += 1
    return counts, batches


def cumulative(counts: Counts) -> list[list[float]]:
    """Return [times, share of the read nodes that were read at most so often], at most
    200 points, rising."""
    times, nodes = np.unique(counts[counts > 0], return_counts=True)
    if not len(times):
        return []
    share = np.cumsum(nodes) / nodes.sum()
    if len(times) > _MOST_POINTS:
        wanted = np.geomspace(times[0], times[-1], _MOST_POINTS)
        chosen = np.unique(np.minimum(np.searchsorted(times, wanted), len(times) - 1))
        times = times[chosen]
        share = share[chosen]
    return [[int(x), float(y)] for x, y in zip(times, share, strict=True)]


@study(
    "access-frequency", "How often each row is read in an epoch", lambda params: 15.0
)
def access_frequency(params: WorkloadParams, context: StudyContext) -> JsonDict:
    """Compute the curve of Fig. 5 and the facts of Section 2.3.

    Returns:
        `cdf`: as `cumulative`; `accesses`, `accesses_over_nodes`; `visited`,
            `repeated`: shares of all nodes read at
        all, and more than once; `most`: accesses of the node read most often;
        `out_degree_repeated`,
        `out_degree_others`: mean out-degree of the nodes read more than once, and of
            the others.
    """
    from systems.engine.rank.ranking import out_degrees

    workload = context.workload(params)
    counts, _ = count_accesses(workload, params.epochs)
    degrees = out_degrees(workload).astype(np.int64)
    again = counts > 1
    accesses = int(counts.sum())
    found: JsonDict = {
        "cdf": cumulative(counts),
        "accesses": accesses,
        "accesses_over_nodes": accesses / len(counts),
    }
    found |= {
        "visited": float((counts > 0).mean()),
        "repeated": float(again.mean()),
        "most": int(counts.max()),
    }
    for name, nodes in (("repeated", again), ("others", ~again)):
        found[f"out_degree_{name}"] = (
            float(degrees[nodes].mean()) if nodes.any() else None
        )
    return found


Score = Literal["degree", "reverse-pagerank", "weighted-reverse-pagerank"]
SCORES: tuple[Score, ...] = get_args(Score)
# Thousandths of the rows.
_RANKED = (
    1,
    2.5,
    5,
    10,
    20,
    30,
    50,
    75,
    100,
    150,
    200,
    250,
    300,
    400,
    500,
    600,
    800,
    1000,
)
#: Ranking by the accesses themselves, which no score can exceed.
MEASURED = "measured"


class CoverageParams(WorkloadParams):
    """Parameters: `scores` rank the rows (Data Tiering, Section 3.1); `shares` of the
    rows, above 0 and at most 1."""

    scores: list[Score] = Field(default_factory=lambda: list(SCORES), min_length=1)
    shares: Shares = Field(default_factory=lambda: [share / 1000 for share in _RANKED])


@study(
    "access-coverage",
    "Share of the row accesses covered by the rows that a score ranks first",
    lambda params: 10.0 + 0.02 * params.epochs * (params.max_batches or 400),
)
def access_coverage(params: CoverageParams, context: StudyContext) -> JsonDict:
    """Count the accesses of each row, then rank the rows by each score.

    Returns:
        `accesses`, `unique_rows`, `batches`, `shares`, and `coverage`: score -> share
            of the accesses to the first
        rows, by share; `measured` beside the scores is the ranking by the accesses
        themselves.
    """
    from systems.engine.rank import ranking

    workload = context.workload(params)
    threads = len(os.sched_getaffinity(0))
    context.progress("sampling")
    uses, batches = count_accesses(workload, params.epochs, threads=threads)
    coverage: dict[str, list[float]] = {}
    for score in params.scores:
        context.progress(f"ranking by {score}")
        method: ranking.Method = "out-degree" if score == "degree" else score
        order = ranking.top(
            ranking.scores(workload, method, threads=threads), len(uses)
        )
        coverage[score] = covered(uses[order], params.shares)
    coverage[MEASURED] = covered(np.sort(uses)[::-1], params.shares)
    counts = {
        "accesses": int(uses.sum()),
        "unique_rows": int(np.count_nonzero(uses)),
        "batches": batches,
    }
    return {**counts, "shares": list(params.shares), "coverage": coverage}


def covered(uses: npt.NDArray[np.int64], shares: list[float]) -> list[float]:
    """Return the share of all uses in each of `shares` of the first rows; `uses`: int64
    [N], best ranked row first."""
    summed = np.cumsum(uses)
    total = max(1, int(summed[-1]))
    return [
        float(summed[max(1, round(share * len(uses))) - 1]) / total for share in shares
    ]


# The paper's names, and the ranking by which each fills the cache.
RANKINGS: dict[str, Method] = {
    "PaGraph": "out-degree",
    "AliGraph": "aligraph",
    "random": "random",
}


class HitParams(WorkloadParams):
    """The workload, and the cached shares of all rows."""

    shares: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        default_factory=lambda: [0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0], min_length=1
    )


@study(
    "device-cache-hits",
    "Hit ratio of a static device cache, by ranking",
    lambda params: 25.0,
)
def device_cache_hits(params: HitParams, context: StudyContext) -> JsonDict:
    """Divide hits by row accesses, for each ranking and each share.

    Returns:
        `shares`; `hit_ratio`: {name: [ratio, …]} of `RANKINGS` and of `optimal`, which
        ranks rows by the accesses of the trace itself and so bounds every static cache;
        `accesses`; `num_nodes`.
    """
    from systems.engine.cache.policies import RowTrace, simulate_static
    from systems.engine.rank.ranking import scores, top

    workload = context.workload(params)
    trace = RowTrace.record(workload, params.epochs)
    nodes = workload.dataset.num_nodes
    sizes = [round(share * nodes) for share in params.shares]
    uses = np.zeros(nodes, dtype=np.int64)
    uses[trace.nodes] = np.bincount(trace.rows, minlength=trace.num_rows)
    found = {}
    for name, method in [*RANKINGS.items(), ("optimal", None)]:
        context.progress(f"cache of {name}")
        score = scores(workload, method) if method is not None else uses
        misses = simulate_static(trace, top(score, max(sizes)), sizes, policy=name)
        found[name] = [float(1.0 - ratio) for ratio in misses.ratio]
    return {
        "shares": params.shares,
        "hit_ratio": found,
        "accesses": trace.accesses,
        "num_nodes": nodes,
    }


# The names of `systems.engine.cache.policies.POLICIES`, without an import for a list of
# names.
Policy = Literal["belady", "degree", "lru", "fifo", "lfu", "clock", "sieve", "s3-fifo"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
_CACHED_SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


class MissRatioParams(WorkloadParams):
    """Parameters: `policies` as of `outcore data trace`; `shares` of the feature
    table's rows, above 0, at most 1."""

    policies: list[Policy] = Field(default_factory=lambda: list(POLICIES), min_length=1)
    shares: Shares = Field(default_factory=lambda: list(_CACHED_SHARES))


@study(
    "miss-ratios",
    "Miss ratio of each cache policy over the cache size",
    lambda params: 5.0 + 0.05 * params.epochs * (params.max_batches or 400),
)
def miss_ratios(params: MissRatioParams, context: StudyContext) -> JsonDict:
    """Sample the mini-batches once and simulate each policy on them.

    Returns:
        `accesses`, `unique_rows`, `batches`, `row_bytes`, `shares` and `sizes` (rows),
        and for each policy `misses` and `fills` by size. A policy reads misses + fills
        from disk: dynamic caches start empty, static ones are filled beforehand, and
        the sum treats both alike (see `systems.engine.cache.policies`).
    """
    from systems.engine.cache.policies import RowTrace, compare

    workload = context.workload(params)
    threads = len(os.sched_getaffinity(0))
    context.progress("sampling")
    trace = RowTrace.record(workload, params.epochs, threads=threads)
    sizes = [max(1, round(share * trace.num_nodes)) for share in params.shares]
    found: list[JsonDict] = []
    for policy in params.policies:
        context.progress(f"simulating {policy}")
        (entry,) = compare(workload, trace, [policy], sizes, threads=threads)
        found.append(
            {
                "policy": policy,
                "misses": list(map(int, entry.misses)),
                "fills": list(map(int, entry.fills)),
            }
        )
    counts = {
        "accesses": trace.accesses,
        "unique_rows": trace.num_rows,
        "batches": len(trace.begins) - 1,
    }
    row_bytes = workload.dataset.row_bytes
    return {
        **counts,
        "row_bytes": row_bytes,
        "shares": list(params.shares),
        "sizes": sizes,
        "policies": found,
    }


def read_ratios(result: JsonDict, policy: str) -> list[float]:
    """Divide rows read from disk, fills included, by row accesses, for each size.

    Raises:
        KeyError: the study does not have that policy.
    """
    entry = {entry["policy"]: entry for entry in result["policies"]}[policy]
    reads = zip(entry["misses"], entry["fills"], strict=True)
    return [(misses + fills) / max(1, result["accesses"]) for misses, fills in reads]


# A memory-mapped system's page faults are divided by these accesses (`ginex-fig4`).
PAGE_BYTES = 4096


@study(
    "page-accesses",
    "Pages of features and topology that each mini-batch asks for",
    lambda params: 3.0 + 0.02 * params.epochs * (params.max_batches or 400),
)
def page_accesses(params: WorkloadParams, context: StudyContext) -> JsonDict:
    """Sample every mini-batch again and count the pages of its rows and neighbour
    lists.

    Returns:
        Columns of equal length, one entry a mini-batch in training order: `epoch`,
        `batch`, `nodes`, `feature_pages` (pages of each row; a page shared by two rows
        counts twice) and `topology_pages` (all pages of each list drawn from, at most
        one a draw).
    """
    workload = context.workload(params)
    dataset = workload.dataset
    indptr = dataset.load("indptr")
    found: dict[str, list[int]] = {
        name: []
        for name in ("epoch", "batch", "nodes", "feature_pages", "topology_pages")
    }
    row_bytes = dataset.row_bytes
    item_bytes = dataset.index_dtype.itemsize
    for epoch, index, batch in sample_all(
        workload, params.epochs, indptr=indptr, threads=len(os.sched_getaffinity(0))
    ):
        if index == 0:
            context.progress(f"epoch {epoch}")
        lists = [
            (batch.nodes[: block.num_dst], np.diff(block.indptr))
            for block in batch.blocks
        ]
        pages = sum(
            list_pages(indptr, nodes, draws, item_bytes) for nodes, draws in lists
        )
        row = (epoch, index, batch.num_nodes, row_pages(batch.nodes, row_bytes), pages)
        for name, value in zip(found, row, strict=True):
            found[name].append(value)
    return found


def row_pages(nodes: npt.NDArray[np.int64], row_bytes: int) -> int:
    """Count the pages of the rows of `nodes` (int64 [n]), a shared page once for each
    row; features begin on a page."""
    first = nodes * row_bytes // PAGE_BYTES
    last = ((nodes + 1) * row_bytes - 1) // PAGE_BYTES
    return int((last - first + 1).sum())


def list_pages(
    indptr: npt.NDArray[np.int64],
    nodes: npt.NDArray[np.int64],
    draws: npt.NDArray[Any],
    item_bytes: int,
) -> int:
    """Count the pages touched by draws from the lists of `nodes`: all pages of a list,
    but at most one a draw.

    Args:
        indptr, nodes, draws: int64 [N + 1], int64 [n], and the number of draws from
            each node's list, [n].
        item_bytes: bytes of an entry.
    """
    start = indptr[nodes]
    end = indptr[nodes + 1]
    some = end > start
    first = start[some] * item_bytes // PAGE_BYTES
    last = (end[some] * item_bytes - 1) // PAGE_BYTES
    return int(np.minimum(last - first + 1, draws[some]).sum())
