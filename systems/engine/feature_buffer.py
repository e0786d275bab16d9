"""GNNDrive's feature buffer (GNNDrive, Section 4.2, Algorithm 1): which node is in which slot, and is it there yet.

It holds no features: slot `s` is row `s` of a table that the system allocates, in host or device memory. An extractor
does, for each mini-batch:

    got = buffer.acquire(nodes)                  # blocks until enough slots are free
    read rows nodes[got.load] into table[got.alias[got.load]]      (on an error: buffer.fail(got, error))
    buffer.publish(got.load_slots)               # only once the bytes are in the table
    buffer.wait(got)                             # rows that other extractors are loading
    train on table[got.alias]; then buffer.release(nodes) or buffer.release_slots(got.alias)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from systems import _native
from systems.engine.arrays import Array, as_ids
from workloads.errors import BudgetError, OutcoreError


class FeatureBufferClosed(OutcoreError):
    """The buffer was closed while someone waited on it."""

    kind = "closed"


class FeatureBufferTimeout(OutcoreError):
    """Nobody released slots, or published rows, in the time given."""

    kind = "timeout"


class LoaderFailed(OutcoreError):
    """Another extractor could not load rows that this one waits for; the message is that loader's error."""

    kind = "io"
    exit_code = 1


@dataclass(frozen=True)
class Acquired:
    """A mini-batch's slots.

    Attributes:
        alias: int64 [n], the slot of each node (GNNDrive's node alias list).
        load: int64 [m], positions whose rows the caller must load, each row once.
        waiting: int64 [w], slots that other extractors are loading (the wait list).
    """

    alias: NDArray[np.int64]
    load: NDArray[np.int64]
    waiting: NDArray[np.int64]

    @property
    def load_slots(self) -> NDArray[np.int64]:
        """int64 [m], slots to load into."""
        return self.alias[self.load]


class FeatureBuffer:
    """Slots shared by all extractors; every method may be called from any thread, with the GIL released.

    A mini-batch gets all its slots at once or waits, first come first served, so extractors cannot block one another.
    With at least `extractors x largest mini-batch` slots none waits for a mini-batch behind it in the training queue;
    with fewer, acquire in the order in which the mini-batches are trained.

    Args:
        num_slots: rows of the table.
        memory: uint8 [at least `plan_bytes(num_slots)`], aligned to 64 bytes, that processes share
            (`RankGroup.shared`): the buffer is then that of all, as GNNDrive's processes on CPUs have it.
        create: make the buffer in `memory`; the others attach with False once that is done.
    """

    def __init__(self, num_slots: int, *, memory: NDArray[np.uint8] | None = None, create: bool = True) -> None:
        if memory is None:
            self._native = _native.FeatureBuffer(num_slots)
        else:
            self._native = _native.FeatureBuffer(num_slots, memory, create)
        self.num_slots = num_slots
        #: Bytes of the bookkeeping, proportional to the slots.
        self.nbytes = self.plan_bytes(num_slots)

    @staticmethod
    def plan_bytes(num_slots: int) -> int:
        """Bytes of the bookkeeping for `num_slots` slots; the table itself is the caller's."""
        return _native.FeatureBuffer.bytes(num_slots)

    def acquire(self, ids: Array | torch.Tensor, timeout_s: float = -1.0) -> Acquired:
        """Slots for every node of a mini-batch, each referenced once for each occurrence.

        Blocks until enough slots are free; negative `timeout_s`: for ever.

        Raises:
            BudgetError: the mini-batch has more unique nodes than the buffer has slots.
            FeatureBufferTimeout, FeatureBufferClosed: nothing is held then.
        """
        state, needed, alias, load, waiting = self._native.acquire(as_ids(ids), timeout_s)
        if state == "too_small":
            raise BudgetError(
                f"the feature buffer has {self.num_slots} slots, a mini-batch has {needed} nodes",
                "raise the buffer or lower the batch size",
            )
        self._check(state, f"no {needed} slots of {self.num_slots} became free within {timeout_s} s")
        return Acquired(alias, load, waiting)

    def publish(self, slots: Array | torch.Tensor) -> None:
        """The rows of these slots (of `Acquired.load_slots`) are in the table: wake who waits for them."""
        self._native.publish(as_ids(slots))

    def wait(self, acquired: Acquired, timeout_s: float = -1.0) -> None:
        """Wait until the rows that others are loading are there.

        Raises:
            LoaderFailed: a loader gave up; the caller still holds its slots and must release them.
            FeatureBufferTimeout, FeatureBufferClosed: as named.
        """
        if len(acquired.waiting) == 0:
            return
        state, error = self._native.wait(acquired.waiting, timeout_s)
        if state == "failed":
            raise LoaderFailed(f"another extractor could not load a row: {error}")
        self._check(state, f"{len(acquired.waiting)} rows were not loaded by others within {timeout_s} s")

    def fail(self, acquired: Acquired | Array | torch.Tensor, error: BaseException | str) -> None:
        """The rows of `Acquired.load` (or of these slots) cannot be loaded: who waits for them raises.

        Rows published before stay valid. The slots must still be released.
        """
        slots = acquired.load_slots if isinstance(acquired, Acquired) else acquired
        self._native.fail(as_ids(slots), str(error))

    def release(self, ids: Array | torch.Tensor) -> None:
        """Give back the nodes of a mini-batch; slots without users may then be reused, least recently used first."""
        self._native.release(self._native.slots_of(as_ids(ids)))

    def release_slots(self, slots: Array | torch.Tensor) -> None:
        """`release` by slots (`Acquired.alias`): no look-up of the ids."""
        self._native.release(as_ids(slots))

    @property
    def hits(self) -> int:
        """Rows found in the buffer, those in loading by another extractor included."""
        counts = self._native.counts
        return counts["hits"] + counts["shared"]

    @property
    def misses(self) -> int:
        """Rows that callers had to load."""
        return self._native.counts["misses"]

    @property
    def evictions(self) -> int:
        """Rows thrown out to make room."""
        return self._native.counts["evictions"]

    @property
    def free_slots(self) -> int:
        """Slots that nobody uses now (the standby list)."""
        return self._native.standby

    def close(self) -> None:
        """Wake every waiter; all of them, and later calls, raise FeatureBufferClosed."""
        self._native.close()

    @staticmethod
    def _check(state: str, late: str) -> None:
        if state == "closed":
            raise FeatureBufferClosed("the feature buffer was closed")
        if state == "timeout":
            raise FeatureBufferTimeout(late, "see whether mini-batches are released")
