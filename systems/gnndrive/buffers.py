"""Bookkeeping of GNNDrive's feature buffer (Section 4.2, Algorithm 1), and of a staging
buffer that processes share.

The feature buffer knows the slot of each node's row, and its load state. It holds no
features: slot `s` is row `s` of a table that the system allocates, in host or device
memory. An extractor runs, for each mini-batch:

    got = buffer.acquire(nodes)     # blocks until enough slots are free
    read rows nodes[got.load] into table[got.alias[got.load]]
                                    # on an error: buffer.fail(got, error)
    buffer.publish(got.load_slots)  # only once the bytes are in the table
    buffer.wait(got)                # rows that other extractors are loading
    train on table[got.alias]
    buffer.release(nodes)           # or buffer.release_slots(got.alias)

The staging buffer (Section 4.4) is cut into segments of equal size. Each process
reserves a portion, borrows idle segments of others, and copies rows already present
instead of reading them again. An extractor fills a segment with rows, publishes their
ids, copies them to its device and releases the segment; until the segment is taken
again, any process may fetch its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.arrays import Array, as_ids
from workloads.errors import BudgetError, OutcoreError


class BufferClosed(OutcoreError):
    """Error of a call on a buffer that was closed before or during a wait, as by the
    death of a process sharing it."""

    kind = "closed"


class FeatureBufferTimeout(OutcoreError):
    """Error of a wait in which slots were not released, or rows not published, in
    time."""

    kind = "timeout"


class LoaderFailed(OutcoreError):
    """Error of a wait for rows that another extractor failed to load; the message is
    that extractor's error."""

    kind = "io"
    exit_code = 1


@dataclass(eq=False)
class SharedStaging:
    """One process's access to the shared staging buffer. Every method may be called
    from any thread.

    Deadlock-free: a process that waits for a segment holds none, and loans are given
    only while no other waits.

    Attributes:
        party: number of this process, of `parties`.
        portion: segments reserved by each process.
        rows: uint8 [parties * portion * segment_rows * row_bytes] that all processes
            map.
        memory: uint8 [`plan_bytes(...)`] for the bookkeeping, aligned to 64 bytes.
        create: initialise the bookkeeping; other processes attach with False
            afterwards.
        borrow: False keeps every process to its portion.
    """

    party: int
    parties: int
    portion: int
    segment_rows: int
    row_bytes: int
    _: KW_ONLY
    rows: torch.Tensor
    memory: NDArray[np.uint8]
    create: bool
    borrow: bool = True

    def __post_init__(self) -> None:
        self._native = _native.SegmentPool(
            self.parties, self.portion, self.segment_rows, self.memory, self.create
        )
        self._flat = self.rows.numpy()

    @staticmethod
    def plan_bytes(parties: int, portion: int, segment_rows: int) -> int:
        """Return the bytes of the bookkeeping for all processes together."""
        return _native.SegmentPool.bytes(parties, portion, segment_rows)

    def acquire(self, *, wait: bool, borrow: bool = True) -> int | None:
        """Return a free segment, or None if there is none. With `wait`, the caller must
        hold no other segment.

        Raises:
            BufferClosed: the buffer was closed.
        """
        found = self._native.acquire(self.party, borrow and self.borrow, wait)
        if found == -2:
            raise BufferClosed("the staging buffer was closed")
        return None if found < 0 else found

    def release(self, segment: int) -> None:
        """Release a segment to other processes; its rows may still be found, so it must
        not be written any more."""
        self._native.release(self.party, segment)

    @contextmanager
    def part(self) -> Iterator[torch.Tensor]:
        """Yield a segment's bytes (uint8) after waiting for it; the caller must hold no
        other segment."""
        found = self.acquire(wait=True)
        assert found is not None
        nbytes = self.segment_rows * self.row_bytes
        try:
            yield self.rows[found * nbytes : (found + 1) * nbytes]
        finally:
            self.release(found)

    def publish(self, segment: int, nodes: Array) -> None:
        """Publish a segment just filled: row i is that of `nodes[i]` (int64 [n])."""
        self._native.publish(segment, as_ids(nodes))

    def present(self, nodes: Array) -> NDArray[np.int64]:
        """Return the positions of `nodes` (int64 [n]) whose rows lie in some segment at
        this moment."""
        return self._native.present(as_ids(nodes))

    def fetch(self, segment: int, nodes: Array) -> NDArray[np.int64]:
        """Copy the rows of `nodes` (int64 [n]) still in any segment to `segment`;
        return their positions."""
        return self._native.fetch(
            self.party, segment, as_ids(nodes), self._flat, self.row_bytes
        )

    @property
    def borrowed(self) -> int:
        """Segments that this process took beyond its portion."""
        return self._native.counts(self.party)[0]

    @property
    def found(self) -> int:
        """Rows that this process fetched instead of reading them."""
        return self._native.counts(self.party)[1]

    def close(self) -> None:
        """Wake every waiting process; the waits and all later calls raise
        BufferClosed."""
        self._native.close()


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
    """Slots shared by all extractors; every method may be called from any thread, with
    the GIL released.

    A mini-batch gets all its slots at once or waits, first come first served, so
    extractors cannot block one another. With at least `extractors x largest mini-batch`
    slots, no extractor waits for a mini-batch behind it in the training queue; with
    fewer, acquire in the order in which the mini-batches are trained.

    Args:
        num_slots: rows of the table.
        memory: uint8 [at least `plan_bytes(num_slots)`], aligned to 64 bytes, shared by
            processes (`RankGroup.shared`), which then share the buffer, like GNNDrive's
            processes on CPUs.
        create: initialise the buffer in `memory`; other processes attach with False
            afterwards.
    """

    def __init__(
        self,
        num_slots: int,
        *,
        memory: NDArray[np.uint8] | None = None,
        create: bool = True,
    ) -> None:
        if memory is None:
            self._native = _native.FeatureBuffer(num_slots)
        else:
            self._native = _native.FeatureBuffer(num_slots, memory, create)
        self.num_slots = num_slots

    @staticmethod
    def plan_bytes(num_slots: int) -> int:
        """Return the bytes of the bookkeeping for `num_slots` slots; the table itself
        is the caller's."""
        return _native.FeatureBuffer.bytes(num_slots)

    def acquire(self, ids: Array | torch.Tensor, timeout_s: float = -1.0) -> Acquired:
        """Reserve a slot for every node of a mini-batch, referenced once per
        occurrence.

        Blocks until enough slots are free; negative `timeout_s`: without limit.

        Raises:
            BudgetError: the mini-batch has more unique nodes than the buffer has slots.
            FeatureBufferTimeout, BufferClosed: no slots are held then.
        """
        state, needed, alias, load, waiting = self._native.acquire(
            as_ids(ids), timeout_s
        )
        if state == "too_small":
            raise BudgetError(
                f"the feature buffer has {self.num_slots} slots, a mini-batch has "
                f"{needed} nodes",
                "raise the buffer or lower the batch size",
            )
        self._check(
            state,
            f"no {needed} slots of {self.num_slots} became free within {timeout_s} s",
        )
        return Acquired(alias, load, waiting)

    def publish(self, slots: Array | torch.Tensor) -> None:
        """Mark the rows of these slots (of `Acquired.load_slots`) as loaded, and wake
        their waiters."""
        self._native.publish(as_ids(slots))

    def wait(self, acquired: Acquired, timeout_s: float = -1.0) -> None:
        """Wait until other extractors have loaded the rows in `acquired.waiting`.

        Raises:
            LoaderFailed: a loader gave up; the caller still holds its slots and must
                release them.
            FeatureBufferTimeout, BufferClosed: the wait timed out, or the buffer was
                closed.
        """
        if len(acquired.waiting) == 0:
            return
        state, error = self._native.wait(acquired.waiting, timeout_s)
        if state == "failed":
            raise LoaderFailed(f"another extractor could not load a row: {error}")
        self._check(
            state,
            f"{len(acquired.waiting)} rows were not loaded by others within "
            f"{timeout_s} s",
        )

    def fail(
        self, acquired: Acquired | Array | torch.Tensor, error: BaseException | str
    ) -> None:
        """Mark the rows of `Acquired.load` (or of these slots) as failed; their waiters
        raise.

        Rows published before stay valid. The slots must still be released.
        """
        slots = acquired.load_slots if isinstance(acquired, Acquired) else acquired
        self._native.fail(as_ids(slots), str(error))

    def release(self, ids: Array | torch.Tensor) -> None:
        """Release the nodes of a mini-batch; unused slots may then be reused, least
        recently used first."""
        self._native.release(self._native.slots_of(as_ids(ids)))

    def release_slots(self, slots: Array | torch.Tensor) -> None:
        """Release a mini-batch by its slots (`Acquired.alias`), without a look-up of
        the ids."""
        self._native.release(as_ids(slots))

    @property
    def counts(self) -> dict[str, int]:
        """Rows found (`hits`, or `shared` while others load them), to load (`misses`),
        evicted; and unused slots."""
        return {**self._native.counts, "unused": self._native.standby}

    def close(self) -> None:
        """Wake every waiter; the waits and all later calls raise BufferClosed."""
        self._native.close()

    @staticmethod
    def _check(state: str, late: str) -> None:
        if state == "closed":
            raise BufferClosed("the feature buffer was closed")
        if state == "timeout":
            raise FeatureBufferTimeout(late, "see whether mini-batches are released")
