"""Weights of sampled edges: found in the neighbour lists after sampling, so they are
equal from every system."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from workloads.dataset import Dataset
from workloads.errors import DatasetError, require
from workloads.sampling.make import advise_random

Ids = npt.NDArray[np.int64]
#: Bytes of working memory for each edge looked up.
LOOKUP_BYTES = 48


class EdgeWeights:
    """Weights of a dataset's edges, read through memory maps: the page cache keeps what
    memory allows.

    Raises:
        InputError: the dataset has no edge weights.
    """

    def __init__(self, dataset: Dataset) -> None:
        fault = f"edge_weight is asked for, and {dataset.name} has no edge weights"
        require(
            "edge_weight" in dataset.manifest.files,
            fault,
            "import it with edge_weight (--format pyg)",
        )
        self._name = dataset.name
        maps = [dataset.memmap(part) for part in ("indptr", "indices", "edge_weight")]
        for mapped in maps:
            advise_random(mapped)
        self._indptr, self._indices, self._weights = (
            np.asarray(mapped) for mapped in maps
        )

    def of(self, sources: Ids, targets: Ids) -> npt.NDArray[np.float32]:
        """Return the weights, float32 [n], of edges given by the original ids of their
        ends, int64 [n].

        A binary search for all edges at once: neighbour lists are ascending, and those
        with weights without repeats.

        Raises:
            DatasetError: an edge is not in the graph.
        """
        low = self._indptr[targets]
        high = self._indptr[targets + 1]
        last = max(0, len(self._indices) - 1)
        while (left := low < high).any():
            middle = (low + high) // 2
            below = self._indices[np.minimum(middle, last)] < sources
            low = np.where(left & below, middle + 1, low)
            high = np.where(left & ~below, middle, high)
        place = np.minimum(low, last)
        found = (low < self._indptr[targets + 1]) & (self._indices[place] == sources)
        fault = f"a sampled edge is not in the neighbour lists of {self._name}"
        require(
            found.all(),
            fault,
            "check the dataset with `outcore data verify`",
            DatasetError,
        )
        weights: npt.NDArray[np.float32] = self._weights[place]
        return weights
