"""PaGraph's cache: the rows of highest rank in device memory, filled after the first
mini-batch and never changed.

Its size is found from the device memory that the first mini-batch's training leaves
free, minus a reserve (PaGraph, "Cache Initialization" of Section 4); the plan counts
its maximum. On the processor, host memory serves as device memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from systems.engine.cache.static_cache import Lookup
from systems.interface import Tier
from systems.parts.cache import Cache
from systems.parts.kinds.ranked import CACHE, Ranked
from systems.parts.options import wanted_rows
from systems.parts.part import Part
from systems.parts.rows import Ids, Rows
from systems.parts.sizes import Follower, Need, Sizes
from workloads.accelerator import NO_ROWS
from workloads.direct_files import PAGE
from workloads.errors import BudgetError
from workloads.units import format_bytes, parse_bytes

# PaGraph keeps 1 GB of an 11 GB device free for fluctuations of training (Section 4).
_RESERVE_SHARE = 11
_RESERVE_MOST = 1 << 30
_FILL_BYTES = 1 << 20


@dataclass(eq=False)
class StaticDevice(Cache):
    """Static cache on the device.

    Attributes:
        order: rows by their value.
        size: `auto`, a share of the rows such as `0.25x`, or a size such as `32MiB`.
        reserve: device memory that stays free, or `auto`.
        in_order: row i of the path's table is the row of i-th highest score, so that no
            map is needed.
        note: name of the cache in the notes.
    """

    title = "static cache on the device by {order.method}"
    order: Ranked = field(default_factory=Ranked)
    size: str = "auto"
    reserve: str = "auto"
    in_order: bool = False
    note: str = "device_cache"

    def inner(self) -> Sequence[Part]:
        """List the order."""
        return (self.order,)

    @property
    def _tier(self) -> Tier:
        return "host" if self.site.on_host else "device"

    @property
    def _row_bytes(self) -> int:
        return max(1, self.site.table.row_bytes)

    @property
    def reserve_bytes(self) -> int:
        """Bytes of device memory that stay free; 0 where they are unlimited."""
        limit = None if self.site.on_host else self.site.device_limit
        if limit is None:
            return 0
        if self.reserve != "auto":
            return parse_bytes(self.reserve, "reserve")
        return min(_RESERVE_MOST, limit // _RESERVE_SHARE)

    @property
    def nbytes(self) -> int:
        """Bytes planned on the device."""
        assert self.site.sizes is not None
        return self.site.sizes.plan.bytes_of(CACHE, "device")

    def needs(self) -> Sequence[Need | Follower]:
        """List the cache, its map, the buffer that fills it, and the excess of ranking
        over all other buffers."""
        least, best = self._least_and_best()
        cache = Need(
            CACHE,
            least,
            self._tier,
            best=best,
            step=self._row_bytes,
            reserve=self.reserve_bytes,
            share=self._share,
            align=PAGE,
            fix="lower cache or reserve, or raise device memory",
        )
        return [
            cache,
            Follower("cache map", self._map_bytes),
            Follower("cache filling", self._filling_bytes),
            Follower("ranking", self._ranking_bytes),
        ]

    def _least_and_best(self) -> tuple[int, int]:
        table = self.site.table
        row = self._row_bytes
        if self.size == "auto":
            return 0, table.nbytes if self.site.accelerator.keeps_rows else 0
        rows = min(table.num_rows, wanted_rows(self.size, table.num_rows, row))
        if rows and not self.site.accelerator.keeps_rows:
            message = (
                f"{self.site.name}: a device cache of {self.size} needs "
                f"{format_bytes(rows * row)} of a device"
            )
            raise BudgetError(f"{message} that keeps no rows", NO_ROWS)
        return rows * row, rows * row

    def _share(self, left: int) -> int:
        """Return the bytes that the cache may take: on the processor beside its map and
        pages of mapped files."""
        if not self.site.on_host:
            return left // PAGE * PAGE
        buffers = self.site.buffer_bytes
        # Mapped files need page cache: half of what is left.
        room = (left + buffers) // (2 if self.site.maps_rows else 1)
        return room - buffers - 4 * self.site.table.num_rows - PAGE

    def _map_bytes(self, sizes: Sizes) -> int:
        kept = sizes.granted[CACHE] and not self.in_order
        return 4 * self.site.table.num_rows if kept else 0

    def _filling_bytes(self, sizes: Sizes) -> int:
        return 0 if self.site.on_host else min(_FILL_BYTES, sizes.granted[CACHE])

    def _ranking_bytes(self, sizes: Sizes) -> int:
        """Return the excess: ranking runs before the other buffers are allocated."""
        if not sizes.granted[CACHE]:
            return 0
        return max(0, self.order.scratch_bytes - sizes.plan.total("host"))

    def chosen(self) -> dict[str, int | str]:
        """Return the most bytes of the cache, and the reserve."""
        return {"cache": self.site.granted(CACHE), "reserve": self.reserve_bytes}

    def open(self) -> None:
        """Start empty; a cache that was given bytes is filled after the first
        mini-batch."""
        self.capacity = 0
        self.slot_of = None
        self.late = self.site.granted(CACHE) > 0

    def look_up(self, ids: Ids) -> Lookup:
        """Find the cached rows; of rows in order the first ones are cached."""
        if not self.in_order:
            return super().look_up(ids)
        slots = np.where(ids < self.capacity, ids, -1)
        return Lookup(slots, np.flatnonzero(ids >= self.capacity))

    def choose(self) -> Ids:
        """Return as many rows of highest rank as the device memory free now holds,
        ascending."""
        self.late = False
        count = self.site.granted(CACHE) // self._row_bytes
        limit = None if self.site.on_host else self.site.device_limit
        if limit is not None:
            # PaGraph's free memory: without training's peak, which is measured
            # beforehand, and without the tables.
            free = limit - self.site.accelerator.used_bytes
            fitting = (free - self.reserve_bytes) // PAGE * PAGE // self._row_bytes
            count = max(0, min(count, fitting))
        if self.in_order or not count:
            return np.arange(count, dtype=np.int64)
        return np.sort(self.order.first(count))

    def fill(self, chosen: Ids, front: torch.Tensor, rows: Rows) -> None:
        """Gather the rows, piece by piece where they are copied to a device."""
        self.capacity = len(chosen)
        if self.site.on_host:
            rows.gather(chosen, front.numpy())
        else:
            self._fill_device(chosen, front, rows)
        if not self.in_order:
            self.slot_of = np.full(self.site.table.num_rows, -1, dtype=np.int32)
            self.slot_of[chosen] = np.arange(len(chosen), dtype=np.int32)

    def _fill_device(self, chosen: Ids, front: torch.Tensor, rows: Rows) -> None:
        table = self.site.table
        step = max(1, min(len(chosen), _FILL_BYTES // self._row_bytes))
        staging = np.empty((step, table.dim), table.dtype)
        for begin in range(0, len(chosen), step):
            part = chosen[begin : begin + step]
            rows.gather(part, staging)
            filled = torch.from_numpy(staging[: len(part)])
            self.site.accelerator.copy(front[begin : begin + len(part)], filled).wait()

    def facts(self) -> dict[str, Any]:
        """Return the rows cached, and those of the table."""
        return {"cached_rows": self.capacity, "table_rows": self.site.table.num_rows}

    def notes(self) -> dict[str, str]:
        """Return the size of the cache."""
        nbytes = format_bytes(self.capacity * self.site.table.row_bytes)
        return {
            self.note: f"{self.capacity} of {self.site.table.num_rows} rows, {nbytes}"
        }

    def close(self) -> None:
        """Drop the map; the copy frees the rows."""
        self.slot_of = None
