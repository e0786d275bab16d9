"""Partitions in memory in an epoch: those of the training nodes always, the others by the ordering."""

from __future__ import annotations

import numpy as np

from systems.mariusgnn.options import Ordering
from workloads.sampling.seeds import SeedPlan


def buffered(count: int, pinned: int, capacity: int, ordering: Ordering, *, seed: int, epoch: int) -> list[int]:
    """Return the partitions of an epoch, ascending; a function of its arguments alone.

    Training nodes fill the first partitions, which stay; the other slots change between epochs and never within one
    (MariusGNN's policy for node classification, as described by GNNDrive, Section 2).

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
