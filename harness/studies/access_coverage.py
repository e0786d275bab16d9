"""Study `access-coverage`: share of a workload's row accesses that goes to the rows ranked first by a score."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.studies.access_frequency import count_accesses
from harness.studies.base import Plain, Shares, StudyContext, WorkloadParams, study

Score = Literal["degree", "reverse-pagerank", "weighted-reverse-pagerank"]
SCORES: tuple[Score, ...] = ("degree", "reverse-pagerank", "weighted-reverse-pagerank")
SHARES = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
#: Ranking by the accesses themselves, which no score can exceed.
MEASURED = "measured"


class CoverageParams(WorkloadParams):
    """Parameters: `scores` rank the rows (Data Tiering, Section 3.1); `shares` of the rows, above 0 and at most 1."""

    scores: list[Score] = Field(default_factory=lambda: list(SCORES), min_length=1)
    shares: Shares = Field(default_factory=lambda: list(SHARES))


@study(
    "access-coverage",
    "Share of the row accesses covered by the rows that a score ranks first",
    CoverageParams,
    lambda params: 10.0 + 0.02 * params.epochs * (params.max_batches or 400),
)
def run(params: CoverageParams, context: StudyContext) -> Plain:
    """Count the accesses of each row, then rank the rows by each score.

    Returns:
        `accesses`, `unique_rows`, `batches`, `shares`, and `coverage`: score -> share of the accesses to the first
        rows, by share; `measured` beside the scores is the ranking by the accesses themselves.
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
        order = ranking.top(ranking.scores(workload, method, threads=threads), len(uses))
        coverage[score] = covered(uses[order], params.shares)
    coverage[MEASURED] = covered(np.sort(uses)[::-1], params.shares)
    return {
        "accesses": int(uses.sum()),
        "unique_rows": int(np.count_nonzero(uses)),
        "batches": batches,
        "shares": list(params.shares),
        "coverage": coverage,
    }


def covered(uses: npt.NDArray[np.int64], shares: list[float]) -> list[float]:
    """Return the share of all uses in each of `shares` of the first rows; `uses`: int64 [N], best ranked row first."""
    summed = np.cumsum(uses)
    total = max(1, int(summed[-1]))
    return [float(summed[max(1, round(share * len(uses))) - 1]) / total for share in shares]
