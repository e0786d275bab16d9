"""A ring of rows on the device beside a cache: misses are copied there while earlier
mini-batches are trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from systems.engine.io.arrays import torch_dtype
from systems.engine.pipeline import Channel, Pipeline, RowRing
from systems.interface import Batch
from systems.parts.copy import Copy, Load
from systems.parts.device_table import DeviceTable
from systems.parts.sizes import Follower, Need

_ALIAS_BYTES = 16  # of a node: its place in the table, and its look-up


@dataclass(eq=False)
class Ring(Copy):
    """Ring of buffer rows, so that as many mini-batches fit as their own sizes allow.

    Attributes:
        ahead: mini-batches between the start of their loading and the end of their
            training; 1: loading waits for the training of the one before.
        buffers: largest mini-batches that the device holds beside the cache; 0: as many
            as useful.
    """

    title = "ring of rows on the device"
    near = "device"
    counts_loaded = True
    ahead: int = 1
    buffers: float = 1
    _staging: Sequence[torch.Tensor] = field(init=False, repr=False, default=())
    _ring: RowRing = field(init=False, repr=False)
    _turns: Channel[int] = field(init=False, repr=False)
    _free: Channel[torch.Tensor] = field(init=False, repr=False)

    @property
    def in_flight(self) -> int:
        """The mini-batches ahead."""
        return self.ahead

    @cached_property
    def _table(self) -> DeviceTable:
        return DeviceTable(self.site, self._largest, self.buffers)

    @property
    def _lent_table(self) -> bool:
        """Whether the tensor that the rows are lent in is the mini-batch's table: on
        the processor without a cache."""
        return self.site.lends and self.site.on_host and not self.site.cached

    @property
    def _largest(self) -> int:
        return 0 if self._lent_table else self.site.bounds.max_nodes

    @property
    def _stages(self) -> int:
        """Buffers on the host to copy from."""
        return 0 if self.site.on_host or self.site.lends else min(2, self.ahead)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the ring."""
        return self._table.buffer_bytes

    def needs(self) -> Sequence[Need | Follower]:
        """List alias lists, staging buffers and the ring."""
        alias = _ALIAS_BYTES * (self.ahead + 1) * self.site.bounds.max_nodes
        found = [Need("alias lists", alias), self._table.need()]
        if self._stages:
            found.append(Need("staging buffers", self._stages * self.site.table_bytes))
        return found

    def front(self, rows: int) -> torch.Tensor:
        """Allocate the device table, and on the first call the staging buffers."""
        front = self._table.front(rows)
        if not self._staging:
            self._staging = [self._staging_buffer() for _ in range(self._stages)]
        return front

    def _staging_buffer(self) -> torch.Tensor:
        table = self.site.table
        most = self.site.bounds.max_nodes
        memory = self.site.accelerator.host_buffer(self.site.table_bytes)
        return memory.view(torch_dtype(table.dtype)).view(most, table.dim)

    def start(self, pipe: Pipeline) -> None:
        """Make all turns, ring rows and staging buffers free."""
        self._turns = pipe.filled(range(self.ahead))
        self._free = pipe.filled(self._staging)
        self._ring = RowRing(self._table.buffer_rows)
        pipe.on_stop(self._ring.stop)

    def take(self) -> None:
        """Wait for a turn, which the training of an earlier mini-batch gives back."""
        self._turns.get()

    def room(self, load: Load) -> torch.Tensor | None:
        """Return a staging buffer or, on the processor, rows of the ring."""
        count = len(load.found.misses)
        if self.site.lends:
            return None
        if self._staging:
            _, load.place = self._free.get()
            buffer: torch.Tensor = load.place[:count]
            return buffer
        load.start = self._ring.take(count)
        return self._table.buffer(load.start, count)

    def move(self, load: Load) -> Batch:
        """Copy the misses to the ring, and point to them and to the cache's rows."""
        misses = load.found.misses
        table = self._table
        if self._lent_table or (
            self.site.lends and self.site.on_host and not table.cached
        ):
            return Batch(load.sampled, load.rows, on_release=self._release(0, 0))
        if self.site.lends or self._staging:
            load.start = self._copied(load)
        release = self._release(load.start, len(misses))
        if not table.cached:
            return Batch(
                load.sampled, table.buffer(load.start, len(misses)), on_release=release
            )
        alias = load.found.slots
        alias[misses] = table.cached + load.start + np.arange(len(misses))
        return Batch(
            load.sampled, table.table, torch.from_numpy(alias), on_release=release
        )

    def _copied(self, load: Load) -> int:
        """Copy the misses to the device, give their staging buffer back, and return
        their first row in the ring."""
        count = len(load.found.misses)
        index = load.sampled.index
        start = self._ring.take(count)
        assert load.rows is not None
        with self.site.clock.stage("transfer", index):
            self.site.accelerator.copy(
                self._table.buffer(start, count), load.rows, batch=index
            ).wait()
        if load.place is not None:
            self._free.give_back(load.place)
        return start

    def _release(self, start: int, count: int) -> Callable[[], None]:
        """Return the callback that gives a mini-batch's rows and turn back."""
        ring = self._ring
        turns = self._turns

        def give_back() -> None:
            ring.give_back(start, count)
            turns.give_back(0)

        return give_back

    def notes(self) -> dict[str, str]:
        """Return whether loading overlaps training."""
        return {
            "loading": "overlaps training" if self.ahead > 1 else "waits for training"
        }

    def close(self) -> None:
        """Free the table and the staging buffers."""
        self._table.close()
        for buffer in self._staging:
            self.site.accelerator.free_host(buffer)
        self._staging = ()
