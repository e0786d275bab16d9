"""What a workload touches, whatever the system: unique rows and topology pages, and the fewest misses a cache can have.

The trace is the mini-batches themselves, sampled again outside the cap; nothing here is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import EpochDigest, structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

PAGE_BYTES = 4096
# Above so many row accesses a trace is not kept (8 bytes each): the distance to the limit is then unknown.
MAX_ACCESSES = 400_000_000


@dataclass(frozen=True)
class Trace:
    """The row accesses of a run.

    Attributes:
        batches: node ids (int64) of every batch, epochs one after the other.
        epochs: (epoch, first batch, one past the last batch).
        unique_rows: by epoch.
        topology_pages: pages of the `indices` file touched, by epoch: exact for neighbour lists within two pages, an
            upper bound (at most the draws) for longer ones.
        digests: structure digest by epoch, as every faithful system must report it.
    """

    batches: list[npt.NDArray[np.int64]]
    epochs: list[tuple[int, int, int]]
    unique_rows: dict[int, int] = field(default_factory=dict)
    topology_pages: dict[int, int] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)


class _PagesTouched:
    """Counts distinct pages of the `indices` file in one epoch."""

    def __init__(self, indptr: npt.NDArray[np.int64], item_bytes: int, num_nodes: int) -> None:
        self.indptr = indptr
        self.item_bytes = item_bytes
        self.pages = np.zeros(int(indptr[-1]) * item_bytes // PAGE_BYTES + 2, dtype=bool)
        self.long_draws: dict[int, int] = {}

    def add(self, batch: SampledBatch) -> None:
        for block in batch.blocks:
            nodes = batch.nodes[: block.num_dst]
            start, end = self.indptr[nodes], self.indptr[nodes + 1]
            some = end > start
            first = start[some] * self.item_bytes // PAGE_BYTES
            last = (end[some] * self.item_bytes - 1) // PAGE_BYTES
            short = last - first <= 1
            self.pages[first[short]] = True
            self.pages[last[short]] = True
            draws = np.diff(block.indptr)[some][~short]
            for node, count in zip(nodes[some][~short].tolist(), draws.tolist(), strict=True):
                self.long_draws[node] = self.long_draws.get(node, 0) + count

    def total(self) -> int:
        long_pages = 0
        for node, draws in self.long_draws.items():
            span = (int(self.indptr[node + 1]) - int(self.indptr[node])) * self.item_bytes
            long_pages += min(draws, span // PAGE_BYTES + 1)
        return int(self.pages.sum()) + long_pages


def trace_workload(workload: Workload, epochs: int, *, threads: int = 1) -> Trace | None:
    """Sample every batch of `epochs` epochs again, those of all ranks step by step. None where it would not fit in
    memory."""
    ranks = [replace(workload, rank=rank) for rank in range(workload.world)]
    plans = [make_seed_plan(rank) for rank in ranks]
    indptr = workload.dataset.load("indptr")
    samplers = [make_sampler(rank, indptr=indptr, threads=threads) for rank in ranks]
    trace = Trace([], [])
    accesses = 0
    for epoch in range(epochs):
        begin = len(trace.batches)
        touched = _PagesTouched(indptr, workload.dataset.index_dtype.itemsize, workload.dataset.num_nodes)
        seen = np.zeros(workload.dataset.num_nodes, dtype=bool)
        digest = EpochDigest()
        steps = enumerate(zip(*(plan.batches(epoch) for plan in plans), strict=True))
        for index, rank, seeds in ((index, rank, seeds) for index, step in steps for rank, seeds in enumerate(step)):
            batch = samplers[rank].sample(epoch, index, seeds)
            touched.add(batch)
            digest.add(structure_digest(batch))
            seen[batch.nodes] = True
            trace.batches.append(batch.nodes)
            accesses += batch.num_nodes
            if accesses > MAX_ACCESSES:
                return None
        trace.epochs.append((epoch, begin, len(trace.batches)))
        trace.unique_rows[epoch] = int(seen.sum())
        trace.topology_pages[epoch] = touched.total()
        trace.digests[epoch] = digest.hexdigest()
    return trace


_LAST: dict[tuple[object, ...], Trace | None] = {}


def trace_of(workload: Workload, epochs: int) -> Trace | None:
    """`trace_workload`, kept for the workload asked for last: the runs of a series share one."""
    place = (workload.rank, workload.world, workload.partition)
    key = (workload.dataset.fingerprint, workload.sampler, workload.seed, *place, epochs)
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = trace_workload(workload, epochs)
    return _LAST[key]


def belady_misses(batches: Sequence[npt.NDArray[np.int64]], capacity: int) -> list[int]:
    """Misses of each batch under Belady's replacement at batch granularity, with bypass, from an empty cache.

    After each batch the cache keeps, of what it held and what the batch brought, the `capacity` rows used again
    soonest (Belady 1966; Ginex section 3.3). Rows are unique within a batch.
    """
    if not batches:
        return []
    rows = np.concatenate(batches)
    owner = np.repeat(np.arange(len(batches), dtype=np.int64), [len(batch) for batch in batches])
    never = len(batches)
    order = np.argsort(rows, kind="stable")
    following = np.full(len(rows), never, dtype=np.int64)
    same = rows[order][1:] == rows[order][:-1]
    following[order[:-1][same]] = owner[order[1:][same]]

    cached = np.zeros(int(rows.max()) + 1 if len(rows) else 1, dtype=bool)
    kept = np.empty(0, dtype=np.int64)
    kept_next = np.empty(0, dtype=np.int64)
    misses: list[int] = []
    position = 0
    for batch in batches:
        upcoming = following[position : position + len(batch)]
        position += len(batch)
        misses.append(int(len(batch) - cached[batch].sum()))
        cached[kept] = False
        cached[batch] = True
        fresh = ~cached[kept]
        cached[batch] = False
        candidates = np.concatenate([kept[fresh], batch])
        nexts = np.concatenate([kept_next[fresh], upcoming])
        again = nexts < never
        candidates, nexts = candidates[again], nexts[again]
        if len(candidates) > capacity:
            soonest = np.argpartition(nexts, capacity - 1)[:capacity] if capacity > 0 else np.empty(0, dtype=np.int64)
            candidates, nexts = candidates[soonest], nexts[soonest]
        kept, kept_next = candidates, nexts
        cached[kept] = True
    return misses
