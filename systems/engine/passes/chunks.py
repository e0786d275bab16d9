"""Reader of packed chunks: pieces are read in order, many in flight, and each row is
copied from its piece to its slot.

A chunk is never in memory as a whole: a piece's buffer is read into again as soon as
its rows are in their slots, so the device's queue stays full however few rows fit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import ReadStats, arrived, range_queue
from systems.engine.passes.distribute import ChunkIndex
from systems.engine.store.packed_layout import parse, slot_rows
from workloads.direct_files import padded
from workloads.errors import DataIOError

Rows = npt.NDArray[np.uint8]
#: Copies rows (uint8 [n, row_bytes], overwritten after the call) to slots (int32 [n]).
Put = Callable[[Rows, npt.NDArray[np.int32]], None]
_MOST_DEPTH = 64


@dataclass
class Addresses:
    """A mini-batch's address list.

    Attributes:
        slots: int32 [num_nodes], slot of each node's row.
        to: int32 [misses], slots of the rows that miss, by ascending id.
        ids: int64 [misses], ids of the rows that miss; empty where these rows are
            packed.
    """

    slots: npt.NDArray[np.int32]
    to: npt.NDArray[np.int32]
    ids: npt.NDArray[np.int64]


@dataclass
class _Piece:
    batch: int
    ticket: int
    memory: Rows
    room: Rows  # buffer, `memory` is its front
    asked_s: float


class Chunks:
    """Reader of a group's chunks, from first to last, once.

    Args:
        index: index that `ChunkWriter.distribute` returned.
        memory: uint8, page-aligned memory of the pieces.
        piece_bytes: bytes of a piece: whole rows and whole pages.
        lists: address lists in flight.
        first: number of the first chunk to read.

    Raises:
        DataIOError: a file is missing, truncated or damaged.
    """

    def __init__(
        self,
        index: ChunkIndex,
        memory: Rows,
        piece_bytes: int,
        lists: int,
        first: int = 0,
    ) -> None:
        self._path = index.path
        self._index = index
        self._row = index.row_bytes
        self._piece_bytes = piece_bytes
        self._lists = lists
        self._piece_rows = piece_bytes // self._row
        assert self._piece_rows % slot_rows(self._row) == 0
        self._free = [
            memory[i : i + piece_bytes]
            for i in range(0, memory.nbytes - piece_bytes + 1, piece_bytes)
        ]
        self._todo = self._pieces(first)
        self._next = next(self._todo, None)
        self._asked: deque[_Piece] = deque()
        self._lists_asked = 0
        self.reads = ReadStats()
        #: Submission and completion of each piece, monotonic seconds, since `spans` was
        #: last cleared.
        self.spans: list[tuple[float, float]] = []
        depth = max(2, min(_MOST_DEPTH, len(self._free) + lists))
        request_bytes = max(piece_bytes, 1 << 20)
        self._queue: _native.RangeQueue | None = range_queue(
            self._path, depth=depth, request_bytes=request_bytes
        )
        self.mode: str = self._queue.mode

    def _pieces(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield (mini-batch, first row) of every piece; the address list (-1) precedes
        a mini-batch's rows."""
        for batch, count in enumerate(self._index.rows[first:, 1].tolist(), first):
            yield batch, -1
            yield from ((batch, row) for row in range(0, count, self._piece_rows))

    def _ask(self) -> None:
        while self._next is not None and self._queue is not None:
            batch, first = self._next
            if first < 0:
                if self._lists_asked >= self._lists:
                    return
                self._lists_asked += 1
                offset, nbytes = self._index.lists[batch].tolist()
                room = aligned_empty(nbytes)
            else:
                if not self._free:
                    return
                room = self._free.pop()
                offset, count = self._index.rows[batch].tolist()
                nbytes = min(self._piece_bytes, padded((count - first) * self._row))
                offset += first * self._row
            memory = room[:nbytes]
            ticket = self._queue.submit(offset, nbytes, memory)
            self._asked.append(_Piece(batch, ticket, memory, room, time.monotonic()))
            self.reads.count(nbytes)
            self._next = next(self._todo, None)

    def _take(self) -> _Piece:
        self._ask()
        piece = self._asked.popleft()
        if self._queue is None:
            raise InterruptedError("the chunks were closed")
        self.spans.append(
            (piece.asked_s, arrived(self._queue, piece.ticket, self._path))
        )
        return piece

    def addresses(self) -> Addresses:
        """Return the next mini-batch's address list."""
        piece = self._take()
        self._check(
            self._index.list_digests,
            "address list",
            piece.batch,
            xxhash.xxh3_64_intdigest(piece.memory.data),
        )
        self._lists_asked -= 1
        return Addresses(**{"ids": np.empty(0, dtype=np.int64), **parse(piece.memory)})

    def fill(self, put: Put, to: npt.NDArray[np.int32]) -> None:
        """Read the rows of the mini-batch whose address list was returned last; `put`
        copies row i to slot `to[i]`."""
        digest = xxhash.xxh3_64()
        batch = -1
        for first in range(0, len(to), self._piece_rows):
            piece = self._take()
            batch = piece.batch
            digest.update(piece.memory.data)
            part = to[first : first + self._piece_rows]
            put(piece.memory[: len(part) * self._row].reshape(-1, self._row), part)
            self._free.append(piece.room)
            self._ask()
        if batch >= 0:
            self._check(self._index.row_digests, "rows", batch, digest.intdigest())

    def _check(
        self, digests: npt.NDArray[np.uint64], part: str, batch: int, digest: int
    ) -> None:
        if digest != int(digests[batch]):
            offset = int(
                (self._index.rows if part == "rows" else self._index.lists)[batch, 0]
            )
            message = (
                f"the {part} of chunk {batch} in {self._path}, at offset {offset}, are "
                "corrupted"
            )
            raise DataIOError(
                f"{message}: their XXH3 is not that of what was written",
                path=str(self._path),
                offset=offset,
                fix="check the device of the results folder",
            )

    def close(self) -> None:
        """Wait for the reads in flight, end the thread and close the file. May be
        called more than once."""
        queue = self._queue
        self._queue = None
        if queue is not None:
            queue.close()
        self._asked.clear()
