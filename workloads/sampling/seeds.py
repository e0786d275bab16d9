"""The seed plan: the seed nodes of every mini-batch, by epoch and rank."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from workloads import _native
from workloads.arraytypes import Int64Array, IntegerArray
from workloads.errors import InputError, require


@dataclass(eq=False)
class SeedPlan:
    """Seed nodes of each epoch's mini-batches on one rank; a function of its arguments
    alone.

    An epoch's order is a Philox-keyed Fisher-Yates shuffle in native code, so it is the
    same with every numpy. A *step* is the next `world * batch_size` nodes of the order,
    of which every rank takes an equal part, in rank order; all ranks have the same
    number of batches. The last step may be short and is then split as evenly as
    possible; with fewer nodes than ranks it is left out (with a shuffle, other nodes
    each epoch). One rank leaves nothing out. Raises InputError where there are fewer
    training nodes than ranks, or a number is out of range.
    """

    train: IntegerArray  # [n], ids of the training nodes, distinct
    batch_size: int  # seed nodes a batch and rank
    _: KW_ONLY
    seed: int  # of the run
    # whether to shuffle anew every epoch; if not, `train` is the order
    shuffle: bool = True
    rank: int = 0
    world: int = 1  # number of ranks
    max_batches: int = 0  # most batches an epoch (0: all)

    def __post_init__(self) -> None:
        fault = f"batch_size is {self.batch_size}"
        require(self.batch_size >= 1, fault, "give at least 1")
        fault = f"max_batches is {self.max_batches}"
        require(self.max_batches >= 0, fault, "give 0 for all batches, or how many")
        fault = f"rank is {self.rank} of {self.world}"
        require(0 <= self.rank < self.world, fault, "give a rank from 0 to world - 1")
        fault = f"seed is {self.seed}"
        valid = 0 <= self.seed < 1 << 64
        require(valid, fault, "give a whole number from 0 to 2^64 - 1")
        nodes = len(self.train)
        fault = f"there are {nodes} training nodes for {self.world} rank(s)"
        valid = nodes >= self.world
        require(valid, fault, "use fewer ranks, or a dataset with more training nodes")
        self.train = np.array(self.train, dtype=np.int64)
        self.train.setflags(write=False)
        steps, rest = divmod(nodes, self.batch_size * self.world)
        steps += rest >= self.world
        self.num_batches: int = (
            min(steps, self.max_batches) if self.max_batches else steps
        )

    def batches(self, epoch: int) -> list[Int64Array]:
        """Return the seed nodes of this rank's batches, in order: `num_batches` int64
        arrays, each <= `batch_size`."""
        fault = f"epoch is {epoch}"
        fix = f"give a number from 0 to {_native.MAX_EPOCH - 1}"
        require(0 <= epoch < _native.MAX_EPOCH, fault, fix)
        order = self.train.astype(np.int64)
        if self.shuffle:
            _native.shuffle(order, self.seed, epoch)
        step = self.batch_size * self.world
        if 2 * step * self.num_batches < len(order):
            # the others need not stay in memory
            order = order[: step * self.num_batches].copy()
        parts = []
        for number in range(self.num_batches):
            nodes = order[number * step : (number + 1) * step]
            first = len(nodes) * self.rank // self.world
            last = len(nodes) * (self.rank + 1) // self.world
            parts.append(nodes[first:last])
        return parts


class PartitionPlan:
    """Seed plan of a rank that trains the nodes of its own partition (PaGraph, Section
    3.2).

    Every rank has as many mini-batches as the rank with the most nodes needs; each cuts
    its own nodes, shuffled anew every epoch, into that many parts as even as possible,
    so that no node is lost and all ranks step together. Args are those of `SeedPlan`,
    but `partition_of` is [T], the rank of each training node, and `batch_size` the most
    seed nodes of a mini-batch. Raises InputError where a rank has fewer training nodes
    than mini-batches, or a number is out of range.
    """

    def __init__(
        self,
        train: IntegerArray,
        partition_of: IntegerArray,
        batch_size: int,
        *,
        rank: int,
        world: int,
        max_batches: int = 0,
        **order: Any,
    ) -> None:
        fault = (
            f"the partition covers {len(partition_of)} training nodes, the dataset has "
            f"{len(train)}"
        )
        require(len(partition_of) == len(train), fault, "make it for this dataset")
        counts = np.bincount(partition_of, minlength=world)
        if len(counts) > world or not 0 <= rank < world:
            fault = f"the partition has {len(counts)} parts for {world} ranks"
            raise InputError(fault, "make it for this many ranks")
        self._parts = -(-int(counts.max()) // batch_size)
        fault = (
            f"a rank has {int(counts.min())} training nodes for {self._parts} "
            "mini-batches"
        )
        require(int(counts.min()) >= self._parts, fault, "raise batch_size")
        self._own = SeedPlan(
            np.asarray(train)[partition_of == rank], int(counts[rank]), **order
        )
        self.batch_size = batch_size
        self.num_batches: int = (
            min(self._parts, max_batches) if max_batches else self._parts
        )

    def batches(self, epoch: int) -> list[Int64Array]:
        """Return the seed nodes of each batch of this rank, in order: `num_batches`
        int64 arrays."""
        (nodes,) = self._own.batches(epoch)
        return [
            part.copy()
            for part in np.array_split(nodes, self._parts)[: self.num_batches]
        ]
