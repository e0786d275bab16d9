"""A dataset with its nodes renumbered by a score, highest first: graph and feature
rows, in parallel, out of core.

Data Tiering (Section 3.2) reorders so that a row's id alone determines its tier. Since
all new positions are known beforehand, each neighbour list and each row moves
independently. Parts larger than the budget are made window by window of the new file:
for each window, the old file is streamed once and its data in the window is kept. If
the features would take more than three such passes, they are first split by window into
scratch files, so they are read and written twice, however small the memory is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.arrays import as_rows
from systems.engine.io.memory import aligned_empty
from systems.engine.io.row_reads import RowTable
from systems.engine.io.stream import (
    edge_runs,
    ordered_stream,
    ordered_stream_bytes,
    whole_rows,
)
from systems.engine.io.topology import damaged
from workloads.dataset import PARTS, Dataset
from workloads.errors import BudgetError
from workloads.making.writer import DatasetWriter
from workloads.units import format_bytes

Ints = NDArray[np.int64]
ORDER_FILE = "order.npy"
_MOST_PIECE_BYTES = 4 << 20
_LEAST_PIECE_BYTES = 16 << 10
_MOST_PASSES = 3
_MOST_WINDOWS = 512
_CHUNK = 1 << 18


@dataclass
class ReorderFacts:
    """Passes of a reordering over the features and the edges, and whether scratch files
    were used."""

    feature_windows: int = 0
    edge_windows: int = 0
    scratch: bool = False


def reorder(
    dataset: Dataset,
    order: Ints,
    path: Path | str,
    *,
    budget_bytes: int | None = None,
    threads: int | None = None,
    facts: ReorderFacts | None = None,
) -> Dataset:
    """Write `dataset` renumbered to a new dataset folder, with `order` beside its
    parts.

    New node i is the old node `order[i]`: its row, its label, and its neighbour list in
    the old order with new ids. The splits keep their order too, so that seed nodes keep
    their positions.

    Args:
        order: int64 [N], a permutation.
        path: the new folder, which must not exist.
        budget_bytes: bytes that reordering may hold; None: the largest part in memory.

    Raises:
        BudgetError: the order, its inverse, the new index pointers and the smallest
            buffers do not fit.
        DatasetError: the folder exists, the disk is full, or the graph's files
            contradict each other.
        DataIOError: a file cannot be read to its end.
        ValueError: `order` is not a permutation.
    """
    job = _Reordering(
        dataset,
        order,
        budget_bytes,
        threads or len(os.sched_getaffinity(0)),
        facts or ReorderFacts(),
    )
    recipe = {"source": "reordered", "of": dataset.content}
    with DatasetWriter(path, recipe=recipe) as writer:
        writer.require_space(dataset.total_bytes)
        job.write(writer)
        writer.num_classes = dataset.num_classes
        writer.stats = dataset.manifest.stats
        writer.notes = [
            *dataset.manifest.notes,
            f"renumbered; {ORDER_FILE} has the old ids",
        ]
    made = Dataset.open(path)
    scratch = made.path / f".{ORDER_FILE}"
    with scratch.open("wb") as file:
        np.save(file, order)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(made.path / ORDER_FILE)
    return made


class _Reordering:
    """State of one renumbering, with one method a part."""

    def __init__(
        self,
        dataset: Dataset,
        order: Ints,
        budget: int | None,
        threads: int,
        facts: ReorderFacts,
    ) -> None:
        nodes = dataset.num_nodes
        self._dataset = dataset
        self._order = order
        self._threads = threads
        self._facts = facts
        held = 24 * nodes + 8 * nodes  # order, places, new index pointers, and degrees
        self._piece_bytes = _MOST_PIECE_BYTES
        row = dataset.row_bytes
        left = None
        if budget is not None:
            while (
                self._piece_bytes > _LEAST_PIECE_BYTES
                and held + self._buffers() > budget * 3 // 4
            ):
                self._piece_bytes //= 2
            left = budget - held - self._buffers()
        if left is not None and left < max(row, _LEAST_PIECE_BYTES):
            needed = held + self._buffers() + max(row, _LEAST_PIECE_BYTES)
            raise BudgetError(
                f"reordering {dataset.name}: {format_bytes(needed)} are needed "
                f"({format_bytes(held)} for the nodes), the budget is "
                f"{format_bytes(budget or 0)}",
                "raise memory",
            )
        self._window_bytes = left
        self._places = _inverse(order, nodes)
        self._indptr = dataset.memmap("indptr")

    def _buffers(self) -> int:
        # A piece in flight is also gathered by window, with its places.
        return ordered_stream_bytes(self._piece_bytes) + 3 * self._piece_bytes

    def write(self, writer: DatasetWriter) -> None:
        dataset = self._dataset
        degrees = np.empty(dataset.num_nodes, dtype=np.int64)
        for first in range(0, dataset.num_nodes, _CHUNK):
            chunk = self._indptr[first : first + _CHUNK + 1]
            degrees[self._places[first : first + _CHUNK]] = np.diff(chunk)
        self._new_indptr = np.zeros(dataset.num_nodes + 1, dtype=np.int64)
        np.cumsum(degrees, out=self._new_indptr[1:])
        del degrees
        if self._new_indptr[-1] != dataset.num_edges or bool(
            (np.diff(self._new_indptr) < 0).any()
        ):
            raise damaged(self._dataset)
        writer.write("indptr", self._new_indptr)
        with writer.stream("indices", dataset.index_dtype, dataset.num_edges) as stream:
            for ids in self._edge_windows():
                stream.write(ids)
        with writer.stream(
            "features", dataset.feature_dtype, (dataset.num_nodes, dataset.dim)
        ) as stream:
            for rows in self._feature_windows(writer.folder):
                stream.write(rows.view(dataset.feature_dtype))
        labels = dataset.memmap("labels")
        with writer.stream("labels", np.int64, dataset.num_nodes) as stream:
            for first in range(0, dataset.num_nodes, _CHUNK):
                stream.write(labels[self._order[first : first + _CHUNK]])
        for part in PARTS[4:]:
            writer.write(part, self._places[dataset.load(part)])

    def _edge_windows(self) -> Iterator[NDArray[Any]]:
        """Yield the new `indices`, window by window; each window streams the old ones
        once."""
        dataset = self._dataset
        edges = self._dataset.num_edges
        item = self._dataset.index_dtype.itemsize
        size = max(
            1,
            edges
            if self._window_bytes is None
            else min(edges, self._window_bytes // item),
        )
        out = aligned_empty(size * item).view(dataset.index_dtype)
        for first in range(0, edges, size):
            window = out[: min(size, edges - first)]
            self._facts.edge_windows += 1
            for lists, low, begin, sources in edge_runs(
                dataset, self._indptr, self._piece_bytes
            ):
                if not _native.relocate_edges(
                    sources,
                    lists,
                    low,
                    begin,
                    self._places,
                    self._new_indptr,
                    first,
                    window,
                    self._threads,
                ):
                    raise damaged(self._dataset)
            yield window

    def _feature_windows(self, scratch: Path) -> Iterator[NDArray[np.uint8]]:
        """Yield the new feature rows as bytes, window by window."""
        dataset = self._dataset
        nodes = self._dataset.num_nodes
        row = dataset.row_bytes
        size = (
            nodes
            if self._window_bytes is None
            else min(nodes, self._window_bytes // row)
        )
        windows = -(-nodes // size)
        self._facts.feature_windows = windows
        self._facts.scratch = _MOST_PASSES < windows <= _MOST_WINDOWS
        out = aligned_empty(size * row).reshape(size, row)
        if self._facts.scratch:
            yield from self._through_scratch(scratch, size, windows, out)
            return
        for first in range(0, nodes, size):
            window = out[: min(size, nodes - first)]
            for begin, rows in self._old_rows():
                places = self._places[begin : begin + len(rows)]
                _native.scatter_rows(rows, places, first, window, self._threads)
            yield window

    def _through_scratch(
        self, folder: Path, size: int, windows: int, out: NDArray[np.uint8]
    ) -> Iterator[NDArray[np.uint8]]:
        """Split the rows by window, in their old order, then reorder within each
        window."""
        dataset = self._dataset
        row = out.shape[1]
        paths = [folder / f"window-{number}" for number in range(windows)]
        with ExitStack() as stack:
            files = [
                stack.enter_context(path.open("wb", buffering=0)) for path in paths
            ]
            for begin, rows in self._old_rows():
                window_of = (self._places[begin : begin + len(rows)] // size).astype(
                    np.int16
                )
                by_window = np.argsort(window_of, kind="stable")
                grouped = np.empty_like(rows)
                _native.gather(rows, by_window, grouped, self._threads)
                ends = np.cumsum(np.bincount(window_of, minlength=windows))
                for number in np.unique(window_of):
                    low = int(ends[number - 1]) if number else 0
                    data = grouped[low : int(ends[number])].reshape(-1).data
                    while len(data):
                        data = data[files[number].write(data) :]
        for number, path in enumerate(paths):
            first = number * size
            window = out[: min(size, dataset.num_nodes - first)]
            nodes = np.sort(self._order[first : first + len(window)])
            for begin, rows in self._rows(path, 0, len(window), row):
                places = self._places[nodes[begin : begin + len(rows)]]
                _native.scatter_rows(rows, places, first, window, self._threads)
            path.unlink()
            yield window

    def _old_rows(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        table = RowTable.of(self._dataset)
        return self._rows(
            table.path, table.data_offset, table.num_rows, table.row_bytes
        )

    def _rows(
        self, path: Path, offset: int, count: int, row: int
    ) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield (first row, rows as bytes) of a file, from its first to its last."""
        piece = whole_rows(self._piece_bytes, row) * row
        for at, data in ordered_stream(path, offset, count * row, piece_bytes=piece):
            yield (at - offset) // row, as_rows(data, row)


def _inverse(order: Ints, nodes: int) -> Ints:
    if order.shape != (nodes,) or (
        nodes and (int(order.min()) < 0 or int(order.max()) >= nodes)
    ):
        raise ValueError(f"order is no permutation of {nodes} nodes")
    places = np.full(nodes, -1, dtype=np.int64)
    places[order] = np.arange(nodes, dtype=np.int64)
    if bool((places < 0).any()):
        raise ValueError(f"order is no permutation of {nodes} nodes")
    return places
