"""`dgl-ondisk`: DGL's loader, each row read from disk by itself, no cache; a baseline of DiskGNN (Section 5.1)."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field

from systems.engine.dgl import DglSystem, Fetch, SamplerOption
from systems.engine.io.reader import Granularity, ReadStats, RowReader
from systems.engine.io.tally import counters_of
from systems.engine.loading.cached_system import CacheFacts
from systems.engine.loading.gather_loader import torch_dtype
from systems.engine.loading.row_tiers import HostFeatures
from systems.engine.loading.sized import SamplingOptions
from systems.interface import Counters, Forecast, PlanItem, SystemInfo, Trace
from workloads.accelerator import aligned_host_tensor


class DglOnDiskOptions(SamplingOptions, SamplerOption):
    """Options of `dgl-ondisk`."""

    io_depth: int = Field(128, ge=1, le=4096, description="reads in flight")
    io_granularity: Granularity = Field(
        "logical", description="smallest read: the device's logical block, or 4096 as the papers' code has it"
    )


class DglOnDisk(DglSystem):
    """DGL over a memory-mapped graph and rows on disk."""

    info = SystemInfo(
        name="dgl-ondisk",
        paper="diskgnn",
        summary="DGL's loader, each row read from disk, no cache of its own",
        devices=("cpu", "emulated"),
        options=DglOnDiskOptions,
    )
    options: DglOnDiskOptions

    _reader: RowReader | None = None
    _stats = ReadStats()
    _mode = "not prepared"

    @property
    def _reader_arguments(self) -> dict[str, Any]:
        """Arguments of the row reader: rows are read in the order requested, without merging."""
        options = self.options
        return {**self._rows.place, "depth": options.io_depth, "granularity": options.io_granularity, "merge": False}

    def _staging_items(self) -> tuple[PlanItem, ...]:
        most, path = self._bounds.max_nodes, self._rows.path
        reader = RowReader.plan_bytes(**self._reader_arguments, num_ids=most, path=path)
        table = PlanItem("rows read", self._bounds.max_nodes * self._rows.row_bytes)
        return (PlanItem("reader buffers", reader), table)

    def _make_features(self) -> HostFeatures | None:
        return None

    def _prepare_gathering(self) -> None:
        source, most = self._rows, self._bounds.max_nodes
        # One table suffices, since loading waits for training; a new one for each mini-batch would fragment the heap.
        memory = aligned_host_tensor(most * source.row_bytes)
        self._table = memory.view(torch_dtype(source.dtype)).view(most, source.dim)
        self._reader = RowReader(source.path, **self._reader_arguments)
        self._mode = self._reader.mode

    def _begin(self) -> None:
        super()._begin()
        self._stats = ReadStats()

    def _source(self) -> Fetch:
        return self._fetch

    def _fetch(self, ids: torch.Tensor) -> torch.Tensor:
        """Read rows `ids` (int64 [n]) as [n, dim] on the host, each by itself; valid until the next call."""
        assert self._reader is not None
        rows = self._table[: len(ids)]
        self._stats.add(self._reader.read(ids, rows))
        return rows

    def counters(self) -> Counters:
        """Return the base's counts and the reads."""
        cached = super().counters()
        return counters_of(
            self._stats,
            self.options.io_depth if self._reader is not None else 0,
            rows=cached.rows,
            hits=cached.hits,
            misses=cached.misses,
            bytes_loaded=cached.bytes_loaded,
        )

    def close(self) -> None:
        """Close the base and the file, and free the rows."""
        super().close()
        self._close("_reader")
        self._table = torch.empty(0)

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


SYSTEM = DglOnDisk
