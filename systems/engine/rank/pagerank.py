"""Reverse PageRank and its weighted form (Data Tiering, Section 3.1) over a graph that
stays on disk.

A node gives its score, divided by its in-degree, to its in-neighbours: `score[u] = (1 -
d) / N + d * sum of score[v] / in-degree(v)` over the targets v of u. Nodes without
in-neighbours give nothing. `indptr` and `indices` are read from their first byte to
their last once an iteration; edges that fit the budget stay in memory after the first
iteration.

Sums are in double precision and in the order of the edges, whatever the number of
threads, the budget and the pieces read: threads share the target sums, not the edges
(`native/rank/ranking_bins.hpp`). The result is the same to the last bit, and the same
as that of a plain loop over all edges.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.stream import OrderedReads, ordered_part, ordered_stream_bytes
from systems.engine.io.topology import damaged
from systems.interface import Progress, silent
from workloads.dataset import Dataset
from workloads.errors import BudgetError
from workloads.units import format_bytes
from workloads.workload import Workload

Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
_WINDOW_BYTES = 1 << 20
_MOST_PIECE_BYTES = 4 << 20
_LEAST_PIECE_BYTES = 256 << 10
_DAMPING = 0.85
_TOLERANCE = 1e-4
_MAX_ITERATIONS = 100


@dataclass
class PageRankFacts:
    """Counts of a ranking; the same on every machine.

    Attributes:
        iterations: passes over the graph.
        held_edges: edges kept in memory after the first pass.
        change: sum of the absolute changes of the last iteration, computed if iterating
            until convergence.
    """

    iterations: int = 0
    held_edges: int = 0
    reads: OrderedReads = field(default_factory=OrderedReads)
    change: float = 0.0


def reverse_pagerank(
    workload: Workload,
    *,
    weighted: bool,
    iterations: int | None = 5,
    budget_bytes: int | None = None,
    threads: int | None = None,
    facts: PageRankFacts | None = None,
    progress: Progress = silent,
) -> Doubles:
    """Compute the score of every node.

    Args:
        weighted: give training nodes an initial score N / #train times that of others,
            1 / N.
        iterations: number of iterations; None: until the scores change by less than
            1e-4 in all (100 at most).
        budget_bytes: bytes that the computation may hold; the remainder keeps edges in
            memory. None: all edges.
        progress: callback for the completed share of a pass over the graph.

    Returns:
        float64 [N].

    Raises:
        BudgetError: two numbers a node (three without `iterations`) and the smallest
            buffers do not fit.
        DataIOError: `indptr` or `indices` cannot be read to its end.
        DatasetError: `indptr` and `indices` contradict each other.
    """
    facts = PageRankFacts() if facts is None else facts
    num_nodes = workload.dataset.num_nodes
    entries = int(_native.binned_entries(num_nodes))
    held = 8 * num_nodes * (2 if iterations is None else 1) + 8 * entries
    threads = threads or len(os.sched_getaffinity(0))
    graph = _Graph(
        workload.dataset, _share(workload, held, budget_bytes), threads, facts, progress
    )
    scores = np.full(num_nodes, 1.0 / num_nodes)
    if weighted:
        train = workload.dataset.load("train")
        scores[train] *= num_nodes / train.shape[0]
    sums = np.zeros(entries)
    before = np.empty(0)
    for _ in range(_MAX_ITERATIONS if iterations is None else iterations):
        if iterations is None:
            before = scores.copy()
        graph.spread(scores, sums)
        facts.change = _native.pagerank_step(
            scores, sums, before, (1.0 - _DAMPING) / num_nodes, _DAMPING, threads
        )
        facts.iterations += 1
        if iterations is None and facts.change < _TOLERANCE:
            break
    facts.held_edges = graph.held_edges
    return scores


def _share(
    workload: Workload, held: int, budget: int | None
) -> tuple[int, int, int | None]:
    """Divide the budget left by the scores: bytes of a piece read, edges sorted at a
    time, bytes of edges kept."""
    dataset = workload.dataset
    nodes = dataset.num_nodes
    item = dataset.index_dtype.itemsize

    def group_bytes(edges: int) -> int:
        return int(
            _native.BinnedEdges.plan_bytes(
                nodes, edges, nodes, 8 * nodes // _WINDOW_BYTES + edges // 4096
            )
        )

    def fixed(piece: int) -> int:
        # Each window of `indptr` is copied once, to follow the last entry of the
        # previous one.
        return (
            held
            + ordered_stream_bytes(piece)
            + ordered_stream_bytes(_WINDOW_BYTES)
            + 2 * _WINDOW_BYTES
        )

    # Each group passes over the sums once, so a group should have at least as many
    # edges as sums.
    wanted = min(dataset.num_edges, max(2 * nodes, 1 << 22))
    if budget is None:
        return _MOST_PIECE_BYTES, max(wanted, 1), None
    piece = _MOST_PIECE_BYTES
    while (
        piece > _LEAST_PIECE_BYTES
        and fixed(piece) + group_bytes(piece // item) > budget
    ):
        piece //= 2
    least = fixed(piece) + group_bytes(piece // item)
    if least > budget:
        raise BudgetError(
            f"reverse PageRank: {format_bytes(least)} are needed ({format_bytes(held)} "
            "for the nodes, the rest to read with), the budget is "
            f"{format_bytes(budget)}",
            "raise memory",
        )
    group = max(wanted, piece // item)
    while group > piece // item and fixed(piece) + group_bytes(group) > budget:
        group = max(piece // item, group * 3 // 4)
    return piece, group, budget - fixed(piece) - group_bytes(group)


@dataclass(frozen=True)
class _Kept:
    """A window of targets whose edges stay in memory."""

    first: int
    indptr: Ints
    edges: _native.BinnedEdges


class _Graph:
    """The graph as a stream of edges; a prefix of it stays in memory after the first
    pass."""

    def __init__(
        self,
        dataset: Dataset,
        share: tuple[int, int, int | None],
        threads: int,
        facts: PageRankFacts,
        report: Progress,
    ) -> None:
        self._dataset = dataset
        self._facts = facts
        self._reads = facts.reads
        self._progress = report
        self._piece_bytes, self._group_edges, self._left = share
        self._threads = threads
        self._kept: list[_Kept] = []
        self._keeping = True
        self._group = _native.BinnedEdges(dataset.num_nodes, self._group_edges)

    @property
    def held_edges(self) -> int:
        return sum(kept.edges.size for kept in self._kept)

    def spread(self, scores: Doubles, sums: Doubles) -> None:
        """Add each target's score over its in-degree to its in-neighbours' sums;
        divides the scores in place."""

        def add(edges: Sequence[_native.BinnedEdges]) -> None:
            _native.add_along(edges, scores, sums, self._threads)

        for kept in self._kept:
            self._divide(scores, kept.first, kept.indptr)
        row = 0
        edge = 0
        if self._kept:
            add([kept.edges for kept in self._kept])
            row = self._kept[-1].first + len(self._kept[-1].indptr) - 1
            edge = int(self._kept[-1].indptr[-1])
        waiting: list[_native.BinnedEdges] = []
        with closing(
            _Cursor(self._dataset, self._piece_bytes, edge, self._reads)
        ) as cursor:
            for first, indptr in self._windows(row):
                self._divide(scores, first, indptr)
                own = self._to_keep(first, indptr)
                if waiting and (
                    own is None
                    or sum(each.size for each in waiting) >= self._group_edges
                ):
                    add(waiting)
                    waiting = []
                room = own if own is not None else self._group
                for begin, sources in cursor.until(int(indptr[-1])):
                    while len(sources):  # a full room is added to the sums and cleared
                        if room.size == room.capacity:
                            add([room])
                            room.clear()
                        taken = sources[: room.capacity - room.size]
                        if not room.append(taken, indptr, first, begin, self._threads):
                            raise damaged(self._dataset)
                        sources = sources[len(taken) :]
                        begin = begin + len(taken)
                if own is not None:
                    waiting.append(own)
                self._report(int(indptr[-1]))
        add([*waiting, self._group])
        self._group.clear()
        self._keeping = False
        self._report(self._dataset.num_edges)

    def _report(self, edges: int) -> None:
        self._progress(
            f"PageRank, pass {self._facts.iterations + 1}",
            edges / max(1, self._dataset.num_edges),
        )

    def _to_keep(self, first: int, indptr: Ints) -> _native.BinnedEdges | None:
        """Allocate memory that keeps this window's edges, if all earlier windows were
        kept and the budget allows."""
        if not self._keeping:
            return None
        count = int(indptr[-1] - indptr[0])
        nodes = self._dataset.num_nodes
        if self._left is not None:
            pieces = count * self._dataset.index_dtype.itemsize // self._piece_bytes + 2
            size = indptr.nbytes + int(
                _native.BinnedEdges.plan_bytes(nodes, count, len(indptr), pieces)
            )
            if size > self._left:
                self._keeping = False
                return None
            self._left -= size
        kept = _Kept(first, indptr.copy(), _native.BinnedEdges(nodes, count))
        self._kept.append(kept)
        return kept.edges

    def _divide(self, scores: Doubles, first: int, indptr: Ints) -> None:
        if not _native.divide_by_degrees(
            scores[first : first + len(indptr) - 1], indptr, self._threads
        ):
            raise damaged(self._dataset)

    def _windows(self, row: int) -> Iterator[tuple[int, Ints]]:
        """Yield (first target, its index pointers and that of the target after the
        last) from target `row` on."""
        dataset = self._dataset
        begin = 8 * row // _WINDOW_BYTES * _WINDOW_BYTES
        last: Ints | None = None
        edge = -1
        for first, values in ordered_part(
            dataset, "indptr", begin=begin, piece_bytes=_WINDOW_BYTES, reads=self._reads
        ):
            window = values if last is None else np.concatenate([last, values])
            first -= len(window) - len(values)
            last = values[-1:].copy()
            if first < row:
                window = window[row - first :]
                first = row
            if len(window) < 2:
                continue
            if (
                window[0] < max(edge, 0)
                or window[-1] > dataset.num_edges
                or window[-1] < window[0]
            ):
                raise damaged(self._dataset)
            edge = int(window[-1])
            yield first, window


class _Cursor:
    """Forward cursor over `indices`, from edge `edge` on."""

    def __init__(
        self, dataset: Dataset, piece_bytes: int, edge: int, reads: OrderedReads
    ) -> None:
        self._edge = edge
        # Pieces have the same bounds in every pass, whatever was kept.
        begin = edge * dataset.index_dtype.itemsize // piece_bytes * piece_bytes
        self._pieces = ordered_part(
            dataset, "indices", begin=begin, piece_bytes=piece_bytes, reads=reads
        )
        self._first = 0
        self._ids = np.empty(0, dtype=dataset.index_dtype)

    def until(self, end: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield (first edge, sources) of the edges from the cursor to `end`, in
        pieces."""
        while self._edge < end:
            if self._edge >= self._first + len(self._ids):
                self._first, self._ids = next(self._pieces)
            stop = min(end, self._first + len(self._ids))
            begin = self._edge
            self._edge = stop
            yield begin, self._ids[begin - self._first : stop - self._first]

    def close(self) -> None:
        self._pieces.close()
