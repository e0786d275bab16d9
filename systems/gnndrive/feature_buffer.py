"""GNNDrive's feature buffer (GNNDrive, Section 4.2, Algorithm 1): the slot of each node's row, and its load state.

It holds no features: slot `s` is row `s` of a table that the system allocates, in host or device memory. An extractor
runs, for each mini-batch:

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
from systems.engine.io.arrays import Array, as_ids
from workloads.errors import BudgetError, OutcoreError


class FeatureBufferClosed(OutcoreError):
    """Error of a call on a buffer that was closed before or during a wait."""

    kind = "closed"


class FeatureBufferTimeout(OutcoreError):
    """Error of a wait in which slots were not released, or rows not published, in time."""

    kind = "timeout"


class LoaderFailed(OutcoreError):
    """Error of a wait for rows that another extractor failed to load; the message is that extractor's error."""

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
        """Slots to load into, int64 [m]."""
        return self.alias[self.load]


class FeatureBuffer:
    """Slots shared by all extractors; every method may be called from any thread, with the GIL released.

    A mini-batch gets all its slots at once or waits, first come first served, so extractors cannot block one another.
    With at least `extractors x largest mini-batch` slots, no extractor waits for a mini-batch behind it in the training
    queue; with fewer, acquire in the order in which the mini-batches are trained.

    Args:
        num_slots: rows of the table.
        memory: uint8 [at least `plan_bytes(num_slots)`], aligned to 64 bytes, shared by processes (`RankGroup.shared`),
            which then share the buffer, like GNNDrive's processes on CPUs.
        create: initialise the buffer in `memory`; other processes attach with False afterwards.
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
        """Return the bytes of the bookkeeping for `num_slots` slots; the table itself is the caller's."""
        return _native.FeatureBuffer.bytes(num_slots)

    def acquire(self, ids: Array | torch.Tensor, timeout_s: float = -1.0) -> Acquired:
        """Reserve a slot for every node of a mini-batch, referenced once per occurrence.

        Blocks until enough slots are free; negative `timeout_s`: without limit.

        Raises:
            BudgetError: the mini-batch has more unique nodes than the buffer has slots.
            FeatureBufferTimeout, FeatureBufferClosed: no slots are held then.
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
        """Mark the rows of these slots (of `Acquired.load_slots`) as loaded, and wake their waiters."""
        self._native.publish(as_ids(slots))

    def wait(self, acquired: Acquired, timeout_s: float = -1.0) -> None:
        """Wait until other extractors have loaded the rows in `acquired.waiting`.

        Raises:
            LoaderFailed: a loader gave up; the caller still holds its slots and must release them.
            FeatureBufferTimeout, FeatureBufferClosed: the wait timed out, or the buffer was closed.
        """
        if len(acquired.waiting) == 0:
            return
        state, error = self._native.wait(acquired.waiting, timeout_s)
        if state == "failed":
            raise LoaderFailed(f"another extractor could not load a row: {error}")
        self._check(state, f"{len(acquired.waiting)} rows were not loaded by others within {timeout_s} s")

    def fail(self, acquired: Acquired | Array | torch.Tensor, error: BaseException | str) -> None:
        """Mark the rows of `Acquired.load` (or of these slots) as failed; their waiters raise.

        Rows published before stay valid. The slots must still be released.
        """
        slots = acquired.load_slots if isinstance(acquired, Acquired) else acquired
        self._native.fail(as_ids(slots), str(error))

    def release(self, ids: Array | torch.Tensor) -> None:
        """Release the nodes of a mini-batch; unused slots may then be reused, least recently used first."""
        self._native.release(self._native.slots_of(as_ids(ids)))

    def release_slots(self, slots: Array | torch.Tensor) -> None:
        """Release a mini-batch by its slots (`Acquired.alias`), without a look-up of the ids."""
        self._native.release(as_ids(slots))

    @property
    def hits(self) -> int:
        """Rows found in the buffer, including rows that another extractor was loading."""
        counts = self._native.counts
        return int(counts["hits"] + counts["shared"])

    @property
    def misses(self) -> int:
        """Rows that callers had to load."""
        return int(self._native.counts["misses"])

    @property
    def evictions(self) -> int:
        """Rows evicted for other nodes."""
        return int(self._native.counts["evictions"])

    @property
    def free_slots(self) -> int:
        """Slots without users (the standby list)."""
        return self._native.standby

    def close(self) -> None:
        """Wake every waiter; the waits and all later calls raise FeatureBufferClosed."""
        self._native.close()

    @staticmethod
    def _check(state: str, late: str) -> None:
        if state == "closed":
            raise FeatureBufferClosed("the feature buffer was closed")
        if state == "timeout":
            raise FeatureBufferTimeout(late, "see whether mini-batches are released")
