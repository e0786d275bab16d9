"""DGL with a file as feature storage: each row of a mini-batch is read by itself (DiskGNN, Section 5.1)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field

from systems.engine.dgl.system import DglSystem, SamplerOption
from systems.engine.io.reader import Granularity, ReadStats, RowReader
from systems.engine.loading.cached_system import CacheFacts
from systems.engine.loading.gather_loader import torch_dtype
from systems.engine.loading.host_features import HostFeatures, RowFile
from systems.engine.loading.sized import SamplingOptions
from systems.interface import Counters, Forecast, PlanItem, SystemInfo, Trace
from workloads.accelerator import aligned_host_tensor


class DglOnDiskOptions(SamplingOptions, SamplerOption):
    """Options of `dgl-ondisk`."""

    io_depth: int = Field(128, ge=1, le=4096, description="reads in flight")
    io_granularity: Granularity = Field(
        "logical", description="smallest read: the device's logical block, or 4096 as the papers' code has it"
    )


def reader_arguments(source: RowFile, options: DglOnDiskOptions) -> dict[str, Any]:
    """Return the arguments of the row reader: rows are read in the order requested, without merging."""
    place = {"data_offset": source.offset, "num_rows": source.num_rows, "row_bytes": source.row_bytes}
    return {**place, "depth": options.io_depth, "granularity": options.io_granularity, "merge": False}


class DiskRows:
    """Rows of a file, each read by itself, at most `most` in one call."""

    def __init__(self, source: RowFile, options: DglOnDiskOptions, most: int) -> None:
        dtype = torch_dtype(source.dtype)
        # One table suffices, since loading waits for training; a new one for each mini-batch would fragment the heap.
        self._table = aligned_host_tensor(most * source.row_bytes).view(dtype).view(most, source.dim)
        self._reader = RowReader(source.path, **reader_arguments(source, options))
        self._stats = ReadStats()
        self.mode = self._reader.mode

    def fetch(self, ids: torch.Tensor) -> torch.Tensor:
        """Read rows `ids` (int64 [n]) as [n, dim] on the host, valid until the next call."""
        rows = self._table[: len(ids)]
        self._stats.add(self._reader.read(ids, rows))
        return rows

    def begin(self) -> None:
        """Reset the counts."""
        self._stats = ReadStats()

    def counts(self, counters: Counters) -> None:
        """Set the epoch's reads in `counters`."""
        stats = self._stats
        counters.io_requests = stats.requests
        counters.bytes_read = stats.bytes_read
        counters.bytes_useful = stats.bytes_useful
        counters.requests_by_size = dict(stats.requests_by_size)
        counters.queue_depth = self._reader.depth

    def close(self) -> None:
        """Close the file and free the rows."""
        self._reader.close()
        self._table = torch.empty(0)


class DglOnDisk(DglSystem):
    """DGL over a memory-mapped graph and rows on disk."""

    info: ClassVar[SystemInfo] = SystemInfo(
        name="dgl-ondisk",
        paper="diskgnn",
        summary="DGL's loader, each row read from disk, no cache of its own",
        devices=("cpu", "emulated"),
        options=DglOnDiskOptions,
    )
    options: DglOnDiskOptions

    _mode = "not prepared"

    def _staging_items(self) -> tuple[PlanItem, ...]:
        reader = RowReader.plan_bytes(
            **reader_arguments(self._rows, self.options), num_ids=self._bounds.max_nodes, path=self._rows.path
        )
        table = PlanItem("rows read", self._bounds.max_nodes * self._rows.row_bytes)
        return (PlanItem("reader buffers", reader), table)

    def _make_features(self) -> HostFeatures | None:
        return None

    def _storage(self, features: HostFeatures | None) -> DiskRows:
        rows = DiskRows(self._rows, self.options, self._bounds.max_nodes)
        self._mode = rows.mode
        return rows

    def facts(self) -> CacheFacts:
        """Return the base's facts and the read mode."""
        return super().facts().model_copy(update={"io": self._mode})

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast a read for every row."""
        reads = trace.read_of(trace.accesses, self.runtime.disk.logical_block_bytes)
        return trace.with_sampling(reads, self.unplanned_bytes(), "reads every row by itself", trace.accesses)

    def notes(self) -> dict[str, str]:
        """Return the base's notes and how rows are read."""
        return {**super().notes(), "features": "each row read from disk"}
