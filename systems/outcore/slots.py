"""Slots for feature rows: one table for training, its first slots in device memory, the others in host memory.

The planner assigns slots without regard to where they lie, so device memory serves about its share of the uses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from systems import _native
from systems.engine.cache.changeset import copy_rows
from systems.engine.io.arrays import as_rows
from systems.engine.io.reader import ReadStats, RowReader
from systems.interface import StageClock
from systems.outcore.chunks import Addresses
from systems.outcore.planner import BOUNCE
from workloads.accelerator import Accelerator, Event
from workloads.feature_table import SplitTable, Table

Rows = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]


@dataclass(eq=False)
class Slots:
    """Table of slots for feature rows.

    Attributes:
        count: number of slots.
        first: number of slots in device memory, the first ones; the first slot in host memory.
        threads: threads that copy rows on the host.
        table: table that training reads; row `r` is slot `r`.
    """

    accelerator: Accelerator
    count: int
    first: int
    dim: int
    dtype: torch.dtype
    threads: int
    clock: StageClock

    def __post_init__(self) -> None:
        accelerator, dim, dtype = self.accelerator, self.dim, self.dtype
        self._row = dim * dtype.itemsize
        self._device: torch.Tensor | None = None
        self._bounce: deque[torch.Tensor] = deque()
        self._under_way: deque[Event | None] = deque([None, None])
        self.table: Table
        if accelerator.kind == "cpu":
            self._host = self.table = accelerator.allocate(self.count, dim, dtype)
            return

        def on_host(rows: int) -> torch.Tensor:
            flat = accelerator.host_buffer(-(-rows * self._row // 4096) * 4096)
            return flat[: rows * self._row].view(dtype).view(rows, dim)

        self._host = on_host(self.count - self.first)
        self._device = accelerator.allocate(self.first, dim, dtype)
        self.table = SplitTable(self._device, self._host)
        if self.first:
            self._bounce.extend(on_host(max(1, BOUNCE // self._row)) for _ in range(2))

    def put(self, rows: Rows, to: Ints, batch: int) -> None:
        """Copy `rows` (uint8 [n, row_bytes]) to slots `to`; the caller may overwrite `rows` afterwards."""
        if not self._bounce:
            if len(to):
                copy_rows(rows, np.arange(len(to), dtype=np.int32), as_rows(self._host), to, self.threads)
            return
        host, done = as_rows(self._host), 0
        while done < len(to):
            done, staged = _native.split_rows(rows, to, done, self.first, host, as_rows(self._next()))
            if len(staged):
                self._send(staged, batch)

    def read(self, reader: RowReader, ids: Ids, to: Ints, batch: int) -> ReadStats:
        """Read row `ids[i]` of the feature table into slot `to[i]`."""
        if not self._bounce:
            return reader.read(ids, self._host, to.astype(np.int64))
        stats, there = ReadStats(), to < self.first
        which, at = _chosen(~there, to - self.first)
        if len(which):
            stats.add(reader.read(ids[which], self._host, at.astype(np.int64)))
        which, at = _chosen(there, to)
        step = self._bounce[0].shape[0]
        for first in range(0, len(which), step):
            part = which[first : first + step]
            stats.add(reader.read(ids[part], self._next()[: len(part)]))
            self._send(at[first : first + step].astype(np.int64), batch)
        return stats

    def _next(self) -> torch.Tensor:
        """Return the bounce buffer whose turn it is, once its last copy to the device is complete."""
        last, self._under_way[0] = self._under_way[0], None
        if last is not None:
            last.wait()
        return self._bounce[0]

    def _send(self, at: Ids, batch: int) -> None:
        """Copy the bounce buffer's rows to device slots `at` and switch to the other buffer."""
        assert self._device is not None
        rows = torch.from_numpy(at)
        self._under_way[0] = self.accelerator.copy(self._device, self._bounce[0][: len(at)], rows, batch=batch)
        self._bounce.rotate()
        self._under_way.rotate()

    def wait_for_copies(self, batch: int) -> None:
        """Wait until all copies to the device are complete."""
        if all(event is None for event in self._under_way):
            return
        with self.clock.stage("transfer", batch):
            for turn, event in enumerate(self._under_way):
                if event is not None:
                    event.wait()
                    self._under_way[turn] = None

    def on_device(self, addresses: Addresses) -> int:
        """Count the mini-batch's hits that lie in device memory."""
        if not self.first:
            return 0
        return int(np.count_nonzero(addresses.slots < self.first) - np.count_nonzero(addresses.to < self.first))

    def close(self) -> None:
        """Free the table; host memory that a device reads is freed with its last reference."""
        self.accelerator.free(self._host if self._device is None else self._device)
        self._bounce.clear()


def _chosen(mask: npt.NDArray[np.bool_], values: Ints) -> tuple[Ints, Ints]:
    """Return the positions where `mask` holds, and the values there."""
    which = np.flatnonzero(mask).astype(np.int32)
    return which, values[which]
