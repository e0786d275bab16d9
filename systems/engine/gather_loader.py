"""The loader of the systems that address features as memory (`in-memory`, `pyg+`): sample, gather, transfer.

Samplers work beside each other and their mini-batches are put back in order; one mini-batch at a time is gathered by
many threads, while the one before is copied to the device and the one before that is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.pipeline import Channel, Pipeline, Stopped
from systems.interface import Batch, PlanItem, Runtime, StageClock
from workloads.accelerator import Accelerator
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.neighbor import NeighborSampler
from workloads.units import format_bytes

Gather = Callable[[npt.NDArray[np.int64], npt.NDArray[np.generic]], None]


def torch_dtype(dtype: np.dtype[np.generic]) -> torch.dtype:
    """float32 or float16 of numpy as torch's."""
    return {"float32": torch.float32, "float16": torch.float16}[dtype.name]


@dataclass(frozen=True)
class Tables:
    """How many tables of the largest mini-batch's rows a loader has on the host and on the device."""

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
        """Their part of a plan."""
        return (
            PlanItem("feature tables", self.host * self.nbytes, "host"),
            PlanItem("device feature tables", self.device * self.nbytes, "device"),
        )


def plan_tables(
    system: str,
    accelerator: Accelerator,
    *,
    rows: int,
    dim: int,
    dtype: np.dtype[np.generic],
    host: int,
    device: int,
    device_budget: int | None,
) -> Tables:
    """Tables for a loader: on the processor only host ones; elsewhere `device` ones, fewer where they do not fit.

    Args:
        system: name for the error.
        host: tables on the host; 0 chooses two on the processor (one trained, one filled), else one to stage from.
        device: tables wanted on the device: one trained, the others filled meanwhile.
        device_budget: bytes of the device tier, None unlimited.

    Raises:
        BudgetError: not even one fits on the device.
    """
    if accelerator.kind == "cpu":
        return Tables(rows, dim, dtype, host or 2, 0)
    limits = [limit for limit in (device_budget, accelerator.memory_bytes) if limit is not None]
    one = max(1, rows * dim * dtype.itemsize)
    fitting = min([device] + [limit // (-(-one // 4096) * 4096) for limit in limits])
    if fitting < 1:
        raise BudgetError(
            f"{system}: a device feature table needs {format_bytes(one)} for the largest mini-batch of {rows} rows, "
            f"the device has {format_bytes(min(limits))}",
            "raise device memory or lower the batch size or fan-out",
        )
    return Tables(rows, dim, dtype, host or 1, fitting)


class GatherLoader:
    """Allocates the tables and runs epochs.

    Args:
        name: prefix of thread names.
        gather: copies rows `nodes` into a table [n, dim]; called by one thread at a time.
        on_sample: told of each sampled batch by the thread that sampled it.
        workers: sampling threads.
        waiting: sampled mini-batches that may wait for their turn.
    """

    def __init__(
        self,
        name: str,
        sampler: NeighborSampler,
        runtime: Runtime,
        clock: StageClock,
        tables: Tables,
        gather: Gather,
        *,
        workers: int,
        waiting: int,
        around_sample: Callable[[Callable[[], SampledBatch]], SampledBatch] | None = None,
    ) -> None:
        self._name = name
        self._sampler = sampler
        self._runtime = runtime
        self._clock = clock
        self._tables = tables
        self._gather = gather
        self._workers = workers
        self._waiting = waiting
        self._around_sample = around_sample or (lambda work: work())
        self._accelerator = runtime.accelerator
        dtype = torch_dtype(tables.dtype)
        sampling_only = runtime.stages == "sample"
        self._host: list[torch.Tensor] = []
        self._device: list[torch.Tensor] = []
        if not sampling_only:
            for _ in range(tables.host):
                raw = self._accelerator.host_buffer(tables.nbytes)
                self._host.append(raw.view(dtype).view(tables.rows, tables.dim))
            self._device = [self._accelerator.allocate(tables.rows, tables.dim, dtype) for _ in range(tables.device)]
        self._pipeline: Pipeline | None = None

    def epoch(self, k: int, seeds: Sequence[npt.NDArray[np.int64]]) -> Iterator[Batch]:
        """The mini-batches of epoch `k` in order; what any thread raises is raised here."""
        with Pipeline(self._name) as pipe:
            self._pipeline = pipe
            sampled: Channel[SampledBatch] = pipe.channel(self._waiting, ordered=True)
            pipe.stage("sample", self._workers, lambda i, nodes: self._sample(k, i, nodes), seeds, sampled)
            if self._runtime.stages == "sample":
                for structure in pipe.results(sampled):
                    yield Batch(structure, None)
                return
            ready: Channel[Batch] = pipe.channel(1)
            if self._device:
                self._with_device(pipe, sampled, ready)
            else:
                free = _filled(pipe, self._host)
                pipe.stage("extract", 1, lambda _, batch: self._extract(batch, free), sampled, ready)
            yield from pipe.results(ready)

    def _with_device(self, pipe: Pipeline, sampled: Channel[SampledBatch], ready: Channel[Batch]) -> None:
        staging, free = _filled(pipe, self._host), _filled(pipe, self._device)
        staged: Channel[Batch] = pipe.channel(1)
        pipe.stage("extract", 1, lambda _, batch: self._extract(batch, staging), sampled, staged)
        pipe.stage("transfer", 1, lambda _, batch: self._transfer(batch, free), staged, ready)

    def _sample(self, epoch: int, index: int, nodes: npt.NDArray[np.int64]) -> SampledBatch:
        with self._clock.stage("sample", index):
            return self._around_sample(lambda: self._sampler.sample(epoch, index, nodes))

    def _extract(self, sampled: SampledBatch, free: Channel[torch.Tensor]) -> Batch:
        if sampled.num_nodes > self._tables.rows:
            raise BudgetError(
                f"mini-batch {sampled.index} of epoch {sampled.epoch} has {sampled.num_nodes} nodes, the plan holds "
                f"{self._tables.rows}",
                "report this: the bound of the largest mini-batch is wrong",
            )
        _, table = free.get()
        with self._clock.stage("extract", sampled.index):
            self._gather(sampled.nodes, table.numpy()[: sampled.num_nodes])
        return Batch(sampled, table, on_release=lambda: _give_back(free, table))

    def _transfer(self, batch: Batch, free: Channel[torch.Tensor]) -> Batch:
        _, table = free.get()
        index = batch.sampled.index
        assert batch.table is not None
        with self._clock.stage("transfer", index):
            self._accelerator.copy(table, batch.table[: batch.sampled.num_nodes], batch=index).wait()
        batch.release()
        return Batch(batch.sampled, table, on_release=lambda: _give_back(free, table))

    def close(self) -> None:
        """End the threads and free the tables."""
        if self._pipeline is not None:
            self._pipeline.close()
        for table in self._device:
            self._accelerator.free(table)
        self._device.clear()
        self._host.clear()


def _filled(pipe: Pipeline, tables: Sequence[torch.Tensor]) -> Channel[torch.Tensor]:
    channel: Channel[torch.Tensor] = pipe.channel(len(tables))
    for number, table in enumerate(tables):
        channel.put(number, table)
    return channel


def _give_back(free: Channel[torch.Tensor], table: torch.Tensor) -> None:
    try:
        free.put(0, table)
    except Stopped:
        pass  # the epoch was abandoned; the next one starts with all tables
