"""Study `miss-ratios`: share of a workload's row accesses that each cache policy reads from disk, by cache size."""

from __future__ import annotations

import os
from typing import Literal, get_args

from pydantic import Field

from harness.studies.base import Plain, Shares, StudyContext, WorkloadParams, study

# The names of `systems.engine.cache.policies.POLICIES`, without an import for a list of names.
Policy = Literal["belady", "degree", "lru", "fifo", "lfu", "clock", "sieve", "s3-fifo"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


class MissRatioParams(WorkloadParams):
    """Parameters: `policies` as of `outcore data trace`; `shares` of the feature table's rows, above 0, at most 1."""

    policies: list[Policy] = Field(default_factory=lambda: list(POLICIES), min_length=1)
    shares: Shares = Field(default_factory=lambda: list(SHARES))


@study(
    "miss-ratios",
    "Miss ratio of each cache policy over the cache size",
    MissRatioParams,
    lambda params: 5.0 + 0.05 * params.epochs * (params.max_batches or 400),
)
def run(params: MissRatioParams, context: StudyContext) -> Plain:
    """Sample the mini-batches once and simulate each policy on them.

    Returns:
        `accesses`, `unique_rows`, `batches`, `row_bytes`, `shares` and `sizes` (rows), and for each policy `misses` and
        `fills` by size. A policy reads misses + fills from disk: dynamic caches start empty, static ones are filled
        beforehand, and the sum treats both alike (see `systems.engine.cache.policies`).
    """
    from systems.engine.cache.policies import RowTrace, compare

    workload = context.workload(params)
    threads = len(os.sched_getaffinity(0))
    context.progress("sampling")
    trace = RowTrace.record(workload, params.epochs, threads=threads)
    sizes = [max(1, round(share * trace.num_nodes)) for share in params.shares]
    found: list[Plain] = []
    for policy in params.policies:
        context.progress(f"simulating {policy}")
        (entry,) = compare(workload, trace, [policy], sizes, threads=threads)
        counts = {"misses": entry.misses, "fills": entry.fills}
        found.append({"policy": policy, **{name: [int(value) for value in values] for name, values in counts.items()}})
    return {
        "accesses": trace.accesses,
        "unique_rows": trace.num_rows,
        "batches": len(trace.begins) - 1,
        "row_bytes": workload.dataset.dim * workload.dataset.feature_dtype.itemsize,
        "shares": list(params.shares),
        "sizes": sizes,
        "policies": found,
    }


def read_ratios(result: Plain, policy: str) -> list[float]:
    """Divide rows read from disk, fills included, by row accesses, for each size.

    Raises:
        KeyError: the study does not have that policy.
    """
    for entry in result["policies"]:
        if entry["policy"] == policy:
            reads = zip(entry["misses"], entry["fills"], strict=True)
            return [(misses + fills) / max(1, result["accesses"]) for misses, fills in reads]
    raise KeyError(policy)
