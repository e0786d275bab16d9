"""Generated labels (communities) and feature rows, recomputable: the centre of a class, or a base row, plus noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads import _native
from workloads.errors import require
from workloads.kronecker.spec import Int64
from workloads.mapped import small_maps

_SWEEPS = 10
# Length of the class centres in units of the noise: a single row reveals its class most of the time, not always.
SIGNAL = 3.0
_BASE_NOISE = 0.1
_CENTRE_IDS = 1 << 62  # beyond any node's id, so that no node shares its draws with a centre
_PROJECTION_IDS = 1 << 61
_CHUNK_BYTES = 16 << 20


class FeatureSource:
    """Feature table [num_nodes, dim], float32 or float16, whose rows are pure functions of the seed and the node's id.

    Row v is `centres[group(v)] + noise * z(seed, v)`, z about normal (mean 0, variance 1) from Philox draws.
    """

    def __init__(
        self,
        num_nodes: int,
        centres: npt.NDArray[np.float32],
        group: Callable[[Int64], Int64],
        *,
        dtype: npt.DTypeLike = "float32",
        seed: int = 0,
        noise: float = 1.0,
        threads: int = 1,
    ) -> None:
        """Make a source from centres; most callers use `of_classes`, `of_base` or `random`.

        Args:
            num_nodes: N.
            centres: float32 [G, D].
            group: gives the groups of node ids, int64 [n], each below G.
            dtype, seed, noise: float32 or float16, 0 to 2^64 - 1, and factor of the noise.
            threads: number of threads that fill rows.
        """
        self.num_nodes, self.dim, self.dtype = num_nodes, int(centres.shape[1]), np.dtype(dtype)
        require(self.dtype in (np.float32, np.float16), f"features cannot be {self.dtype}", "use float32 or float16")
        self._centres = np.ascontiguousarray(centres, dtype=np.float32)
        self._group, self._seed, self._noise, self._threads = group, seed, noise, max(1, threads)

    @classmethod
    def of_classes(cls, labels: Int64, num_classes: int, dim: int, **options: Any) -> FeatureSource:
        """Make rows [N, dim] of class centres plus noise; a node without label (negative) gets noise alone.

        Args:
            labels: int64 [N].
            num_classes, dim: numbers of classes and of columns.
            options: `dtype`, `seed`, `threads`.
        """
        centres = class_centres(num_classes, dim, int(options.get("seed", 0)))
        with_none = np.concatenate([centres, np.zeros((1, dim), dtype=np.float32)])

        def group(ids: Int64) -> Int64:
            found = np.asarray(labels[ids], dtype=np.int64)
            return np.where(found < 0, num_classes, found)

        return cls(labels.shape[0], with_none, group, **options)

    @classmethod
    def of_base(cls, base_features: Any, num_nodes: int, dim: int, **options: Any) -> FeatureSource:
        """Make rows [num_nodes, dim] of base rows plus a little noise; node v is a copy of base node `v % base nodes`.

        Args:
            base_features: [B, D0], dense or scipy sparse; where D0 differs from `dim`, projected by a random matrix of
                signs, then scaled to a standard deviation of 1 over all entries.
            num_nodes, dim: numbers of rows and of columns.
            options: `dtype`, `seed`, `threads`.
        """
        table = projected(base_features, dim, int(options.get("seed", 0)))
        return cls(num_nodes, table, lambda ids: ids % table.shape[0], noise=_BASE_NOISE, **options)

    @classmethod
    def random(cls, num_nodes: int, dim: int, **options: Any) -> FeatureSource:
        """Make rows of noise alone."""
        return cls(num_nodes, np.zeros((1, dim), dtype=np.float32), np.zeros_like, **options)

    def rows(self, ids: Int64, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Compute the rows of nodes `ids` (int64 [n], any order) as [n, D], into `out` where given."""
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if out is None:
            out = np.empty((ids.shape[0], self.dim), dtype=self.dtype)
        arguments = (self._centres, self._group(ids), ids, self._seed, self._noise, self._threads)
        if self.dtype == np.float32:
            _native.feature_rows32(*arguments, out)
        else:
            _native.feature_rows16(*arguments, out.view(np.uint16))
        return out

    def chunks(self, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[npt.NDArray[Any]]:
        """Yield all rows in order, in arrays of about `chunk_bytes`; the next chunk overwrites the last one."""
        step = max(1, chunk_bytes // (self.dim * self.dtype.itemsize))
        buffer = np.empty((min(step, self.num_nodes), self.dim), dtype=self.dtype)
        for first in range(0, self.num_nodes, step):
            ids = np.arange(first, min(self.num_nodes, first + step), dtype=np.int64)
            yield self.rows(ids, buffer[: ids.shape[0]])


def community_labels(indptr: Int64, indices: npt.NDArray[Any], num_classes: int, seed: int) -> Int64:
    """Label nodes by communities of about equal size, int64 [N], so that labels agree along edges.

    Nodes are streamed in random order, each placed with most of its in-neighbours, weighted by the community's free
    capacity, in ten passes over the edges (linear deterministic greedy, restreamed). Takes 12 N bytes.

    Args:
        indptr, indices: in-neighbours of the graph, may be memory-mapped.
        num_classes: number of communities.
        seed: seed of the stream's order.
    """
    out = np.empty(indptr.shape[0] - 1, dtype=np.int64)
    with small_maps(indptr, indices):
        _native.communities(indptr, indices, num_classes, _SWEEPS, seed, out)
    return out


def random_labels(num_nodes: int, num_classes: int, seed: int, first: int = 0) -> Int64:
    """Draw uniform labels of nodes [first, first + num_nodes), int64; any range can be drawn alone."""
    out = np.empty(num_nodes, dtype=np.int64)
    _native.random_labels(first, num_classes, seed, out)
    return out


def class_centres(num_classes: int, dim: int, seed: int) -> npt.NDArray[np.float32]:
    """Draw the class centres by counter, float32 [num_classes, dim], of length about `SIGNAL` for any `dim`."""
    ids = _CENTRE_IDS + np.arange(num_classes, dtype=np.int64)
    return _draws(ids, dim, seed) * np.float32(SIGNAL / np.sqrt(dim))


def projected(features: Any, dim: int, seed: int) -> npt.NDArray[np.float32]:
    """Project [B, D0] dense or sparse features to float32 [B, dim] of standard deviation 1."""
    if features.shape[1] == dim:
        table = np.asarray(features.toarray() if hasattr(features, "toarray") else features, dtype=np.float32)
    else:
        ids = _PROJECTION_IDS + np.arange(features.shape[1], dtype=np.int64)
        signs = np.where(_draws(ids, dim, seed) < 0, np.float32(-1), np.float32(1))
        table = np.asarray(features @ signs, dtype=np.float32)
    deviation = float(table.std())
    return np.ascontiguousarray(table / np.float32(deviation) if deviation > 0 else table)


def _draws(ids: Int64, dim: int, seed: int) -> npt.NDArray[np.float32]:
    out = np.empty((ids.shape[0], dim), dtype=np.float32)
    zeros = np.zeros((1, dim), dtype=np.float32)
    _native.feature_rows32(zeros, np.zeros(ids.shape[0], dtype=np.int64), ids, seed, 1.0, 1, out)
    return out
