"""Study `packing-search`: results and times of DiskGNN's two searches for segment length and threshold."""

from __future__ import annotations

from pydantic import Field

from harness.studies.base import Plain, StudyContext, study
from harness.studies.planning import PlanningParams, packed_rows, sampled, searching
from workloads.errors import BudgetError


class PackingSearchParams(PlanningParams):
    """Parameters of `packing-search`.

    Attributes:
        memory_share: rows held in memory, a share of all nodes.
        limits: disk-space limits, as shares of the bytes of packed chunks alone (the paper's 3x and 5x of Friendster's
            features are 0.56 and 0.93 of the 5.39x without a limit).
        search_points: segment lengths that brute force tries.
    """

    memory_share: float = Field(default=0.1, ge=0, le=1)
    limits: list[float] = Field(default_factory=lambda: [0.56, 0.93])
    search_points: int = Field(default=8, ge=1, le=1024)


@study(
    "packing-search",
    "heuristic and brute-force search for a disk cache",
    PackingSearchParams,
    lambda params: 10.0 + 20.0 * len(params.limits),
)
def run(params: PackingSearchParams, context: StudyContext) -> Plain:
    """Run both searches for each limit, with the system's own code.

    Returns:
        `cases`, one for each limit: `limit` (share of packing alone), `limit_bytes`, `limit_x` (over the bytes of the
        feature table) and for `heuristic` and `brute_force`: `segment`, `threshold`, `seconds` of the search,
        `amplification` of its reads, `disk_bytes`; None where no layout fits the limit. `packed_x`: packing alone over
        the feature table. `batches`.
    """
    samples = sampled(params, context)
    row, cold = params.row_bytes or samples.row_bytes, samples.cold(params.memory_share)
    packed = packed_rows(samples, cold, [1])[1] * row
    cases: list[Plain] = []
    for limit in params.limits:
        case: Plain = {
            "limit": limit,
            "limit_bytes": int(limit * packed),
            "limit_x": limit * packed / (row * samples.num_nodes),
        }
        for name in ("heuristic", "brute_force"):
            context.progress(f"{name.replace('_', ' ')}, limit {limit:g} of packing alone")
            search = searching(samples, cold, params, row, limit=case["limit_bytes"])
            try:
                found = search.heuristic() if name == "heuristic" else search.brute_force(params.search_points)
            except BudgetError:
                case[name] = None
                continue
            seconds = search.seconds
            found = search.measure(found) if name == "heuristic" else found
            case[name] = {
                "segment": found.shape.segment,
                "threshold": found.shape.threshold,
                "seconds": seconds,
                "amplification": found.read_amplification,
                "disk_bytes": found.disk_bytes,
            }
        cases.append(case)
    return {"cases": cases, "packed_x": packed / (row * samples.num_nodes), "batches": len(samples)}
