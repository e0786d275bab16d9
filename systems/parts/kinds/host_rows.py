"""Rows in host memory or behind a memory map: gathered by many threads, or read by the
device itself (zero-copy)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.arrays import gather, torch_dtype
from systems.engine.io.memory import madvise
from systems.engine.io.reader import ReadStats
from systems.engine.io.row_reads import RowTable
from systems.forecast import Forecast, Trace
from systems.parts.options import HostStore
from systems.parts.rows import Ids, Rows
from systems.parts.sizes import Follower, Need
from workloads.errors import require
from workloads.sampling.batch import SampledBatch

_TOUCH_BYTES = 1 << 20


@dataclass(eq=False)
class HostRows(Rows):
    """Rows loaded whole, as in the papers' in-memory systems, or mapped without
    read-ahead.

    Loaded rows are anonymous memory, so that under a cap that is too small the kernel
    ends the run, which is the right outcome. Mapped rows come through the page cache,
    so that a table larger than memory runs too. Ranks of a run share one copy of loaded
    rows.

    Attributes:
        store: `memory` or `mapped`.
        threads: threads that gather one mini-batch; 0: the cores, or twice as many
            where mapped.
        by_device: the device reads the rows itself; they are pinned if it needs that.
    """

    title = "host rows ({store})"
    store: HostStore = "memory"
    threads: int = 0
    by_device: bool = False
    _array: npt.NDArray[Any] | None = field(init=False, repr=False, default=None)
    _touched: npt.NDArray[Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.reads = not self.by_device or self.mapped

    @property
    def mapped(self) -> bool:
        """Whether the rows come through a memory map."""
        return self.store == "mapped"

    @property
    def tier(self) -> str:
        """`host`, or `page_cache` where the kernel decides."""
        return "page_cache" if self.mapped else "host"

    @property
    def _gatherers(self) -> int:
        cores = self.site.runtime.cores
        return self.threads or (2 * cores if self.mapped else cores)

    @property
    def array(self) -> npt.NDArray[Any]:
        """The rows, [N, dim]."""
        assert self._array is not None
        return self._array

    @property
    def tensor(self) -> torch.Tensor:
        """Tensor over the rows' memory, [N, dim], never to be written to."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of read-only maps
            return torch.from_numpy(self.array)

    def needs(self) -> Sequence[Need | Follower]:
        """List loaded rows; mapped rows are page cache, which uses memory that the plan
        leaves."""
        if not self.mapped:
            return [Need("features", self.site.table.nbytes)]
        return [Need("touched rows", _TOUCH_BYTES)] if self.by_device else []

    def open(self) -> None:
        """Load or map the rows.

        Raises:
            DataIOError: the file is missing or shorter than its rows.
            InputError: mapped rows would have to be pinned.
        """
        table = self.site.table
        table.check()
        self._array = (
            self._mapped_rows(table) if self.mapped else self._loaded_rows(table)
        )
        step = max(1, _TOUCH_BYTES // max(1, table.row_bytes))
        self._touched = np.empty(
            (step if self.by_device and self.mapped else 0, table.dim), table.dtype
        )

    def _mapped_rows(self, table: RowTable) -> npt.NDArray[Any]:
        message = (
            "a CUDA device cannot read memory-mapped rows by itself: they cannot be "
            "pinned"
        )
        require(
            not self.by_device or self.site.accelerator.kind != "cuda",
            message,
            "use host_store=memory",
        )
        return mapped_table(table)

    def _loaded_rows(self, table: RowTable) -> npt.NDArray[Any]:
        group = self.site.runtime.group
        if group is not None:
            memory = torch.from_numpy(group.shared(table.nbytes))
            if group.rank == 0:
                _read_into(table, memory)
            group.barrier()
            return _as_table(table, memory)
        if self.by_device:
            # Pinned before it is filled.
            return _read_into(table, self.site.accelerator.host_buffer(table.nbytes))
        count = table.num_rows * table.dim
        rows = np.fromfile(table.path, table.dtype, count, offset=table.data_offset)
        return rows.reshape(table.num_rows, table.dim)

    def read(
        self, sampled: SampledBatch, ids: Ids, out: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ReadStats | None]:
        """Gather the rows, or touch the pages of mapped rows that the device reads."""
        if out is not None:
            self.gather(ids, out.numpy())
            return out, None
        step = len(self._touched)
        for begin in range(0, len(ids), step):
            self.gather(ids[begin : begin + step], self._touched)
        return None, None

    def gather(self, ids: Ids, out: npt.NDArray[np.generic]) -> None:
        """Copy rows to `out` on many threads. Raises DataIOError where a mapped file
        was truncated."""
        if self.mapped:
            self.site.table.check()
        gather(self.array, ids, out, self._gatherers)

    def forecast(
        self, trace: Trace, cached_bytes: int, page_cache_bytes: int
    ) -> Forecast:
        """Forecast one load of everything, and the misses of the cache."""
        return trace.resident(cached_bytes // trace.row_bytes)

    def notes(self) -> dict[str, str]:
        """Return how the rows are held."""
        return {
            "features": "memory-mapped, read-ahead off"
            if self.mapped
            else "in host memory"
        }

    def close(self) -> None:
        """Unpin and drop the rows; their memory is freed with its last reference."""
        if self._array is not None and self.by_device and not self.mapped:
            self.site.accelerator.free_host(torch.from_numpy(self._array))
        self._array = None


def mapped_table(table: RowTable, *, read_ahead: bool = False) -> npt.NDArray[Any]:
    """Map a table's rows, [N, dim], by default without read-ahead."""
    if table.nbytes == 0:
        return np.empty((table.num_rows, table.dim), table.dtype)
    array = np.memmap(
        table.path, table.dtype, "r", table.data_offset, (table.num_rows, table.dim)
    )
    if not read_ahead:
        madvise(array, "random")
    return array


def _read_into(table: RowTable, buffer: torch.Tensor) -> npt.NDArray[Any]:
    """Read all rows into `buffer`, uint8 [at least nbytes], and return them as [N,
    dim]."""
    target: memoryview[int] = memoryview(buffer.numpy())  # type: ignore[arg-type]
    with table.path.open("rb") as file:
        file.seek(table.data_offset)
        if file.readinto(target[: table.nbytes]) < table.nbytes:
            table.check()
            raise EOFError(f"{table.path} ended while it was read")
    return _as_table(table, buffer)


def _as_table(table: RowTable, buffer: torch.Tensor) -> npt.NDArray[Any]:
    rows: npt.NDArray[Any] = (
        buffer.view(torch_dtype(table.dtype)).view(table.num_rows, table.dim).numpy()
    )
    return rows
