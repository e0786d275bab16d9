"""Bounds on the largest mini-batch, by which every system sizes its buffers."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

from workloads.sampling.make import largest_batch
from workloads.sampling.seeds import plan_bytes
from workloads.workload import Workload

# The harness may have sampled fewer epochs than a run has: allow for larger mini-batches in the others.
_SLACK_SHARE = 0.05
_SLACK_DEVIATIONS = 3.0


@dataclass(frozen=True)
class Bounds:
    """Bounds over all mini-batches of a run.

    Attributes:
        max_nodes: feature rows of a mini-batch.
        max_edges: edges over all blocks of a mini-batch.
        sampled_bytes: bytes of a sampled mini-batch's arrays.
        scratch_bytes: working memory of one sampler.
        num_batches: mini-batches an epoch.
        seed_bytes: bytes of the training nodes and of an epoch's order of them.
    """

    max_nodes: int
    max_edges: int
    sampled_bytes: int
    scratch_bytes: int
    num_batches: int
    seed_bytes: int = 0


_LOCK = threading.Lock()
_FOUND: dict[tuple[Any, ...], Bounds] = {}


def batch_bounds(workload: Workload) -> Bounds:
    """Return the bounds of this workload, computed once a process.

    Adds a twentieth or three standard deviations, whichever is more, to the exact sizes of `largest_batch` (computed by
    the harness outside the cap); never exceeds the graph's number of nodes.
    """
    key = (
        workload.dataset.fingerprint,
        workload.sampler,
        workload.seed,
        workload.rank,
        workload.world,
        workload.partition,
    )
    with _LOCK:
        if key not in _FOUND:
            _FOUND[key] = _find(workload)
        return _FOUND[key]


def _find(workload: Workload) -> Bounds:
    exact = largest_batch(workload)
    nodes = exact.nodes_by_batch
    # The last mini-batch of an epoch is often short, which would inflate the spread.
    spread = float(nodes[:, :-1].std()) if nodes.shape[1] > 2 else 0.0
    slack = max(_SLACK_SHARE * exact.max_nodes, _SLACK_DEVIATIONS * spread)
    max_nodes = min(workload.dataset.num_nodes, exact.max_nodes + math.ceil(slack))
    growth = 1 + slack / max(1, exact.max_nodes)
    return Bounds(
        max_nodes=max_nodes,
        max_edges=math.ceil(exact.max_edges * growth),
        sampled_bytes=math.ceil(exact.max_nbytes * growth),
        scratch_bytes=math.ceil(exact.scratch_bytes * growth),
        num_batches=int(nodes.shape[1]),
        seed_bytes=plan_bytes(len(workload.dataset.memmap("train"))),
    )
