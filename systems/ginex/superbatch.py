"""One superbatch: its mini-batches and their changesets, in runtime files on disk (Section 3.1)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from systems.engine.cache.changeset import Changeset
from systems.engine.io.reader import ReadStats
from systems.engine.io.regions import RegionIndex, RegionReader, RegionWriter
from systems.engine.io.tally import Tally
from systems.engine.store.batch_store import BatchReader, BatchWriter
from workloads.sampling.batch import SampledBatch

Ids = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
R = TypeVar("R")
_FIX = "make room on the disk of the results folder, or lower runtime_files or superbatch"


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
    """Mini-batches `start` to `stop - 1`, counted over the epochs of `batches` mini-batches each.

    Files: `batches` (ids and adj), `changes` (slots, and rows that enter the cache with their slots), `initial` (rows
    to read into the initial cache). Each is written by one thread, in this order, and read by any number.

    Args:
        files: tally of the runtime files, for any epoch: bytes `written` and `read`, and the main loop's reads.

    Attributes:
        done: mini-batches trained.
        misses: rows that the main loop has read.
    """

    def __init__(self, folder: Path, start: int, stop: int, batches: int, files: Tally) -> None:
        self.start, self.stop, self._per_epoch = start, stop, batches
        self.planned = Planned()
        self.done = self.misses = 0
        self._files = files
        self._paths = {part: folder / f"{part}-{start}" for part in ("batches", "changes", "initial")}
        self._batches: BatchReader | None = None
        self._changes: RegionReader | None = None
        self._initial: RegionReader | None = None
        self._writers: list[RegionWriter] = []

    def __len__(self) -> int:
        return self.stop - self.start

    def place(self, i: int) -> tuple[int, int]:
        """Return the epoch of the `i`-th mini-batch, and its number within the epoch."""
        return divmod(self.start + i, self._per_epoch)

    def begin_sampling(self, budget_bytes: int) -> BatchWriter:
        """Return the writer to which sampled mini-batches are appended, in order."""
        writer = BatchWriter(self._paths["batches"], budget_bytes=budget_bytes, fix=_FIX)
        self._writers.append(writer)
        return writer

    def sampled(self, writer: BatchWriter) -> None:
        """Close `writer`, which has all mini-batches, and open its file for reading."""
        index = writer.close(sync=False)
        self._files.add(written=index.nbytes)
        self._batches = BatchReader(self._paths["batches"], index)

    @property
    def sizes(self) -> Ids:
        """int64 [batches], nodes of each mini-batch."""
        return _opened(self._batches).index.counts

    def nodes(self, i: int) -> Ids:
        """Return the node ids of the `i`-th mini-batch, for planning."""
        nodes = _opened(self._batches).nodes(i)
        self._files.add(read=4 * len(nodes))
        return nodes

    def write_initial(self, pieces: Iterator[tuple[Ids, Ints]]) -> None:
        """Write the rows to read into the initial cache: nodes and their slots."""
        index = self._write("initial", ((nodes.astype(np.uint32), [slots]) for nodes, slots in pieces))
        self._initial = RegionReader(self._paths["initial"], index, what="initial cache, piece")

    def write_changes(self, changes: Iterator[Changeset]) -> None:
        """Write the changesets, in order."""
        index = self._write("changes", ((c.slots, [c.in_positions, c.in_slots]) for c in changes))
        self._changes = RegionReader(self._paths["changes"], index, what="changeset")

    def _write(
        self, part: str, regions: Iterator[tuple[npt.NDArray[np.generic], list[npt.NDArray[np.int32]]]]
    ) -> RegionIndex:
        writer = RegionWriter(self._paths[part], fix=_FIX)
        self._writers.append(writer)
        for head, body in regions:
            writer.append_region(head, body)
        self._files.add(written=writer.nbytes)
        return writer.close(sync=False)

    @property
    def initial_pieces(self) -> int:
        """Number of pieces that `write_initial` wrote."""
        return len(_opened(self._initial))

    def initial_rows(self, piece: int) -> tuple[Ids, Ints]:
        """Return the nodes of one piece of the initial cache, ascending, and their slots."""
        reader = _opened(self._initial)
        head, body = reader.read_region(piece)
        self._files.add(read=reader.index.read_bytes(piece))
        return head.view(np.uint32).astype(np.int64), body.view(np.int32)

    def batch(self, i: int) -> SampledBatch:
        """Read the `i`-th mini-batch."""
        batches = _opened(self._batches)
        self._read_in_loop(batches.index.read_bytes(i))
        return batches.read(i)

    def changeset(self, i: int) -> Changeset:
        """Read the changeset of the `i`-th mini-batch."""
        reader = _opened(self._changes)
        head, body = reader.read_region(i)
        self._read_in_loop(reader.index.read_bytes(i))
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
        for reader in (self._batches, self._changes, self._initial):
            if reader is not None:
                reader.close()
        self._batches = self._changes = self._initial = None
        for path in self._paths.values():
            with contextlib.suppress(OSError):
                path.unlink()


def _opened(reader: R | None) -> R:
    if reader is None:
        raise RuntimeError("the superbatch is read before it was written")
    return reader
