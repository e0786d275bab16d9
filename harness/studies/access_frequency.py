"""Study `access-frequency`: reads of each node's row in an epoch, the redundancy for PaGraph's cache (its Fig. 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from harness.studies.base import Plain, StudyContext, WorkloadParams, sample_all, study

if TYPE_CHECKING:
    from workloads.workload import Workload

Counts = npt.NDArray[np.int64]
# A curve of more points looks no smoother on paper.
_MOST_POINTS = 200


def visits(params: WorkloadParams, context: StudyContext) -> tuple[Counts, Counts]:
    """Return the row accesses and the out-degree of every node, each int64 [N]; a mini-batch reads a row once."""
    from systems.engine.rank.ranking import out_degrees

    workload = context.workload(params)
    counts, _ = count_accesses(workload, params.epochs)
    return counts, out_degrees(workload).astype(np.int64)


def count_accesses(workload: Workload, epochs: int, *, threads: int = 1) -> tuple[Counts, int]:
    """Return the row accesses of every node, int64 [N], and the number of mini-batches over some epochs."""
    counts = np.zeros(workload.dataset.num_nodes, dtype=np.int64)
    batches = 0
    for *_, batch in sample_all(workload, epochs, threads=threads):
        # A mini-batch's nodes are distinct, so indexed addition counts each.
        counts[batch.nodes] += 1
        batches += 1
    return counts, batches


def cumulative(counts: Counts) -> list[list[float]]:
    """Return [times, share of the read nodes that were read at most so often], at most 200 points, rising."""
    times, nodes = np.unique(counts[counts > 0], return_counts=True)
    if not len(times):
        return []
    share = np.cumsum(nodes) / nodes.sum()
    if len(times) > _MOST_POINTS:
        wanted = np.geomspace(times[0], times[-1], _MOST_POINTS)
        chosen = np.unique(np.minimum(np.searchsorted(times, wanted), len(times) - 1))
        times, share = times[chosen], share[chosen]
    return [[int(x), float(y)] for x, y in zip(times, share, strict=True)]


@study("access-frequency", "How often each row is read in an epoch", WorkloadParams, lambda params: 15.0)
def run(params: WorkloadParams, context: StudyContext) -> Plain:
    """Compute the curve of Fig. 5 and the facts of Section 2.3.

    Returns:
        `cdf`: as `cumulative`; `accesses`, `accesses_over_nodes`; `visited`, `repeated`: shares of all nodes read at
        all, and more than once; `most`: accesses of the node read most often; `out_degree_repeated`,
        `out_degree_others`: mean out-degree of the nodes read more than once, and of the others.
    """
    counts, degrees = visits(params, context)
    again = counts > 1
    found: dict[str, Any] = {
        "cdf": cumulative(counts),
        "accesses": int(counts.sum()),
        "accesses_over_nodes": float(counts.sum() / len(counts)),
        "visited": float((counts > 0).mean()),
        "repeated": float(again.mean()),
        "most": int(counts.max()),
        "out_degree_repeated": float(degrees[again].mean()) if again.any() else None,
        "out_degree_others": float(degrees[~again].mean()) if not again.all() else None,
    }
    return found
