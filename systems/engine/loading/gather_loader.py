"""Tables for the rows of mini-batches in flight: their number and sizes, and the copy
of one to the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from systems.engine.io.topology import device_limit
from systems.engine.loading.pipeline import Channel
from systems.interface import Batch, MemoryBudget, PlanItem, Runtime, StageClock
from workloads.accelerator import Accelerator
from workloads.direct_files import padded
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch
from workloads.units import format_bytes
from workloads.workload import Workload

#: Sampled mini-batches between the queue and training: one waits for a table, one has
#: its rows.
BETWEEN = 2


def torch_dtype(dtype: np.dtype[np.generic]) -> torch.dtype:
    """Convert numpy's float32 or float16 to torch's dtype."""
    return {"float32": torch.float32, "float16": torch.float16}[dtype.name]


def check_size(sampled: SampledBatch, largest: int) -> None:
    """Raise BudgetError if a mini-batch has more than the `largest` nodes that the plan
    holds."""
    if sampled.num_nodes > largest:
        raise BudgetError(
            f"mini-batch {sampled.index} of epoch {sampled.epoch} has "
            f"{sampled.num_nodes} nodes, the plan holds "
            f"{largest}",
            "report this: the bound of the largest mini-batch is wrong",
        )


@dataclass(frozen=True)
class Tables:
    """Number of a loader's tables on the host and on the device, each for the largest
    mini-batch's rows."""

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
        host = self.host * self.nbytes
        device = self.device * self.nbytes
        return PlanItem("feature tables", host), PlanItem(
            "device feature tables", device, "device"
        )


def plan_tables(
    system: str,
    workload: Workload,
    runtime: Runtime,
    budget: MemoryBudget,
    *,
    rows: int,
    host: int,
    device: int,
) -> Tables:
    """Plan a loader's tables: host tables only on the processor; elsewhere up to
    `device` tables, as many as fit.

    Args:
        rows: rows of a table, for the largest mini-batch.
        host: tables on the host; 0 chooses two on the processor (one trained, one
            filled), else one to stage from.
        device: tables wanted on the device: one trained, the others filled meanwhile.

    Raises:
        BudgetError: not even one table fits on the device.
    """
    accelerator = runtime.accelerator
    dim = workload.dataset.dim
    dtype = workload.dataset.feature_dtype
    if accelerator.kind == "cpu":
        return Tables(rows, dim, dtype, host or 2, 0)
    one = max(1, rows * dim * dtype.itemsize)
    limit = device_limit(runtime, budget)
    fitting = device if limit is None else min(device, limit // padded(one))
    if fitting < 1:
        raise BudgetError(
            f"{system}: a device feature table needs {format_bytes(one)} for the "
            f"largest mini-batch of {rows} rows, "
            f"the device has {format_bytes(limit or 0)}",
            "raise device memory or lower the batch size or fan-out",
        )
    return Tables(rows, dim, dtype, host or 1, fitting)


def copied(
    batch: Batch,
    free: Channel[torch.Tensor],
    accelerator: Accelerator,
    clock: StageClock,
) -> Batch:
    """Copy a mini-batch's rows to the next free table of the device, and release those
    on the host."""
    _, table = free.get()
    index = batch.sampled.index
    assert isinstance(batch.table, torch.Tensor)
    with clock.stage("transfer", index):
        accelerator.copy(
            table, batch.table[: batch.sampled.num_nodes], batch=index
        ).wait()
    batch.release()
    return Batch(
        batch.sampled, table, batch.rows, on_release=lambda: free.give_back(table)
    )
