"""Study `access-share`: shares of a workload's row accesses by node rank (DiskGNN, Table 3)."""

from __future__ import annotations

import itertools

from pydantic import Field

from harness.studies.base import Plain, StudyContext, WorkloadParams, study
from harness.studies.planning import sampled


class AccessShareParams(WorkloadParams):
    """Parameters of `access-share`; `bounds` are shares of all nodes at which the ranking is cut, ascending."""

    bounds: list[float] = Field(default_factory=lambda: [0.01, 0.05, 0.1])


@study("access-share", "share of accesses by node rank", AccessShareParams, lambda params: 15.0)
def run(params: AccessShareParams, context: StudyContext) -> Plain:
    """Rank nodes by the number of mini-batches that ask for them, as DiskGNN, and count the accesses of each bucket.

    Returns:
        `shares` (one for each bucket, the last beyond the last bound), `accesses`, `touched` (share of nodes in any
        mini-batch), `batches`, `rows_per_batch` (mean).
    """
    samples = sampled(params, context)
    counts, total = samples.counts(), samples.accesses
    ranked = samples.hottest(samples.num_nodes)
    covered = [
        int(counts[ranked[: round(bound * samples.num_nodes)]].sum(dtype="int64")) for bound in sorted(params.bounds)
    ]
    edges = [0, *covered, total]
    return {
        "shares": [(high - low) / total for low, high in itertools.pairwise(edges)],
        "accesses": total,
        "touched": float((counts > 0).mean()),
        "batches": len(samples),
        "rows_per_batch": total / len(samples),
    }
