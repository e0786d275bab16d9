"""One table in device memory: cache rows in front, behind them the buffers of
mini-batches in flight."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from systems.engine.io.arrays import torch_dtype
from systems.interface import Tier
from systems.parts.part import Site
from systems.parts.sizes import Need

_FIX = "raise device memory, or lower device_buffers, batch size or fan-out"


@dataclass(eq=False)
class DeviceTable:
    """Table into whose rows a mini-batch's node alias list points, so that no
    assembling copy is needed.

    On the processor, host memory serves as device memory.

    Attributes:
        largest: most rows of a mini-batch that need a buffer.
        wanted: buffers of that size; 0: two, or one where two take more than a quarter
            of the device.
        cached: cache rows in front.
        table: [cached + buffer_rows, dim].
    """

    site: Site
    largest: int
    wanted: float
    cached: int = 0
    table: torch.Tensor = field(repr=False, default_factory=lambda: torch.empty(0))

    @property
    def tier(self) -> Tier:
        """Tier of the table."""
        return "host" if self.site.on_host else "device"

    @property
    def buffer_rows(self) -> int:
        """Rows behind the cache."""
        limit = None if self.site.on_host else self.site.device_limit
        two = 2 * self.largest * self.site.table.row_bytes
        fitting = 2 if limit is None or two <= limit / 4 else 1
        return max(self.largest, int(self.largest * (self.wanted or fitting)))

    @property
    def buffer_bytes(self) -> int:
        """Bytes behind the cache."""
        return self.buffer_rows * self.site.table.row_bytes

    def need(self) -> Need:
        """Return the need of the buffers; the cache plans its own rows."""
        return Need("device buffers", self.buffer_bytes, self.tier, fix=_FIX)

    def front(self, rows: int) -> torch.Tensor:
        """Replace the table by one with `rows` cache rows in front; return those,
        [rows, dim]. No thread uses it."""
        self.close()
        source = self.site.table
        total = rows + self.buffer_rows
        self.table = self.site.accelerator.allocate(
            total, source.dim, torch_dtype(source.dtype)
        )
        self.cached = rows
        return self.table[:rows]

    def buffer(self, start: int, count: int) -> torch.Tensor:
        """View `count` rows of the buffers from `start` on, [count, dim]."""
        first = self.cached + start
        return self.table[first : first + count]

    def close(self) -> None:
        """Free the table. May be called more than once."""
        table = self.table
        self.table = torch.empty(0)
        self.cached = 0
        if table.numel():
            self.site.accelerator.free(table)
