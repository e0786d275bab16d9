"""The neighbour sampler of other libraries' kind: a hop expands only the nodes found
first in the hop before, as PyG's does, where ours expands all nodes so far. No system
of ours draws by it; it shows how large such mini-batches are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from workloads.arraytypes import Int64Array
from workloads.sampling.batch import Lists
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler
from workloads.workload import Workload

#: Nodes whose neighbours a hop draws: all so far, or those found first in the hop
#: before.
Expands = Literal["all", "new"]


class Drawn(NamedTuple):
    """Nodes int64 [n] of a mini-batch, its number of edges, and its seed nodes int64
    [s]."""

    nodes: Int64Array
    edges: int
    seeds: Int64Array


def drawn_batches(
    workload: Workload, epoch: int, expands: Expands, indptr: Int64Array, indices: Lists
) -> Iterator[Drawn]:
    """Draw the mini-batches of an epoch, over all ranks, by a sampler that expands
    nodes in one of two ways.

    Args:
        workload, epoch: workload whose seed plan, fan-outs and seed are used, and
            number of the epoch.
        expands: nodes whose neighbours a hop draws; `new` is for the neighbour sampler.
        indptr, indices: the graph's arrays.
    """
    spec = workload.sampler
    make = []
    for hop, count in enumerate(spec.fanout):
        seed = (workload.seed + (hop << 48)) % 2**64
        sampler = NeighborSampler(
            indptr, indices, [count], seed=seed, replace=spec.replace
        )
        make.append(sampler)
    ranks = [replace(workload, rank=rank) for rank in range(workload.world)]
    plans = [make_seed_plan(rank) for rank in ranks]
    if expands == "all":
        ours = [make_sampler(rank, indptr=indptr, indices=indices) for rank in ranks]
    else:
        ours = []
    for rank, plan in enumerate(plans):
        for index, seeds in enumerate(plan.batches(epoch)):
            if expands == "all":
                batch = ours[rank].sample(epoch, index, seeds)
                yield Drawn(batch.nodes, batch.num_edges, seeds)
            else:
                yield _once(make, epoch, index, seeds)


def _once(
    hops: list[NeighborSampler], epoch: int, index: int, seeds: Int64Array
) -> Drawn:
    known = np.sort(seeds)
    frontier = known
    edges = 0
    for sampler in hops:
        if len(frontier) == 0:
            break
        sampled = sampler.sample(epoch, index, frontier)
        edges += sampled.num_edges
        frontier = np.sort(np.setdiff1d(sampled.nodes, known, assume_unique=True))
        known = np.sort(np.concatenate([known, frontier]))
    return Drawn(known, edges, seeds)
