"""Layout of packed chunks and disk caches (Sections 5.1 and 6).

A mini-batch's row lies in its own packed chunk or in its segment's disk cache. Beside
the rows a chunk has the graph and an address table with the place of each node's row,
so nothing is looked up while training: a row cached in memory, or a row of the
mini-batch's buffer, where packed rows come first, then rows read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.diskgnn.ranking import Ids, Slots
from workloads.sampling.batch import Block, SampledBatch

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Shape:
    """Shape of the disk caches: mini-batches of a segment, and the least accesses
    within it of a cached row."""

    segment: int
    threshold: int = 2


@dataclass(frozen=True)
class Placement:
    """The rows that one mini-batch reads from disk.

    Attributes:
        batch: number of the mini-batch among the samples.
        packed: int64, ids of the rows in its own chunk, ascending.
        single: int64, ids of the rows read one by one from a shared file, in the order
            of `rows`.
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
        """Return the ids of the rows that mini-batch `batch` reads from disk, int64,
        ascending."""
        nodes = self.samples.nodes(batch)
        cold = nodes[self.slots[nodes] < 0]
        cold.sort()
        return cold


def minhash_order(lists: Sequence[Ids], *, hashes: int = 2, seed: int) -> Ids:
    """Order ids so that rows accessed by the same mini-batches lie together on disk.

    A row's minhash is the least number that a random permutation of the segment's
    mini-batches gives to a mini-batch that accesses it; two rows share it with the
    probability that their sets of mini-batches are alike (Algorithm 1).

    Args:
        lists: for each mini-batch of the segment, int64 ids of the disk cache that it
            accesses, unique.
        hashes: permutations; ties of the first are ordered by the next, at last by id.
            0: by id (no reordering).

    Returns:
        int64 [n]: every id that occurs, once.
    """
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return _native.minhash_order(
        np.concatenate([_NONE, *lists]), offsets, hashes, seed % 2**64
    )


def _placements(
    first: int, cold: list[Ids], base: int, where: npt.NDArray[np.int32]
) -> Iterator[Placement]:
    """Yield the placements of ids `cold`; `where` has their places, from 1 on, in the
    disk cache from row `base` on."""
    for number, ids in enumerate(cold, first):
        place = where[ids]
        shared = place > 0
        rows = place[shared].astype(np.int64) + (base - 1)
        by_row = np.argsort(rows)
        yield Placement(number, ids[~shared], ids[shared][by_row], rows[by_row])


def segments(
    samples: ColdSamples,
    shape: Shape,
    where: npt.NDArray[np.int32],
    *,
    hashes: int,
    seed: int,
) -> Iterator[tuple[Ids, Iterator[Placement]]]:
    """Yield the segments of the samples, in order: successive mini-batches that share
    one disk cache.

    Yields:
        int64, ids of the disk cache in the order of its rows; and the placements of the
        segment's mini-batches, in order, invalid once the next segment is requested.

    Args:
        where: int32 [N] of zeros, working memory; zeros again at the end.
        hashes: MinHash functions that order a disk cache (Algorithm 1); 0 leaves it in
            the order of ids.
    """
    base = 0
    for first in range(0, len(samples), shape.segment):
        cold = [
            samples.nodes(batch)
            for batch in range(first, min(first + shape.segment, len(samples)))
        ]
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
        yield order, _placements(first, cold, base, where)
        where[order] = 0
        base += len(order)


Arrays = dict[str, npt.NDArray[Any]]
#: Version of the address table; chunks of another version are not read.
ADDRESSES = 2


@dataclass(frozen=True)
class Levels:
    """Rows held in memory: the `direct` hottest in the table that training reads, the
    next `host` beside it.

    `direct` is the device cache on an accelerator and the host cache on the processor,
    where the table is host memory.
    """

    direct: int
    host: int

    @property
    def cached(self) -> int:
        """Number of rows held in memory."""
        return self.direct + self.host


@dataclass(frozen=True)
class Addresses:
    """A mini-batch's address table.

    Attributes:
        place: int32 [num_nodes], below `Levels.cached` a row in memory, from there on
            `cached` + row of the buffer.
        single: int32 or int64, rows of the shared file to read one by one, ascending.
    """

    place: npt.NDArray[np.int32]
    single: npt.NDArray[np.integer]


def graph_arrays(batch: SampledBatch) -> Arrays:
    """Return the arrays of a mini-batch's graph."""
    shapes = [
        batch.epoch,
        batch.index,
        batch.num_seeds,
        batch.edge_reads,
        batch.list_reads,
        batch.list_hits,
    ]
    lists: Arrays = {}
    for number, block in enumerate(batch.blocks):
        shapes += [block.num_src, block.num_dst]
        lists |= {f"indptr{number}": block.indptr, f"indices{number}": block.indices}
    return {
        "shapes": np.array(shapes, dtype=np.int64),
        "nodes": batch.nodes,
        "labels": batch.labels,
        **lists,
    }


def address_arrays(
    nodes: Ids, placement: Placement, slots: Slots, levels: Levels
) -> Arrays:
    """Return the arrays of a mini-batch's address table.

    Args:
        slots: int32 [N], row in memory of each node, -1 for none.
    """
    place = slots[nodes]
    # The buffer has packed rows, then single rows; their ids are looked up among the
    # mini-batch's nodes.
    cold = np.flatnonzero(place < 0)
    order = np.argsort(nodes[cold], kind="stable")
    by_id = cold[order]
    ids = nodes[by_id]
    packed = len(placement.packed)
    single = len(placement.single)
    place[by_id[np.searchsorted(ids, placement.packed)]] = (
        np.arange(packed, dtype=np.int32) + levels.cached
    )
    place[by_id[np.searchsorted(ids, placement.single)]] = (
        np.arange(single, dtype=np.int32) + levels.cached + packed
    )
    wide = single > 0 and int(placement.rows[-1]) >= 1 << 31
    return {
        "place": place,
        "single": placement.rows.astype(np.int64 if wide else np.int32),
    }


def read_graph(arrays: Mapping[str, npt.NDArray[Any]], epoch: int) -> SampledBatch:
    """Return the graph in a chunk as a mini-batch of `epoch`; a replayed sample was
    drawn in another epoch."""
    shapes = arrays["shapes"].tolist()
    _, index, seeds, edge_reads, list_reads, list_hits = shapes[:6]
    blocks = tuple(
        Block(arrays[f"indptr{number}"], arrays[f"indices{number}"], num_src, num_dst)
        for number, (num_src, num_dst) in enumerate(
            zip(shapes[6::2], shapes[7::2], strict=True)
        )
    )
    return SampledBatch(
        epoch,
        index,
        arrays["nodes"],
        seeds,
        blocks,
        arrays["labels"],
        edge_reads,
        list_reads,
        list_hits,
    )


def segment_bytes(segment: int, max_cold: int) -> int:
    """Return the bytes for ordering one segment: its mini-batches' ids, the shared ids,
    and their hashes."""
    return 3 * 8 * segment * max_cold


def unpacked(samples: ColdSamples) -> Iterator[Placement]:
    """Yield placements without packing: every row is read one by one from the feature
    table."""
    for batch in range(len(samples)):
        cold = samples.nodes(batch)
        yield Placement(batch, _NONE, cold, cold)
