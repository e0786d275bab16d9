"""Buffers that a run's processes share (Section 4.4): staging buffer and, on the processor, the feature buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from systems.gnndrive.feature_buffer import FeatureBuffer, FeatureBufferClosed
from systems.gnndrive.planner import GnnDriveSizes
from systems.gnndrive.shared_staging import SharedStaging, StagingClosed
from workloads.ranks import PeerLost, RankGroup

Shared = TypeVar("Shared", FeatureBuffer, SharedStaging)


def shared_buffer(group: RankGroup, sizes: GnnDriveSizes, dtype: torch.dtype) -> tuple[torch.Tensor, FeatureBuffer]:
    """Allocate table and bookkeeping in memory shared by all processes: a row that one reads serves the others too."""
    slots, dim = sizes.slots, sizes.workload.dataset.dim
    table = torch.from_numpy(group.shared(slots * dim * dtype.itemsize)).view(dtype).view(slots, dim)
    memory = group.shared(FeatureBuffer.plan_bytes(slots))
    return table, _on_all(group, lambda create: FeatureBuffer(slots, memory=memory, create=create))


def shared_staging(group: RankGroup, sizes: GnnDriveSizes) -> SharedStaging:
    """Allocate the staging buffer of all processes, pinned in each where its device copies from pinned memory."""
    portion, rows, row, borrow = sizes.portion, sizes.segment_rows, sizes.row, sizes.options.borrow_staging
    staging = torch.from_numpy(group.shared(group.world * portion * rows * row))
    sizes.runtime.accelerator.pin(staging)
    memory = group.shared(SharedStaging.plan_bytes(group.world, portion, rows))

    return _on_all(
        group,
        lambda create: SharedStaging(
            group.rank, group.world, portion, rows, row, rows=staging, memory=memory, create=create, borrow=borrow
        ),
    )


def _on_all(group: RankGroup, attach: Callable[[bool], Shared]) -> Shared:
    """Create a shared structure on the first rank (`attach(True)`), then attach to it on the others."""
    created = attach(True) if group.rank == 0 else None
    group.barrier()
    return created or attach(False)


def mini_batches_held(sizes: GnnDriveSizes, under_way: int) -> int:
    """Return the most mini-batches that a process may hold in a shared feature buffer.

    Ranks train in step, so a rank that filled the buffer with later mini-batches would starve the rank that it waits
    for. With its own share of the slots each rank always finds free slots.

    Args:
        under_way: most mini-batches that its queues and extractors can hold.
    """
    if sizes.slots >= sizes.workload.dataset.num_nodes:
        return under_way  # every row has a slot of its own
    return max(1, sizes.slots // (sizes.sharing * max(1, sizes.max_nodes)))


@contextmanager
def ended_with_peers(group: RankGroup | None) -> Iterator[None]:
    """Raise PeerLost where a shared buffer is closed under the body: another process failed and reports the cause."""
    try:
        yield
    except (FeatureBufferClosed, StagingClosed) as error:
        if group is None:
            raise
        raise PeerLost("another process of this run ended", "see what it said in worker.log") from error
