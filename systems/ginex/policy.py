"""Policies of the feature cache: Belady's changesets, or PaGraph's static ranking (`ginex-pg`).

A policy chooses the rows that fill the cache before a superbatch's main loop and, for each mini-batch, the hits, their
slots and the misses that enter. Rows still in memory from the superbatch before are not read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.cache.changeset import Changeset, ChangesetPlan
from systems.engine.rank.ranking import out_degrees, top
from systems.forecast import Trace, misses
from systems.ginex.superbatch import Superbatch
from workloads.sampling.batch import SampledBatch
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]
Stop = Callable[[], bool]
_PIECE = 1 << 16
_RANKING_BUFFERS = 4 << 20
_NONE = np.empty(0, dtype=np.int32)
#: Rows to read into the cache: nodes, ascending, and their slots.
Piece = tuple[Ids, npt.NDArray[np.int32]]


@dataclass
class Belady:
    """Belady's policy: changesets precomputed from the whole superbatch.

    Attributes:
        capacity: rows of the feature cache.
        kept: rows that stay between superbatches, the first ones.
        prefill: whether the cache is filled before the main loop.
    """

    workload: Workload
    capacity: int
    kept: int
    prefill: bool

    def __post_init__(self) -> None:
        self._there = np.empty(0, dtype=np.uint32)

    def inspect(self, superbatch: Superbatch, threads: int, stop: Stop) -> None:
        """Plan in three passes over the superbatch's ids; write initial cache and changesets to its runtime files."""
        plan = ChangesetPlan(
            superbatch.nodes,
            superbatch.sizes,
            num_nodes=self.workload.dataset.num_nodes,
            capacity=self.capacity,
            threads=threads,
            resident=self._there,
            prefill=self.prefill,
        )
        plan.look_ahead(stop)
        found = superbatch.planned

        def initial() -> Any:
            for nodes, slots in plan.initial():
                found.filled += len(nodes)
                yield nodes, slots

        superbatch.write_initial(initial())
        found.kept = plan.filled - found.filled

        def noted() -> Any:
            for change in plan.changesets(stop):
                found.misses += len(change.slots) - change.hits
                found.evictions += change.evictions
                yield change

        superbatch.write_changes(noted())
        self._there = plan.contents(self.kept)

    def pieces(self, superbatch: Superbatch) -> list[Callable[[], Piece]]:
        """Return the planned pieces of the rows used first, without rows still in memory."""
        return [
            lambda piece=piece: superbatch.initial_rows(piece)  # type: ignore[misc]
            for piece in range(superbatch.initial_pieces)
        ]

    def forget(self) -> None:
        """Forget the rows in the slots, so that every row is read anew."""
        self._there = self._there[:0]

    def changeset(self, superbatch: Superbatch, i: int, sampled: SampledBatch) -> Changeset:
        """Read the planned changeset from the runtime file."""
        return superbatch.changeset(i)


class Static:
    """Static policy: the rows of highest out-degree for every superbatch; no row enters or leaves."""

    def __init__(self, workload: Workload, capacity: int, kept: int, prefill: bool) -> None:
        self._kept, self._filled = kept, False  # always filled before the main loop
        # Ranked by out-degrees, streaming `indices` once; slots follow the ids, so that rows are read in order.
        num_nodes = workload.dataset.num_nodes
        chosen = top(out_degrees(workload, 4 * num_nodes + _RANKING_BUFFERS), capacity)
        self._slot_of = np.full(num_nodes, -1, dtype=np.int32)
        self._slot_of[np.sort(chosen)] = np.arange(len(chosen), dtype=np.int32)

    def pieces(self, superbatch: Superbatch) -> list[Callable[[], Piece]]:
        """Return pieces of the same rows for every superbatch, without the rows that stayed."""
        slot_of, kept = self._slot_of, self._kept if self._filled else 0
        cached = int(np.count_nonzero(slot_of >= 0))
        superbatch.planned.kept = min(kept, cached)
        superbatch.planned.filled = cached - superbatch.planned.kept
        self._filled = True
        found = []
        for begin in range(0, len(slot_of), _PIECE):
            if int(slot_of[begin : begin + _PIECE].max()) >= kept:
                found.append(lambda begin=begin: self._cached(begin, kept))
        return found  # type: ignore[return-value]

    def _cached(self, begin: int, kept: int) -> Piece:
        slots = self._slot_of[begin : begin + _PIECE]
        wanted = np.flatnonzero(slots >= kept)
        return begin + wanted, slots[wanted]

    def forget(self) -> None:
        """Forget the rows in the slots, so that every row is read anew."""
        self._filled = False

    def inspect(self, superbatch: Superbatch, threads: int, stop: Stop) -> None:
        """Count the superbatch's misses; there is nothing else to plan."""
        for i in range(len(superbatch)):
            if stop():
                raise InterruptedError("counting misses was stopped")
            superbatch.planned.misses += int(np.count_nonzero(self._slot_of[superbatch.nodes(i)] < 0))

    def changeset(self, superbatch: Superbatch, i: int, sampled: SampledBatch) -> Changeset:
        """Look the slots up in the node -> slot map."""
        slots = self._slot_of[sampled.nodes]
        return Changeset(slots, _NONE, _NONE, int(np.count_nonzero(slots >= 0)))


Policy = Belady | Static


def superbatch_misses(trace: Trace, superbatch: int, capacity: int) -> int:
    """Forecast the rows read over superbatches of a trace, which may cross epochs; fills of the cache count."""
    nodes, counted = trace.workload.dataset.num_nodes, trace.counted
    step = max(1, superbatch)
    cold = 0
    for begin in range(0, len(counted), step):
        part = counted[begin : begin + step]
        cold += misses("belady", [*[part[0][:0]] * len(part), *part], nodes, capacity)
    if step <= len(counted):
        return cold
    # A superbatch longer than the sample has a warm cache whose fill is shared by its `step` mini-batches. Slots stay
    # empty where they do not repay their fill, so smaller caches are tried too.
    rows = min(capacity, nodes)
    warmed = [trace.row_misses("belady", used) + used * len(counted) / step for used in (rows, rows // 2, rows // 4)]
    return round(min(cold, *warmed))
