"""DiskGNN's planning on sampled mini-batches in memory, for the studies of its evaluation: nothing is packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from harness.studies.base import StudyContext, WorkloadParams, sample_all
from workloads.errors import InputError

if TYPE_CHECKING:
    from systems.diskgnn.layout import ColdSamples
    from systems.diskgnn.ranking import AccessCounts, Ids
    from systems.diskgnn.search import Search

#: Most node ids held in memory, 4 bytes each, so that a small host's memory suffices.
MAX_ACCESSES = 1_500_000_000
_THREADS = 2


class PlanningParams(WorkloadParams):
    """Parameters of a study of DiskGNN's layout.

    Attributes:
        row_bytes: bytes of a feature row; 0: the dataset's own.
        granularity: bytes of the smallest read (4096 as in the paper, or the device's logical block).
        hashes: number of MinHash functions that order a disk cache.
    """

    row_bytes: int = Field(default=0, ge=0)
    granularity: int = Field(default=4096, ge=512, le=4096)
    hashes: int = Field(default=2, ge=0, le=16)


@dataclass
class Sampled:
    """Unique node ids (uint32) of each mini-batch of a workload, with its nodes, its seed and bytes of a row."""

    batches: list[npt.NDArray[np.uint32]]
    num_nodes: int
    seed: int
    row_bytes: int

    def __len__(self) -> int:
        return len(self.batches)

    def nodes(self, i: int, /) -> Ids:
        """Return the node ids of mini-batch `i`, int64."""
        return self.batches[i].astype(np.int64)

    @property
    def accesses(self) -> int:
        """Feature rows accessed over all mini-batches."""
        return sum(len(batch) for batch in self.batches)

    @cached_property
    def _counter(self) -> AccessCounts:
        from systems.diskgnn.ranking import AccessCounts

        counter = AccessCounts(self.num_nodes)
        for number in range(len(self)):
            counter.add(self.nodes(number))
        return counter

    def counts(self) -> npt.NDArray[np.int32]:
        """Count the mini-batches that ask for each node, int32 [N]."""
        return self._counter.counts

    def hottest(self, rows: int) -> Ids:
        """Return up to `rows` nodes, most accesses first (Section 4)."""
        return self._counter.hottest(rows)

    def cold(self, share: float) -> ColdSamples:
        """Return the mini-batches without the hottest rows, a `share` of all nodes, which are held in memory."""
        from systems.diskgnn.layout import ColdSamples
        from systems.diskgnn.ranking import slots_of

        return ColdSamples(self, slots_of(self.hottest(round(share * self.num_nodes)), self.num_nodes))


_LAST: dict[Any, Sampled] = {}


def sampled(params: WorkloadParams, context: StudyContext) -> Sampled:
    """Sample all mini-batches of the study's workload as in a run; keep those of the last workload.

    Raises:
        InputError: the mini-batches make more than `MAX_ACCESSES` accesses.
    """
    from workloads.sampling.make import make_seed_plan

    workload, epochs = context.workload(params), params.epochs
    dataset = workload.dataset
    key = (dataset.fingerprint, workload.sampler, workload.model.layers, workload.seed, epochs)
    if key in _LAST:
        return _LAST[key]
    _LAST.clear()
    context.progress(f"sampling {epochs} epoch(s) of {dataset.name}, fan-out {workload.sampler.fanout}")
    count = epochs * make_seed_plan(workload).num_batches
    batches: list[npt.NDArray[np.uint32]] = []
    for *_, batch in sample_all(workload, epochs, threads=_THREADS):
        if not batches and batch.num_nodes * count > MAX_ACCESSES:
            about = f"about {batch.num_nodes * count} row accesses"
            raise InputError(f"{about} are more than the {MAX_ACCESSES} that are held", "set max_batches")
        batches.append(batch.nodes.astype(np.uint32))
    row_bytes = dataset.dim * dataset.feature_dtype.itemsize
    _LAST[key] = Sampled(batches, dataset.num_nodes, workload.seed, row_bytes)
    return _LAST[key]


def searching(
    samples: Sampled,
    cold: ColdSamples,
    params: PlanningParams,
    row_bytes: int,
    *,
    limit: int | None = None,
    hashes: int | None = None,
) -> Search:
    """Return DiskGNN's search over these mini-batches; the limit is on bytes of feature rows alone (Eq. 2).

    Args:
        samples, cold: mini-batches, and the same without rows held in memory.
        limit: bytes on disk; None: no limit.
        hashes: number of MinHash functions; None: that of `params`.
    """
    from systems.diskgnn.minhash import simulate_reads
    from systems.diskgnn.ranking import by_node
    from systems.diskgnn.search import Search, Space
    from systems.engine.io.reader import ReadStats

    def simulate(rows: Ids) -> ReadStats:
        return simulate_reads(rows, row_bytes=row_bytes, num_rows=1 << 40, logical_bytes=params.granularity)

    return Search(
        cold,
        Space(row_bytes, 0, limit),
        by_node(samples.num_nodes),
        simulate=simulate,
        hashes=params.hashes if hashes is None else hashes,
        seed=samples.seed,
        max_segment=len(samples),
    )


def packed_rows(samples: Sampled, cold: ColdSamples, lengths: Sequence[int]) -> dict[int, int]:
    """Count the rows on disk for each segment length, with threshold 2 (length 1: packed chunks alone)."""
    from systems.diskgnn.ranking import by_node
    from systems.diskgnn.search import rows_by_segment

    rows = rows_by_segment(cold, by_node(samples.num_nodes))
    return {length: int(rows[min(length, len(samples))]) for length in lengths}
