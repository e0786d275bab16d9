"""A table whose rows are handed out as contiguous pieces in turn: as many mini-batches as fit, whatever their sizes."""

from __future__ import annotations

import threading
from collections import deque

import torch

from systems.engine.pipeline import Stopped


class RowRing:
    """Ring of pieces of `table` [rows, dim], taken and given back in the same order.

    Fixed buffers of the largest mini-batch's size would stand half empty; here each mini-batch takes its own size.
    """

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        self._rows = table.shape[0]
        self._changed = threading.Condition()
        self._held: deque[list[int]] = deque()  # start, rows, whether given back
        self._stopped = False

    def take(self, rows: int) -> torch.Tensor:
        """Return a piece of `rows` rows after waiting until they are free; one thread at a time.

        Raises:
            ValueError: the table is smaller.
            Stopped: the pipeline ended meanwhile.
        """
        if rows > self._rows:
            raise ValueError(f"{rows} rows are asked for, the table has {self._rows}")
        with self._changed:
            while (start := self._room(rows)) < 0:
                if self._stopped:
                    raise Stopped
                self._changed.wait()
            self._held.append([start, rows, 0])
            return self.table[start : start + rows]

    def _room(self, rows: int) -> int:
        if not self._held:
            return 0
        oldest, newest = self._held[0][0], self._held[-1][0] + self._held[-1][1]
        if self._held[-1][0] >= oldest:  # taken rows do not wrap around
            if newest + rows <= self._rows:
                return newest
            return 0 if rows <= oldest else -1
        return newest if newest + rows <= oldest else -1

    def give_back(self, piece: torch.Tensor) -> None:
        """Free a piece's rows, once all earlier pieces are given back too. Any thread may call."""
        start = (piece.data_ptr() - self.table.data_ptr()) // max(1, self.table.stride(0) * self.table.element_size())
        with self._changed:
            for entry in self._held:
                if entry[0] == start and entry[1] == piece.shape[0] and not entry[2]:
                    entry[2] = 1
                    break
            while self._held and self._held[0][2]:
                self._held.popleft()
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake waiting threads; `take` raises `Stopped` where it would wait."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
