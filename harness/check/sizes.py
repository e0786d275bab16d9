"""Test of a foreign system's mini-batch sizes against the distribution that the workload's own sampler gives.

An epoch's numbers of nodes and edges, summed over its mini-batches, are compared with those of many simulated epochs,
each with draws and an order of seed nodes of its own. The sums run over thousands of draws, so that they are close to
normal, and an epoch more lies within Student's prediction interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from workloads.sampling.batch import Int64
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler
from workloads.workload import Workload

#: Rate at which a system with the right distribution fails, over all epochs and both sizes.
FALSE_ALARMS = 1e-6
SIMULATED = 200
Expands = Literal["all", "new"]


def odd_sizes(workload: Workload, expands: Expands, sizes: Sequence[tuple[int, int]]) -> list[str]:
    """Return one phrase for each size outside the bounds of the simulated epochs.

    Args:
        workload: workload of the run.
        expands: nodes whose neighbours a hop draws: all so far, or those found first in the hop before.
        sizes: (nodes, edges) of each epoch, summed over its mini-batches.
    """
    from scipy.stats import t

    known = np.array(list(simulated(workload, expands, range(SIMULATED))), dtype=np.float64)
    mean, spread = known.mean(0), known.std(0, ddof=1)
    factor = t.isf(FALSE_ALARMS / (2 * 2 * max(1, len(sizes))), SIMULATED - 1) * math.sqrt(1 + 1 / SIMULATED)
    found = []
    for epoch, pair in enumerate(sizes):
        for name, size, middle, one in zip(("nodes", "edges"), pair, mean, spread, strict=True):
            if abs(size - middle) > factor * one:
                bounds = f"{middle - factor * one:.0f} to {middle + factor * one:.0f}"
                found.append(f"epoch {epoch} has {size} {name} in all mini-batches, expected {bounds}")
    return found


def simulated(workload: Workload, expands: Expands, seeds: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield nodes and edges of an epoch, summed over its mini-batches, for each seed."""
    indptr, indices = workload.dataset.load("indptr"), workload.dataset.load("indices")
    for seed in seeds:
        drawn = replace(workload, seed=seed)
        batches = enumerate(make_seed_plan(drawn).batches(0))
        if expands == "all":
            sampler = make_sampler(drawn, indptr=indptr, indices=indices)
            epoch = [(one.num_nodes, one.num_edges) for one in (sampler.sample(0, *batch) for batch in batches)]
        else:
            fanout, replaced = drawn.sampler.fanout, drawn.sampler.replace
            hops = [NeighborSampler(indptr, indices, [count], seed=seed, replace=replaced) for count in fanout]
            epoch = [_once(hops, *batch) for batch in batches]
        yield sum(nodes for nodes, _ in epoch), sum(edges for _, edges in epoch)


def _once(hops: Sequence[NeighborSampler], index: int, seeds: Int64) -> tuple[int, int]:
    """Return nodes and edges of a mini-batch in which no node is expanded twice."""
    known: npt.NDArray[np.int64] = np.sort(seeds)
    frontier, edges = known, 0
    for hop, sampler in enumerate(hops):
        if len(frontier) == 0:
            break
        sampled = sampler.sample(hop, index, frontier)  # draws are keyed by the epoch, here the hop
        edges += sampled.num_edges
        frontier = np.sort(np.setdiff1d(sampled.nodes, known, assume_unique=True))
        known = np.sort(np.concatenate([known, frontier]))
    return len(known), edges
