"""A dataset cut into partitions of nodes and buckets of edges, each in one piece on disk (MariusGNN's layout).

Partition k holds `size` nodes by ascending id. `features.bin` has their rows one partition after another;
`topology.bin` has for each partition its node ids, the lengths of their neighbour lists and the list order (one byte an
in-edge: the partition it comes from), then the edge buckets row by row: bucket (i, j) holds the source ids of the edges
from j to i. So the graph among any set of partitions is read without an edge that leaves the set, by large reads in
place, and every list comes back in its own order.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.gather import gather
from systems.engine.memory import aligned_empty
from systems.engine.reader import RowReader
from systems.engine.topology import row_bytes
from workloads.dataset import Part
from workloads.errors import DatasetError, InputError
from workloads.workload import Workload

SECTOR = 512
#: Bytes of each of the two files that may wait in memory to be written out.
WAITING_BYTES = 8 << 20
FEATURES, TOPOLOGY, COUNTS = "features.bin", "topology.bin", "counts.npy"

Ids = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def sectors(nbytes: Any) -> Any:
    """Bytes rounded up to whole sectors."""
    return -(-nbytes // SECTOR) * SECTOR


@dataclass(frozen=True)
class Partitions:
    """How many partitions there are and how large.

    Attributes:
        num_nodes: nodes of the graph.
        size: nodes of a partition (the last may have fewer), such that its rows are whole sectors.
        count: partitions.
        pinned: partitions that hold training nodes: the first ones.
        row_bytes: bytes of a feature row.
        index_dtype: of the source ids, int32 or int64.
    """

    num_nodes: int
    size: int
    count: int
    pinned: int
    row_bytes: int
    index_dtype: np.dtype[Any]

    @classmethod
    def of(cls, workload: Workload, wanted: int) -> Partitions:
        """At most `wanted` partitions of a workload's nodes; fewer where the graph is too small for whole sectors.

        Raises:
            InputError: more than 256 are wanted.
        """
        if not 1 <= wanted <= _native.MAX_PARTITIONS:
            raise InputError(f"{wanted} partitions are wanted", f"give 1 to {_native.MAX_PARTITIONS}")
        dataset = workload.dataset
        unit = SECTOR // math.gcd(row_bytes(workload), SECTOR)
        size = -(-math.ceil(dataset.num_nodes / wanted) // unit) * unit
        train = int(dataset.memmap("train").shape[0])
        return cls(
            dataset.num_nodes, size, -(-dataset.num_nodes // size), -(-train // size), row_bytes(workload),
            dataset.index_dtype,
        )  # fmt: skip

    def nodes_of(self, partition: int) -> int:
        """Nodes of a partition."""
        return min(self.size, self.num_nodes - partition * self.size)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a whole partition's rows."""
        return self.size * self.row_bytes

    def assign(self, train: Ids, seed: int) -> Bytes:
        """uint8 [num_nodes], the partition of each node: training nodes by ascending id, then the others at random."""
        partition_of = np.empty(self.num_nodes, dtype=np.uint8)
        try:
            _native.assign_partitions(np.sort(train), self.size, seed, partition_of)
        except IndexError as error:
            raise DatasetError(f"training nodes: {error}", "check the dataset with `outcore data verify`") from None
        return partition_of


class Layout:
    """Where everything lies in the two files.

    Args:
        parts: the partitions.
        counts: int64 [count, count], edges of bucket (i, j): from nodes of j to nodes of i.
    """

    def __init__(self, parts: Partitions, counts: Ids) -> None:
        self.parts = parts
        self.counts = counts
        nodes = np.array([parts.nodes_of(k) for k in range(parts.count)], dtype=np.int64)
        in_edges = counts.sum(axis=1)
        #: Bytes of a partition's node ids, of its list lengths and of its list order, each in whole sectors.
        self.ids_bytes, self.degree_bytes = sectors(8 * nodes), sectors(4 * nodes)
        self.order_bytes = sectors(in_edges)
        self.list_bytes: Ids = self.ids_bytes + self.degree_bytes + self.order_bytes
        self.list_at: Ids = np.cumsum(self.list_bytes) - self.list_bytes
        #: Bytes of the buckets, in whole sectors, and where they begin.
        self.bucket_bytes: Ids = sectors(counts * parts.index_dtype.itemsize)
        flat = self.bucket_bytes.reshape(-1)
        self.bucket_at: Ids = (int(self.list_bytes.sum()) + np.cumsum(flat) - flat).reshape(counts.shape)
        self.feature_at: Ids = np.arange(parts.count, dtype=np.int64) * parts.slot_bytes
        self.feature_bytes: Ids = sectors(nodes * parts.row_bytes)

    @property
    def topology_file_bytes(self) -> int:
        """Bytes of `topology.bin`."""
        return int(self.list_bytes.sum() + self.bucket_bytes.sum())

    @property
    def feature_file_bytes(self) -> int:
        """Bytes of `features.bin`."""
        return int(self.feature_at[-1] + self.feature_bytes[-1])

    def save(self, folder: Path) -> None:
        """Keep what a later run needs to find its way."""
        np.save(folder / COUNTS, self.counts)

    @classmethod
    def load(cls, folder: Path, parts: Partitions) -> Layout:
        """The layout of a finished folder."""
        return cls(parts, np.load(folder / COUNTS))


def read_part(workload: Workload, part: Part) -> npt.NDArray[Any]:
    """A whole part of the dataset, read directly. Raises DataIOError: it is truncated; names file and offset."""
    dataset = workload.dataset
    entry = dataset.manifest.files[part]
    count = int(np.prod(entry.shape, dtype=np.int64))
    out = aligned_empty(count * np.dtype(entry.dtype).itemsize)
    with _reader(dataset.file(part)) as reader:
        reader.read_range(entry.data_offset, out.nbytes, out)
    return out.view(entry.dtype)[:count]


def _reader(path: Path) -> RowReader:
    return RowReader(
        path, data_offset=0, num_rows=0, row_bytes=4096, depth=16, max_request_bytes=1 << 20, register_buffers=False
    )


def read_ahead(path: Path, offset: int, total_bytes: int, chunk_bytes: int) -> Iterator[tuple[int, Bytes]]:
    """Chunks `(first byte, bytes)` of a file's range in order; the next is read while the caller works on one.

    Holds two chunks; a chunk is valid until the next is asked for.
    """
    starts = range(0, total_bytes, chunk_bytes)
    buffers = [aligned_empty(min(chunk_bytes, total_bytes)) for _ in range(min(2, len(starts)))]
    with _reader(path) as reader, ThreadPoolExecutor(1, "read-ahead") as pool:

        def read(index: int) -> Bytes:
            nbytes = min(chunk_bytes, total_bytes - starts[index])
            reader.read_range(offset + starts[index], nbytes, buffers[index % 2])
            return buffers[index % 2][:nbytes]

        pending = pool.submit(read, 0) if starts else None
        for index, start in enumerate(starts):
            assert pending is not None
            chunk = pending.result()
            pending = pool.submit(read, index + 1) if index + 1 < len(starts) else None
            yield start, chunk


def count_buckets(workload: Workload, parts: Partitions, partition_of: Bytes, *, memory_bytes: int = 64 << 20) -> Ids:
    """int64 [count, count]: edges from nodes of partition j to nodes of partition i, at [i, j].

    Reads `indices` once, in chunks of which two take `memory_bytes`, and `indptr` whole.
    """
    counts = np.zeros(parts.count * parts.count, dtype=np.int64)
    indptr = read_part(workload, "indptr")
    for run in _edge_runs(workload, indptr, max(4096, memory_bytes // 2 // parts.index_dtype.itemsize)):
        with _told(workload):
            _native.count_buckets(*run, partition_of, parts.count, counts)
    return counts.reshape(parts.count, parts.count)


def _edge_runs(
    workload: Workload, indptr: Ids, num_edges: int
) -> Iterator[tuple[Ids, int, int, npt.NDArray[np.integer[Any]]]]:
    """Chunks of about `num_edges` edges: bounds of the lists they lie in, first node, first edge, sources."""
    dataset = workload.dataset
    itemsize = dataset.index_dtype.itemsize
    step = max(1, num_edges // 1024) * 1024 * itemsize  # whole pages, so that reads need no copy
    for start, chunk in read_ahead(
        dataset.file("indices"), dataset.data_offset("indices"), dataset.topology_bytes, step
    ):
        first = start // itemsize
        sources = chunk.view(dataset.index_dtype)
        # The first list that reaches into the chunk and the last that begins before its end.
        low = int(np.searchsorted(indptr, first, side="right")) - 1
        high = int(np.searchsorted(indptr, first + len(sources), side="left"))
        yield indptr[low : high + 1], low, first, sources


class _told:
    """What the native code found wrong with the graph, as a DatasetError."""

    def __init__(self, workload: Workload) -> None:
        self._name = workload.dataset.name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, IndexError):
            raise DatasetError(f"{self._name}: {error}", "check the dataset with `outcore data verify`") from None


def write_partitions(
    workload: Workload, layout: Layout, partition_of: Bytes, folder: Path, *, memory_bytes: int, threads: int = 1
) -> None:
    """Write both files: one pass over the features and one over the edges, within `memory_bytes` beside `indptr`.

    Raises:
        DataIOError: a file of the dataset is truncated or cannot be read.
        OSError: the disk is full (before anything is written, where the file system can reserve).
        DatasetError: the graph's arrays contradict each other.
    """
    indptr = read_part(workload, "indptr")
    with _File(folder / TOPOLOGY, layout.topology_file_bytes) as topology:
        with _File(folder / FEATURES, layout.feature_file_bytes) as features:
            _write_nodes(workload, layout, partition_of, indptr, features, topology, memory_bytes, threads)
        _write_edges(workload, layout, partition_of, indptr, topology, memory_bytes)
    layout.save(folder)


def _write_nodes(
    workload: Workload, layout: Layout, partition_of: Bytes, indptr: Ids, features: _File, topology: _File,
    memory_bytes: int, threads: int,
) -> None:  # fmt: skip
    """Feature rows, node ids and list lengths, each in the order of its partition."""
    dataset, parts = workload.dataset, layout.parts
    # In pieces: the differences of all are as large as `indptr` itself.
    pieces = range(0, parts.num_nodes, 1 << 20)
    if any(int(np.diff(indptr[at : at + (1 << 20) + 1]).max()) >= 1 << 32 for at in pieces):
        raise DatasetError(f"{dataset.name} has a node with 2^32 in-neighbours or more", "partition another graph")
    # Two chunks of rows are read, one is put in order, and beside a row stand its id, place and degree.
    unit = SECTOR // math.gcd(parts.row_bytes, SECTOR)
    rows = max(1, memory_bytes // (3 * parts.row_bytes + 40) // unit) * unit
    sorted_rows = np.empty((min(rows, parts.num_nodes), parts.row_bytes), dtype=np.uint8)
    written = np.zeros(parts.count, dtype=np.int64)  # nodes of each partition so far
    for start, chunk in read_ahead(
        dataset.file("features"), dataset.data_offset("features"), dataset.feature_bytes, rows * parts.row_bytes
    ):
        first = start // parts.row_bytes
        table = chunk.reshape(-1, parts.row_bytes)
        members = partition_of[first : first + len(table)]
        order = np.argsort(members, kind="stable")
        gather(table, order, sorted_rows, threads)
        degrees = np.diff(indptr[first : first + len(table) + 1]).astype(np.uint32)[order]
        order += first
        ends = np.cumsum(np.bincount(members, minlength=parts.count))
        begin = 0
        for k, end in enumerate(ends.tolist()):
            at = int(written[k])
            features.write(sorted_rows[begin:end], int(layout.feature_at[k]) + at * parts.row_bytes)
            topology.write(order[begin:end], int(layout.list_at[k]) + 8 * at)
            topology.write(degrees[begin:end], int(layout.list_at[k] + layout.ids_bytes[k]) + 4 * at)
            written[k] += end - begin
            begin = end


def _write_edges(
    workload: Workload, layout: Layout, partition_of: Bytes, indptr: Ids, topology: _File, memory_bytes: int
) -> None:
    """List orders and edge buckets."""
    parts = layout.parts
    itemsize = parts.index_dtype.itemsize
    num_edges = max(4096, memory_bytes // (3 * itemsize + 1))
    room = min(-(-num_edges // 1024) * 1024, max(1, workload.dataset.num_edges))
    order, sources = np.empty(room, dtype=np.uint8), np.empty(room, dtype=parts.index_dtype)
    counts = np.empty(parts.count * parts.count, dtype=np.int64)
    order_at = (layout.list_at + layout.ids_bytes + layout.degree_bytes).tolist()
    bucket_at = layout.bucket_at.reshape(-1).copy()
    for run in _edge_runs(workload, indptr, num_edges):
        with _told(workload):
            _native.split_edges(*run, partition_of, parts.count, counts, order, sources)
        begin = 0
        for row, length in enumerate(counts.reshape(parts.count, -1).sum(axis=1).tolist()):
            topology.write(order[begin : begin + length], order_at[row])
            order_at[row] += length
            begin += length
        begin = 0
        for bucket in np.flatnonzero(counts).tolist():
            end = begin + int(counts[bucket])
            topology.write(sources[begin:end], int(bucket_at[bucket]))
            bucket_at[bucket] += (end - begin) * itemsize
            begin = end


class _File:
    """A file of known size, written piece by piece at any place; little of it waits in memory to be written out."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self._path = path
        self._waiting = 0
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if nbytes:
                os.posix_fallocate(self._handle, 0, nbytes)  # a disk that is too small says so at once
        except BaseException as error:
            os.close(self._handle)
            if isinstance(error, OSError):
                error.filename = str(path)
            raise

    def write(self, data: npt.NDArray[Any], offset: int) -> None:
        view = memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        while len(view):
            try:
                done = os.pwrite(self._handle, view, offset)
            except OSError as error:
                error.filename = str(self._path)
                raise
            view, offset = view[done:], offset + done
            self._waiting += done
            if self._waiting >= WAITING_BYTES:
                self._write_out()

    def _write_out(self) -> None:
        # A memory cap counts pages that wait to be written, and where it is small they can fill it.
        try:
            os.fdatasync(self._handle)
        except OSError as error:
            error.filename = str(self._path)
            raise
        os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)
        self._waiting = 0

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._handle)
