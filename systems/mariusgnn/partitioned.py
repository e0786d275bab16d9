"""A dataset cut into partitions of nodes and buckets of edges, each contiguous on disk
(MariusGNN's layout).

Partition k holds `size` nodes by ascending id. `features.bin` has their rows by
partition, each partition from a page on; `topology.bin` has for each partition its node
ids, the lengths of their neighbour lists and the list order (one byte an in-edge: the
partition of its source), then the edge buckets row by row: bucket (i, j) holds the
source ids of the edges from j to i. So the graph among any set of partitions is read by
large in-place reads without other edges, and every list keeps its order.
`partition_writer.py` writes the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.stream import edge_runs, ordered_part
from workloads.direct_files import PAGE, padded
from workloads.errors import DatasetError, InputError
from workloads.workload import Workload

SECTOR = 512
FEATURES = "features.bin"
TOPOLOGY = "topology.bin"
COUNTS = "counts.npy"

_LEAST_PIECE_BYTES = 64 << 10
_MOST_PIECE_BYTES = 4 << 20

Ids = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Partitions:
    """Number and sizes of the partitions.

    Attributes:
        size: nodes of a partition (the last may have fewer), such that its rows are
            whole sectors.
        pinned: partitions that hold training nodes: the first ones.
        index_dtype: dtype of the source ids, int32 or int64.
    """

    num_nodes: int
    size: int
    count: int
    pinned: int
    row_bytes: int
    index_dtype: np.dtype[Any]

    @classmethod
    def of(cls, workload: Workload, wanted: int) -> Partitions:
        """Make at most `wanted` partitions of a workload's nodes; fewer if the graph is
        too small for whole sectors.

        Raises:
            InputError: `wanted` is outside 1 to 256.
        """
        if not 1 <= wanted <= _native.MAX_PARTITIONS:
            raise InputError(
                f"{wanted} partitions are wanted", f"give 1 to {_native.MAX_PARTITIONS}"
            )
        dataset = workload.dataset
        unit = SECTOR // math.gcd(workload.dataset.row_bytes, SECTOR)
        size = -(-math.ceil(dataset.num_nodes / wanted) // unit) * unit
        train = int(dataset.memmap("train").shape[0])
        count = -(-dataset.num_nodes // size)
        pinned = -(-train // size)
        return cls(
            dataset.num_nodes,
            size,
            count,
            pinned,
            workload.dataset.row_bytes,
            dataset.index_dtype,
        )

    def nodes_of(self, partition: int) -> int:
        """Return the nodes of a partition."""
        return min(self.size, self.num_nodes - partition * self.size)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a whole partition's rows."""
        return self.size * self.row_bytes

    def assign(self, train: Ids, seed: int) -> Bytes:
        """Assign a partition to each node, uint8 [num_nodes]: training nodes by
        ascending id, others at random."""
        partition_of = np.empty(self.num_nodes, dtype=np.uint8)
        try:
            _native.assign_partitions(np.sort(train), self.size, seed, partition_of)
        except IndexError as error:
            raise DatasetError(
                f"training nodes: {error}",
                "check the dataset with `outcore data verify`",
            ) from None
        return partition_of


class Layout:
    """Offsets and sizes of all parts of the two files.

    Args:
        counts: int64 [count, count], edges of bucket (i, j): from nodes of j to nodes
            of i.
    """

    def __init__(self, parts: Partitions, counts: Ids) -> None:
        self.parts = parts
        self.counts = counts
        nodes = np.array(
            [parts.nodes_of(k) for k in range(parts.count)], dtype=np.int64
        )
        in_edges = counts.sum(axis=1)
        #: Bytes of a partition's node ids and of its list lengths, then with its list
        #: order, each in whole sectors.
        self.ids_bytes = padded(8 * nodes, SECTOR)
        self.degree_bytes = padded(4 * nodes, SECTOR)
        self.list_bytes: Ids = (
            self.ids_bytes + self.degree_bytes + padded(in_edges, SECTOR)
        )
        self.list_at: Ids = np.cumsum(self.list_bytes) - self.list_bytes
        #: Bytes of the buckets, in whole sectors, and their offsets: row by row, after
        #: the lists, from a page on.
        self.bucket_bytes: Ids = padded(counts * parts.index_dtype.itemsize, SECTOR)
        flat = self.bucket_bytes.reshape(-1)
        self.buckets_begin = padded(int(self.list_bytes.sum()))
        self.bucket_at: Ids = (self.buckets_begin + np.cumsum(flat) - flat).reshape(
            counts.shape
        )
        self.feature_bytes: Ids = padded(nodes * parts.row_bytes, SECTOR)
        self.feature_at: Ids = np.cumsum(padded(self.feature_bytes)) - padded(
            self.feature_bytes
        )
        #: Bytes of `topology.bin` and `features.bin`.
        self.topology_file_bytes = padded(
            self.buckets_begin + int(self.bucket_bytes.sum())
        )
        self.feature_file_bytes = int(padded(self.feature_bytes).sum())
        # A row that does not fit memory is split once more.
        rows = padded(in_edges * parts.index_dtype.itemsize)
        scratch = int(rows.sum() + rows.max(initial=0)) + PAGE * parts.count
        #: Peak bytes on disk while writing: `topology.bin` and first its scratch file,
        #: then the feature rows.
        self.disk_bytes = self.topology_file_bytes + max(
            scratch, self.feature_file_bytes
        )


def read_indptr(workload: Workload) -> Ids:
    """Read `indptr` by direct I/O. Raises DataIOError, with file and offset, if it is
    truncated."""
    indptr = aligned_empty(8 * (workload.dataset.num_nodes + 1)).view(np.int64)
    for first, part in ordered_part(workload.dataset, "indptr", piece_bytes=1 << 20):
        indptr[first : first + len(part)] = part
    return indptr


def count_buckets(
    workload: Workload,
    parts: Partitions,
    partition_of: Bytes,
    *,
    memory_bytes: int = 64 << 20,
) -> Ids:
    """Count the edges from nodes of partition j to nodes of partition i, at [i, j]:
    int64 [count, count].

    Reads `indices` once, in pieces that take `memory_bytes` together, and `indptr`
    whole.
    """
    counts = np.zeros(parts.count * parts.count, dtype=np.int64)
    indptr = read_indptr(workload)
    for run in edge_runs(workload.dataset, indptr, piece_bytes(memory_bytes // 8)):
        with graph_errors(workload):
            _native.count_buckets(*run, partition_of, parts.count, counts)
    return counts.reshape(parts.count, parts.count)


def piece_bytes(wanted: int) -> int:
    """Return whole pages of a streamed piece, near `wanted`: long enough for a disk,
    short for progress."""
    return min(max(wanted, _LEAST_PIECE_BYTES), _MOST_PIECE_BYTES) // PAGE * PAGE


def runs(items: Sequence[int], nbytes: Ids, most: int) -> list[list[int]]:
    """Cut items into runs of at most `most` bytes together; a larger item is a run of
    its own."""
    found: list[list[int]] = []
    room = 0
    for item, size in zip(items, nbytes.tolist(), strict=True):
        if not found or size > room:
            found.append([])
            room = most
        found[-1].append(item)
        room -= size
    return found


@contextmanager
def graph_errors(workload: Workload) -> Iterator[None]:
    """Convert IndexErrors of the native code about the graph to DatasetError."""
    try:
        yield
    except IndexError as error:
        message = f"{workload.dataset.name}: {error}"
        raise DatasetError(
            message, "check the dataset with `outcore data verify`"
        ) from None
