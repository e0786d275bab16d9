"""Ranking of rows by accesses over the sampled mini-batches, which selects the rows
held in memory (Section 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from systems.engine.io.memory import aligned_empty
from systems.engine.rank.ranking import top
from workloads.direct_files import padded

Ids = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]

#: Number of cache sizes for which one pass over the samples finds the neediest
#: mini-batch's misses.
_POINTS = 256


def by_node(num_nodes: int) -> Slots:
    """Return int32 [num_nodes] of zeros, in memory that goes back to the kernel when it
    is freed."""
    return aligned_empty(4 * num_nodes).view(np.int32)


class AccessCounts:
    """Access counters, 4 bytes a node."""

    def __init__(self, num_nodes: int) -> None:
        self.counts = by_node(num_nodes)

    @staticmethod
    def plan_bytes(num_nodes: int, ranked: int) -> int:
        """Return the bytes of the counters, and of finding the `ranked` hottest
        nodes."""
        return (4 + 4 + 1) * num_nodes + 32 * ranked

    def add(self, nodes: Ids) -> None:
        """Count one mini-batch's nodes, which are unique."""
        self.counts[nodes] += 1

    def hottest(self, most: int) -> Ids:
        """Return up to `most` nodes that any mini-batch uses, most accesses first, ties
        by id."""
        asked = int(np.count_nonzero(self.counts))
        return top(self.counts, min(most, asked))


def slots_of(ranked: Ids, num_nodes: int) -> Slots:
    """Return int32 [num_nodes], each node's place in the ranking, -1 for nodes outside
    it."""
    slots = by_node(num_nodes)
    slots.fill(-1)
    slots[ranked] = np.arange(len(ranked), dtype=np.int32)
    return slots


@dataclass(frozen=True)
class MissCurve:
    """Misses of the neediest mini-batch by the number of hottest rows cached.

    Attributes:
        sizes: int64, ascending from 0, numbers of cached rows.
        misses: int64, misses of the neediest mini-batch for each size; never rises.
    """

    sizes: Ids
    misses: Ids

    def at(self, cached: int) -> int:
        """Return the most misses with `cached` rows (those of the next smaller known
        size)."""
        return int(self.misses[np.searchsorted(self.sizes, cached, side="right") - 1])

    def largest_cache(
        self, rows: int, buffers: int, padding: int = 0, align: int = 1, offset: int = 0
    ) -> int:
        """Return the most of `rows` rows to cache beside the misses of `buffers`
        mini-batches; -1: these do not fit.

        Args:
            padding: rows that each buffer needs on top.
            align: the cache and each buffer take multiples of so many rows.
            offset: hotter rows that are cached elsewhere.
        """
        ends = [*(int(size) - 1 for size in self.sizes[1:]), int(self.sizes[-1])]
        best = -1
        for size, end, misses in zip(
            self.sizes.tolist(), ends, self.misses.tolist(), strict=True
        ):
            # Misses are taken as constant up to the next known size, so the cache gets
            # all rows that the buffers leave.
            room = (rows - buffers * padded(misses + padding, align)) // align * align
            cached = min(room, end - offset)
            if cached >= max(0, size - offset):
                best = max(best, cached)
        return best


def miss_curve(batches: Iterable[Ids], slots: Slots, ranked: int) -> MissCurve:
    """Compute the curve in one pass over the mini-batches' nodes; `slots` ranks the
    `ranked` hottest nodes."""
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
