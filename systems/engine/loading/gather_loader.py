"""Tables for the rows of mini-batches in flight: their type, the check of their size,
and the copy of one to the device."""

from __future__ import annotations

import numpy as np
import torch

from systems.engine.loading.pipeline import Channel
from systems.interface import Batch, StageClock
from workloads.accelerator import Accelerator
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch

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
