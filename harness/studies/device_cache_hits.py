"""Study `device-cache-hits`: hit ratio of a static device cache by size and ranking (PaGraph, Section 5.3, Fig. 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from harness.studies.base import Plain, StudyContext, WorkloadParams, study

if TYPE_CHECKING:
    from systems.engine.rank.ranking import Method

# The paper's names, and the ranking by which each fills the cache.
RANKINGS: dict[str, Method] = {"PaGraph": "out-degree", "AliGraph": "aligraph", "random": "random"}


class HitParams(WorkloadParams):
    """The workload, and the cached shares of all rows."""

    shares: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        default_factory=lambda: [0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0], min_length=1
    )


@study("device-cache-hits", "Hit ratio of a static device cache, by ranking", HitParams, lambda params: 25.0)
def run(params: HitParams, context: StudyContext) -> Plain:
    """Divide hits by row accesses, for each ranking and each share.

    Returns:
        `shares`; `hit_ratio`: {name: [ratio, …]} of `RANKINGS` and of `optimal`, which ranks rows by the accesses of
        the trace itself and so bounds every static cache; `accesses`; `num_nodes`.
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
    return {"shares": params.shares, "hit_ratio": found, "accesses": trace.accesses, "num_nodes": nodes}
