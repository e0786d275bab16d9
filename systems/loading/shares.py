"""Shares of several ranks: which seed nodes a rank hands out, and what is left out so
that ranks step together.

Shuffled ranks have equal numbers of mini-batches, as `DistributedDataParallel` needs: a
last step of fewer nodes than ranks is left out. Ranks that do not shuffle hand out
every node once between them: the last step may leave some ranks without a mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from systems.interface import Batch, Counters, Plan, System
from workloads.errors import require

Ids = npt.NDArray[np.int64]


def check_ranks(batch_size: int, rank: int, world: int) -> None:
    """Check the numbers of a share; raises InputError for a batch size below 1, or a
    rank that is not of the world."""
    require(batch_size >= 1, f"batch_size is {batch_size}", "give at least 1")
    require(world >= 1, f"world is {world}", "give the number of processes, 1 or more")
    require(
        0 <= rank < world,
        f"rank is {rank} of {world}",
        "give a rank from 0 to world - 1",
    )


def share_of(nodes: Ids, batch_size: int, rank: int, world: int) -> Ids:
    """Return the seed nodes of a rank, in order: its even part of each step of `world *
    batch_size` nodes.

    The ranks' parts are disjoint and are all of `nodes`; a rank may have none.
    """
    step = batch_size * world
    parts = [np.empty(0, dtype=np.int64)]
    for begin in range(0, len(nodes), step):
        together = nodes[begin : begin + step]
        first = len(together) * rank // world
        last = len(together) * (rank + 1) // world
        parts.append(together[first:last])
    return np.concatenate(parts)


def uneven_nodes(num_nodes: int, batch_size: int, world: int, max_batches: int) -> int:
    """Return the nodes of a last step with fewer nodes than ranks; 0 where all ranks
    have equal numbers of mini-batches."""
    steps, rest = divmod(num_nodes, batch_size * world)
    reached = not max_batches or max_batches > steps
    return rest if rest < world and reached else 0


def whole_steps(num_nodes: int, step: int, most: int) -> int:
    """Return the number of whole steps of `step` seed nodes in an epoch, at most `most`
    (0: all).

    Raises:
        InputError: there is none.
    """
    whole = num_nodes // step
    fault = f"drop_last leaves nothing of {num_nodes} seed nodes at {step} a step"
    require(whole, fault, "lower batch_size or world")
    return min(most or whole, whole)


def warning_of(num_nodes: int, uneven: int, world: int, shuffle: bool) -> str:
    """Return the sentence on `uneven` nodes of a last step: which are left out, or
    which ranks lack a mini-batch."""
    if shuffle:
        fault = (
            f"{uneven} of {num_nodes} seed nodes are left out of each epoch, others "
            "each time"
        )
        reason = f"so that {world} ranks have equal numbers of mini-batches"
        return (
            f"{fault}, {reason}; shuffle=False hands out every node, drop_last=True "
            "leaves out the short step anyway"
        )
    fault = (
        f"{world - uneven} of {world} ranks have one mini-batch fewer than the others"
    )
    reason = "so that every node is handed out once"
    return (
        f"{fault}, {reason}; ranks that step together (DistributedDataParallel) need "
        "drop_last=True"
    )


class NoMiniBatches(System):
    """System of a rank without seed nodes: plans, loads and yields nothing."""

    def plan(self) -> Plan:
        """Return a plan without buffers."""
        return Plan()

    def prepare(self) -> None:
        """Do nothing."""

    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield no mini-batch."""
        return iter(())

    def counters(self) -> Counters:
        """Return counts of nothing."""
        return Counters()

    def close(self) -> None:
        """Do nothing."""
