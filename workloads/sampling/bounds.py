"""Bounds on the largest mini-batch, by which every system sizes its buffers."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workloads.arraytypes import Int64Array, JsonDict
from workloads.errors import BudgetError, require
from workloads.making.progress import Progress, no_progress
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler
from workloads.workload import Workload

# The harness may have sampled fewer epochs than a run has: allow for larger
# mini-batches in the others.
_SLACK_SHARE = 0.05
_SLACK_DEVIATIONS = 3.0


@dataclass(frozen=True)
class BatchBounds:
    """Bounds of the mini-batches of a run, over all epochs and batches of this rank."""

    max_nodes: int  # most nodes, that is feature rows, of a batch
    max_edges: int  # most edges of a batch, over all blocks
    max_nbytes: int  # most bytes of a batch's arrays
    largest: tuple[int, int]  # (epoch, batch) of the batch with the most nodes
    nodes_by_batch: Int64Array  # [epochs, num_batches]
    edges_by_batch: Int64Array  # [epochs, num_batches]
    scratch_bytes: int  # working memory of a sampler of one thread after these batches

    def plain(self) -> JsonDict:
        """Return the bounds as plain data: lists in place of arrays and tuples."""
        arrays = {
            "nodes_by_batch": self.nodes_by_batch.tolist(),
            "edges_by_batch": self.edges_by_batch.tolist(),
        }
        return asdict(self) | arrays | {"largest": list(self.largest)}

    @classmethod
    def of_plain(cls, content: Mapping[str, Any]) -> BatchBounds:
        """Return the bounds that `plain` made into `content`."""
        nodes, edges = (
            np.asarray(content[f"{name}_by_batch"], dtype=np.int64)
            for name in ("nodes", "edges")
        )
        arrays = {"nodes_by_batch": nodes, "edges_by_batch": edges}
        return cls(**{**content, **arrays, "largest": tuple(content["largest"])})


_KEPT: dict[tuple[Hashable, ...], BatchBounds] = {}


def _identity(workload: Workload) -> tuple[Hashable, ...]:
    # The layers because ShaDow has one block for each.
    of_rank = (workload.seed, workload.rank, workload.world, workload.partition)
    return (
        workload.dataset.fingerprint,
        workload.sampler,
        workload.model.layers,
        *of_rank,
    )


def keep_bounds(workload: Workload, bounds: BatchBounds) -> None:
    """Make `largest_batch(workload)` return `bounds` in this process: the harness finds
    them outside the worker's memory cap, over all epochs of the run."""
    _KEPT[_identity(workload)] = bounds


def largest_batch(
    workload: Workload,
    *,
    epochs: int = 1,
    sampler: NeighborSampler | None = None,
    progress: Progress = no_progress,
) -> BatchBounds:
    """Compute exact bounds of the batches of epochs 0 to `epochs - 1`, by sampling all
    of them.

    Costs the sampling of those epochs and holds one batch at a time; the harness keeps
    the result with the workload. `epochs` counts warm-up too; `sampler` is one of this
    workload, None: a new one; `progress` is called with the task and its completed
    share. Raises InputError for no epoch.
    """
    fault = f"epochs is {epochs}"
    require(epochs >= 1, fault, "give at least 1")
    kept = _KEPT.get(_identity(workload))
    if kept is not None and len(kept.nodes_by_batch) >= epochs:
        return kept
    plan = make_seed_plan(workload)
    sampler = sampler or make_sampler(workload)
    nodes, edges = (
        np.zeros((epochs, plan.num_batches), dtype=np.int64) for _ in range(2)
    )
    max_nbytes = 0
    for epoch in range(epochs):
        for index, seeds in enumerate(plan.batches(epoch)):
            batch = sampler.sample(epoch, index, seeds)
            nodes[epoch, index] = batch.num_nodes
            edges[epoch, index] = batch.num_edges
            max_nbytes = max(max_nbytes, batch.nbytes)
            done = epoch * plan.num_batches + index + 1
            progress("sampling mini-batches for their sizes", done / nodes.size)
    largest = divmod(int(nodes.argmax()), plan.num_batches)
    most = int(nodes.max()), int(edges.max()), max_nbytes
    return BatchBounds(*most, largest, nodes, edges, sampler.scratch_bytes)


@dataclass(frozen=True)
class Bounds:
    """Bounds over all mini-batches of a run."""

    max_nodes: int  # feature rows of a mini-batch
    max_edges: int  # edges over all blocks of a mini-batch
    sampled_bytes: int  # bytes of a sampled mini-batch's arrays
    scratch_bytes: int  # working memory of one sampler
    num_batches: int  # mini-batches an epoch
    # of a seed plan and an epoch's mini-batches: the training nodes twice, and a copy
    # of half
    seed_bytes: int = 0


def check_size(sampled: SampledBatch, largest: int) -> None:
    """Raise BudgetError if a mini-batch has more than the `largest` nodes that the plan
    holds."""
    if sampled.num_nodes > largest:
        raise BudgetError(
            f"mini-batch {sampled.index} of epoch {sampled.epoch} has "
            f"{sampled.num_nodes} nodes, the plan holds {largest}",
            "report this: the bound of the largest mini-batch is wrong",
        )


_LOCK = threading.Lock()
_FOUND: dict[tuple[Hashable, ...], Bounds] = {}


def batch_bounds(workload: Workload) -> Bounds:
    """Return the bounds of this workload, computed once a process.

    Adds a twentieth or three standard deviations, whichever is more, to the exact sizes
    of `largest_batch` (computed by the harness outside the cap); never exceeds the
    graph's number of nodes.
    """
    key = _identity(workload)
    with _LOCK:
        if key in _FOUND:
            return _FOUND[key]
        exact = largest_batch(workload)
        nodes = exact.nodes_by_batch
        # The last mini-batch of an epoch is often short, which would inflate the
        # spread.
        spread = float(nodes[:, :-1].std()) if nodes.shape[1] > 2 else 0.0
        slack = max(_SLACK_SHARE * exact.max_nodes, _SLACK_DEVIATIONS * spread)
        max_nodes = min(workload.dataset.num_nodes, exact.max_nodes + math.ceil(slack))
        growth = 1 + slack / max(1, exact.max_nodes)
        sizes = (exact.max_edges, exact.max_nbytes, exact.scratch_bytes)
        edges, sampled, scratch = (math.ceil(size * growth) for size in sizes)
        seed_bytes = 20 * len(workload.dataset.memmap("train"))
        _FOUND[key] = Bounds(
            max_nodes, edges, sampled, scratch, int(nodes.shape[1]), seed_bytes
        )
        return _FOUND[key]
