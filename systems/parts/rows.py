"""The interface of rows: how the rows that no cache holds are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.reader import ReadStats
from systems.engine.io.row_reads import RowTable
from systems.forecast import Forecast, Reads, Trace
from systems.parts.part import Part
from systems.parts.source import Source
from workloads.sampling.batch import SampledBatch

Ids = npt.NDArray[np.int64]


@dataclass(eq=False)
class Rows(Part):
    """Rows of a path's mini-batches, in a file, in host memory or behind a memory map.

    Attributes:
        source: file of the rows: the feature table unless preparation makes another.
        lends: whether `read` returns memory of the part's own instead of filling the
            caller's.
        assembles: whether `assemble` has to be called before each `read`.
        reads: whether `read` has anything to do; False where the device reads the rows
            itself.
        reads_places: whether `read_places` is supported, which caches that change need.
    """

    source: Source = field(default_factory=Source)
    lends: ClassVar[bool] = False
    assembles: ClassVar[bool] = False
    reads_places: ClassVar[bool] = False
    reads: bool = field(init=False, default=True)

    @property
    def table(self) -> RowTable:
        """The table that holds the rows."""
        return self.source.table

    @property
    def tier(self) -> str:
        """Tier of the rows in `Counters.hits`; empty: they are read from disk, and
        count as misses."""
        return ""

    @property
    def found(self) -> int:
        """Rows of the epoch that the part found in host memory of its own; they count
        as hits."""
        return 0

    @property
    def mapped(self) -> bool:
        """Whether the rows come through a memory map."""
        return False

    @property
    def queue_depth(self) -> int:
        """Reads kept in flight, for `Counters`; 0 where the part submits none."""
        return 0

    def inner(self) -> Sequence[Part]:
        """List the source of the rows."""
        return (self.source,)

    def start(self, first: int, seeds: Sequence[Ids]) -> None:
        """Get ready to read for mini-batches `first` and on, with these seed nodes; no
        thread reads meanwhile."""

    def coming(self, sampled: SampledBatch) -> None:
        """Look at a mini-batch as it enters the path's window, in the order of the
        mini-batches and before any mini-batch behind it is read."""

    def assemble(self, sampled: SampledBatch, ids: Ids) -> None:
        """Convert a mini-batch for the read that follows; timed as the stage
        `assemble`."""

    @abstractmethod
    def read(
        self, sampled: SampledBatch, ids: Ids, out: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ReadStats | None]:
        """Read rows `ids` (int64 [m]) for a mini-batch; timed as the stage `extract`.

        Args:
            out: host memory [m, dim] to be filled; None where the part lends its own.

        Returns:
            the rows [m, dim], valid until the next call of this thread where they are
            lent, and the counts of the reads that the part submitted.

        Raises:
            DataIOError: the file is damaged or its device failed; names path and
                offset.
        """

    def read_places(self, ids: Ids, out: torch.Tensor, places: Ids) -> ReadStats | None:
        """Read rows `ids` (int64 [m]) to the rows `places` (int64 [m]) of `out`, host
        memory; errors as of `read`."""
        raise NotImplementedError(
            f"{type(self).__name__} reads whole mini-batches only"
        )

    @abstractmethod
    def gather(self, ids: Ids, out: npt.NDArray[np.generic]) -> None:
        """Copy rows `ids` (int64 [n]) to the first rows of `out` [>= n, dim], to fill a
        cache."""

    def reads_of(self, trace: Trace, missed: float) -> Reads:
        """Return the reads of `missed` rows, each by itself."""
        return trace.read_of(missed, self.site.runtime.disk.logical_block_bytes)

    def forecast(
        self, trace: Trace, cached_bytes: int, page_cache_bytes: int
    ) -> Forecast | None:
        """Forecast the reads of a trace; None: there is no forecast.

        Args:
            cached_bytes: bytes of the path's cache.
            page_cache_bytes: bytes that the page cache may use: those planned for it,
                and those that no buffer takes.
        """
        return None
