"""A store of mini-batches on disk: for each, one contiguous region with its packed
feature rows and its own arrays.

The writer lays out regions as mini-batches are appended, then packs all features at
once (DiskGNN, Section 5.2). The reader keeps large reads in flight over any number of
mini-batches. Both parts of every region carry an XXH3, so corruption is detected and
located. A folder holds `packed.bin` (the regions), `packed.npz` (the index, written
last) and `<name>.rows` (rows in a given order: device, host and disk cache).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.arrays import Array, as_rows
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import Mode, ReadStats, range_queue
from systems.engine.store.packed_layout import load_index, parse, piece_rows
from workloads.direct_files import io_failed, open_direct, padded, read_at
from workloads.errors import DataIOError, require


@dataclass
class PackedBatch:
    """A mini-batch's region in memory.

    Attributes:
        rows: uint8 [num_rows, row_bytes], a view; empty if the features were not
            requested.
        arrays: views of its arrays.
        arrived_s: arrival of its last byte from the device, monotonic seconds.
    """

    index: int
    rows: NDArray[np.uint8]
    arrays: dict[str, Array]
    arrived_s: float = 0.0


@dataclass
class PendingBatch:
    """A mini-batch with its reads in flight."""

    index: int
    _reader: PackedReader
    _tickets: list[tuple[str, int, NDArray[np.uint8]]] = field(default_factory=list)

    def result(self) -> PackedBatch:
        """Wait for its parts and check them; call once.

        Raises:
            DataIOError: the device failed, or a part is truncated or corrupted; names
                file, mini-batch and offset.
        """
        tickets = self._tickets
        self._tickets = []
        reader = self._reader
        batch = self.index
        rows = np.empty((0, reader.row_bytes), np.uint8)
        arrays: dict[str, Array] = {}
        failure: DataIOError | None = None
        latest = 0.0
        for part, ticket, memory in tickets:
            problem, arrived_s = reader._open().wait(ticket)
            latest = max(latest, arrived_s)
            if problem is not None:
                code, offset = problem
                failure = failure or io_failed(reader.path, offset, code)
                continue
            if failure is None and xxhash.xxh3_64_intdigest(memory.data) != int(
                reader._digests[part][batch]
            ):
                start = int(reader.offsets[batch]) + (
                    int(reader.feature_bytes[batch]) if part == "structure" else 0
                )
                what = (
                    f"the {part} of mini-batch {batch} in {reader.path}, "
                    f"{memory.nbytes} bytes at offset {start},"
                )
                failure = _corrupted(reader.path, start, f"{what} are corrupted")
            if part == "features":
                rows = memory[: int(reader.num_rows[batch]) * reader.row_bytes].reshape(
                    -1, reader.row_bytes
                )
            elif failure is None:
                arrays = parse(memory)
        if failure is not None:
            raise failure
        return PackedBatch(batch, rows, arrays, latest)


class PackedReader:
    """Direct-I/O reader of the mini-batches of a packed folder; one native thread keeps
    the device's queue full.

    Reads complete independently of the caller, in the order of `start`. Any thread may
    call.

    Args:
        folder: result of `PackedWriter.pack`.
        depth: reads in flight, over all started mini-batches.
        mode: as in `RowReader`.

    Raises:
        DataIOError: a file is missing, truncated or damaged.
        HostError: `mode="io_uring"` and this host has none.
    """

    def __init__(
        self,
        folder: Path,
        *,
        request_bytes: int = 1 << 20,
        depth: int = 16,
        mode: Mode = "auto",
    ) -> None:
        self.path = folder / "packed.bin"
        index = load_index(folder)
        self.row_bytes = int(index["row_bytes"])
        self.offsets: NDArray[np.int64] = index["offset"]
        self.num_rows: NDArray[np.int64] = index["num_rows"]
        self.structure_bytes: NDArray[np.int64] = index["structure_bytes"]
        self.feature_bytes: NDArray[np.int64] = padded(self.num_rows * self.row_bytes)
        self._digests = {
            "features": index["feature_digest"],
            "structure": index["structure_digest"],
        }
        self.num_batches = len(self.offsets)
        self.request_bytes = request_bytes
        self.depth = depth
        self._stats = ReadStats()
        self._queue: _native.RangeQueue | None = range_queue(
            self.path, depth=depth, request_bytes=request_bytes, mode=mode
        )
        #: `io_uring` or `pread pool (why)`.
        self.mode: str = self._queue.mode
        #: Bytes of the reader's index; buffers belong to the caller.
        self.memory_bytes = sum(
            int(array.nbytes) for array in (*index.values(), self.feature_bytes)
        )

    def start(
        self,
        batch: int,
        features: NDArray[np.uint8] | None,
        structure: NDArray[np.uint8] | None,
    ) -> PendingBatch:
        """Start reading a mini-batch into the caller's memory, queued behind earlier
        ones; returns at once.

        Args:
            features: page-aligned, at least `feature_bytes[batch]`; None: not wanted.
            structure: page-aligned, at least `structure_bytes[batch]`; None: not
                wanted.

        Raises:
            ValueError: a buffer is too small or not aligned.
        """
        pending = PendingBatch(batch, self)
        offset = int(self.offsets[batch])
        sizes = {
            "features": int(self.feature_bytes[batch]),
            "structure": int(self.structure_bytes[batch]),
        }
        for part, memory in (("features", features), ("structure", structure)):
            if memory is not None and sizes[part]:
                flat = as_rows(memory, 1).reshape(-1)
                if flat.nbytes < sizes[part]:
                    raise ValueError(
                        f"the {part} of mini-batch {batch} take {sizes[part]} bytes, "
                        f"there are {flat.nbytes}"
                    )
                target = flat[: sizes[part]]
                ticket = self._open().submit(offset, sizes[part], target)
                pending._tickets.append((part, ticket, target))
                self._count(self._stats, sizes[part])
            offset += sizes[part]
        return pending

    def counters(self) -> ReadStats:
        """Return the reads started since the last `reset_counters`."""
        total = ReadStats()
        total.add(self._stats)
        return total

    def reset_counters(self) -> None:
        """Reset the counts to zero."""
        self._stats = ReadStats()

    def simulate(
        self,
        order: Iterable[int],
        *,
        parts: Iterable[Literal["features", "structure"]] = ("features", "structure"),
    ) -> ReadStats:
        """Return the exact counts of reading these mini-batches."""
        stats = ReadStats()
        sizes = {"features": self.feature_bytes, "structure": self.structure_bytes}
        wanted = [sizes[part] for part in parts]
        for batch in order:
            for part_bytes in wanted:
                self._count(stats, int(part_bytes[batch]))
        return stats

    def close(self) -> None:
        """Wait for reads in flight, end the thread, close the file. May be called more
        than once."""
        queue = self._queue
        self._queue = None
        if queue is not None:
            queue.close()

    def _open(self) -> _native.RangeQueue:
        if self._queue is None:
            raise ValueError(f"the reader of {self.path} is closed")
        return self._queue

    def _count(self, stats: ReadStats, nbytes: int) -> None:
        whole, rest = divmod(nbytes, self.request_bytes)
        for size, count in ((self.request_bytes, whole), (rest, 1 if rest else 0)):
            if count:
                stats.requests += count
                stats.requests_by_size[size] = (
                    stats.requests_by_size.get(size, 0) + count
                )
        stats.bytes_read += nbytes
        stats.bytes_useful += nbytes


def row_pieces(folder: Path, name: str) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Read a `.rows` file by large direct reads, checking each piece: yield its first
    row, and its rows.

    Yields:
        int and uint8 [n, row_bytes]; about 2 MiB, overwritten by the next piece.

    Raises:
        DataIOError: a file is missing, truncated or corrupted; names file and offset.
        InputError: the folder has no rows of this name.
    """
    index = load_index(folder)
    require(
        f"rows_{name}" in index,
        f"{folder} has no rows named {name}",
        "use one of those that were written",
    )
    count = int(index[f"rows_{name}"])
    row_bytes = int(index["row_bytes"])
    digests = index[f"digests_{name}"]
    path = folder / f"{name}.rows"
    rows = piece_rows(row_bytes)
    total = padded(count * row_bytes)
    step = rows * row_bytes
    bounds = [*range(0, total, step), total]
    handle = open_direct(path, os.O_RDONLY)
    buffer = aligned_empty(min(step, total))
    try:
        for number, (begin, end) in enumerate(pairwise(bounds) if count else ()):
            piece = buffer[: end - begin]
            read_at(handle, piece, begin, path)
            if xxhash.xxh3_64_intdigest(piece.data) != int(digests[number]):
                raise _corrupted(
                    path,
                    begin,
                    f"{path} is corrupted in the {end - begin} bytes at offset {begin}",
                )
            used = min(end, count * row_bytes) - begin
            yield number * rows, piece[:used].reshape(-1, row_bytes)
    finally:
        os.close(handle)


def _corrupted(path: Path, offset: int, what: str) -> DataIOError:
    message = f"{what}: their XXH3 is not that of what was written"
    fix = "remove the prepared folder, it is then made anew, and check the device"
    return DataIOError(message, path=str(path), offset=offset, fix=fix)
