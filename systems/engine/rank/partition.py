"""Self-reliant partitions of the training nodes, one per trainer (PaGraph, Section 3.2
and Algorithm 1).

Each training node goes to one partition, which also gets all its in-neighbours of up to
L hops, so that a trainer samples within its partition. A linear deterministic greedy
pass over the training nodes selects, for each, the partition of highest score (Equation
1): training nodes shared with the node's neighbourhood, times the capacity left, over
the partition's nodes so far. If neighbourhoods hold few training nodes (one hop, a
small split) most scores are 0 and the pass gains little.

Partitions are bitsets of one bit a node; `indptr` and `indices` are memory-mapped, so
the graph need not fit memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.topology import MAKE_AGAIN, DatasetFiles
from workloads.errors import BudgetError, DatasetError, InputError
from workloads.sampling.make import advise_random
from workloads.units import format_bytes
from workloads.workload import Workload

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Partitioning:
    """Partitions of a dataset's nodes.

    Attributes:
        train: int64 [T], the training nodes in the order of the split.
        partition_of: int64 [T], the partition of each training node.
        members: uint64 [K, words], bit `v % 64` of word `v // 64` is set if node v
            is in the partition.
    """

    train: Ints
    partition_of: Ints
    members: Words
    num_nodes: int
    hops: int

    @property
    def num_partitions(self) -> int:
        """Number of partitions, K."""
        return int(self.members.shape[0])

    def train_nodes(self, partition: int) -> Ints:
        """Return the training nodes of a partition, in the order of the split."""
        mine: Ints = self.train[self.partition_of == partition]
        return mine

    def nodes(self, partition: int) -> Ints:
        """Return all nodes of a partition, ascending."""
        bits = np.unpackbits(self.members[partition].view(np.uint8), bitorder="little")
        return np.asarray(np.flatnonzero(bits[: self.num_nodes]), dtype=np.int64)

    @property
    def sizes(self) -> Ints:
        """Nodes of each partition, replicas included: int64 [K]."""
        return np.array([_count(words) for words in self.members], dtype=np.int64)

    @property
    def replication_factor(self) -> float:
        """Nodes summed over all partitions, over distinct nodes: 1 without replicas, at
        most K."""
        distinct = _count(np.bitwise_or.reduce(self.members, axis=0))
        return float(self.sizes.sum()) / max(1, distinct)

    @property
    def train_balance(self) -> float:
        """Training nodes of the largest partition over the average: 1 is even."""
        counts = np.bincount(self.partition_of, minlength=self.num_partitions)
        return float(counts.max()) * self.num_partitions / max(1, len(self.train))

    def save(self, path: Path) -> None:
        """Write the partitions to one `.npz` file."""
        sizes = np.array([self.num_nodes, self.hops])
        np.savez(
            path,
            train=self.train,
            partition_of=self.partition_of,
            members=self.members,
            sizes=sizes,
        )

    @classmethod
    def load(cls, path: Path) -> Partitioning:
        """Read a file of `save`."""
        with np.load(path) as file:
            nodes, hops = (int(value) for value in file["sizes"])
            return cls(
                file["train"], file["partition_of"], file["members"], nodes, hops
            )


def plan_bytes(num_nodes: int, partitions: int, threads: int) -> int:
    """Return the most host memory that partitioning holds, without the mapped graph."""
    return partitions * 8 * _words(num_nodes) + 4 * num_nodes + threads * 8 * num_nodes


def partition_training_nodes(
    workload: Workload,
    partitions: int,
    *,
    hops: int | None = None,
    given: Ints | None = None,
    budget_bytes: int | None = None,
    threads: int | None = None,
) -> Partitioning:
    """Assign the training nodes to `partitions` partitions and add their in-neighbours.

    No partition gets more than the average number of training nodes, rounded up. Ties
    (all scores, if no neighbour has a partition yet) go to the partition with fewer
    nodes, then fewer training nodes, then the first.

    Args:
        hops: L; None: the number of the model's layers.
        given: int64 [T], the partition of each training node, instead of the greedy
            choice (for comparison).
        budget_bytes: bytes that partitioning may hold, without the page cache of the
            mapped graph.
        threads: threads that search in-neighbours; the result is the same for any
            number.

    Raises:
        BudgetError: bitsets and working memory do not fit.
        DatasetError: an id is outside the graph.
        DataIOError: a file was truncated.
        InputError: `partitions` is below 1 or above the number of training nodes.
    """
    dataset = workload.dataset
    train = dataset.load("train")
    if not 1 <= partitions <= max(1, len(train)):
        raise InputError(
            f"partitions is {partitions}", f"give 1 to {len(train)}, the training nodes"
        )
    threads = threads or len(os.sched_getaffinity(0))
    needed = plan_bytes(dataset.num_nodes, partitions, threads)
    if budget_bytes is not None and needed > budget_bytes:
        raise BudgetError(
            f"partitioning: {format_bytes(needed)} are needed for {partitions} bitsets "
            f"and {threads} threads, the budget is {format_bytes(budget_bytes)}",
            "raise memory or use fewer threads",
        )
    hops = workload.model.layers if hops is None else hops
    members = np.zeros((partitions, _words(dataset.num_nodes)), dtype=np.uint64)
    assigned = (
        np.empty(0, dtype=np.int64)
        if given is None
        else np.ascontiguousarray(given, dtype=np.int64)
    )
    indptr, indices = _graph(workload)
    try:
        found = _native.partition_greedily(
            indptr, indices, train, hops, assigned, members, threads
        )
    except ValueError as error:
        raise _damaged(workload, error) from None
    return Partitioning(train, found, members, dataset.num_nodes, hops)


def _graph(workload: Workload) -> tuple[Ints, NDArray[Any]]:
    DatasetFiles(workload, ["indices"]).check()
    indptr = workload.dataset.memmap("indptr")
    indices = workload.dataset.memmap("indices")
    advise_random(indices)
    return indptr, indices


def _damaged(workload: Workload, error: ValueError) -> DatasetError:
    return DatasetError(
        f"{workload.dataset.file('indices')} cannot be followed: {error}", MAKE_AGAIN
    )


def _words(num_nodes: int) -> int:
    return (num_nodes + 63) // 64


def _count(words: Words) -> int:
    return int.from_bytes(words.tobytes(), "little").bit_count()
