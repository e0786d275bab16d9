"""A table for each mini-batch in host memory and, elsewhere than on the processor, one
on the device to copy it to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from systems.engine.io.arrays import gather, torch_dtype
from systems.engine.pipeline import Channel, Pipeline
from systems.interface import Batch
from systems.parts.copy import Copy, Load
from systems.parts.sizes import Follower, Need
from workloads.accelerator import aligned_host_tensor

_DEVICE_FIX = "raise device memory, or lower device_buffers, batch size or fan-out"


@dataclass(frozen=True)
class HostTable:
    """One of a loader's host tables.

    Attributes:
        rows: [rows, dim], to be filled.
        whole: the mini-batch's table: `rows` or, on the processor, the tensor [front +
            …, dim] behind a cache's rows.
        first: row of `whole` at which `rows` begins.
    """

    rows: torch.Tensor
    whole: torch.Tensor
    first: int


@dataclass(eq=False)
class Tables(Copy):
    """Tables of the largest mini-batch's size.

    On the processor a mini-batch's table is the host table or, with a cache, the
    cache's rows and the table behind them. On a device, cache hits are copied in front
    of the misses, and the whole is copied to a device table.

    Attributes:
        host: tables on the host; 0: two on the processor (one trained, one filled),
            else one to copy from.
        device: tables wanted on the device: one trained, the others filled meanwhile;
            fewer where they do not fit.
    """

    title = "a table for each mini-batch"
    host: int = 0
    device: int = 2
    _host: Sequence[HostTable] = field(init=False, repr=False, default=())
    _device: Sequence[torch.Tensor] = field(init=False, repr=False, default=())
    _front: torch.Tensor = field(
        init=False, repr=False, default_factory=lambda: torch.empty(0)
    )
    _free: Channel[HostTable] = field(init=False, repr=False)
    _free_on_device: Channel[torch.Tensor] = field(init=False, repr=False)

    @property
    def in_flight(self) -> int:
        """Sampled mini-batches beside the queue: one waits for a table, one has its
        rows."""
        return 2

    @property
    def moves(self) -> bool:
        """Whether there are device tables."""
        return not self.site.on_host

    @property
    def host_tables(self) -> int:
        """Tables on the host."""
        return self.host or (2 if self.site.on_host else 1)

    @property
    def device_tables(self) -> int:
        """Tables on the device that the budget holds."""
        return self.site.granted("device feature tables") // max(
            1, self.site.table_bytes
        )

    def needs(self) -> Sequence[Need | Follower]:
        """List the tables."""
        one = max(1, self.site.table_bytes)
        found = [Need("feature tables", self.host_tables * one)]
        if not self.site.on_host:
            most = self.device * one
            found.append(
                Need(
                    "device feature tables",
                    one,
                    "device",
                    best=most,
                    step=one,
                    fix=_DEVICE_FIX,
                )
            )
        return found

    def front(self, rows: int) -> torch.Tensor:
        """Allocate the tables, and `rows` cached rows in front of the host's."""
        table = self.site.table
        accelerator = self.site.accelerator
        dtype = torch_dtype(table.dtype)
        most = self.site.bounds.max_nodes
        if rows and self.site.on_host:
            whole = self._host_buffer(rows + self.host_tables * most)
            firsts = [rows + number * most for number in range(self.host_tables)]
            self._host = [
                HostTable(whole[first : first + most], whole, first) for first in firsts
            ]
            self._front = whole[:rows]
            return self._front
        alone = [self._host_buffer(most) for _ in range(self.host_tables)]
        self._host = [HostTable(one, one, 0) for one in alone]
        if not self.site.on_host:
            self._device = [
                accelerator.allocate(most, table.dim, dtype)
                for _ in range(self.device_tables)
            ]
        # A cache that only the processor copies from need not be pinned.
        self._front = (
            aligned_host_tensor(rows * table.row_bytes)
            .view(dtype)
            .view(rows, table.dim)
        )
        return self._front

    def _host_buffer(self, rows: int) -> torch.Tensor:
        table = self.site.table
        memory = self.site.accelerator.host_buffer(rows * table.row_bytes)
        return memory.view(torch_dtype(table.dtype)).view(rows, table.dim)

    def start(self, pipe: Pipeline) -> None:
        """Make all tables free."""
        self._free = pipe.filled(self._host)
        self._free_on_device = pipe.filled(self._device)

    def take(self) -> HostTable:
        """Wait for a host table."""
        _, table = self._free.get()
        return table

    def _gathers_hits(self) -> bool:
        """Return whether cache hits are copied in front of the misses, to be copied to
        the device with them."""
        return bool(self._device) and len(self._front) > 0

    def room(self, load: Load) -> torch.Tensor:
        """Return the part of the host table that the misses go to."""
        misses = len(load.found.misses)
        hits = load.sampled.num_nodes - misses if self._gathers_hits() else 0
        rows: torch.Tensor = load.place.rows[hits : hits + misses]
        return rows

    def settle(self, load: Load) -> None:
        """Copy the hits in front of the misses or point to them in the cache, and make
        the alias list."""
        if not self.site.cached:
            return
        slots = load.found.slots
        misses = load.found.misses
        if self._gathers_hits():
            hits = np.flatnonzero(slots >= 0)
            gather(self._front, slots[hits], load.place.rows[: len(hits)], 1)
            slots[hits] = np.arange(len(hits))
            slots[misses] = np.arange(len(hits), len(slots))
        else:
            slots[misses] = np.arange(load.place.first, load.place.first + len(misses))
        load.alias = torch.from_numpy(slots)

    def move(self, load: Load) -> Batch:
        """Copy a mini-batch's rows to the next free table of the device; on the
        processor, copy nothing."""
        free = self._free
        place = load.place
        if not self._device:
            return Batch(
                load.sampled,
                place.whole,
                load.alias,
                on_release=lambda: free.give_back(place),
            )
        free_on_device = self._free_on_device
        _, table = free_on_device.get()
        index = load.sampled.index
        with self.site.clock.stage("transfer", index):
            rows = place.whole[: load.sampled.num_nodes]
            self.site.accelerator.copy(table, rows, batch=index).wait()
        free.give_back(place)
        return Batch(
            load.sampled,
            table,
            load.alias,
            on_release=lambda: free_on_device.give_back(table),
        )

    def notes(self) -> dict[str, str]:
        """Return the number of tables."""
        return {
            "tables": f"{self.host_tables} on the host, {self.device_tables} on the "
            "device"
        }

    def close(self) -> None:
        """Free the tables."""
        for table in self._device:
            self.site.accelerator.free(table)
        for staging in self._host:
            self.site.accelerator.free_host(staging.whole)
        self._device = ()
        self._host = ()
        self._front = torch.empty(0)
