"""Writing partitions and edge buckets in passes, like an external sort: sequential
reads, long direct writes.

First the neighbour lists are distributed over a scratch file by the partition of their
nodes, at one copy a list. Then the scratch file is read in order: for each partition,
the list order is looked up and edges are sorted into their buckets in memory, so that
`topology.bin` is written sequentially. A partition whose buckets do not fit memory is
distributed once more, by ranges of source partitions. Feature rows are written directly
to their final places.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.arrays import as_rows
from systems.engine.io.memory import aligned_empty
from systems.engine.io.stream import (
    OrderedReads,
    edge_runs,
    ordered_part,
    ordered_stream,
    ordered_stream_bytes,
    whole_rows,
)
from systems.interface import Progress, silent
from systems.mariusgnn import partitioned
from systems.mariusgnn.partitioned import (
    COUNTS,
    FEATURES,
    SECTOR,
    TOPOLOGY,
    Bytes,
    Ids,
    Layout,
    graph_errors,
    runs,
)
from workloads.direct_files import PAGE, io_failed, padded
from workloads.errors import DatasetError
from workloads.workload import Workload

#: Least memory for writing, beside `indptr` and the partition of each node.
LEAST_BYTES = 2 << 20
_SCRATCH = "scratch-lists"
_FINER = "scratch-buckets"
_WRITERS = 8
_MOST_BUFFER_BYTES = 1 << 20
_LISTS = 0
_BUCKETS = 1  # regions of `topology.bin`
#: Source ids of edges in the order of their lists, and the partition of each source, in
#: pieces.
Edges = Iterator[tuple[npt.NDArray[np.integer], Bytes]]


@dataclass
class Moved:
    """Disk reads and writes of writing the partitions; the same on every machine."""

    reads: OrderedReads = field(default_factory=OrderedReads)
    writes: int = 0
    bytes_written: int = 0


def write_partitions(
    workload: Workload,
    layout: Layout,
    partition_of: Bytes,
    folder: Path,
    *,
    memory_bytes: int,
    threads: int = 1,
    progress: Progress = silent,
) -> Moved:
    """Write both files within `memory_bytes` (at least `LEAST_BYTES`) beside `indptr`.

    Args:
        layout: layout of the files.
        partition_of: uint8 [num_nodes], partition of each node.
        progress: callback for the completed share of each pass.

    Raises:
        DataIOError: a dataset file is truncated or cannot be read, or an output file
            cannot be written.
        OSError: the disk is full (before any write, if the file system can reserve).
        DatasetError: the graph's arrays contradict each other.
    """
    writer = _Writer(
        workload,
        layout,
        partition_of,
        folder,
        max(memory_bytes, LEAST_BYTES),
        threads,
        progress,
    )
    writer.topology()
    writer.features()
    np.save(folder / COUNTS, layout.counts)
    return writer.moved


@dataclass
class _Writer:
    """State of one partitioning, with one method a pass."""

    workload: Workload
    layout: Layout
    partition_of: Bytes
    folder: Path
    memory_bytes: int
    threads: int
    progress: Progress
    moved: Moved = field(default_factory=Moved)

    def __post_init__(self) -> None:
        self.memory = (
            self.memory_bytes - self.memory_bytes // 8
        )  # reserved for threads, rings and arrays of a piece
        self.piece = partitioned.piece_bytes(self.memory_bytes // 64)
        self.item = self.layout.parts.index_dtype.itemsize

    def topology(self) -> None:
        layout = self.layout
        indptr = partitioned.read_indptr(self.workload)
        # In pieces: all differences at once are as large as `indptr` itself.
        starts = range(0, layout.parts.num_nodes, 1 << 20)
        if any(
            int(np.diff(indptr[at : at + (1 << 20) + 1]).max()) >= 1 << 32
            for at in starts
        ):
            raise DatasetError(
                f"{self.workload.dataset.name} has a node with 2^32 in-neighbours or "
                "more",
                "partition another graph",
            )
        edges = layout.counts.sum(axis=1)
        scratch = self.folder / _SCRATCH
        bounds = _bounds(edges * self.item)
        with self._spread(
            scratch, bounds, self.memory - ordered_stream_bytes(self.piece)
        ) as lists:
            for run in edge_runs(
                self.workload.dataset, indptr, self.piece, self.moved.reads
            ):
                with graph_errors(self.workload):
                    lists.lists(*run, self.partition_of)
                _check(lists.failure, scratch)
                self.progress(
                    "spreading lists by partition",
                    (run[2] + len(run[3])) / self.workload.dataset.num_edges,
                )
        sections = np.array(
            [0, layout.buckets_begin, layout.topology_file_bytes], dtype=np.int64
        )
        source = _Pieces(scratch, int(bounds[-1]), self.piece, self.moved.reads)
        every = np.arange(layout.parts.count)
        path = self.folder / TOPOLOGY
        with (
            self._spread(path, sections, self.memory // 4) as out,
            graph_errors(self.workload),
        ):
            for k, count in enumerate(edges.tolist()):
                self.progress("writing edge buckets", k / len(edges))
                self._write_nodes(out, k, indptr)
                self._write_columns(
                    out, k, every, self._ordered(out, source.take(count * self.item))
                )
                _check(out.failure, path)
                source.skip(int(bounds[k + 1] - bounds[k]) - count * self.item)
        scratch.unlink()

    def _write_nodes(self, out: _native.Spread, k: int, indptr: Ids) -> None:
        """Write the ids of a partition's nodes, then the lengths of their lists."""
        for wanted in ("ids", "lengths"):
            written = 0
            for first in range(0, len(self.partition_of), 1 << 20):
                nodes = (
                    np.flatnonzero(self.partition_of[first : first + (1 << 20)] == k)
                    + first
                )
                found = (
                    nodes
                    if wanted == "ids"
                    else (indptr[nodes + 1] - indptr[nodes]).astype(np.uint32)
                )
                written += _append(out, _LISTS, found)
            _fill_up(out, _LISTS, written)

    def _ordered(self, out: _native.Spread, pieces: Iterator[Bytes]) -> Edges:
        """Yield sources and their partitions, writing the partitions as the list
        order."""
        written = 0
        for sources, order in self._looked_up(pieces):
            written += _append(out, _LISTS, order)
            yield sources, order
        _fill_up(out, _LISTS, written)

    def _looked_up(self, pieces: Iterator[Bytes]) -> Edges:
        order = np.empty(self.piece // self.item, dtype=np.uint8)
        for piece in pieces:
            sources = piece.view(self.layout.parts.index_dtype)
            _native.partitions_of(sources, self.partition_of, order, self.threads)
            yield sources, order[: len(sources)]

    def _write_columns(
        self, out: _native.Spread, k: int, columns: Ids, edges: Edges
    ) -> None:
        """Write the buckets (k, j) for j of `columns`, ascending, from just their edges
        in list order."""
        sizes = self.layout.bucket_bytes[k, columns]
        nbytes = int(sizes.sum())
        if nbytes <= self.memory // 2:
            window = aligned_empty(nbytes)
            starts = np.zeros(self.layout.parts.count, dtype=np.int64)
            starts[columns] = (np.cumsum(sizes) - sizes) // self.item
            next_at = starts.copy()
            for sources, order in edges:
                _native.place_edges(sources, order, next_at, window.view(sources.dtype))  # type: ignore[arg-type]
            wanted = np.where(
                np.isin(np.arange(len(starts)), columns), self.layout.counts[k], 0
            )
            if (next_at - starts != wanted).any():
                raise IndexError(
                    f"the lists of partition {k} are not those that were counted"
                )
            _append(out, _BUCKETS, window)
        elif len(columns) == 1:
            _fill_up(
                out,
                _BUCKETS,
                sum(_append(out, _BUCKETS, sources) for sources, _ in edges),
            )
        else:
            self._write_finer(
                out, k, runs(columns.tolist(), sizes, self.memory // 2), edges
            )

    def _write_finer(
        self, out: _native.Spread, k: int, groups: list[list[int]], edges: Edges
    ) -> None:
        """Write the buckets of a row larger than memory: distribute by groups of
        columns, then write each group."""
        parts = self.layout.parts
        group_of = np.empty(parts.count, dtype=np.uint8)
        for number, columns in enumerate(groups):
            group_of[columns] = number
        counts = np.array(
            [int(self.layout.counts[k, columns].sum()) for columns in groups]
        )
        scratch = self.folder / _FINER
        bounds = _bounds(counts * self.item)
        with self._spread(scratch, bounds, self.memory // 2) as finer:
            for sources, order in edges:
                finer.rows(as_rows(sources, self.item), group_of[order])
                _check(finer.failure, scratch)
        source = _Pieces(scratch, int(bounds[-1]), self.piece, self.moved.reads)
        for number, columns in enumerate(groups):
            nbytes = int(counts[number]) * self.item
            self._write_columns(
                out,
                k,
                np.array(columns, dtype=np.int64),
                self._looked_up(source.take(nbytes)),
            )
            source.skip(int(bounds[number + 1] - bounds[number]) - nbytes)
        scratch.unlink()

    def features(self) -> None:
        dataset = self.workload.dataset
        layout = self.layout
        row = layout.parts.row_bytes
        rows = whole_rows(self.piece, row)
        bounds = np.append(layout.feature_at, layout.feature_file_bytes)
        path = self.folder / FEATURES
        with self._spread(
            path, bounds, self.memory - ordered_stream_bytes(rows * row)
        ) as out:
            for at, piece in ordered_part(
                dataset, "features", piece_bytes=rows * row, reads=self.moved.reads
            ):
                first = at // dataset.dim
                table = as_rows(piece, row)
                out.rows(table, self.partition_of[first : first + len(table)])
                _check(out.failure, path)
                self.progress(
                    "spreading feature rows by partition",
                    (first + len(table)) / dataset.num_nodes,
                )

    @contextmanager
    def _spread(
        self, path: Path, bounds: Ids, memory_bytes: int
    ) -> Iterator[_native.Spread]:
        """Open a file of regions `bounds` for the body to fill, and count its
        writes."""
        _reserve(path, int(bounds[-1]))
        buffers = _native.Spread.bytes(len(bounds) - 1, 1, _WRITERS)
        size = (
            min(max(memory_bytes // buffers, PAGE), _MOST_BUFFER_BYTES) // PAGE * PAGE
        )
        spread = _native.Spread(
            str(path), bounds, buffer_bytes=size, writers=_WRITERS, mode="auto"
        )
        yield spread
        _check(spread.finish(), path)
        self.moved.writes += spread.writes
        self.moved.bytes_written += spread.bytes_written


class _Pieces:
    """Sequential reader of a file's bytes in parts of any size, with read-ahead."""

    def __init__(
        self, path: Path, nbytes: int, piece: int, reads: OrderedReads
    ) -> None:
        self._stream = ordered_stream(path, 0, nbytes, piece_bytes=piece, reads=reads)
        self._left: Bytes = np.empty(0, dtype=np.uint8)

    def take(self, nbytes: int) -> Iterator[Bytes]:
        """Yield the next `nbytes` bytes; each part is valid until the next step."""
        while nbytes > 0:
            if not len(self._left):
                _, self._left = next(self._stream)
            part = self._left[:nbytes]
            self._left = self._left[nbytes:]
            nbytes -= len(part)
            yield part

    def skip(self, nbytes: int) -> None:
        for _ in self.take(nbytes):
            pass


def _bounds(nbytes: Ids) -> Ids:
    """Return the starts of page-aligned regions of `nbytes` bytes, and the end of the
    last."""
    return np.concatenate([[0], np.cumsum(padded(nbytes))]).astype(np.int64)


def _append(out: _native.Spread, region: int, values: npt.NDArray[np.generic]) -> int:
    out.append(region, np.ascontiguousarray(values).view(np.uint8))
    return values.nbytes


def _fill_up(out: _native.Spread, region: int, written: int) -> None:
    """Append zeros to the end of the sector."""
    out.append(region, np.zeros(padded(written, SECTOR) - written, dtype=np.uint8))


def _check(failure: tuple[int, int] | None, path: Path) -> None:
    if failure is not None:
        raise io_failed(path, failure[1], failure[0], writing=True)


def _reserve(path: Path, nbytes: int) -> None:
    """Create a file of `nbytes` bytes; a disk that is too small fails at once."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        if nbytes:
            os.posix_fallocate(handle, 0, nbytes)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        error.filename = str(path)
        raise
    finally:
        os.close(handle)
