"""Construction of a workload's sampler and seed plan."""

from __future__ import annotations

import numpy as np

from workloads.arraytypes import Int64Array, JsonDict
from workloads.direct_files import advise_random as advise_random
from workloads.errors import InputError
from workloads.sampling.batch import Lists
from workloads.sampling.listing import find
from workloads.sampling.neighbor import NeighborSampler
from workloads.sampling.seeds import PartitionPlan, SeedPlan
from workloads.workload import Workload


def make_sampler(
    workload: Workload,
    *,
    indptr: Int64Array | None = None,
    indices: Lists | None = None,
    labels: Int64Array | None = None,
    threads: int = 1,
    cached: tuple[Int64Array, Lists] | None = None,
    names: Int64Array | None = None,
    hops: int | None = None,
) -> NeighborSampler:
    """Make the sampler that a workload names.

    Args:
        workload: workload to sample.
        indptr, labels: [N + 1] and [N]; by default loaded into memory.
        indices: [E]; by default memory-mapped for random access, so that the page cache
            fills the budget.
        threads, cached, names: as for `NeighborSampler`.
        hops: number of hops to sample, from the seed nodes on, equal to the first of
            the whole batch. None: all.

    Raises:
        InputError: the sampler is unknown, or has no such number of hops.
    """
    if hops is not None and not 1 <= hops <= len(workload.sampler.fanout):
        fault = f"hops is {hops}"
        fix = f"give 1 to {len(workload.sampler.fanout)}"
        raise InputError(fault, fix)
    spec = workload.sampler
    dataset = workload.dataset
    kind = find(spec.name)
    if kind.one_subgraph and hops not in (None, len(spec.fanout)):
        raise InputError(
            f"{spec.name}'s layers share one subgraph, so it has no first hops",
            "use another sampler",
        )
    if indices is None:
        indices = dataset.memmap("indices")
        advise_random(indices)
    if indptr is None:
        indptr = dataset.load("indptr")
    if labels is None:
        labels = dataset.load("labels")
    sampler: NeighborSampler = kind.make(
        workload,
        indptr=indptr,
        indices=indices,
        fanout=spec.fanout[:hops],
        seed=workload.seed,
        replace=spec.replace,
        threads=threads,
        labels=labels,
        cached=cached,
        names=names,
    )
    return sampler


def make_seed_plan(workload: Workload) -> SeedPlan | PartitionPlan:
    """Make a workload's seed plan, over the dataset's training nodes or those of this
    rank's partition."""
    sampler = workload.sampler
    train = workload.dataset.load("train")
    options: JsonDict = {"shuffle": sampler.shuffle, "max_batches": sampler.max_batches}
    options |= {"seed": workload.seed, "rank": workload.rank, "world": workload.world}
    if workload.partition is None:
        return SeedPlan(train, sampler.batch_size, **options)
    with np.load(workload.partition) as file:
        return PartitionPlan(train, file["partition_of"], sampler.batch_size, **options)
