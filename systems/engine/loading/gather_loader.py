"""The loader of systems with a table for each mini-batch: sample, extract, transfer, in order.

Samplers run in parallel and their mini-batches are put back in order. Features addressed as memory (`in-memory`,
`pyg+`) are gathered by many threads, one mini-batch at a time; features read from disk (`ali+pg`) are read by several
extractors, each on its own mini-batch, so that the disk's queue never runs empty between two. Meanwhile the previous
mini-batch is copied to the device and the one before it is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.direct_files import padded
from systems.engine.loading.pipeline import Channel, Pipeline
from systems.interface import Batch, MemoryBudget, PlanItem, Runtime, StageClock
from workloads.accelerator import Accelerator, aligned_host_tensor
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.neighbor import NeighborSampler
from workloads.units import format_bytes
from workloads.workload import Workload

Gather = Callable[[npt.NDArray[np.int64], npt.NDArray[np.generic]], None]
Fill = Callable[[SampledBatch, "HostTable"], "torch.Tensor | None"]

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

    def check(self, sampled: SampledBatch) -> None:
        """Raise BudgetError if a mini-batch has more nodes than the plan holds."""
        check_size(sampled, self.rows)

    def items(self) -> tuple[PlanItem, ...]:
        """Plan the tables."""
        return (
            PlanItem("feature tables", self.host * self.nbytes, "host"),
            PlanItem("device feature tables", self.device * self.nbytes, "device"),
        )


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
    limits = [limit for limit in (budget.device, accelerator.memory_bytes) if limit is not None]
    one = max(1, rows * dim * dtype.itemsize)
    fitting = min([device] + [limit // padded(one) for limit in limits])
    if fitting < 1:
        raise BudgetError(
            f"{system}: a device feature table needs {format_bytes(one)} for the largest mini-batch of {rows} rows, "
            f"the device has {format_bytes(min(limits))}",
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


def fill_by(gather: Gather) -> Fill:
    """Make a function that fills a table in the order of the mini-batch's nodes."""

    def fill(sampled: SampledBatch, table: HostTable) -> None:
        gather(sampled.nodes, table.rows.numpy()[: sampled.num_nodes])

    return fill


def copied(batch: Batch, free: Channel[torch.Tensor], accelerator: Accelerator, clock: StageClock) -> Batch:
    """Copy a mini-batch's rows to the next free table of the device, and release those on the host."""
    _, table = free.get()
    index = batch.sampled.index
    assert isinstance(batch.table, torch.Tensor)
    with clock.stage("transfer", index):
        accelerator.copy(table, batch.table[: batch.sampled.num_nodes], batch=index).wait()
    batch.release()
    return Batch(batch.sampled, table, batch.rows, on_release=lambda: free.give_back(table))


@dataclass(eq=False)
class GatherLoader:
    """Loader that allocates the tables and runs epochs.

    Attributes:
        fill: fills a table with at most `num_nodes` rows of a mini-batch, and returns its node alias list: int64 [n]
            into `whole` (None: the order of the nodes). Called by up to `extractors` threads at a time.
        workers: sampling threads.
        waiting: sampled mini-batches that may wait for extraction.
        around_sample: wrapper around the sampling of one mini-batch.
        extractors: mini-batches extracted in parallel.
        front: rows in front of the host tables (`front_rows`), on the processor part of every mini-batch's table.
    """

    name: str
    sampler: NeighborSampler
    runtime: Runtime
    clock: StageClock
    tables: Tables
    fill: Fill
    workers: int
    waiting: int
    around_sample: Callable[[Callable[[], SampledBatch]], SampledBatch] = lambda work: work()
    extractors: int = 1
    front: int = 0

    def __post_init__(self) -> None:
        tables, accelerator, dtype = self.tables, self.runtime.accelerator, torch_dtype(self.tables.dtype)
        self._host: list[HostTable] = []
        self._device: list[torch.Tensor] = []
        #: [front, dim], the rows of a cache.
        self.front_rows = torch.empty(0, tables.dim, dtype=dtype)
        if self.runtime.stages != "sample":
            self._host, self.front_rows = self._host_tables(dtype, self.front)
            self._device = [accelerator.allocate(tables.rows, tables.dim, dtype) for _ in range(tables.device)]
        self._pipeline: Pipeline | None = None

    def _host_tables(self, dtype: torch.dtype, front: int) -> tuple[list[HostTable], torch.Tensor]:
        tables = self.tables
        row = tables.dim * tables.dtype.itemsize

        def allocate(rows: int) -> torch.Tensor:
            return self.runtime.accelerator.host_buffer(rows * row).view(dtype).view(rows, tables.dim)

        if not front or tables.device:
            alone = [allocate(tables.rows) for _ in range(tables.host)]
            # A cache that only the processor copies from need not be pinned.
            cache = aligned_host_tensor(front * row).view(dtype).view(front, tables.dim)
            return [HostTable(one, one, 0) for one in alone], cache
        whole = allocate(front + tables.host * tables.rows)
        firsts = [front + number * tables.rows for number in range(tables.host)]
        return [HostTable(whole[first : first + tables.rows], whole, first) for first in firsts], whole[:front]

    def epoch(self, k: int, seeds: Sequence[npt.NDArray[np.int64]]) -> Iterator[Batch]:
        """Yield the mini-batches of epoch `k` in order; errors of any thread are raised here."""
        with Pipeline(self.name) as pipe:
            self._pipeline = pipe
            sampled: Channel[SampledBatch] = pipe.channel(self.waiting, ordered=True)
            pipe.stage("sample", self.workers, lambda i, nodes: self._sample(k, i, nodes), seeds, sampled)
            if self.runtime.stages == "sample":
                for structure in pipe.results(sampled):
                    yield Batch(structure, None)
                return
            if self._device:
                ready = self._with_device(pipe, sampled)
            else:
                ready = self._extracting(pipe, sampled)
            yield from pipe.results(ready)

    def _extracting(self, pipe: Pipeline, sampled: Channel[SampledBatch]) -> Channel[Batch]:
        """Start the extractors; their mini-batches arrive in order."""
        free = pipe.filled(self._host)
        extracted: Channel[Batch] = pipe.channel(self.extractors, ordered=True)
        # Tables are taken in the order of the mini-batches: otherwise later mini-batches, which wait for the training
        # of an earlier one, might take the last table.
        turnstile = pipe.turnstile()

        def extract(number: int, structure: SampledBatch) -> Batch:
            self.tables.check(structure)
            turnstile.enter(number)
            _, table = free.get()
            turnstile.leave()
            with self.clock.stage("extract", structure.index):
                rows = self.fill(structure, table)
            return Batch(structure, table.whole, rows, on_release=lambda: free.give_back(table))

        pipe.stage("extract", self.extractors, extract, sampled, extracted)
        return extracted

    def _with_device(self, pipe: Pipeline, sampled: Channel[SampledBatch]) -> Channel[Batch]:
        free = pipe.filled(self._device)
        staged = self._extracting(pipe, sampled)
        ready: Channel[Batch] = pipe.channel(1)
        accelerator = self.runtime.accelerator
        pipe.stage("transfer", 1, lambda _, batch: copied(batch, free, accelerator, self.clock), staged, ready)
        return ready

    def _sample(self, epoch: int, index: int, nodes: npt.NDArray[np.int64]) -> SampledBatch:
        with self.clock.stage("sample", index):
            return self.around_sample(lambda: self.sampler.sample(epoch, index, nodes))

    def close(self) -> None:
        """End the threads and free the tables."""
        if self._pipeline is not None:
            self._pipeline.close()
        for table in self._device:
            self.runtime.accelerator.free(table)
        self._device.clear()
        self._host.clear()
        self.front_rows = self.front_rows[:0].clone()  # memory is freed with its last view
