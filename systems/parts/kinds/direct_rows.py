"""Rows read from disk by direct I/O: several mini-batches beside each other, or each
row by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.arrays import torch_dtype
from systems.engine.io.reader import Granularity, ReadStats, RowReader
from systems.engine.io.row_reads import (
    ReaderPool,
    RowReadOptions,
    feature_reader,
    feature_reader_bytes,
)
from systems.forecast import PAGE, Forecast, Reads, Trace, sequential
from systems.parts.rows import Ids, Rows
from systems.parts.sizes import Follower, Need
from workloads.accelerator import aligned_host_tensor
from workloads.sampling.batch import SampledBatch

_WORKING_BYTES = 40  # hits, misses and aliases of one node


@dataclass(eq=False)
class DirectRows(Rows):
    """Direct reads through a pool of readers, so that the disk's queue never runs empty
    between two mini-batches.

    Attributes:
        options: how rows are read.
        readers: mini-batches read beside each other.
        wave: reads submitted together and all awaited before the next ones; 0: the
            queue is kept full.
    """

    title = "direct reads"
    reads_places = True
    options: RowReadOptions = field(kw_only=True)
    readers: int = 1
    wave: int = 0
    _pool: ReaderPool[RowReader] | None = field(init=False, repr=False, default=None)
    _mode: str = field(init=False, repr=False, default="not prepared")

    @property
    def queue_depth(self) -> int:
        """Reads in flight of all readers."""
        return self.options.io_depth * self.readers

    def needs(self) -> Sequence[Need | Follower]:
        """List the readers' buffers, and the look-ups of their mini-batches."""
        most = self.site.bounds.max_nodes
        reader = feature_reader_bytes(self.site.workload, self.options, most)
        return [Need("reader buffers", self.readers * (reader + _WORKING_BYTES * most))]

    def open(self) -> None:
        """Open the readers. Raises DataIOError where the file cannot be opened."""
        workload = self.site.workload
        self._pool = ReaderPool(
            lambda: feature_reader(workload, self.options), self.readers
        )
        self._mode = self._pool.mode

    def read(
        self, sampled: SampledBatch, ids: Ids, out: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ReadStats | None]:
        """Read the rows on an idle reader."""
        assert self._pool is not None
        assert out is not None
        if not len(ids):
            return out, None
        with self._pool.borrow() as reader:
            return out, reader.read(ids, out)

    def read_places(self, ids: Ids, out: torch.Tensor, places: Ids) -> ReadStats | None:
        """Read the rows on an idle reader, in waves if the part has them."""
        assert self._pool is not None
        stats = ReadStats()
        step = self.wave or max(1, len(ids))
        with self._pool.borrow() as reader:
            for begin in range(0, len(ids), step):
                end = begin + step
                stats.add(reader.read(ids[begin:end], out, places[begin:end]))
        return stats

    def gather(self, ids: Ids, out: npt.NDArray[np.generic]) -> None:
        """Read rows to `out`."""
        assert self._pool is not None
        with self._pool.borrow() as reader:
            reader.read(ids, out)

    def reads_of(self, trace: Trace, missed: float) -> Reads:
        """Return the reads of `missed` rows in the blocks of the option."""
        if self.options.io_granularity == "4096":
            return trace.read_of(missed, PAGE)
        return super().reads_of(trace, missed)

    def forecast(
        self, trace: Trace, cached_bytes: int, page_cache_bytes: int
    ) -> Forecast:
        """Forecast the misses of a cache of the most accessed rows; other lists come
        through pages."""
        held = trace.hottest(cached_bytes // trace.row_bytes)
        missed = trace.missed(held)
        reads = self.reads_of(trace, missed)
        why = f"caches {trace.hit_rate(missed)} of the accesses"
        found = trace.with_sampling(reads, page_cache_bytes, why, trace.accesses)
        return replace(
            found, prepare_reads=sequential(int(held.sum()) * trace.row_bytes)
        )

    def facts(self) -> dict[str, Any]:
        """Return the read mode."""
        return {"io": f"{self._mode}, {self.readers} extractors"}

    def close(self) -> None:
        """Close the files."""
        pool = self._pool
        self._pool = None
        if pool is not None:
            pool.close()


@dataclass(eq=False)
class SingleRows(Rows):
    """Each row read by itself, in the order of the mini-batch, into one table that the
    next read overwrites.

    Attributes:
        depth: reads in flight.
        granularity: smallest read.
    """

    title = "direct reads, each row by itself"
    depth: int = 128
    granularity: Granularity = "logical"
    _reader: RowReader | None = field(init=False, repr=False, default=None)
    _rows: torch.Tensor = field(
        init=False, repr=False, default_factory=lambda: torch.empty(0)
    )
    _mode: str = field(init=False, repr=False, default="not prepared")

    @property
    def queue_depth(self) -> int:
        """Reads in flight."""
        return self.depth

    @property
    def _arguments(self) -> dict[str, Any]:
        how = {"depth": self.depth, "granularity": self.granularity, "merge": False}
        return {**self.site.table.place, **how}

    def needs(self) -> Sequence[Need | Follower]:
        """List the reader's buffers and the table."""
        path = self.site.table.path
        reader = RowReader.plan_bytes(
            **self._arguments, num_ids=self.site.bounds.max_nodes, path=path
        )
        return [
            Need("reader buffers", reader),
            Need("rows read", self.site.table_bytes),
        ]

    def open(self) -> None:
        """Open the reader. Raises DataIOError where the file cannot be opened."""
        table = self.site.table
        most = self.site.bounds.max_nodes
        table.check()
        # One table for all mini-batches: a new one for each would fragment the heap.
        memory = aligned_host_tensor(most * table.row_bytes)
        self._rows = memory.view(torch_dtype(table.dtype)).view(most, table.dim)
        self._reader = RowReader(table.path, **self._arguments)
        self._mode = self._reader.mode

    def read(
        self, sampled: SampledBatch, ids: Ids, out: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ReadStats | None]:
        """Read the rows into the part's own table."""
        return self.read_ids(ids)

    def read_ids(self, ids: Ids) -> tuple[torch.Tensor, ReadStats]:
        """Read rows `ids` (int64 [n]); the table [n, dim] is valid until the next
        call."""
        assert self._reader is not None
        rows = self._rows[: len(ids)]
        return rows, self._reader.read(ids, rows)

    def gather(self, ids: Ids, out: npt.NDArray[np.generic]) -> None:
        """Read rows to `out`."""
        assert self._reader is not None
        self._reader.read(ids, out)

    def forecast(
        self, trace: Trace, cached_bytes: int, page_cache_bytes: int
    ) -> Forecast:
        """Forecast a read for every row."""
        reads = trace.read_of(
            trace.accesses, self.site.runtime.disk.logical_block_bytes
        )
        return trace.with_sampling(
            reads, page_cache_bytes, "reads every row by itself", trace.accesses
        )

    def facts(self) -> dict[str, Any]:
        """Return the read mode."""
        return {"io": self._mode}

    def notes(self) -> dict[str, str]:
        """Return how rows are read."""
        return {"features": "each row read from disk"}

    def close(self) -> None:
        """Close the file and free the table."""
        reader = self._reader
        self._reader = None
        if reader is not None:
            reader.close()
        self._rows = torch.empty(0)
