"""A staging buffer for all processes of a run (GNNDrive, Section 4.4), cut into segments of equal size.

Each process reserves a portion, borrows idle segments of others, and copies rows already present instead of reading
them again. An extractor fills a segment with rows, publishes their ids, copies them to its device and releases the
segment; until the segment is taken again, any process may fetch its rows.
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
from workloads.errors import OutcoreError


class StagingClosed(OutcoreError):
    """Error of a process that needs a segment after the buffer was closed or a process sharing it died."""

    kind = "closed"


@dataclass(eq=False)
class SharedStaging:
    """One process's access to the shared staging buffer. Every method may be called from any thread.

    Deadlock-free: a process that waits for a segment holds none, and loans are given only while no other waits.

    Attributes:
        party: number of this process, of `parties`.
        portion: segments reserved by each process.
        rows: uint8 [parties * portion * segment_rows * row_bytes] that all processes map.
        memory: uint8 [`plan_bytes(...)`] for the bookkeeping, aligned to 64 bytes.
        create: initialise the bookkeeping; other processes attach with False afterwards.
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
        self._native = _native.SegmentPool(self.parties, self.portion, self.segment_rows, self.memory, self.create)
        self._flat = self.rows.numpy()

    @staticmethod
    def plan_bytes(parties: int, portion: int, segment_rows: int) -> int:
        """Return the bytes of the bookkeeping for all processes together."""
        return _native.SegmentPool.bytes(parties, portion, segment_rows)

    def acquire(self, *, wait: bool, borrow: bool = True) -> int | None:
        """Return a free segment, or None if there is none. With `wait`, the caller must hold no other segment.

        Raises:
            StagingClosed: the buffer was closed.
        """
        found = self._native.acquire(self.party, borrow and self.borrow, wait)
        if found == -2:
            raise StagingClosed("the staging buffer was closed")
        return None if found < 0 else found

    def release(self, segment: int) -> None:
        """Release a segment to other processes; its rows may still be found, so it must not be written any more."""
        self._native.release(self.party, segment)

    @contextmanager
    def part(self) -> Iterator[torch.Tensor]:
        """Yield a segment's bytes (uint8) after waiting for it; the caller must hold no other segment."""
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
        """Return the positions of `nodes` (int64 [n]) whose rows lie in some segment at this moment."""
        return self._native.present(as_ids(nodes))

    def fetch(self, segment: int, nodes: Array) -> NDArray[np.int64]:
        """Copy the rows of `nodes` (int64 [n]) still in any segment to `segment`; return their positions."""
        return self._native.fetch(self.party, segment, as_ids(nodes), self._flat, self.row_bytes)

    @property
    def borrowed(self) -> int:
        """Segments that this process took beyond its portion."""
        return self._native.counts(self.party)[0]

    @property
    def found(self) -> int:
        """Rows that this process fetched instead of reading them."""
        return self._native.counts(self.party)[1]

    def close(self) -> None:
        """Wake every waiting process; the waits and all later calls raise StagingClosed."""
        self._native.close()
