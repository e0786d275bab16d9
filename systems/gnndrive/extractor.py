"""Extractors: each reads the missing rows of a mini-batch from disk into the feature buffer's table.

Three kinds, by place of the table and reading of the file: straight into a host table (the paper's CPU variant), over a
bounded staging buffer with asynchronous copies to a device (GPU variant), or over the page cache (`direct=False`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.gather import gather
from systems.engine.io.reader import Group, ReadStats, RowReader
from systems.engine.io.topology import DatasetFiles
from workloads.accelerator import Accelerator, Event

Ids = npt.NDArray[np.int64]
# Lends a staging buffer, uint8, for a `with` block.
Staging = Callable[[], AbstractContextManager[torch.Tensor]]


def as_table(staging: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """View the uint8 buffer as rows of `table`'s dimension and dtype, as many as it holds."""
    row = table.shape[1] * table.element_size()
    rows = staging.nbytes // row
    return staging[: rows * row].view(table.dtype).view(rows, table.shape[1])


class Extractor(ABC):
    """Loader of missing rows, for one thread at a time."""

    mode: str

    @abstractmethod
    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Load rows `nodes` (int64 [m]) into the table's rows `slots`; they are there on return.

        Returns:
            Counts of the reads, and the monotonic time at which the last read completed and only copies were left.
        """

    def close(self) -> None:  # noqa: B027 - some hold nothing
        """Free files and buffers."""


class HostExtractor(Extractor):
    """Extractor that reads into the feature buffer itself; the base of those that read over a staging buffer."""

    def __init__(self, reader: RowReader, table: torch.Tensor) -> None:
        self._reader, self._table, self.mode = reader, table, reader.mode

    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Read all rows in one call."""
        stats = self._reader.read(nodes, self._table, slots)
        return stats, time.monotonic()

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


class StagedExtractor(HostExtractor):
    """Extractor that reads into a staging buffer; each group is copied to the device while later groups are read.

    Args:
        staging: uint8 host buffer (pinned on CUDA), whole rows.
    """

    SLICES = 8  # parts of the staging buffer: one is read into while others are copied to the device

    def __init__(self, reader: RowReader, table: torch.Tensor, staging: torch.Tensor, accelerator: Accelerator) -> None:
        super().__init__(reader, table)
        rows = staging.nbytes // reader.row_bytes
        self._slices = min(self.SLICES, rows)
        self._group_rows = rows // self._slices
        self._staging = staging[: rows * reader.row_bytes]
        self._rows = as_table(self._staging, table)
        self._accelerator = accelerator

    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Read and copy group by group; all copies are complete on return."""
        stats = ReadStats()
        copies: deque[tuple[Event, Group]] = deque()
        groups = self._reader.read_groups(nodes, self._staging, self._group_rows, stats)
        try:
            for group in groups:
                count = len(group.positions)
                source = self._rows[group.start : group.start + count]
                target = torch.from_numpy(slots[group.positions])
                copies.append((self._accelerator.copy(self._table, source, target, batch=batch), group))
                while copies and (copies[0][0].done() or len(copies) == self._slices):
                    self._finish(copies)
            read_at = time.monotonic()
        finally:
            # Also on an error: nothing may still write to the table or read the staging buffer afterwards.
            while copies:
                self._finish(copies)
            groups.close()
        return stats, read_at

    @staticmethod
    def _finish(copies: deque[tuple[Event, Group]]) -> None:
        event, group = copies.popleft()
        event.wait()
        group.release()


class CachedExtractor(Extractor):
    """Extractor through the page cache, with threads that fault rows in parallel; it submits and counts no read."""

    THREADS = 32

    def __init__(
        self,
        features: npt.NDArray[np.generic],
        files: DatasetFiles,
        table: torch.Tensor,
        staging: Staging,
        accelerator: Accelerator,
    ) -> None:
        self._features, self._files, self._table = features, files, table
        self._staging, self._accelerator = staging, accelerator
        self.mode = f"page cache, {self.THREADS} threads"

    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Gather and copy rows, one staging buffer at a time."""
        self._files.check()
        begin = 0
        while begin < len(nodes):
            with self._staging() as buffer:
                rows = as_table(buffer, self._table)
                part = nodes[begin : begin + len(rows)]
                gather(self._features, part, rows, self.THREADS)
                target = torch.from_numpy(slots[begin : begin + len(rows)])
                self._accelerator.copy(self._table, rows[: len(part)], target, batch=batch).wait()
            begin += len(part)
        return ReadStats(rows=len(nodes), unique_rows=len(nodes)), time.monotonic()
