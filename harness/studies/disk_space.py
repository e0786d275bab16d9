"""Study `disk-space`: bytes of DiskGNN's packed chunks for rows held in memory, by memory, fan-out and batch size."""

from __future__ import annotations

from pydantic import Field

from harness.studies.base import Plain, StudyContext, study
from harness.studies.planning import PlanningParams, packed_rows, sampled


class DiskSpaceParams(PlanningParams):
    """Parameters of `disk-space`; `memory_shares` are rows held in memory, as shares of all nodes."""

    memory_shares: list[float] = Field(default_factory=lambda: [0.0, 0.1, 0.3, 0.5])


@study(
    "disk-space",
    "disk space of packed chunks over the rows in memory",
    DiskSpaceParams,
    lambda params: 10.0 + 2.0 * len(params.memory_shares),
)
def run(params: DiskSpaceParams, context: StudyContext) -> Plain:
    """Count the rows of packed chunks alone, and the fewest rows on disk over all segment lengths.

    Returns:
        `points`, one for each share: `memory_share`, `packed_bytes` (no limit: every mini-batch has its own rows),
        `least_bytes` (with disk caches of the best segment length), and both over the bytes of the feature table
        (`packed_x`, `least_x`); `accesses`, `batches`, `rows_per_batch`, `row_bytes`.
    """
    samples = sampled(params, context)
    row = params.row_bytes or samples.row_bytes
    points = []
    for share in params.memory_shares:
        rows = packed_rows(samples, samples.cold(share), range(1, len(samples) + 1))
        packed, least = rows[1], min(rows.values())
        points.append(
            {
                "memory_share": share,
                "packed_bytes": packed * row,
                "least_bytes": least * row,
                "packed_x": packed / samples.num_nodes,
                "least_x": least / samples.num_nodes,
            }
        )
    return {
        "points": points,
        "accesses": samples.accesses,
        "batches": len(samples),
        "rows_per_batch": samples.accesses / len(samples),
        "row_bytes": row,
    }
