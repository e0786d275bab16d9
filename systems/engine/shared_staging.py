"""A staging buffer for all processes of a run (GNNDrive, Section 4.4): each reserves a portion of it, borrows what
others leave idle, and takes rows that lie there already instead of reading them again.

The buffer is cut into segments of equal size. An extractor fills a segment with rows, publishes which, copies them to
its device and releases the segment; until someone takes it, its rows may be fetched by any process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from systems import _native
from systems.engine.arrays import Array, as_ids
from workloads.errors import OutcoreError


class StagingClosed(OutcoreError):
    """The staging buffer was closed, or a process that shared it died, while this one needed a segment."""

    kind = "closed"


class SharedStaging:
    """One process's access to the staging buffer of all. Every method may be called from any thread.

    Nobody can be blocked for ever: whoever waits for a segment holds none, and a loan is only given while no other
    process waits.

    Args:
        party: this process, and
        parties: how many there are.
        portion: segments that each of them reserves.
        segment_rows: rows of a segment.
        row_bytes: bytes of a row.
        rows: uint8 [parties * portion * segment_rows * row_bytes] that all processes map, and
        memory: uint8 [`plan_bytes(...)`] for the bookkeeping, aligned to 64 bytes.
        create: make the bookkeeping; the others attach with False once that is done.
        borrow: False keeps every process to its portion.
    """

    def __init__(
        self,
        party: int,
        parties: int,
        portion: int,
        segment_rows: int,
        row_bytes: int,
        *,
        rows: torch.Tensor,
        memory: NDArray[np.uint8],
        create: bool,
        borrow: bool = True,
    ) -> None:
        self._native = _native.SegmentPool(parties, portion, segment_rows, memory, create)
        self._party = party
        self._borrow = borrow
        self.portion = portion
        self.segment_rows = segment_rows
        self.row_bytes = row_bytes
        #: All segments' rows, uint8.
        self.rows = rows
        self._flat = rows.numpy()

    @staticmethod
    def plan_bytes(parties: int, portion: int, segment_rows: int) -> int:
        """Bytes of the bookkeeping for all processes together."""
        return _native.SegmentPool.bytes(parties, portion, segment_rows)

    def acquire(self, *, wait: bool, borrow: bool = True) -> int | None:
        """A segment, or None where none is to be had now. Whoever waits must hold no other.

        Raises:
            StagingClosed: as named.
        """
        found = self._native.acquire(self._party, borrow and self._borrow, wait)
        if found == -2:
            raise StagingClosed("the staging buffer was closed")
        return None if found < 0 else found

    def release(self, segment: int) -> None:
        """Others may take it; until then its rows may be found, so nothing may be written to it any more."""
        self._native.release(self._party, segment)

    @contextmanager
    def part(self) -> Iterator[torch.Tensor]:
        """A segment's bytes (uint8) for the body, which waits for it and holds no other."""
        found = self.acquire(wait=True)
        assert found is not None
        nbytes = self.segment_rows * self.row_bytes
        try:
            yield self.rows[found * nbytes : (found + 1) * nbytes]
        finally:
            self.release(found)

    def publish(self, segment: int, nodes: Array) -> None:
        """Row i of a segment just filled is that of `nodes[i]` (int64 [n])."""
        self._native.publish(segment, as_ids(nodes))

    def present(self, nodes: Array) -> NDArray[np.int64]:
        """Positions of those of `nodes` (int64 [n]) whose rows lie in some segment at this moment."""
        return self._native.present(as_ids(nodes))

    def fetch(self, segment: int, nodes: Array) -> NDArray[np.int64]:
        """Copy rows of `nodes` (int64 [n]) that still lie somewhere to the first rows of `segment`; their positions."""
        return self._native.fetch(self._party, segment, as_ids(nodes), self._flat, self.row_bytes)

    @property
    def borrowed(self) -> int:
        """Segments that this process took beyond its portion."""
        return self._native.counts(self._party)[0]

    @property
    def found(self) -> int:
        """Rows that this process fetched instead of reading them."""
        return self._native.counts(self._party)[1]

    def close(self) -> None:
        """Wake every process that waits; all of them, and later calls, raise StagingClosed."""
        self._native.close()
