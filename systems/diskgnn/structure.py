"""Contents of a packed chunk beside feature rows: the mini-batch's graph and its address table (Section 6).

The address table has the place of each node's row, so nothing is looked up while training: a row cached in memory, or a
row of the mini-batch's buffer, where packed rows come first, then rows read one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.diskgnn.layout import Placement
from systems.diskgnn.ranking import Ids, Slots
from workloads.sampling.batch import Block, SampledBatch

Arrays = dict[str, npt.NDArray[Any]]
#: Version of the address table; chunks of another version are not read.
ADDRESSES = 2


@dataclass(frozen=True)
class Levels:
    """Rows held in memory: the `direct` hottest in the table that training reads, the next `host` beside it.

    `direct` is the device cache on an accelerator and the host cache on the processor, where the table is host memory.
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
        place: int32 [num_nodes], below `Levels.cached` a row in memory, from there on `cached` + row of the buffer.
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
        *(number for block in batch.blocks for number in (block.num_src, block.num_dst)),
    ]
    arrays: Arrays = {"shapes": np.array(shapes, dtype=np.int64), "nodes": batch.nodes, "labels": batch.labels}
    for number, block in enumerate(batch.blocks):
        arrays[f"indptr{number}"] = block.indptr
        arrays[f"indices{number}"] = block.indices
    return arrays


def address_arrays(nodes: Ids, placement: Placement, slots: Slots, levels: Levels) -> Arrays:
    """Return the arrays of a mini-batch's address table.

    Args:
        slots: int32 [N], row in memory of each node, -1 for none.
    """
    place = slots[nodes]
    # The buffer has packed rows, then single rows; their ids are looked up among the mini-batch's nodes.
    cold = np.flatnonzero(place < 0)
    order = np.argsort(nodes[cold], kind="stable")
    by_id = cold[order]
    ids = nodes[by_id]
    packed, single = len(placement.packed), len(placement.single)
    place[by_id[np.searchsorted(ids, placement.packed)]] = np.arange(packed, dtype=np.int32) + levels.cached
    place[by_id[np.searchsorted(ids, placement.single)]] = np.arange(single, dtype=np.int32) + levels.cached + packed
    wide = single > 0 and int(placement.rows[-1]) >= 1 << 31
    return {"place": place, "single": placement.rows.astype(np.int64 if wide else np.int32)}


def read_graph(arrays: Mapping[str, npt.NDArray[Any]], epoch: int) -> SampledBatch:
    """Return the graph in a chunk as a mini-batch of `epoch`; a replayed sample was drawn in another epoch."""
    shapes = arrays["shapes"].tolist()
    _, index, seeds, edge_reads, list_reads, list_hits = shapes[:6]
    blocks = tuple(
        Block(arrays[f"indptr{number}"], arrays[f"indices{number}"], num_src, num_dst)
        for number, (num_src, num_dst) in enumerate(zip(shapes[6::2], shapes[7::2], strict=True))
    )
    return SampledBatch(
        epoch, index, arrays["nodes"], seeds, blocks, arrays["labels"], edge_reads, list_reads, list_hits
    )
