"""Study `amplification`: reads of DiskGNN's disk caches by order of rows (by id, reordered) and segment length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.studies.base import Plain, StudyContext, study
from harness.studies.planning import PlanningParams, Sampled, packed_rows, sampled, searching

if TYPE_CHECKING:
    from systems.diskgnn.layout import ColdSamples

_QUANTILES = 20


class AmplificationParams(PlanningParams):
    """Parameters of `amplification`.

    Attributes:
        memory_share: rows held in memory, a share of all nodes.
        segments: lengths of segments, in mini-batches.
        threshold: accesses in a segment from which on its disk cache holds a row.
    """

    memory_share: float = Field(default=0.1, ge=0, le=1)
    segments: list[int] = Field(default_factory=lambda: [50, 100, 150])
    threshold: int = Field(default=2, ge=2)


@study(
    "amplification",
    "read amplification of disk caches by order and segment",
    AmplificationParams,
    lambda params: 15.0 + 4.0 * len(params.segments),
)
def run(params: AmplificationParams, context: StudyContext) -> Plain:
    """Simulate the reads of one global segment and of each length asked for, with rows by id and reordered by MinHash.

    Returns:
        `layouts`, each with `segment` (mini-batches), `global` (one segment holds all), `reordered`, `disk_bytes` (of
        feature rows), `read_bytes`, `useful_bytes`, `cache_read_bytes` and `cache_useful_bytes` (their parts from the
        disk cache), `amplification`, `cache_amplification`, and `reduction`: 21 quantiles over mini-batches of the
        share of bytes saved against one global cache in the order of ids.
    """
    samples = sampled(params, context)
    row, cold, count = params.row_bytes or samples.row_bytes, samples.cold(params.memory_share), len(samples)
    lengths = [count, *sorted({min(length, count) for length in params.segments} - {count})]
    layouts: list[Plain] = []
    plain = np.zeros(0)
    for length in lengths:
        for reordered in (False, True):
            context.progress(f"segments of {length}, {'reordered' if reordered else 'by id'}")
            found, read = _layout(samples, cold, params, row, length, reordered)
            if not len(plain):
                plain = read
            saved = 1.0 - read / np.maximum(1, plain)
            shares = np.linspace(0, 1, _QUANTILES + 1)
            layouts.append({**found, "reduction": [float(value) for value in np.quantile(saved, shares)]})
    packed = packed_rows(samples, cold, [1])[1]
    return {
        "layouts": layouts,
        "batches": count,
        "packed_bytes": packed * row,
        "row_bytes": row,
        "feature_bytes": samples.num_nodes * row,
    }


def _layout(
    samples: Sampled, cold: ColdSamples, params: AmplificationParams, row: int, length: int, reordered: bool
) -> tuple[Plain, npt.NDArray[np.float64]]:
    from systems.diskgnn.layout import Shape
    from systems.diskgnn.search import rows_of

    search = searching(samples, cold, params, row, hashes=params.hashes if reordered else 0)
    shape = Shape(length, params.threshold)
    reads = list(search.reads(shape))
    totals = {
        name: sum(getattr(batch, name) for batch in reads)
        for name in ("read_bytes", "useful_bytes", "cache_read_bytes", "cache_useful_bytes")
    }
    found = {
        "segment": length,
        "global": length == len(samples),
        "reordered": reordered,
        "disk_bytes": rows_of(cold, shape, np.zeros(samples.num_nodes, np.int32)) * row,
        **totals,
        "amplification": totals["read_bytes"] / max(1, totals["useful_bytes"]),
        "cache_amplification": totals["cache_read_bytes"] / max(1, totals["cache_useful_bytes"]),
    }
    return found, np.array([batch.read_bytes for batch in reads], dtype=np.float64)
