"""Partition buffer: rows of the buffered nodes and the graph among them, read in place
in large pieces."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import ReadStats, RowReader
from systems.mariusgnn.options import REQUEST_BYTES, MariusOptions, depths
from systems.mariusgnn.partitioned import FEATURES, TOPOLOGY, Layout, runs
from workloads.errors import DataIOError

_FEATURE_UNIT = (
    128 << 20
)  # bytes of rows read in one call: signals are handled between two calls

Ids = npt.NDArray[np.int64]


def _open(path: Path, depth: int) -> RowReader:
    return RowReader(
        path,
        data_offset=0,
        num_rows=0,
        row_bytes=4096,
        depth=depth,
        max_request_bytes=REQUEST_BYTES,
    )


class PartitionBuffer:
    """Buffer of `capacity` slots of one partition each, and the graph among the
    buffered nodes.

    Args:
        folder: the prepared files.
        max_edges: most edges among the partitions that may be in memory together.
        unit_bytes: bytes of the buffer through which lists and edge buckets are read.
        features: whether rows are buffered.

    Attributes:
        features: uint8 [capacity * size, row_bytes], feature rows; row `row_of[v]` is
            node v's.
        row_of: int32 [num_nodes], row of each node, -1 where the node is not buffered.
        indptr: int64 [num_nodes + 1], index pointers; nodes that are not buffered have
            empty lists.
        indices: [edges], original ids of each node's buffered in-neighbours, in the
            order of its whole list.
        mode: read mode of the readers.
    """

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        options: MariusOptions,
        *,
        capacity: int,
        max_edges: int,
        unit_bytes: int,
        features: bool,
    ) -> None:
        parts = layout.parts
        self._layout = layout
        self._capacity = capacity
        self._request_bytes = options.request_bytes
        rows, lists = depths(options)
        self._topology = _open(folder / TOPOLOGY, lists)
        self._rows = _open(folder / FEATURES, rows) if features else None
        self.mode = self._topology.mode
        self._slots: list[int] = [-1] * capacity  # partition in each slot
        self._nodes = np.empty((capacity, parts.size), dtype=np.int64)
        self._unit = aligned_empty(unit_bytes)
        self._memory = aligned_empty(capacity * parts.slot_bytes if features else 0)
        self.features = (
            self._memory.reshape(-1, parts.row_bytes)
            if features
            else self._memory.reshape(0, 1)
        )
        self.row_of = np.full(parts.num_nodes, -1, dtype=np.int32)
        self.indptr = np.zeros(parts.num_nodes + 1, dtype=np.int64)
        self._kept = np.empty(max_edges, dtype=np.uint8)
        self._edges = np.empty(max_edges, dtype=parts.index_dtype)
        self.indices: npt.NDArray[Any] = self._edges[:0]

    @property
    def partitions(self) -> list[int]:
        """Buffered partitions, ascending."""
        return sorted(k for k in self._slots if k >= 0)

    def load(self, wanted: Sequence[int]) -> ReadStats:
        """Buffer these partitions: read the rows of new partitions, and the edge
        buckets among all partitions.

        A separate thread reads rows, so that the disk has work while lists are
        assembled.

        Raises:
            DataIOError: reading failed, or a file differs from the prepared one; no
                partition counts as buffered then.
        """
        stats = ReadStats()
        if self.partitions == sorted(wanted):
            return stats
        new = self._place(wanted)
        ending = threading.Event()
        with ThreadPoolExecutor(1, "mariusgnn-data-prep") as pool:
            reading = (
                pool.submit(self._read_features, new, ending)
                if self._rows is not None
                else None
            )
            try:
                self._load_graph(stats)
                if reading is not None:
                    stats.add(reading.result())
            except BaseException:
                ending.set()
                self._slots = [-1] * self._capacity
                raise
        return stats

    def _place(self, wanted: Sequence[int]) -> list[int]:
        """Give each partition a slot, its old one if it has one; return the slots with
        new partitions."""
        self._slots = [k if k in wanted else -1 for k in self._slots]
        missing = iter([k for k in wanted if k not in self._slots])
        new = []
        for slot, partition in enumerate(self._slots):
            if partition < 0 and (k := next(missing, -1)) >= 0:
                self._slots[slot] = k
                new.append(slot)
        return new

    def _read_features(
        self, slots: Sequence[int], ending: threading.Event
    ) -> ReadStats:
        """Read the rows of the partitions in `slots`; stop after the read under way
        once `ending` is set."""
        layout = self._layout
        parts = self._layout.parts
        total = ReadStats()
        assert self._rows is not None
        together = max(1, _FEATURE_UNIT // parts.slot_bytes)
        for first in range(0, len(slots), together):
            if ending.is_set():
                break
            group = np.array(slots[first : first + together], dtype=np.int64)
            partitions = np.array([self._slots[slot] for slot in group], dtype=np.int64)
            stats = self._rows.read_ranges(
                layout.feature_at[partitions],
                layout.feature_bytes[partitions],
                self._memory,
                group * parts.slot_bytes,
                request_bytes=self._request_bytes,
            )
            stats.bytes_useful = (
                sum(parts.nodes_of(int(k)) for k in partitions) * parts.row_bytes
            )
            total.add(stats)
        return total

    def _load_graph(self, stats: ReadStats) -> None:
        """Build the buffered nodes' lists, without neighbours that are not buffered."""
        slot_of = np.full(self._layout.parts.count, -1, dtype=np.int16)
        for slot, partition in enumerate(self._slots):
            if partition >= 0:
                slot_of[partition] = slot
        try:
            kept = self._count_lists(slot_of, stats)
            self._fill_lists(slot_of, kept, stats)
        except IndexError as error:
            raise DataIOError(
                f"{self._topology.path} is not what was prepared: {error}",
                path=str(self._topology.path),
                fix="remove its folder, so that it is prepared anew",
            ) from None

    def _count_lists(
        self, slot_of: npt.NDArray[np.int16], stats: ReadStats
    ) -> dict[int, slice]:
        """Count each list's buffered edges into `indptr`; return each partition's slice
        of `_kept` (edges' slots)."""
        layout = self._layout
        parts = self._layout.parts
        self.indptr.fill(0)
        self.row_of.fill(-1)
        kept: dict[int, slice] = {}
        at = 0
        buffered = self.partitions
        for group in runs(buffered, layout.list_bytes[buffered], len(self._unit)):
            starts = self._read(layout.list_at[group], layout.list_bytes[group], stats)
            for partition, start in zip(group, starts, strict=True):
                count = parts.nodes_of(partition)
                slot = int(slot_of[partition])
                degrees_at = start + int(layout.ids_bytes[partition])
                order_at = degrees_at + int(layout.degree_bytes[partition])
                edges = int(layout.counts[partition].sum())
                nodes = self._nodes[slot, :count]
                nodes[:] = self._unit[start : start + 8 * count].view(np.int64)
                degrees = self._unit[degrees_at : degrees_at + 4 * count].view(
                    np.uint32
                )
                order = self._unit[order_at : order_at + edges]
                found = _native.count_kept(
                    nodes, degrees, order, slot_of, self.indptr, self._kept[at:]
                )
                kept[partition] = slice(at, at + found)
                at += found
                self.row_of[nodes] = np.arange(
                    slot * parts.size, slot * parts.size + count, dtype=np.int32
                )
                stats.bytes_useful += 12 * count + edges
        np.cumsum(self.indptr, out=self.indptr)
        self.indices = self._edges[:at]
        return kept

    def _fill_lists(
        self, slot_of: npt.NDArray[np.int16], kept: dict[int, slice], stats: ReadStats
    ) -> None:
        layout = self._layout
        parts = self._layout.parts
        itemsize = parts.index_dtype.itemsize
        buffered = np.array(self.partitions, dtype=np.int64)
        wanted = layout.bucket_bytes[:, buffered].sum(axis=1)
        edges = self._unit[: len(self._unit) // itemsize * itemsize].view(
            parts.index_dtype
        )
        for group in runs(buffered.tolist(), wanted[buffered], len(self._unit)):
            cells = np.ix_(np.array(group), buffered)
            sizes = layout.bucket_bytes[cells]
            starts = self._read(
                layout.bucket_at[cells].reshape(-1), sizes.reshape(-1), stats
            ).reshape(sizes.shape)
            for row, partition in enumerate(group):
                lengths, begins = np.zeros((2, self._capacity), dtype=np.int64)
                lengths[slot_of[buffered]] = layout.counts[partition, buffered]
                begins[slot_of[buffered]] = starts[row] // itemsize
                nodes = self._nodes[slot_of[partition], : parts.nodes_of(partition)]
                _native.fill_lists(
                    nodes,
                    self._kept[kept[partition]],
                    self.indptr,
                    edges,
                    begins,
                    lengths,
                    self.indices,
                )
                stats.bytes_useful += int(lengths.sum()) * itemsize

    def _read(self, offsets: Ids, sizes: Ids, stats: ReadStats) -> Ids:
        """Read ranges one after the other into the read buffer; return where each
        begins there.

        Ranges that touch in the file are read as one.
        """
        starts = np.cumsum(sizes) - sizes
        joins = np.concatenate([[True], offsets[1:] != offsets[:-1] + sizes[:-1]])
        first = np.flatnonzero(joins)
        read = self._topology.read_ranges(
            offsets[first],
            np.add.reduceat(sizes, first),
            self._unit,
            starts[first],
            request_bytes=self._request_bytes,
        )
        read.bytes_useful = 0  # the caller counts the bytes without padding to sectors
        stats.add(read)
        return starts

    def close(self) -> None:
        """Close the files and free the memory."""
        self._topology.close()
        if self._rows is not None:
            self._rows.close()
        self._slots = [-1] * self._capacity
        empty = np.empty((0, 1), dtype=np.uint8)
        self.features = empty
        self._memory = empty[:, 0]
        self._unit = empty[:, 0]
        self._kept = empty[:, 0]
        self._edges = self._edges[:0].copy()
        self.indices = self._edges
