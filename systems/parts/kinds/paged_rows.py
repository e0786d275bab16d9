"""Rows read from disk as whole pages, into a cache of pages in host memory whose policy
a subclass writes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from systems import _native
from systems.engine.io.arrays import as_rows, torch_dtype
from systems.engine.io.reader import ReadStats
from systems.parts.kinds.direct_rows import DirectRows
from systems.parts.rows import Ids
from systems.parts.sizes import Follower, Need
from workloads.accelerator import aligned_host_tensor
from workloads.sampling.batch import SampledBatch

_PAGES = "cached pages"
# of a page: its slot; of a slot: its page; of a row of a mini-batch: page, slot and
# place, twice while they are converted
_ID_BYTES = 8
_LOOK_UP_BYTES = 96


@dataclass(eq=False)
class PagedRows(DirectRows):
    """Direct reads of pages, each of `rows_per_page` neighbouring rows.

    A mini-batch's missing pages get the slots that `victims` returns; rows of a page
    without a slot are read by themselves. One mini-batch is read at a time, so that
    counters are exact: the path's copy has one extractor.

    Attributes:
        rows_per_page: rows of a page.
        num_pages: pages of the table.
        slot_of: int64 [num_pages + 1], slot of each page, -1 if it has none.
        page_in: int64 [slots], page in each slot, `num_pages` if it is empty.
    """

    title = "direct reads of pages of {rows_per_page} rows, cached in host memory"
    rows_per_page: int = 8
    slot_of: Ids = field(init=False, repr=False)
    page_in: Ids = field(init=False, repr=False)
    _found: int = field(init=False, repr=False, default=0)
    _cache: torch.Tensor = field(
        init=False, repr=False, default_factory=lambda: torch.empty(0)
    )

    @abstractmethod
    def victims(self, wanted: int) -> Ids:
        """Return up to `wanted` slots, int64, that the missing pages of the present
        mini-batch may take; none of a page that it uses."""

    @property
    def num_pages(self) -> int:
        """Pages of the table; the last may have fewer rows."""
        return -(-self.site.table.num_rows // self.rows_per_page)

    @property
    def found(self) -> int:
        """Rows of the epoch whose page was in memory."""
        return self._found

    def pages_of(self, ids: Ids) -> Ids:
        """Return the pages of rows `ids`, int64, ascending, each once."""
        return np.unique(ids // self.rows_per_page)

    def needs(self) -> Sequence[Need | Follower]:
        """List the reader, the maps of pages and slots, look-ups, and the pages."""
        page_bytes = self.rows_per_page * self.site.table.row_bytes
        maps = 2 * _ID_BYTES * (self.num_pages + 1)
        look_ups = _LOOK_UP_BYTES * self.site.bounds.max_nodes
        return [
            *super().needs(),
            Need("page maps", maps),
            Need("page look-ups", look_ups),
            Need(_PAGES, page_bytes, best=self.num_pages * page_bytes, step=page_bytes),
        ]

    def open(self) -> None:
        """Open the reader and start with empty slots."""
        super().open()
        table = self.site.table
        slots = self.site.granted(_PAGES) // (self.rows_per_page * table.row_bytes)
        rows = slots * self.rows_per_page
        memory = aligned_host_tensor(rows * table.row_bytes)
        self._cache = memory.view(torch_dtype(table.dtype)).view(rows, table.dim)
        self.slot_of = np.full(self.num_pages + 1, -1)
        self.page_in = np.full(slots, self.num_pages)

    def begin(self, epoch: int) -> None:
        """Restart the count."""
        self._found = 0

    def read(
        self, sampled: SampledBatch, ids: Ids, out: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ReadStats | None]:
        """Read the missing pages, then copy the rows from their pages."""
        assert out is not None
        pages = ids // self.rows_per_page
        in_memory = self.slot_of[pages] >= 0
        missing = np.unique(pages[~in_memory])
        slots = self.victims(len(missing))
        stats = self._load(missing[: len(slots)], slots)
        slot = self.slot_of[pages]
        cached = np.flatnonzero(slot >= 0)
        alone = np.flatnonzero(slot < 0)
        rows = slot * self.rows_per_page + ids % self.rows_per_page
        self._copy(rows[cached], out, cached)
        single = self.read_places(ids[alone], out, alone)
        stats.add(single or ReadStats())
        num_found = int(in_memory.sum())
        # Of a page, only the rows of the mini-batch are useful.
        stats.bytes_useful = (len(ids) - num_found) * self.site.table.row_bytes
        self._found += num_found
        return out, stats

    def _load(self, pages: Ids, slots: Ids) -> ReadStats:
        """Read pages into slots, as many at a time as the reader has buffers for."""
        stats = ReadStats()
        self.slot_of[self.page_in[slots]] = -1
        self.page_in[slots] = self.num_pages
        step = max(1, self.site.bounds.max_nodes // self.rows_per_page)
        for begin in range(0, len(pages), step):
            rows = self._rows_of(pages[begin : begin + step])
            places = self._rows_of(slots[begin : begin + step])
            exists = rows < self.site.table.num_rows
            read = self.read_places(rows[exists], self._cache, places[exists])
            stats.add(read or ReadStats())
        self.slot_of[pages] = slots
        self.page_in[slots] = pages
        return stats

    def _rows_of(self, pages: Ids) -> Ids:
        """Return the rows of pages, in their order, int64."""
        first = pages * self.rows_per_page
        return np.add.outer(first, np.arange(self.rows_per_page)).ravel()

    def _copy(self, rows: Ids, out: torch.Tensor, places: Ids) -> None:
        if len(rows):
            _native.scatter(
                as_rows(self._cache),
                rows.astype(np.int32),
                as_rows(out),
                places.astype(np.int32),
                self.site.runtime.cores,
            )

    def close(self) -> None:
        """Close the files and free the pages."""
        super().close()
        self._cache = torch.empty(0)
