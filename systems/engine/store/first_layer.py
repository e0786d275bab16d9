"""First-layer preprocessing (`+pp`): the first layer's aggregates, computed once and
out of core, replace the features.

A first layer's sums over the neighbours depend on the features alone, not on learned
weights, so PaGraph's baselines compute them once, offline, over all in-neighbours of
every node (Section 5.1). A mini-batch then needs one hop less. The mini-batches differ
from the workload's; the system's own oracle defines them.

Neither features nor result need fit in memory: targets are processed in rounds whose
sums and edges fit the budget. A round reads its edges twice, sorts them by the piece of
the feature table that holds their source, and then reads the table once, adding rows to
sums piece by piece; pieces without edges are skipped.

The bytes read and written decide the method. With D columns of float32, e in-edges a
node, and a budget of B bytes a node, it reads the table (4D + 8e) / B times; blocks of
columns would read table and edges 4D / B times and write the result twice; partitions
of sources would read the edges, and read and write the result, 4D / B times. At D of
100 or more and e of 10 to 30 it reads least or nearly so, and it alone needs no scratch
file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.stream import (
    OrderedReads,
    edge_runs,
    ordered_part,
    ordered_stream_bytes,
    whole_rows,
)
from systems.engine.io.topology import damaged
from systems.interface import Progress, silent
from workloads.errors import BudgetError
from workloads.models import aggregated_width
from workloads.npyfile import padded_header
from workloads.sampling.batch import SampledBatch
from workloads.units import format_bytes
from workloads.workload import Workload

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
FILE = "first_layer.npy"
DATA_OFFSET = 4096
_MOST_PIECE_BYTES = 4 << 20
_LEAST_PIECE_BYTES = 16 << 10
_EDGE_BYTES = 8


@dataclass
class AggregateFacts:
    """Counts of an aggregation; the same on every machine.

    Attributes:
        rounds: times the feature table was streamed.
        skipped_pieces: pieces of the feature table that a round did not read.
    """

    rounds: int = 0
    skipped_pieces: int = 0
    reads: OrderedReads = field(default_factory=OrderedReads)


@dataclass(frozen=True)
class _Round:
    """Targets `[first, last)` and edges `[begin, end)`; only a target with more edges
    than fit is split."""

    first: int
    last: int
    begin: int
    end: int


def aggregate_first_layer(
    workload: Workload,
    path: Path | str,
    *,
    budget_bytes: int | None = None,
    threads: int | None = None,
    dtype: str = "float32",
    facts: AggregateFacts | None = None,
    progress: Progress = silent,
) -> Path:
    """Write the aggregate of every node as an `.npy` table with its data from byte 4096
    on.

    Row v equals `workloads.models.first_layer_rows` for v: SAGE [own row, mean over the
    in-neighbours], GCN the sum normalised by in-degrees in the whole graph with
    self-loops. Sums are in float32, in an order independent of the number of threads.

    Args:
        path: output file, replaced if it exists.
        budget_bytes: bytes that the aggregation may hold; fewer bytes mean more rounds.
            None: one round.
        dtype: `float32`, or `float16` to round the finished rows.

    Returns:
        `path`; the table is [N, aggregated_width(workload.model, D)].

    Raises:
        BudgetError: one target's sum and the smallest buffers do not fit.
        InputError: the model's first layer cannot be aggregated beforehand.
        DataIOError: a file cannot be read to its end.
        DatasetError: the graph's files contradict each other.
        OSError: the table cannot be written.
    """
    width = aggregated_width(workload.model, workload.dataset.dim)
    cores = threads or len(os.sched_getaffinity(0))
    job = _Aggregation(
        workload, budget_bytes, cores, facts or AggregateFacts(), progress
    )
    target = Path(path)
    with target.open("wb", buffering=0) as file:
        file.write(padded_header(np.dtype(dtype), (workload.dataset.num_nodes, width)))
        for rows in job.rows():
            data = (
                np.ascontiguousarray(rows, dtype=dtype).reshape(-1).view(np.uint8).data
            )
            while len(data):
                data = data[file.write(data) :]
            # Written back and dropped at once, so that a small cap is not filled with
            # dirty pages.
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return target


class _Aggregation:
    def __init__(
        self,
        workload: Workload,
        budget: int | None,
        threads: int,
        facts: AggregateFacts,
        progress: Progress,
    ) -> None:
        self._progress = progress
        self._dataset = dataset = workload.dataset
        self._gcn = workload.model.name == "gcn"
        self._threads = threads
        self._facts = facts
        self._row_bytes = dataset.row_bytes
        self._indptr = dataset.memmap("indptr")
        degrees = (
            8 * dataset.num_nodes if self._gcn else 0
        )  # counted as int32, then kept as float32
        target = 4 * dataset.dim + 8
        self._piece_bytes = _MOST_PIECE_BYTES
        while self._piece_bytes > _LEAST_PIECE_BYTES and (
            budget is not None and degrees + self._buffers() + 2 * target > budget // 2
        ):
            self._piece_bytes //= 2
        left = None if budget is None else budget - degrees - self._buffers()
        if left is not None and left < target + 1024 * _EDGE_BYTES:
            needed = format_bytes(degrees + self._buffers() + target + 8192)
            message = (
                f"first-layer aggregation: {needed} are needed, the budget is "
                f"{format_bytes(budget or 0)}"
            )
            raise BudgetError(message, "raise memory")
        self._left = left
        self._rounds = list(self._cut())
        self._scale = self._inverse_roots() if self._gcn else None

    def _piece_rows(self) -> int:
        return whole_rows(self._piece_bytes, self._row_bytes)

    def _buffers(self) -> int:
        piece = self._piece_rows() * self._row_bytes
        numbers = 16 * (self._dataset.num_nodes // self._piece_rows() + 2)
        # A piece as float32, and the output rows of one (twice as wide for SAGE, and
        # once converted).
        return (
            ordered_stream_bytes(piece)
            + ordered_stream_bytes(self._piece_bytes)
            + 5 * 2 * piece
            + numbers
        )

    def _cut(self) -> Iterator[_Round]:
        """Yield rounds, each as large as the budget allows."""
        nodes = self._dataset.num_nodes
        target = 4 * self._dataset.dim + 8
        edges = int(self._indptr[-1])
        first = 0
        begin = 0
        while first < nodes:
            if self._left is None:
                yield _Round(0, nodes, 0, edges)
                return
            low = first
            high = nodes
            while low < high:  # bisect for the last target that fits
                middle = (low + high + 1) // 2
                fits = (middle - first) * target + (
                    int(self._indptr[middle]) - begin
                ) * _EDGE_BYTES <= self._left
                low, high = (middle, high) if fits else (low, middle - 1)
            if low == first:
                end = begin + (self._left - target) // _EDGE_BYTES
                yield _Round(first, first + 1, begin, end)
                begin = end
                continue
            end = int(self._indptr[low])
            yield _Round(first, low, begin, end)
            first = low
            begin = end

    def rows(self) -> Iterator[NDArray[Any]]:
        """Yield the finished rows of all nodes in order, piece by piece."""
        carried: Floats | None = None
        for number, current in enumerate(self._rounds):
            sums = np.zeros(
                (current.last - current.first, self._dataset.dim), dtype=np.float32
            )
            if carried is not None:
                sums[0] = carried
            self._add(current, sums)
            self._facts.rounds += 1
            cut = (
                number + 1 < len(self._rounds)
                and self._rounds[number + 1].first == current.first
            )
            carried = sums[0] if cut else None
            if not cut:
                yield from self._finish(current, sums)

    def _add(self, current: _Round, sums: Floats) -> None:
        dataset = self._dataset
        piece_rows = self._piece_rows()
        counts = np.zeros(
            (dataset.num_nodes + piece_rows - 1) // piece_rows, dtype=np.int64
        )
        for _, sources in self._sources(current.begin, current.end):
            if not _native.count_by_piece(
                sources, dataset.num_nodes, piece_rows, counts
            ):
                raise damaged(self._dataset)
        begins = np.concatenate([[0], np.cumsum(counts)])
        edges = np.empty(current.end - current.begin, dtype=np.uint64)
        indptr = np.array(self._indptr[current.first : current.last + 1])
        following = begins[:-1].copy()
        for begin, sources in self._sources(current.begin, current.end):
            if not _native.place_by_piece(
                sources, indptr, begin, piece_rows, following, edges
            ):
                raise damaged(self._dataset)
        none = np.empty(0, dtype=np.float32)
        wanted = np.flatnonzero(counts)
        self._facts.skipped_pieces += len(counts) - len(wanted)
        for number, (piece, rows) in enumerate(self._pieces(wanted)):
            self._progress(
                "aggregating",
                (self._facts.rounds + number / len(wanted)) / len(self._rounds),
            )
            first = piece * piece_rows
            weights = (
                none if self._scale is None else self._scale[first : first + len(rows)]
            )
            own = edges[begins[piece] : begins[piece + 1]]
            flat = sums.reshape(-1)
            if not _native.add_rows(
                own,
                rows.reshape(-1),
                flat,
                dataset.dim,
                weights,
                first,
                current.first,
                self._gcn,
                self._threads,
            ):
                raise damaged(self._dataset)

    def _finish(self, current: _Round, sums: Floats) -> Iterator[NDArray[Any]]:
        """Scale the sums and put the own rows beside (SAGE) or into them (GCN)."""
        step = self._piece_rows()
        for piece, rows in self._pieces(
            np.arange(current.first // step, (current.last - 1) // step + 1)
        ):
            first = max(current.first, piece * step)
            last = min(current.last, piece * step + len(rows))
            own = rows[first - piece * step : last - piece * step]
            part = sums[first - current.first : last - current.first]
            if self._scale is not None:
                scale = self._scale[first:last, None]
                part += own * scale
                part *= scale
                yield part
            else:
                degrees = np.diff(self._indptr[first : last + 1])
                part /= np.maximum(degrees, 1).astype(np.float32)[:, None]
                yield np.concatenate([own, part], axis=1)

    def _pieces(self, wanted: Ints) -> Iterator[tuple[int, Floats]]:
        """Yield (number, rows as float32) of the `wanted` pieces of the feature table;
        neighbours share a stream."""
        dataset = self._dataset
        step = self._piece_rows()
        breaks = np.flatnonzero(np.diff(wanted) > 1) + 1
        size = step * self._row_bytes
        for low, high in pairwise([0, *breaks.tolist(), len(wanted)]):
            if low == high:
                continue
            begin = int(wanted[low]) * size
            end = min(dataset.feature_bytes, (int(wanted[high - 1]) + 1) * size)
            for at, values in ordered_part(
                dataset,
                "features",
                begin=begin,
                end=end,
                piece_bytes=size,
                reads=self._facts.reads,
            ):
                rows = values.reshape(-1, dataset.dim).astype(np.float32, copy=False)
                yield at // (step * dataset.dim), rows

    def _sources(self, begin: int, end: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield (first edge, sources) of the edges `[begin, end)`, in pieces."""
        item = self._dataset.index_dtype.itemsize
        for first, ids in ordered_part(
            self._dataset,
            "indices",
            begin=begin * item // 4096 * 4096,  # start of a block, for direct reads
            end=end * item,
            piece_bytes=self._piece_bytes,
            reads=self._facts.reads,
        ):
            skipped = max(0, begin - first)
            yield first + skipped, ids[skipped:]

    def _inverse_roots(self) -> Floats:
        """Return 1 / sqrt(in-degree without self-loops, plus one) of every node."""
        dataset = self._dataset
        loops = np.zeros(dataset.num_nodes, dtype=np.int32)
        for indptr, first, begin, sources in edge_runs(
            dataset, self._indptr, self._piece_bytes, self._facts.reads
        ):
            if not _native.count_loops(
                sources, indptr, first, begin, loops[first : first + len(indptr) - 1]
            ):
                raise damaged(self._dataset)
        roots = np.empty(dataset.num_nodes, dtype=np.float32)
        for first in range(0, dataset.num_nodes, 1 << 18):
            part = slice(first, first + (1 << 18))
            degrees = (
                np.diff(self._indptr[first : first + (1 << 18) + 1]) - loops[part] + 1
            )
            roots[part] = 1.0 / np.sqrt(degrees)
        return roots


def seeds_only(labels: Ints) -> Callable[[int, int, Ints], SampledBatch]:
    """Make the sampler of an aggregated one-layer model: seed nodes with their labels,
    without a hop."""

    def sample(epoch: int, index: int, nodes: Ints) -> SampledBatch:
        own = np.asarray(labels[nodes], dtype=np.int64)
        return SampledBatch(
            epoch=epoch,
            index=index,
            nodes=nodes,
            num_seeds=len(nodes),
            blocks=(),
            labels=own,
        )

    return sample
