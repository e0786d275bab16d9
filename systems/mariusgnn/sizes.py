"""Number and sizes of MariusGNN's partitions in memory, and which of them an epoch
has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from systems.interface import MemoryBudget
from systems.mariusgnn.options import Ordering
from systems.mariusgnn.partitioned import Layout
from workloads.sampling.seeds import SeedPlan
from workloads.workload import Workload

_PARTITIONS = 32
_MOST_PARTITIONS = 256
_UNIT_BYTES = (
    8 << 20
)  # topology is read in units of this size, or of one partition's if that is larger


def partitions_for(workload: Workload, budget: MemoryBudget) -> int:
    """Return the number of partitions, 32 to 256, at which half of the budget holds
    eight partitions."""
    if budget.host is None:
        return _PARTITIONS
    count = _PARTITIONS
    while (
        count < _MOST_PARTITIONS
        and 8 * workload.dataset.feature_bytes // count > budget.host // 2
    ):
        count *= 2
    return count


def max_edges(counts: npt.NDArray[np.int64], pinned: int, free: int) -> int:
    """Bound the edges among the first `pinned` partitions and any `free` others; exact
    where all are buffered.

    Args:
        counts: int64 [p, p], edges from j to i at [i, j].
    """
    others = len(counts) - pinned
    if free >= others:
        return int(counts.sum())
    inner = counts[pinned:, pinned:].copy()
    own = inner.diagonal().copy()
    np.fill_diagonal(inner, 0)
    # Most edges that partition j adds: with the pinned ones, its own, and with the
    # companions that share most edges.
    companions = np.sort(inner, axis=1)[:, others - max(0, free - 1) :].sum(axis=1)
    brings = (
        counts[:pinned, pinned:].sum(axis=0)
        + counts[pinned:, :pinned].sum(axis=1)
        + own
        + companions
    )
    return int(counts[:pinned, :pinned].sum() + np.sort(brings)[others - free :].sum())


def unit_bytes(layout: Layout, capacity: int, host: int | None) -> int:
    """Return the read buffer's bytes: the longest lists or buckets of a partition, or a
    32nd of the budget if more."""
    rows = np.sort(layout.bucket_bytes, axis=1)[:, layout.parts.count - capacity :].sum(
        axis=1
    )
    most = max(int(rows.max(initial=0)), int(layout.list_bytes.max(initial=0)))
    wanted = _UNIT_BYTES if host is None else min(_UNIT_BYTES, host // 32)
    return max(
        most,
        min(wanted, int(layout.list_bytes.sum()), int(layout.bucket_bytes.sum())),
        4096,
    )


def buffered(
    count: int, pinned: int, capacity: int, ordering: Ordering, *, seed: int, epoch: int
) -> list[int]:
    """Return the partitions of an epoch, ascending; a function of its arguments alone.

    Training nodes fill the first partitions, which stay; the other slots change between
    epochs and never within one (MariusGNN's policy for node classification, as
    described by GNNDrive, Section 2).

    Args:
        count: number of partitions.
        pinned: number of partitions with training nodes, the first ones.
        capacity: partitions in memory at once, at least `pinned`.
        ordering: rule by which the other partitions change.
        seed: seed of the run.
    """
    others = np.arange(pinned, count, dtype=np.int64)
    free = capacity - pinned
    if free <= 0 or free >= len(others):
        chosen = others[: max(0, free)]
    elif ordering == "random":
        chosen = SeedPlan(others, free, seed=seed, max_batches=1).batches(epoch)[0]
    else:
        step = {"rotation": free, "sequential": 1, "fixed": 0}[ordering]
        chosen = others[(epoch * step + np.arange(free)) % len(others)]
    return [*range(pinned), *sorted(int(k) for k in chosen)]
