"""A static cache of feature rows in host memory (PaGraph's policy): filled once with
the highest-ranked rows.

Rows are never evicted, so a look-up is one read of a node -> slot map, and hits follow
from the ranking alone. The rows lie in a table that the system allocates: alone, or in
front of the buffers that misses are read into, so that a mini-batch's node alias list
points into either without an assembling copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.arrays import as_rows
from systems.engine.io.reader import ReadStats, RowReader
from systems.engine.io.row_reads import RowTable
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]

_CHUNK_ROWS = 1 << 16
_WANTED = -2  # marks a row to be read in the map
_DEPTH = 128
_MAX_REQUEST = 131072


@dataclass(frozen=True)
class Lookup:
    """Cache hits and misses of a mini-batch.

    Attributes:
        slots: int64 [n], the cache row of each node; -1 if not cached.
        misses: int64 [m], positions of the nodes not cached, ascending.
    """

    slots: Ids
    misses: Ids


def look_up(slot_of: npt.NDArray[np.int32] | None, nodes: Ids) -> Lookup:
    """Find a mini-batch's nodes (int64 [n]) in a map from nodes to cache rows (-1:
    none); None: an empty cache."""
    if slot_of is None:
        return Lookup(
            np.full(len(nodes), -1, dtype=np.int64),
            np.arange(len(nodes), dtype=np.int64),
        )
    slots = slot_of[nodes].astype(np.int64)
    return Lookup(slots, np.flatnonzero(slots < 0))


@dataclass
class StaticCache:
    """Rows of the highest-ranked nodes, in a table of the caller's.

    Attributes:
        slot_of: int32 [N], the row of each node in the table, -1 if not cached; None
            for a cache of no rows.
        stats: reads of filling.
    """

    slot_of: npt.NDArray[np.int32] | None
    capacity: int
    stats: ReadStats

    @classmethod
    def build(
        cls, workload: Workload, ranking: Ids, table: torch.Tensor | npt.NDArray[Any]
    ) -> StaticCache:
        """Read the rows of `ranking` into the first rows of `table`, by direct reads in
        file order.

        Args:
            ranking: int64 [capacity], distinct nodes; its order does not matter, slots
                follow the ids.
            table: host table of at least `capacity` rows of the workload's features,
                contiguous.

        Raises:
            DataIOError: the features cannot be read; names file and offset.
            ValueError: the table has fewer rows, or a node is repeated.
        """
        dataset = workload.dataset
        size = workload.dataset.row_bytes
        rows = as_rows(table, size)
        if len(rows) < len(ranking):
            raise ValueError(
                f"the table has {len(rows)} rows, {len(ranking)} are to be cached"
            )
        if not len(ranking):
            return cls(None, 0, ReadStats())
        slot_of = np.full(dataset.num_nodes, -1, dtype=np.int32)
        slot_of[ranking] = _WANTED
        if int(np.count_nonzero(slot_of == _WANTED)) != len(ranking):
            raise ValueError("a node is to be cached twice")
        stats = ReadStats()
        filled = 0
        source = RowTable.of(dataset)
        with RowReader(
            source.path, **source.place, depth=_DEPTH, max_request_bytes=_MAX_REQUEST
        ) as reader:
            # In pieces of the node range: ids ascend without a sort, and without a list
            # of all cached nodes.
            for begin in range(0, dataset.num_nodes, _CHUNK_ROWS):
                nodes = begin + np.flatnonzero(
                    slot_of[begin : begin + _CHUNK_ROWS] == _WANTED
                )
                if len(nodes):
                    slot_of[nodes] = np.arange(
                        filled, filled + len(nodes), dtype=np.int32
                    )
                    stats.add(reader.read(nodes, rows[filled : filled + len(nodes)]))
                    filled += len(nodes)
        return cls(slot_of, len(ranking), stats)

    @staticmethod
    def plan_bytes(workload: Workload, capacity: int) -> int:
        """Return the bytes of the rows and the node -> slot map; 0 for a cache of no
        rows."""
        return capacity * workload.dataset.row_bytes + (
            4 * workload.dataset.num_nodes if capacity else 0
        )

    @staticmethod
    def capacity_of(workload: Workload, nbytes: int) -> int:
        """Return the most rows whose `plan_bytes` are at most `nbytes`."""
        left = nbytes - 4 * workload.dataset.num_nodes
        return min(
            workload.dataset.num_nodes,
            max(0, left) // max(1, workload.dataset.row_bytes),
        )

    @staticmethod
    def scratch_bytes(workload: Workload) -> int:
        """Return the bytes that filling takes beside the cache."""
        source = RowTable.of(workload.dataset)
        reader = RowReader.plan_bytes(
            **source.place,
            num_ids=_CHUNK_ROWS,
            path=source.path,
            depth=_DEPTH,
            max_request_bytes=_MAX_REQUEST,
        )
        return reader + 24 * _CHUNK_ROWS + source.num_rows

    def lookup(self, nodes: Ids) -> Lookup:
        """Find the cached nodes of a mini-batch (int64 [n]), and their rows."""
        return look_up(self.slot_of, nodes)
