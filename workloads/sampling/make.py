"""Construction of a workload's sampler and seed plan, and the bounds of its mini-batches."""

from __future__ import annotations

import mmap
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.errors import InputError
from workloads.sampling.listing import find
from workloads.sampling.neighbor import NeighborSampler
from workloads.sampling.seeds import PartitionPlan, SeedPlan
from workloads.workload import Workload


def make_sampler(
    workload: Workload,
    *,
    indptr: npt.NDArray[np.int64] | None = None,
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64] | None = None,
    labels: npt.NDArray[np.int64] | None = None,
    threads: int = 1,
    cached: tuple[npt.NDArray[np.int64], npt.NDArray[np.int32] | npt.NDArray[np.int64]] | None = None,
    names: npt.NDArray[np.int64] | None = None,
    hops: int | None = None,
) -> NeighborSampler:
    """Make the sampler that a workload names.

    Args:
        workload: workload to sample.
        indptr: int64 [N + 1]; by default loaded into memory.
        indices: [E]; by default memory-mapped for random access, so that the page cache fills the budget.
        labels: int64 [N]; by default loaded into memory.
        threads: number of threads that share one batch.
        cached: neighbour cache, as for `NeighborSampler`.
        names: original ids, where `indptr`, `indices` and `labels` belong to a renumbered graph.
        hops: number of hops to sample, from the seed nodes on, equal to the first of the whole batch. None: all.

    Raises:
        InputError: the sampler is unknown, or has no such number of hops.
    """
    if hops is not None and not 1 <= hops <= len(workload.sampler.fanout):
        raise InputError(f"hops is {hops}", f"give 1 to {len(workload.sampler.fanout)}")
    spec, dataset = workload.sampler, workload.dataset
    kind = find(spec.name)
    if kind.one_subgraph and hops not in (None, len(spec.fanout)):
        raise InputError(f"{spec.name}'s layers share one subgraph, so it has no first hops", "use another sampler")
    if indices is None:
        indices = dataset.memmap("indices")
        advise_random(indices)
    sampler: NeighborSampler = kind.make(
        workload,
        indptr=dataset.load("indptr") if indptr is None else indptr,
        indices=indices,
        fanout=spec.fanout[:hops],
        seed=workload.seed,
        replace=spec.replace,
        threads=threads,
        labels=dataset.load("labels") if labels is None else labels,
        cached=cached,
        names=names,
    )
    return sampler


def make_seed_plan(workload: Workload) -> SeedPlan | PartitionPlan:
    """Make a workload's seed plan, over the dataset's training nodes or those of this rank's partition."""
    sampler = workload.sampler
    if workload.partition is not None:
        with np.load(workload.partition) as file:
            partition_of = file["partition_of"]
        return PartitionPlan(
            workload.dataset.load("train"),
            partition_of,
            sampler.batch_size,
            seed=workload.seed,
            rank=workload.rank,
            world=workload.world,
            shuffle=sampler.shuffle,
            max_batches=sampler.max_batches,
        )
    return SeedPlan(
        workload.dataset.load("train"),
        sampler.batch_size,
        seed=workload.seed,
        shuffle=sampler.shuffle,
        rank=workload.rank,
        world=workload.world,
        max_batches=sampler.max_batches,
    )


def advise_random(array: npt.NDArray[np.integer]) -> None:
    """Tell the kernel not to read ahead in a memory-mapped array; does nothing for an array in memory."""
    mapping = getattr(array, "_mmap", None)
    if isinstance(mapping, mmap.mmap):
        mapping.madvise(mmap.MADV_RANDOM)


@dataclass(frozen=True)
class BatchBounds:
    """Bounds of the mini-batches of a run, over all epochs and batches of this rank.

    Attributes:
        max_nodes: most nodes, that is feature rows, of a batch.
        max_edges: most edges of a batch, over all blocks.
        max_nbytes: most bytes of a batch's arrays.
        largest: (epoch, batch) of the batch with the most nodes.
        nodes_by_batch, edges_by_batch: int64 [epochs, num_batches], nodes and edges of each batch.
        scratch_bytes: working memory of a sampler of one thread after these batches.
    """

    max_nodes: int
    max_edges: int
    max_nbytes: int
    largest: tuple[int, int]
    nodes_by_batch: npt.NDArray[np.int64]
    edges_by_batch: npt.NDArray[np.int64]
    scratch_bytes: int

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> BatchBounds:
        """Return bounds from plain data (JSON)."""
        arrays = {name: np.asarray(content[name], dtype=np.int64) for name in ("nodes_by_batch", "edges_by_batch")}
        return cls(**{**content, **arrays, "largest": tuple(content["largest"])})


_KEPT: dict[tuple[Hashable, ...], BatchBounds] = {}


def _identity(workload: Workload) -> tuple[Hashable, ...]:
    # ShaDow has one block for each layer.
    layers = workload.model.layers
    place = (workload.rank, workload.world, workload.partition)
    return (workload.dataset.fingerprint, workload.sampler, layers, workload.seed, *place)


def keep_bounds(workload: Workload, bounds: BatchBounds) -> None:
    """Make `largest_batch(workload)` return `bounds` in this process: the harness finds them outside the worker's
    memory cap, over all epochs of the run."""
    _KEPT[_identity(workload)] = bounds


def largest_batch(
    workload: Workload,
    *,
    epochs: int = 1,
    sampler: NeighborSampler | None = None,
    plan: SeedPlan | PartitionPlan | None = None,
) -> BatchBounds:
    """Compute exact bounds of the batches of epochs 0 to `epochs - 1`, by sampling all of them.

    Costs the sampling of those epochs and holds one batch at a time; the harness keeps the result with the workload.

    Args:
        workload: workload to sample.
        epochs: number of warm-up and measured epochs.
        sampler: sampler of this workload; None: a new one.
        plan: seed plan of this workload; None: a new one.
    """
    if epochs < 1:
        raise InputError(f"epochs is {epochs}", "give at least 1")
    kept = _KEPT.get(_identity(workload))
    if kept is not None and len(kept.nodes_by_batch) >= epochs:
        return kept
    plan = plan or make_seed_plan(workload)
    sampler = sampler or make_sampler(workload)
    nodes, edges = (np.zeros((epochs, plan.num_batches), dtype=np.int64) for _ in range(2))
    max_nbytes = 0
    for epoch in range(epochs):
        for index, seeds in enumerate(plan.batches(epoch)):
            batch = sampler.sample(epoch, index, seeds)
            nodes[epoch, index], edges[epoch, index] = batch.num_nodes, batch.num_edges
            max_nbytes = max(max_nbytes, batch.nbytes)
    first = int(nodes.argmax())
    return BatchBounds(
        max_nodes=int(nodes.max()),
        max_edges=int(edges.max()),
        max_nbytes=max_nbytes,
        largest=(first // plan.num_batches, first % plan.num_batches),
        nodes_by_batch=nodes,
        edges_by_batch=edges,
        scratch_bytes=sampler.scratch_bytes,
    )
