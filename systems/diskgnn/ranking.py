"""Which rows are hot: accesses of each node over the sampled mini-batches, and who gets into memory (Section 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from systems.engine.memory import aligned_empty
from systems.engine.ranking import top

Ids = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]

#: Cache sizes at which one pass over the samples finds the largest mini-batch's misses.
_POINTS = 256


def by_node(num_nodes: int) -> Slots:
    """int32 [num_nodes] of zeros, in memory that goes back to the kernel when it is freed."""
    return aligned_empty(4 * num_nodes).view(np.int32)


class AccessCounts:
    """A counter for each node; 4 bytes a node."""

    def __init__(self, num_nodes: int) -> None:
        self.counts = by_node(num_nodes)

    @staticmethod
    def plan_bytes(num_nodes: int, ranked: int) -> int:
        """Bytes of the counters, and of finding the `ranked` hottest."""
        return (4 + 4 + 1) * num_nodes + 32 * ranked

    def add(self, nodes: Ids) -> None:
        """Count one mini-batch's nodes, which are unique."""
        self.counts[nodes] += 1

    def hottest(self, most: int) -> Ids:
        """Up to `most` nodes that any mini-batch asks for, most accesses first, equal ones by id."""
        asked = int(np.count_nonzero(self.counts))
        return top(self.counts, min(most, asked))


def slots_of(ranked: Ids, num_nodes: int) -> Slots:
    """int32 [num_nodes]: a node's place in the ranking, -1 for those that are not in it."""
    slots = by_node(num_nodes)
    slots.fill(-1)
    slots[ranked] = np.arange(len(ranked), dtype=np.int32)
    return slots


@dataclass(frozen=True)
class MissCurve:
    """Most rows that a mini-batch still needs, by how many of the hottest rows are cached.

    Attributes:
        sizes: int64, ascending, from 0: rows cached.
        misses: int64, rows of the neediest mini-batch that are not among them; never rises.
    """

    sizes: Ids
    misses: Ids

    def at(self, cached: int) -> int:
        """At most so many misses with `cached` rows (those at the next smaller size known)."""
        return int(self.misses[np.searchsorted(self.sizes, cached, side="right") - 1])

    def largest_cache(self, rows: int, buffers: int, padding: int = 0, align: int = 1, offset: int = 0) -> int:
        """Most rows of `rows` to cache so that `buffers` mini-batches' misses find room beside them; -1: none does.

        Args:
            padding: rows that each buffer needs on top.
            align: the cache and each buffer take multiples of so many rows.
            offset: rows, hotter ones, that are cached elsewhere.
        """
        ends = [*(int(size) - 1 for size in self.sizes[1:]), int(self.sizes[-1])]
        best = -1
        for size, end, misses in zip(self.sizes.tolist(), ends, self.misses.tolist(), strict=True):
            # Up to the next size known the misses are taken to stay, so what the buffers leave goes to the cache.
            room = (rows - buffers * _up(misses + padding, align)) // align * align
            cached = min(room, end - offset)
            if cached >= max(0, size - offset):
                best = max(best, cached)
        return best


def miss_curve(batches: Iterable[Ids], slots: Slots, ranked: int) -> MissCurve:
    """One pass over the mini-batches' nodes; `slots` ranks the `ranked` hottest."""
    width = max(1, -(-ranked // _POINTS))
    points = -(-ranked // width)
    misses = np.zeros(points + 1, dtype=np.int64)
    for nodes in batches:
        found = slots[nodes]
        found = found[found >= 0]
        hits = np.bincount(found // width, minlength=points)
        cached = np.concatenate([[0], np.cumsum(hits)])
        np.maximum(misses, len(nodes) - cached, out=misses)
    sizes = np.minimum(np.arange(points + 1, dtype=np.int64) * width, ranked)
    return MissCurve(sizes, misses)


def _up(value: int, align: int) -> int:
    return -(-value // align) * align
