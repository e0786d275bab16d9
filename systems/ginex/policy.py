"""What the feature cache holds: Belady's changesets, or PaGraph's static ranking (`ginex-pg`).

A policy fills the cache before a superbatch's main loop and says for each mini-batch which rows hit, in which slots,
and which of the others enter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.changeset import Changeset, ChangesetPlan
from systems.engine.ranking import out_degrees, top
from systems.ginex.superbatch import Superbatch
from workloads.sampling.batch import SampledBatch
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]
Stop = Callable[[], bool]
_PIECE = 1 << 16
_RANKING_BUFFERS = 4 << 20
_NONE = np.empty(0, dtype=np.int32)


class Policy(ABC):
    """Decides for the feature cache of `capacity` rows."""

    def __init__(self, workload: Workload, capacity: int, prefill: bool) -> None:
        self.workload = workload
        self.capacity = capacity
        self.prefill = prefill

    def inspect(self, superbatch: Superbatch, threads: int, stop: Stop) -> None:  # noqa: B027 - a static one need not
        """Plan for a sampled superbatch."""

    @abstractmethod
    def pieces(self, superbatch: Superbatch) -> list[tuple[int, Callable[[], Ids]]]:
        """What to fill the cache with: (first slot, nodes, ascending) of each piece, read when asked for."""

    @abstractmethod
    def changeset(self, superbatch: Superbatch, i: int, sampled: SampledBatch) -> Changeset:
        """Hits and updates of the superbatch's `i`-th mini-batch."""


class Belady(Policy):
    """Changesets, precomputed from the whole superbatch."""

    def inspect(self, superbatch: Superbatch, threads: int, stop: Stop) -> None:
        """Three passes over the superbatch's ids; initial cache and changesets go to its runtime files."""
        plan = ChangesetPlan(
            superbatch.nodes, superbatch.sizes, num_nodes=self.workload.dataset.num_nodes, capacity=self.capacity,
            threads=threads, prefill=self.prefill,
        )  # fmt: skip
        plan.look_ahead(stop)
        superbatch.write_initial(plan.initial())
        found = superbatch.planned
        found.filled = plan.filled

        def noted() -> Any:
            for change in plan.changesets(stop):
                found.misses += len(change.slots) - change.hits
                found.evictions += change.evictions
                yield change

        superbatch.write_changes(noted())

    def pieces(self, superbatch: Superbatch) -> list[tuple[int, Callable[[], Ids]]]:
        """The rows used first, as planned."""
        return [
            (slot, lambda piece=piece: superbatch.initial_nodes(piece))  # type: ignore[misc]
            for piece, (slot, _) in enumerate(superbatch.initial())
        ]

    def changeset(self, superbatch: Superbatch, i: int, sampled: SampledBatch) -> Changeset:
        """As planned, from the runtime file."""
        return superbatch.changeset(i)


class Static(Policy):
    """The rows of highest out-degree, for every superbatch; nothing enters or leaves."""

    _slot_of: npt.NDArray[np.int32] | None = None

    @staticmethod
    def ranking_bytes(num_nodes: int) -> int:
        """Bytes that finding the ranking takes."""
        return 16 * num_nodes + _RANKING_BUFFERS

    def rank(self) -> None:
        """Count the out-degrees by streaming `indices` once; slots follow the ids, so that rows are read in order."""
        num_nodes = self.workload.dataset.num_nodes
        chosen = top(out_degrees(self.workload, 4 * num_nodes + _RANKING_BUFFERS), self.capacity)
        self._slot_of = np.full(num_nodes, -1, dtype=np.int32)
        self._slot_of[np.sort(chosen)] = np.arange(len(chosen), dtype=np.int32)

    def pieces(self, superbatch: Superbatch) -> list[tuple[int, Callable[[], Ids]]]:
        """The same rows for every superbatch."""
        slot_of = self._ranked
        superbatch.planned.filled = 0
        found = []
        for begin in range(0, len(slot_of), _PIECE):
            nodes = begin + np.flatnonzero(slot_of[begin : begin + _PIECE] >= 0)
            if len(nodes):
                found.append((int(slot_of[nodes[0]]), lambda begin=begin: self._cached(begin)))
                superbatch.planned.filled += len(nodes)
        return found  # type: ignore[return-value]

    def _cached(self, begin: int) -> Ids:
        return begin + np.flatnonzero(self._ranked[begin : begin + _PIECE] >= 0)

    @property
    def _ranked(self) -> npt.NDArray[np.int32]:
        if self._slot_of is None:
            self.rank()
        assert self._slot_of is not None
        return self._slot_of

    def inspect(self, superbatch: Superbatch, threads: int, stop: Stop) -> None:
        """Nothing to plan, but what will be read is known here as well."""
        for i in range(len(superbatch)):
            if stop():
                raise InterruptedError("counting misses was stopped")
            superbatch.planned.misses += int(np.count_nonzero(self._ranked[superbatch.nodes(i)] < 0))

    def changeset(self, superbatch: Superbatch, i: int, sampled: SampledBatch) -> Changeset:
        """A look-up in the node -> slot map."""
        slots = self._ranked[sampled.nodes]
        return Changeset(slots, _NONE, _NONE, int(np.count_nonzero(slots >= 0)))
