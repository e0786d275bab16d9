"""A table whose rows are handed out as contiguous pieces in turn: as many mini-batches as fit, whatever their sizes."""

from __future__ import annotations

import torch

from systems.engine.loading import device_cache


class RowRing:
    """Ring of pieces of `table` [rows, dim], taken and given back in about the same order.

    Fixed buffers of the largest mini-batch's size would stand half empty; here each mini-batch takes its own size.
    """

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        self._runs = device_cache.RowRing(table.shape[0])
        self.stop = self._runs.stop

    def take(self, rows: int) -> torch.Tensor:
        """Return a piece of `rows` rows after waiting until they are free.

        Raises:
            ValueError: the table is smaller.
            Stopped: the pipeline ended.
        """
        start = self._runs.take(rows)
        return self.table[start : start + rows]

    def give_back(self, piece: torch.Tensor) -> None:
        """Free a piece's rows, once all earlier pieces are given back too. Any thread may call."""
        start = (piece.data_ptr() - self.table.data_ptr()) // max(1, self.table.stride(0) * self.table.element_size())
        self._runs.give_back(start, piece.shape[0])
