"""Self-reliant partitions of the training nodes, one a trainer (PaGraph, Section 3.2 and Algorithm 1).

Each training node goes to one partition, which also gets all its in-neighbours of up to L hops, so that a trainer
samples inside its own. A linear deterministic greedy pass over the training nodes takes, for each, the partition of the
highest score (Equation 1): training nodes it shares with the node's neighbourhood, times the room left, over its nodes
so far. Where neighbourhoods hold few training nodes (one hop, a small split) most scores are 0 and it gains little.

Partitions are bitsets of one bit a node; `indptr` and `indices` are memory-mapped, so the graph need not fit memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systems import _native
from systems.engine.topology import DatasetFiles
from workloads.errors import BudgetError, DatasetError, InputError
from workloads.sampling.make import advise_random
from workloads.units import format_bytes
from workloads.workload import Workload

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
_BITS = np.array([number.bit_count() for number in range(256)], dtype=np.uint8)


@dataclass(frozen=True)
class Partitioning:
    """Partitions of a dataset's nodes.

    Attributes:
        train: int64 [T], the training nodes in the order of the split.
        partition_of: int64 [T], the partition of each.
        members: uint64 [K, words], bit `v % 64` of word `v // 64` says whether node v is in the partition.
        num_nodes: N.
        hops: L.
    """

    train: Ints
    partition_of: Ints
    members: Words
    num_nodes: int
    hops: int

    @property
    def num_partitions(self) -> int:
        """K."""
        return int(self.members.shape[0])

    def train_nodes(self, partition: int) -> Ints:
        """The training nodes of a partition, in the order of the split."""
        mine: Ints = self.train[self.partition_of == partition]
        return mine

    def nodes(self, partition: int) -> Ints:
        """All nodes of a partition, ascending."""
        bits = np.unpackbits(self.members[partition].view(np.uint8), bitorder="little")
        return np.asarray(np.flatnonzero(bits[: self.num_nodes]), dtype=np.int64)

    @property
    def sizes(self) -> Ints:
        """int64 [K]: nodes of each partition, replicas included."""
        return np.array([_count(words) for words in self.members], dtype=np.int64)

    @property
    def replication_factor(self) -> float:
        """Nodes over all partitions, over the nodes that are in any: 1 where nothing is replicated, at most K."""
        distinct = _count(np.bitwise_or.reduce(self.members, axis=0))
        return float(self.sizes.sum()) / max(1, distinct)

    @property
    def train_balance(self) -> float:
        """Training nodes of the largest partition over the average: 1 is even."""
        counts = np.bincount(self.partition_of, minlength=self.num_partitions)
        return float(counts.max()) * self.num_partitions / max(1, len(self.train))

    def save(self, path: Path) -> None:
        """Write it to one `.npz` file."""
        np.savez(
            path,
            train=self.train,
            partition_of=self.partition_of,
            members=self.members,
            sizes=np.array([self.num_nodes, self.hops]),
        )

    @classmethod
    def load(cls, path: Path) -> Partitioning:
        """Read what `save` wrote."""
        with np.load(path) as file:
            nodes, hops = (int(value) for value in file["sizes"])
            return cls(file["train"], file["partition_of"], file["members"], nodes, hops)


def plan_bytes(num_nodes: int, partitions: int, threads: int) -> int:
    """Bytes of host memory that partitioning holds at most, the mapped graph apart."""
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

    No partition gets more than the average number of training nodes, rounded up. Equal scores (all of them, where no
    neighbour has a partition yet) go to the partition of fewer nodes, then of fewer training nodes, then the first.

    Args:
        hops: L; None: as many as the model has layers.
        given: int64 [T], the partition of each training node, instead of the greedy choice (to compare with).
        budget_bytes: bytes that this may hold, the page cache of the mapped graph apart.
        threads: that look for in-neighbours; the result is the same for any number.

    Raises:
        BudgetError: bitsets and working memory do not fit.
        DatasetError: an id is no node's.
        DataIOError: a file was truncated.
        InputError: no partition, or more than training nodes.
    """
    dataset = workload.dataset
    train = dataset.load("train")
    if not 1 <= partitions <= max(1, len(train)):
        raise InputError(f"partitions is {partitions}", f"give 1 to {len(train)}, the training nodes")
    threads = threads or len(os.sched_getaffinity(0))
    needed = plan_bytes(dataset.num_nodes, partitions, threads)
    if budget_bytes is not None and needed > budget_bytes:
        raise BudgetError(
            f"partitioning: {format_bytes(needed)} are needed for {partitions} bitsets and {threads} threads, the "
            f"budget is {format_bytes(budget_bytes)}",
            "raise memory or use fewer threads",
        )
    hops = workload.model.layers if hops is None else hops
    members = np.zeros((partitions, _words(dataset.num_nodes)), dtype=np.uint64)
    assigned = np.empty(0, dtype=np.int64) if given is None else np.ascontiguousarray(given, dtype=np.int64)
    indptr, indices = _graph(workload)
    try:
        found = _native.partition_greedily(indptr, indices, train, hops, assigned, members, threads)
    except ValueError as error:
        raise _damaged(workload, error) from None
    return Partitioning(train, found, members, dataset.num_nodes, hops)


def cross_partition_accesses(
    workload: Workload, partitioning: Partitioning, *, hops: int | None = None, threads: int | None = None
) -> tuple[int, int]:
    """(accesses that leave the partition, all accesses): pairs of a training node and an L-hop in-neighbour, or itself.

    A self-reliant partitioning has none that leave for the hops it was made for.
    """
    indptr, indices = _graph(workload)
    try:
        every, outside = _native.count_accesses(
            indptr,
            indices,
            partitioning.train,
            partitioning.partition_of,
            partitioning.hops if hops is None else hops,
            partitioning.members,
            threads or len(os.sched_getaffinity(0)),
        )
    except ValueError as error:
        raise _damaged(workload, error) from None
    return outside, every


def _graph(workload: Workload) -> tuple[Ints, NDArray[Any]]:
    DatasetFiles(workload, ["indices"]).check()
    indptr, indices = workload.dataset.memmap("indptr"), workload.dataset.memmap("indices")
    advise_random(indices)
    return indptr, indices


def _damaged(workload: Workload, error: ValueError) -> DatasetError:
    return DatasetError(
        f"{workload.dataset.file('indices')} cannot be followed: {error}",
        "`outcore data verify` names every fault; make or import it again",
    )


def _words(num_nodes: int) -> int:
    return (num_nodes + 63) // 64


def _count(words: Words) -> int:
    return int(_BITS[words.view(np.uint8)].sum(dtype=np.int64))
