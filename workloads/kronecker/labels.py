"""Labels: kept from a base graph, found as communities of the graph (homophilous along edges), or random by counter."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workloads import _native

_SWEEPS = 10


def community_labels(
    indptr: npt.NDArray[np.int64], indices: npt.NDArray[Any], num_classes: int, seed: int, sweeps: int = _SWEEPS
) -> npt.NDArray[np.int64]:
    """Labels that agree along edges: communities of about equal size, int64 [N].

    Nodes are streamed in random order, each placed with most of its in-neighbours where there is room, several times
    over (linear deterministic greedy, restreamed). Takes 8 N bytes and passes over the edges `sweeps` times.

    Args:
        indptr: int64 [N + 1].
        indices: int32 or int64 [E], may be memory-mapped.
        num_classes: communities.
        seed: orders the stream.
        sweeps: passes.
    """
    out = np.empty(indptr.shape[0] - 1, dtype=np.int64)
    _native.communities(indptr, indices, num_classes, sweeps, seed, out)
    return out


def random_labels(num_nodes: int, num_classes: int, seed: int, first: int = 0) -> npt.NDArray[np.int64]:
    """Uniform labels of nodes [first, first + num_nodes), int64; any range can be made alone."""
    out = np.empty(num_nodes, dtype=np.int64)
    _native.random_labels(first, num_classes, seed, out)
    return out


def expand_labels(base_labels: npt.NDArray[np.int64], num_nodes: int) -> npt.NDArray[np.int64]:
    """Labels of an expansion: node v is a copy of base node `v % base nodes` and has its label."""
    return np.resize(np.asarray(base_labels, dtype=np.int64), num_nodes)
