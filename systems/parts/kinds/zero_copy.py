"""Zero-copy: the device reads missing rows from host memory itself, cached rows from
its own.

A mini-batch needs only its node alias list into a table split between the two memories.
Where the device can read beside training, it gathers a mini-batch's rows into a buffer
while the one before is trained, as GraphBolt does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from systems.engine.pipeline import Channel, Pipeline, RowRing
from systems.interface import Batch
from systems.parts.copy import Copy, Load
from systems.parts.device_table import DeviceTable
from systems.parts.kinds.host_rows import HostRows
from systems.parts.sizes import Follower, Need
from workloads.feature_table import SplitTable

_GATHERED_BYTES = 6 << 20
_ALIAS_BYTES = 16  # of a node: its place in the table, and its look-up


@dataclass(eq=False)
class ZeroCopy(Copy):
    """Split tables over the path's cache and its rows in host memory.

    Attributes:
        rows: the path's rows, which the device reads.
        ahead: alias lists made ahead of training; they hold no device memory.
    """

    title = "zero-copy reads by the device"
    near = "device"
    counts_loaded = True
    rows: HostRows = field(default_factory=lambda: HostRows(by_device=True))
    ahead: int = 4
    _ring: RowRing = field(init=False, repr=False)
    _turns: Channel[int] = field(init=False, repr=False)

    @property
    def in_flight(self) -> int:
        """The mini-batches ahead."""
        return self.ahead

    @property
    def _gathers_ahead(self) -> bool:
        return self.site.accelerator.gathers_ahead

    @cached_property
    def _table(self) -> DeviceTable:
        largest = self.site.bounds.max_nodes if self._gathers_ahead else 0
        return DeviceTable(self.site, largest, 0)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers that the device gathers into."""
        return self._table.buffer_bytes

    def needs(self) -> Sequence[Need | Follower]:
        """List alias lists, the memory in which the processor takes rows of a split
        table, and the buffers."""
        alias = _ALIAS_BYTES * (self.ahead + 1) * self.site.bounds.max_nodes
        # The processor reads a split table by copies: a piece at a time to digest it, a
        # whole mini-batch to train.
        whole = self.site.table_bytes if self.site.on_host else 0
        gathered = whole + min(_GATHERED_BYTES, 2 * self.site.table_bytes)
        return [
            Need("alias lists", alias),
            Need("gathered rows", gathered),
            self._table.need(),
        ]

    def front(self, rows: int) -> torch.Tensor:
        """Allocate the device table."""
        return self._table.front(rows)

    def start(self, pipe: Pipeline) -> None:
        """Make all turns and buffers free."""
        self._turns = pipe.filled(range(self.ahead))
        self._ring = RowRing(self._table.buffer_rows)
        pipe.on_stop(self._ring.stop)

    def take(self) -> None:
        """Wait for a turn."""
        self._turns.get()

    def room(self, load: Load) -> None:
        """Return None: no row is copied on the host."""

    def move(self, load: Load) -> Batch:
        """Return the batch on its split table or, where the device gathers ahead, on a
        buffer that is being filled."""
        turns = self._turns
        table = self._split_table()
        alias = self._alias(load)
        if self._gathers_ahead:
            return self._gather_ahead(load, table, alias)
        return Batch(load.sampled, table, alias, on_release=lambda: turns.give_back(0))

    def _split_table(self) -> SplitTable:
        hot = self._table.cached
        host = self.rows.tensor
        # Of reordered rows the first ones are on the device, so an id is its row in the
        # table.
        cold = host[hot:] if self.rows.source.names is not None else host
        return SplitTable(self._table.table[:hot], cold)

    def _alias(self, load: Load) -> torch.Tensor:
        """Return the split table's row of each node."""
        sampled = load.sampled
        hot = self._table.cached
        if sampled.local is not None:
            return torch.from_numpy(sampled.local)
        if not hot:
            return torch.from_numpy(sampled.nodes)
        alias = load.found.slots
        misses = load.found.misses
        alias[misses] = hot + sampled.nodes[misses]
        return torch.from_numpy(alias)

    def _gather_ahead(
        self, load: Load, table: SplitTable, alias: torch.Tensor
    ) -> Batch:
        ring = self._ring
        turns = self._turns
        count = load.sampled.num_nodes
        start = ring.take(count)
        out = self._table.buffer(start, count)
        gathered = self.site.accelerator.gather_ahead(
            out, table, alias, batch=load.sampled.index
        )

        def give_back() -> None:
            gathered.wait()  # also of a mini-batch that is never trained
            ring.give_back(start, count)
            turns.give_back(0)

        return Batch(load.sampled, out, ready=gathered.wait, on_release=give_back)

    def notes(self) -> dict[str, str]:
        """Return how rows reach the device."""
        ahead = ", one mini-batch ahead of training" if self._gathers_ahead else ""
        return {
            "loading": f"cold rows are read by the device itself (zero-copy){ahead}"
        }

    def close(self) -> None:
        """Free the table."""
        self._table.close()
