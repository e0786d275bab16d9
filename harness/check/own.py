"""What even a system that samples otherwise by design is held to: its nodes' own rows, and edges of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.sampling.batch import SampledBatch
from workloads.sampling.digest import EpochDigest, feature_digest


class OwnBatches:
    """Looks at an epoch's mini-batches for themselves, whatever was expected.

    Args:
        features: [N, D], the dataset's rows.
        indptr: int64 [N + 1], and
        indices: [E], the dataset's in-neighbours.

    Attributes:
        features: digest of the dataset's rows of the mini-batches' nodes.
        strangers: edges of blocks whose source is no in-neighbour of their destination, nor the destination itself.
    """

    def __init__(
        self, features: npt.NDArray[Any], indptr: npt.NDArray[np.int64], indices: npt.NDArray[np.integer[Any]]
    ) -> None:
        self._table = features
        self._num_nodes = len(indptr) - 1
        heads = np.repeat(np.arange(self._num_nodes, dtype=np.int64), np.diff(indptr))
        # Sorted, and one beyond all at the end, so that every search finds a place.
        self._edges = np.append(np.sort(heads * self._num_nodes + indices), self._num_nodes**2)
        self.features = EpochDigest()
        self.strangers = 0

    def add(self, sampled: SampledBatch, *, rows: bool) -> None:
        """Look at one mini-batch; `rows`: it comes with the rows of its nodes."""
        if rows:
            self.features.add(feature_digest(sampled, self._table, sampled.nodes))
        for block in sampled.blocks:
            heads = np.repeat(sampled.nodes[: block.num_dst], np.diff(block.indptr))
            tails = sampled.nodes[block.indices]
            edges = heads * self._num_nodes + tails
            known = self._edges[np.searchsorted(self._edges, edges)] == edges
            self.strangers += int((~known & (heads != tails)).sum())
