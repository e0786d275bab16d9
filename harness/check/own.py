"""Checks of unfaithful systems: mini-batches need the feature rows of their own nodes, and edges of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import EpochDigest, feature_digest


class OwnBatches:
    """Checks of an epoch's mini-batches against the dataset, without an oracle.

    Args:
        features: [N, D], the dataset's feature rows.
        indptr: int64 [N + 1], offsets of the in-neighbours of each node in `indices`.
        indices: [E], in-neighbours.

    Attributes:
        features: digest of the dataset's feature rows of the mini-batches' nodes.
        strangers: number of block edges whose source is neither in-neighbour nor the destination itself.
    """

    def __init__(
        self, features: npt.NDArray[Any], indptr: npt.NDArray[np.int64], indices: npt.NDArray[np.integer[Any]]
    ) -> None:
        self._table = features
        self._num_nodes = len(indptr) - 1
        heads = np.repeat(np.arange(self._num_nodes, dtype=np.int64), np.diff(indptr))
        # Sorted, with a sentinel larger than every edge, so that every search returns a valid index.
        self._edges = np.append(np.sort(heads * self._num_nodes + indices), self._num_nodes**2)
        self.features = EpochDigest()
        self.strangers = 0

    def add(self, sampled: SampledBatch, *, rows: bool) -> None:
        """Check one mini-batch; `rows`: whether it has the feature rows of its nodes."""
        if rows:
            self.features.add(feature_digest(sampled, self._table, sampled.nodes))
        for block in sampled.blocks:
            heads = np.repeat(sampled.nodes[: block.num_dst], np.diff(block.indptr))
            tails = sampled.nodes[block.indices]
            edges = heads * self._num_nodes + tails
            known = self._edges[np.searchsorted(self._edges, edges)] == edges
            self.strangers += int((~known & (heads != tails)).sum())
