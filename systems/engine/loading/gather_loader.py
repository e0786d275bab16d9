"""The base of systems with a table for each mini-batch: sample, extract, transfer, in order.

Samplers run in parallel and their mini-batches are put back in order. Features addressed as memory (`in-memory`,
`pyg+`) are gathered by many threads, one mini-batch at a time; features read from disk (`ali+pg`) are read by several
extractors, each on its own mini-batch, so that the disk's queue never runs empty between two. Meanwhile the previous
mini-batch is copied to the device and the one before it is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.topology import device_limit
from systems.engine.loading.pipeline import Channel
from systems.engine.loading.sized import LoadingRun, SamplingSystem
from systems.interface import Batch, MemoryBudget, PlanItem, Runtime, StageClock
from workloads.accelerator import Accelerator, aligned_host_tensor
from workloads.direct_files import padded
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch
from workloads.units import format_bytes
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]

#: Sampled mini-batches between the queue and training: one waits for a table, one has its rows.
BETWEEN = 2


def torch_dtype(dtype: np.dtype[np.generic]) -> torch.dtype:
    """Convert numpy's float32 or float16 to torch's dtype."""
    return {"float32": torch.float32, "float16": torch.float16}[dtype.name]


def check_size(sampled: SampledBatch, largest: int) -> None:
    """Raise BudgetError if a mini-batch has more than the `largest` nodes that the plan holds."""
    if sampled.num_nodes > largest:
        raise BudgetError(
            f"mini-batch {sampled.index} of epoch {sampled.epoch} has {sampled.num_nodes} nodes, the plan holds "
            f"{largest}",
            "report this: the bound of the largest mini-batch is wrong",
        )


@dataclass(frozen=True)
class Tables:
    """Number of a loader's tables on the host and on the device, each for the largest mini-batch's rows."""

    rows: int
    dim: int
    dtype: np.dtype[np.generic]
    host: int
    device: int

    @property
    def nbytes(self) -> int:
        """Bytes of one table."""
        return self.rows * self.dim * self.dtype.itemsize

    def items(self) -> tuple[PlanItem, ...]:
        """Plan the tables."""
        host, device = self.host * self.nbytes, self.device * self.nbytes
        return PlanItem("feature tables", host), PlanItem("device feature tables", device, "device")


def plan_tables(
    system: str, workload: Workload, runtime: Runtime, budget: MemoryBudget, *, rows: int, host: int, device: int
) -> Tables:
    """Plan a loader's tables: host tables only on the processor; elsewhere up to `device` tables, as many as fit.

    Args:
        rows: rows of a table, for the largest mini-batch.
        host: tables on the host; 0 chooses two on the processor (one trained, one filled), else one to stage from.
        device: tables wanted on the device: one trained, the others filled meanwhile.

    Raises:
        BudgetError: not even one table fits on the device.
    """
    accelerator, dim, dtype = runtime.accelerator, workload.dataset.dim, workload.dataset.feature_dtype
    if accelerator.kind == "cpu":
        return Tables(rows, dim, dtype, host or 2, 0)
    one, limit = max(1, rows * dim * dtype.itemsize), device_limit(runtime, budget)
    fitting = device if limit is None else min(device, limit // padded(one))
    if fitting < 1:
        raise BudgetError(
            f"{system}: a device feature table needs {format_bytes(one)} for the largest mini-batch of {rows} rows, "
            f"the device has {format_bytes(limit or 0)}",
            "raise device memory or lower the batch size or fan-out",
        )
    return Tables(rows, dim, dtype, host or 1, fitting)


@dataclass(frozen=True)
class HostTable:
    """One of a loader's host tables.

    Attributes:
        rows: [rows, dim], to be filled.
        whole: the mini-batch's table: `rows` or, on the processor, the tensor [front + …, dim] behind a cache's rows.
        first: row of `whole` at which `rows` begins.
    """

    rows: torch.Tensor
    whole: torch.Tensor
    first: int


def copied(batch: Batch, free: Channel[torch.Tensor], accelerator: Accelerator, clock: StageClock) -> Batch:
    """Copy a mini-batch's rows to the next free table of the device, and release those on the host."""
    _, table = free.get()
    index = batch.sampled.index
    assert isinstance(batch.table, torch.Tensor)
    with clock.stage("transfer", index):
        accelerator.copy(table, batch.table[: batch.sampled.num_nodes], batch=index).wait()
    batch.release()
    return Batch(batch.sampled, table, batch.rows, on_release=lambda: free.give_back(table))


class GatherSystem(SamplingSystem):
    """System that fills a table with the rows of each mini-batch.

    Attributes:
        _front_rows: [front, dim], rows in front of the host tables, on the processor part of every mini-batch's table.
    """

    _host: Sequence[HostTable] = ()
    _device: Sequence[torch.Tensor] = ()
    _front_rows = torch.empty(0)
    _features: npt.NDArray[Any] | None = None  # rows in memory or in a map
    _rows = 0

    @property
    def _tables(self) -> Tables:
        tables: Tables = self._sizes.tables
        return tables

    @property
    def _extractors(self) -> int:
        """Mini-batches extracted in parallel."""
        return 1

    def _begin(self) -> None:
        self._rows = 0

    def _gather(self, nodes: Ids, out: npt.NDArray[np.generic]) -> None:
        """Copy rows `nodes` (int64 [n]) to `out` [n, dim], for `_fill`."""
        raise NotImplementedError

    def _fill(self, sampled: SampledBatch, table: HostTable) -> torch.Tensor | None:
        """Fill a table with at most `num_nodes` rows of a mini-batch, by up to `_extractors` threads at a time.

        Returns:
            the node alias list, int64 [n] into `table.whole`; None: the order of the nodes.
        """
        self._gather(sampled.nodes, table.rows.numpy()[: sampled.num_nodes])
        return None

    def _allocate(self, front: int = 0) -> None:
        """Allocate the tables, and `front` rows in front of the host's."""
        if self.runtime.stages == "sample":
            return
        tables, accelerator, dtype = self._tables, self.runtime.accelerator, torch_dtype(self._tables.dtype)
        row = tables.dim * tables.dtype.itemsize

        def allocate(rows: int) -> torch.Tensor:
            return accelerator.host_buffer(rows * row).view(dtype).view(rows, tables.dim)

        if not front or tables.device:
            alone = [allocate(tables.rows) for _ in range(tables.host)]
            self._host = [HostTable(one, one, 0) for one in alone]
            # A cache that only the processor copies from need not be pinned.
            self._front_rows = aligned_host_tensor(front * row).view(dtype).view(front, tables.dim)
        else:
            whole = allocate(front + tables.host * tables.rows)
            firsts = [front + number * tables.rows for number in range(tables.host)]
            self._host = [HostTable(whole[first : first + tables.rows], whole, first) for first in firsts]
            self._front_rows = whole[:front]
        self._device = [accelerator.allocate(tables.rows, tables.dim, dtype) for _ in range(tables.device)]

    def _load(self, run: LoadingRun, sampled: Channel[SampledBatch]) -> Channel[Batch]:
        pipe, free = run.pipe, run.pipe.filled(self._host)
        extracted: Channel[Batch] = pipe.channel(self._extractors, ordered=True)
        # Tables are taken in the order of the mini-batches: otherwise later mini-batches, which wait for the training
        # of an earlier one, might take the last table.
        turnstile = pipe.turnstile()

        def extract(number: int, structure: SampledBatch) -> Batch:
            check_size(structure, self._tables.rows)
            turnstile.enter(number)
            _, table = free.get()
            turnstile.leave()
            with self.clock.stage("extract", structure.index):
                rows = self._fill(structure, table)
            return Batch(structure, table.whole, rows, on_release=lambda: free.give_back(table))

        pipe.stage("extract", self._extractors, extract, sampled, extracted)
        if not self._device:
            return extracted
        ready: Channel[Batch] = pipe.channel(1)
        device, accelerator = pipe.filled(self._device), self.runtime.accelerator
        pipe.stage("transfer", 1, lambda _, batch: copied(batch, device, accelerator, self.clock), extracted, ready)
        return ready

    def close(self) -> None:
        """End the threads, free the tables and drop the rows."""
        super().close()
        for table in self._device:
            self.runtime.accelerator.free(table)
        for staging in self._host:
            self.runtime.accelerator.free_host(staging.whole)
        self._device = self._host = ()
        self._front_rows, self._features = torch.empty(0), None
