"""Rows behind a memory map, gathered by many more threads than cores, whose page faults
keep the disk busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.arrays import gather, order_bytes
from systems.engine.io.faults import FaultMeter
from systems.engine.io.reader import ReadStats
from systems.forecast import PAGE, Forecast, Trace
from systems.parts.kinds.host_rows import mapped_table
from systems.parts.rows import Ids, Rows
from systems.parts.sizes import Follower, Need
from workloads.sampling.batch import SampledBatch

# A thread that sleeps in a page fault: 16 KiB of kernel stack, two pages of its own,
# its page tables.
_THREAD_BYTES = 32 << 10
_MOST_THREADS = 128
_BUDGET_SHARE = 16


@dataclass(eq=False)
class MappedRows(Rows):
    """Rows that the page cache keeps or drops as the kernel decides.

    Attributes:
        threads: threads that gather one mini-batch, each with one page fault under way;
            0: 128, or as many as a sixteenth of the budget holds, at least twice the
            cores.
        read_ahead: leave the kernel's read-ahead on.
        meter: meter of page faults, which the sample of the path restarts and reports.
    """

    title = "rows behind a memory map"
    threads: int = 0
    read_ahead: bool = False
    meter: FaultMeter = field(default_factory=FaultMeter)
    _array: npt.NDArray[Any] | None = field(init=False, repr=False, default=None)

    @property
    def mapped(self) -> bool:
        """True."""
        return True

    @property
    def tier(self) -> str:
        """The page cache's."""
        return "page_cache"

    @property
    def queue_depth(self) -> int:
        """The threads, each of which waits for one page."""
        if self.threads:
            return self.threads
        host = self.site.budget.host
        fitting = (
            _MOST_THREADS if host is None else host // _BUDGET_SHARE // _THREAD_BYTES
        )
        return min(_MOST_THREADS, max(2 * self.site.runtime.cores, fitting))

    def needs(self) -> Sequence[Need | Follower]:
        """List the threads' memory."""
        nbytes = self.queue_depth * _THREAD_BYTES + order_bytes(
            self.site.bounds.max_nodes
        )
        return [Need("threads that gather", nbytes)]

    def open(self) -> None:
        """Map the rows. Raises DataIOError where the file is missing or shorter than
        its rows."""
        self.site.table.check()
        self._array = mapped_table(self.site.table, read_ahead=self.read_ahead)

    def read(
        self, sampled: SampledBatch, ids: Ids, out: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ReadStats | None]:
        """Gather the rows, and count their page faults."""
        assert out is not None
        self.gather(ids, out.numpy())
        self.meter.extracted(len(ids))
        return out, None

    def gather(self, ids: Ids, out: npt.NDArray[np.generic]) -> None:
        """Copy rows to `out`. Raises DataIOError where the file was truncated."""
        assert self._array is not None
        self.site.table.check()
        gather(self._array, ids, out, self.queue_depth)

    def forecast(
        self, trace: Trace, cached_bytes: int, page_cache_bytes: int
    ) -> Forecast:
        """Forecast the pages of graph and rows that the page cache misses."""
        pages = trace.mapped_pages(page_cache_bytes)
        rows = trace.accesses
        return Forecast(
            {PAGE: pages}, f"{pages / max(1, rows):.2f} page reads for each row", rows
        )

    def facts(self) -> dict[str, Any]:
        """Return the read mode."""
        read_ahead = "on" if self.read_ahead else "off"
        return {
            "io": f"memory map, {self.queue_depth} threads, read-ahead {read_ahead}"
        }

    def close(self) -> None:
        """Drop the map."""
        self._array = None
