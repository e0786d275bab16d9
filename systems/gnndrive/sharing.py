"""What the processes of a run share (Section 4.4): staging buffer and, on the processor, the feature buffer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from systems.engine import FeatureBuffer, FeatureBufferClosed
from systems.engine.shared_staging import SharedStaging, StagingClosed
from systems.engine.topology import row_bytes
from systems.gnndrive.planner import Sizes
from workloads.accelerator import Accelerator
from workloads.ranks import PeerLost, RankGroup
from workloads.workload import Workload


def shared_buffer(
    group: RankGroup, workload: Workload, sizes: Sizes, dtype: torch.dtype
) -> tuple[torch.Tensor, FeatureBuffer]:
    """Table and bookkeeping in memory of all processes: a row that one of them reads serves the others too."""
    slots, dim = sizes.slots, workload.dataset.dim
    table = torch.from_numpy(group.shared(slots * dim * dtype.itemsize)).view(dtype).view(slots, dim)
    memory = group.shared(FeatureBuffer.plan_bytes(slots))
    created = FeatureBuffer(slots, memory=memory) if group.rank == 0 else None
    group.barrier()
    return table, created or FeatureBuffer(slots, memory=memory, create=False)


def shared_staging(
    group: RankGroup, workload: Workload, sizes: Sizes, accelerator: Accelerator, *, borrow: bool
) -> SharedStaging:
    """The staging buffer of all processes, pinned in each where its device copies from pinned memory."""
    portion, rows, row = sizes.portion, sizes.segment_rows, row_bytes(workload)
    staging = torch.from_numpy(group.shared(group.world * portion * rows * row))
    accelerator.pin(staging)
    memory = group.shared(SharedStaging.plan_bytes(group.world, portion, rows))

    def attach(*, create: bool) -> SharedStaging:
        return SharedStaging(
            group.rank, group.world, portion, rows, row, rows=staging, memory=memory, create=create, borrow=borrow
        )

    created = attach(create=True) if group.rank == 0 else None
    group.barrier()
    return created or attach(create=False)


def mini_batches_held(sizes: Sizes, workload: Workload, under_way: int) -> int:
    """Mini-batches that a process may hold in a feature buffer that it shares.

    Ranks train in step, so one that filled the buffer with what comes later would starve the rank that it waits for.
    With its own share of the slots each always finds room.

    Args:
        under_way: mini-batches that its queues and extractors can hold at all.
    """
    if sizes.slots >= workload.dataset.num_nodes:
        return under_way  # every row has a slot of its own
    return max(1, sizes.slots // (sizes.sharing * max(1, sizes.max_nodes)))


@contextmanager
def ended_with_peers(group: RankGroup | None) -> Iterator[None]:
    """What all share was closed under the body: another process failed, and that one says why."""
    try:
        yield
    except (FeatureBufferClosed, StagingClosed) as error:
        if group is None:
            raise
        raise PeerLost("another process of this run ended", "see what it said in worker.log") from error
