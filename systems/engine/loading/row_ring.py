"""Rings of buffer rows, handed out as contiguous runs in turn: as many mini-batches as fit, whatever their sizes.

Fixed buffers of the largest mini-batch's size would stand half empty; here each mini-batch takes its own size.
"""

from __future__ import annotations

from collections import deque

import torch

from systems.engine.loading.pipeline import Stoppable


class RowRing(Stoppable):
    """Ring of buffer rows, handed out as contiguous runs that return in about the same order.

    A run of the ring's full length is granted once all others have returned, so every `take` succeeds in the end.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._runs: deque[list[int]] = deque()  # [start, count, still held], oldest first

    def take(self, count: int) -> int:
        """Return the first of `count` rows after waiting until they are free.

        Raises:
            ValueError: the ring has fewer rows.
            Stopped: the pipeline ended.
        """
        if count > self._capacity:
            raise ValueError(f"{count} rows of a ring of {self._capacity}")
        with self._changed:
            self._wait(lambda: self._place(count) is not None)
            start = self._place(count)
            assert start is not None
            if count:
                self._runs.append([start, count, 1])
            return start

    def _place(self, count: int) -> int | None:
        if not self._runs:
            return 0
        first, (start, length, _) = self._runs[0][0], self._runs[-1]
        end = start + length
        if start >= first:
            # The held rows are contiguous: free rows lie after them up to the end, and before them from the start.
            return end if end + count <= self._capacity else 0 if count <= first else None
        return end if end + count <= first else None

    def give_back(self, start: int, count: int) -> None:
        """Free a run obtained from `take`."""
        if not count:
            return
        with self._changed:
            next(run for run in self._runs if run == [start, count, 1])[2] = 0
            while self._runs and not self._runs[0][2]:
                self._runs.popleft()
            self._changed.notify_all()


class TableRing(RowRing):
    """Ring of pieces of `table` [rows, dim]."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__(table.shape[0])
        self.table = table

    def take_piece(self, rows: int) -> torch.Tensor:
        """Return a piece of `rows` rows; waits and raises as `take`."""
        start = self.take(rows)
        return self.table[start : start + rows]

    def give_back_piece(self, piece: torch.Tensor) -> None:
        """Free a piece's rows, once all earlier pieces are given back too. Any thread may call."""
        start = (piece.data_ptr() - self.table.data_ptr()) // max(1, self.table.stride(0) * self.table.element_size())
        self.give_back(start, piece.shape[0])
