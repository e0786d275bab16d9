"""Placement of a mini-batch's rows on disk: in its own packed chunk or in its segment's disk cache (Section 5.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from systems.diskgnn.minhash import minhash_order
from systems.diskgnn.ranking import Ids, Slots

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Shape:
    """Shape of the disk caches: mini-batches of a segment, and the least accesses within it of a cached row."""

    segment: int
    threshold: int = 2


@dataclass(frozen=True)
class Placement:
    """The rows that one mini-batch reads from disk.

    Attributes:
        batch: number of the mini-batch among the samples.
        packed: int64, ids of the rows in its own chunk, ascending.
        single: int64, ids of the rows read one by one from a shared file, in the order of `rows`.
        rows: int64, positions of `single` in that file, ascending.
    """

    batch: int
    packed: Ids
    single: Ids
    rows: Ids


class Samples(Protocol):
    """Sampled mini-batches, in a file (`BatchReader`) or in memory."""

    def __len__(self) -> int:
        """Return the number of mini-batches."""

    def nodes(self, i: int, /) -> Ids:
        """Return the unique node ids of mini-batch `i`, int64."""


@dataclass(frozen=True, eq=False)
class ColdSamples:
    """Sampled mini-batches without the rows held in memory.

    Attributes:
        slots: int32 [N], -1 for a node whose row is not in memory.
    """

    samples: Samples
    slots: Slots

    def __len__(self) -> int:
        return len(self.samples)

    def nodes(self, batch: int) -> Ids:
        """Return the ids of the rows that mini-batch `batch` reads from disk, int64, ascending."""
        nodes = self.samples.nodes(batch)
        cold = nodes[self.slots[nodes] < 0]
        cold.sort()
        return cold


@dataclass(frozen=True, eq=False)
class Segment:
    """Successive mini-batches that share one disk cache.

    Attributes:
        first: number of its first mini-batch.
        cold: int64, ids that each mini-batch reads from disk.
        order: int64, ids of the disk cache, in the order of its rows.
        base: first row of the disk cache.
        where: int32 [N], place of each node in the disk cache from 1 on, 0 if it is not in it.
    """

    first: int
    cold: list[Ids]
    order: Ids
    base: int
    where: npt.NDArray[np.int32]

    def placements(self) -> Iterator[Placement]:
        """Yield the placements of its mini-batches, in order; invalid once the next segment is requested."""
        for number, cold in enumerate(self.cold):
            place = self.where[cold]
            shared = place > 0
            rows = place[shared].astype(np.int64) + (self.base - 1)
            by_row = np.argsort(rows)
            yield Placement(self.first + number, cold[~shared], cold[shared][by_row], rows[by_row])


def segments(
    samples: ColdSamples, shape: Shape, where: npt.NDArray[np.int32], *, hashes: int, seed: int
) -> Iterator[Segment]:
    """Yield all segments of the samples, in order.

    Args:
        where: int32 [N] of zeros, working memory; zeros again at the end.
        hashes: MinHash functions that order a disk cache (Algorithm 1); 0 leaves it in the order of ids.
    """
    base = 0
    for first in range(0, len(samples), shape.segment):
        cold = [samples.nodes(batch) for batch in range(first, min(first + shape.segment, len(samples)))]
        order = _NONE
        if len(cold) >= shape.threshold:
            for nodes in cold:
                where[nodes] += 1
            lists = [nodes[where[nodes] >= shape.threshold] for nodes in cold]
            for nodes in cold:
                where[nodes] = 0
            order = minhash_order(lists, hashes=hashes, seed=seed)
            del lists
            where[order] = np.arange(1, len(order) + 1, dtype=np.int32)
        yield Segment(first, cold, order, base, where)
        where[order] = 0
        base += len(order)


def segment_bytes(segment: int, max_cold: int) -> int:
    """Return the bytes for ordering one segment: its mini-batches' ids, the shared ids, and their hashes."""
    return 3 * 8 * segment * max_cold


def unpacked(samples: ColdSamples) -> Iterator[Placement]:
    """Yield placements without packing: every row is read one by one from the feature table."""
    for batch in range(len(samples)):
        cold = samples.nodes(batch)
        yield Placement(batch, _NONE, cold, cold)
