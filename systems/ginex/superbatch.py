"""One superbatch: its mini-batches and their changesets, in runtime files on disk
(Section 3.1); and cache policies.

A policy, Belady's changesets or PaGraph's static ranking (`ginex-pg`), chooses the rows
that fill the feature cache before a superbatch's main loop and, for each mini-batch,
the hits, their slots and the misses that enter. Rows still in memory from the
superbatch before are not read again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.cache.changeset import Changeset, ChangesetPlan
from systems.engine.io.reader import ReadStats
from systems.engine.io.regions import RegionReader, RegionWriter
from systems.engine.io.tally import Tally
from systems.engine.rank.ranking import out_degrees, top
from systems.engine.store.batch_store import BatchReader, BatchWriter
from systems.forecast import Trace, misses
from workloads.sampling.batch import SampledBatch
from workloads.workload import Workload

Ids = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
_FIX = (
    "make room on the disk of the results folder, or lower runtime_files or superbatch"
)


@dataclass
class Planned:
    """Counts found by planning the changesets of a superbatch.

    Attributes:
        misses: rows that the main loop will read.
        filled: rows of the initial cache that are read.
        kept: rows of the initial cache that are in memory from the superbatch before.
        evictions: evicted rows that are used again.
    """

    misses: int = 0
    filled: int = 0
    kept: int = 0
    evictions: int = 0


class Superbatch:
    """Mini-batches `start` to `stop - 1`, counted over the epochs of `batches`
    mini-batches each.

    Files: `batches` (ids and adj), `changes` (slots, and rows that enter the cache with
    their slots), `initial` (rows to read into the initial cache). Each is written by
    one thread, in this order, and read by any number.

    Args:
        files: tally of the runtime files, for any epoch: bytes `written` and `read`,
            and the main loop's reads.

    Attributes:
        done: mini-batches trained.
        misses: rows that the main loop has read.
    """

    _batches: BatchReader  # from `sampled` on
    _changes: RegionReader  # from `write_changes` on
    _initial: RegionReader  # from `write_initial` on

    def __init__(
        self, folder: Path, start: int, stop: int, batches: int, files: Tally
    ) -> None:
        self.start = start
        self.stop = stop
        self._per_epoch = batches
        self.planned = Planned()
        self.done = self.misses = 0
        self._files = files
        self._paths = {
            part: folder / f"{part}-{start}"
            for part in ("batches", "changes", "initial")
        }
        self._open: list[RegionReader] = []
        self._writers: list[RegionWriter] = []

    def __len__(self) -> int:
        return self.stop - self.start

    def place(self, i: int) -> tuple[int, int]:
        """Return the epoch of the `i`-th mini-batch, and its number within the
        epoch."""
        return divmod(self.start + i, self._per_epoch)

    def begin_sampling(self, budget_bytes: int) -> BatchWriter:
        """Return the writer to which sampled mini-batches are appended, in order."""
        writer = BatchWriter(
            self._paths["batches"], budget_bytes=budget_bytes, fix=_FIX
        )
        self._writers.append(writer)
        return writer

    def sampled(self, writer: BatchWriter) -> None:
        """Close `writer`, which has all mini-batches, and open its file for reading."""
        index = writer.close(sync=False)
        self._files.add(written=index.nbytes)
        self._batches = BatchReader(self._paths["batches"], index)
        self._open.append(self._batches)

    @property
    def sizes(self) -> Ids:
        """int64 [batches], nodes of each mini-batch."""
        return self._batches.index.counts

    def nodes(self, i: int) -> Ids:
        """Return the node ids of the `i`-th mini-batch, for planning."""
        nodes = self._batches.nodes(i)
        self._files.add(read=4 * len(nodes))
        return nodes

    def write_initial(self, pieces: Iterator[tuple[Ids, Ints]]) -> None:
        """Write the rows to read into the initial cache: nodes and their slots."""
        regions = ((nodes.astype(np.uint32), [slots]) for nodes, slots in pieces)
        self._initial = self._write("initial", regions, "initial cache, piece")

    def write_changes(self, changes: Iterator[Changeset]) -> None:
        """Write the changesets, in order."""
        regions = (
            (change.slots, [change.in_positions, change.in_slots]) for change in changes
        )
        self._changes = self._write("changes", regions, "changeset")

    def _write(
        self,
        part: str,
        regions: Iterator[tuple[npt.NDArray[np.generic], list[Ints]]],
        what: str,
    ) -> RegionReader:
        writer = RegionWriter(self._paths[part], fix=_FIX)
        self._writers.append(writer)
        for head, body in regions:
            writer.append_region(head, body)
        self._files.add(written=writer.nbytes)
        reader = RegionReader(self._paths[part], writer.close(sync=False), what=what)
        self._open.append(reader)
        return reader

    @property
    def initial_pieces(self) -> int:
        """Number of pieces that `write_initial` wrote."""
        return len(self._initial)

    def initial_rows(self, piece: int) -> tuple[Ids, Ints]:
        """Return the nodes of one piece of the initial cache, ascending, and their
        slots."""
        head, body = self._initial.read_region(piece)
        self._files.add(read=self._initial.index.read_bytes(piece))
        return head.view(np.uint32).astype(np.int64), body.view(np.int32)

    def batch(self, i: int) -> SampledBatch:
        """Read the `i`-th mini-batch."""
        self._read_in_loop(self._batches.index.read_bytes(i))
        return self._batches.read(i)

    def changeset(self, i: int) -> Changeset:
        """Read the changeset of the `i`-th mini-batch."""
        head, body = self._changes.read_region(i)
        self._read_in_loop(self._changes.index.read_bytes(i))
        entering = body.view(np.int32).reshape(2, -1)
        return Changeset(head.view(np.int32), entering[0], entering[1])

    def _read_in_loop(self, nbytes: int) -> None:
        one = ReadStats()
        one.count(nbytes)
        self._files.add(one, read=nbytes)

    def discard(self) -> None:
        """Close and remove the files. May be called at any time, more than once."""
        for writer in self._writers:
            writer.abandon()
        for reader in self._open:
            reader.close()
        for path in self._paths.values():
            with contextlib.suppress(OSError):
                path.unlink()


Stop = Callable[[], bool]
_PIECE = 1 << 16
_RANKING_BUFFERS = 4 << 20
_NONE = np.empty(0, dtype=np.int32)
#: Rows to read into the cache: nodes, ascending, and their slots.
Piece = tuple[Ids, Ints]


@dataclass
class Belady:
    """Belady's policy: changesets precomputed from the whole superbatch.

    Attributes:
        capacity: rows of the feature cache.
        kept: rows that stay between superbatches, the first ones.
        prefill: whether the cache is filled before the main loop.
    """

    workload: Workload
    capacity: int
    kept: int
    prefill: bool

    def __post_init__(self) -> None:
        self._there = np.empty(0, dtype=np.uint32)

    def inspect(self, superbatch: Superbatch, threads: int, stop: Stop) -> None:
        """Plan in three passes over the superbatch's ids; write initial cache and
        changesets to its runtime files."""
        plan = ChangesetPlan(
            superbatch.nodes,
            superbatch.sizes,
            num_nodes=self.workload.dataset.num_nodes,
            capacity=self.capacity,
            threads=threads,
            resident=self._there,
            prefill=self.prefill,
        )
        plan.look_ahead(stop)
        found = superbatch.planned

        def initial() -> Any:
            for nodes, slots in plan.initial():
                found.filled += len(nodes)
                yield nodes, slots

        superbatch.write_initial(initial())
        found.kept = plan.filled - found.filled

        def noted() -> Any:
            for change in plan.changesets(stop):
                found.misses += len(change.slots) - change.hits
                found.evictions += change.evictions
                yield change

        superbatch.write_changes(noted())
        self._there = plan.contents(self.kept)

    def pieces(self, superbatch: Superbatch) -> list[Callable[[], Piece]]:
        """Return the planned pieces of the rows used first, without rows still in
        memory."""
        return [
            partial(superbatch.initial_rows, piece)
            for piece in range(superbatch.initial_pieces)
        ]

    def forget(self) -> None:
        """Forget the rows in the slots, so that every row is read anew."""
        self._there = self._there[:0]

    def changeset(
        self, superbatch: Superbatch, i: int, sampled: SampledBatch
    ) -> Changeset:
        """Read the planned changeset from the runtime file."""
        return superbatch.changeset(i)


class Static:
    """Static policy: the rows of highest out-degree for every superbatch; no row enters
    or leaves."""

    def __init__(
        self, workload: Workload, capacity: int, kept: int, prefill: bool
    ) -> None:
        self._kept = kept
        self._filled = False  # always filled before the main loop
        # Ranked by out-degrees, streaming `indices` once; slots follow the ids, so that
        # rows are read in order.
        num_nodes = workload.dataset.num_nodes
        chosen = top(out_degrees(workload, 4 * num_nodes + _RANKING_BUFFERS), capacity)
        self._slot_of = np.full(num_nodes, -1, dtype=np.int32)
        self._slot_of[np.sort(chosen)] = np.arange(len(chosen), dtype=np.int32)

    def pieces(self, superbatch: Superbatch) -> list[Callable[[], Piece]]:
        """Return pieces of the same rows for every superbatch, without the rows that
        stayed."""
        slot_of = self._slot_of
        kept = self._kept if self._filled else 0
        cached = int(np.count_nonzero(slot_of >= 0))
        superbatch.planned.kept = min(kept, cached)
        superbatch.planned.filled = cached - superbatch.planned.kept
        self._filled = True
        begins = range(0, len(slot_of), _PIECE)
        wanted = [
            begin
            for begin in begins
            if int(slot_of[begin : begin + _PIECE].max()) >= kept
        ]
        return [partial(self._cached, begin, kept) for begin in wanted]

    def _cached(self, begin: int, kept: int) -> Piece:
        slots = self._slot_of[begin : begin + _PIECE]
        wanted = np.flatnonzero(slots >= kept)
        return begin + wanted, slots[wanted]

    def forget(self) -> None:
        """Forget the rows in the slots, so that every row is read anew."""
        self._filled = False

    def inspect(self, superbatch: Superbatch, threads: int, stop: Stop) -> None:
        """Count the superbatch's misses; there is nothing else to plan."""
        for i in range(len(superbatch)):
            if stop():
                raise InterruptedError("counting misses was stopped")
            superbatch.planned.misses += int(
                np.count_nonzero(self._slot_of[superbatch.nodes(i)] < 0)
            )

    def changeset(
        self, superbatch: Superbatch, i: int, sampled: SampledBatch
    ) -> Changeset:
        """Look the slots up in the node -> slot map."""
        slots = self._slot_of[sampled.nodes]
        return Changeset(slots, _NONE, _NONE, int(np.count_nonzero(slots >= 0)))


Policy = Belady | Static


def superbatch_misses(trace: Trace, superbatch: int, capacity: int) -> int:
    """Forecast the rows read over superbatches of a trace; fills of the cache count."""
    nodes = trace.workload.dataset.num_nodes
    counted = trace.counted
    step = max(1, superbatch)
    cold = 0
    for begin in range(0, len(counted), step):
        part = counted[begin : begin + step]
        cold += misses("belady", [*[part[0][:0]] * len(part), *part], nodes, capacity)
    if step <= len(counted):
        return cold
    # A superbatch longer than the sample has a warm cache whose fill is shared by its
    # `step` mini-batches. Slots stay empty where they do not repay their fill, so
    # smaller caches are tried too.
    rows = min(capacity, nodes)
    warmed = [
        trace.row_misses("belady", used) + used * len(counted) / step
        for used in (rows, rows // 2, rows // 4)
    ]
    return round(min(cold, *warmed))
