"""Labels: communities of the graph (homophilous along edges), or random by counter."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workloads import _native

_SWEEPS = 10


def community_labels(
    indptr: npt.NDArray[np.int64], indices: npt.NDArray[Any], num_classes: int, seed: int, sweeps: int = _SWEEPS
) -> npt.NDArray[np.int64]:
    """Label nodes by communities of about equal size, int64 [N], so that labels agree along edges.

    Nodes are streamed in random order, each placed with most of its in-neighbours, weighted by the community's free
    capacity, in `sweeps` passes over the edges (linear deterministic greedy, restreamed). Takes 12 N bytes.

    Args:
        indptr: int64 [N + 1].
        indices: int32 or int64 [E], may be memory-mapped.
        num_classes: number of communities.
        seed: seed of the stream's order.
        sweeps: number of passes.
    """
    out = np.empty(indptr.shape[0] - 1, dtype=np.int64)
    _native.communities(indptr, indices, num_classes, sweeps, seed, out)
    return out


def random_labels(num_nodes: int, num_classes: int, seed: int, first: int = 0) -> npt.NDArray[np.int64]:
    """Draw uniform labels of nodes [first, first + num_nodes), int64; any range can be drawn alone.

    Args:
        num_nodes: number of labels.
        num_classes: number of classes.
        seed: seed of the draws.
        first: id of the first node.
    """
    out = np.empty(num_nodes, dtype=np.int64)
    _native.random_labels(first, num_classes, seed, out)
    return out
