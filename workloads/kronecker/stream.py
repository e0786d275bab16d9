"""Streaming writer of one part of a dataset: direct I/O from aligned buffers, hashed while generation runs."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from workloads.direct_files import open_direct, padded, write_at
from workloads.kronecker.spec import TopologySink
from workloads.mapped import aligned_empty
from workloads.npyfile import padded_header

BUFFER_BYTES = 4 << 20
DEPTH = 8
STREAM_BYTES = BUFFER_BYTES * DEPTH + (2 << 20)  # with the stacks of the threads
_WRITERS = 6  # buffers written at once, while others are filled and hashed


class PartWriter:
    """Streaming writer of a part of `count` elements: fill `buffer()`, `commit` it; or `write` arrays of any length.

    Up to eight buffers of 4 MiB are in flight; six threads write, one hashes in order. Page cache is not used where the
    file system does direct I/O. A later call raises the first error of a thread.

    Raises:
        DataIOError: the disk is full or failed.
    """

    def __init__(self, sink: TopologySink, part: str, dtype: npt.DTypeLike, count: int) -> None:
        self._sink, self._part, self._dtype = sink, part, np.dtype(dtype)
        self._path, self._offset = sink.begin(part, self._dtype, count)
        self._left = count
        self._hash = xxhash.xxh3_64(padded_header(self._dtype, (count,)))
        self._file = open_direct(self._path, os.O_WRONLY)
        self._writers, self._hasher = ThreadPoolExecutor(_WRITERS), ThreadPoolExecutor(1)
        memory = aligned_empty(DEPTH * BUFFER_BYTES).reshape(DEPTH, BUFFER_BYTES)
        # In the order of their last use, each with what has to end before the next.
        self._buffers: deque[tuple[npt.NDArray[np.uint8], tuple[Future[None], ...]]] = deque(
            (row, ()) for row in memory
        )
        self._current: npt.NDArray[np.uint8] | None = None
        self._used = 0

    def buffer(self) -> npt.NDArray[Any]:
        """Return a view of the free part of the current buffer, never empty, to fill with the next elements."""
        if self._current is None:
            # The last used of those that are free, so that memory that the disk's speed does not need stays untouched.
            free = (at for at, (_, work) in reversed([*enumerate(self._buffers)]) if all(one.done() for one in work))
            at = next(free, 0)
            self._current, under_way = self._buffers[at]
            del self._buffers[at]
            for work in under_way:
                work.result()
        return self._current[self._used :].view(self._dtype)

    def commit(self, count: int) -> None:
        """Accept the first `count` elements of `buffer()`."""
        if count > self._left:
            raise ValueError(f"{self._part} gets {count - self._left} elements more than announced")
        memory = self._current
        assert memory is not None, "commit() follows buffer()"
        self._left -= count
        self._used += count * self._dtype.itemsize
        if self._used == BUFFER_BYTES or self._left == 0:
            self._current = None
            whole = memory[: padded(self._used)]
            whole[self._used :] = 0  # the last buffer: direct I/O takes whole blocks, and the sink cuts the file
            hashed = self._hasher.submit(self._hash.update, memory[: self._used].data)
            written = self._writers.submit(write_at, self._file, whole, self._offset, self._path)
            self._buffers.append((memory, (written, hashed)))
            self._offset += self._used
            self._used = 0

    def write(self, array: npt.NDArray[Any]) -> None:
        """Append a copy of `array`."""
        done = 0
        while done < array.shape[0]:
            room = self.buffer()
            step = min(room.shape[0], array.shape[0] - done)
            room[:step] = array[done : done + step]
            self.commit(step)
            done += step

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the disk, then finish the part; every announced element must have been written."""
        for threads in (self._writers, self._hasher):
            threads.shutdown(cancel_futures=error is not None)
        os.close(self._file)
        if error is None:
            for work in (work for _, under_way in self._buffers for work in under_way):
                work.result()
            if self._left:
                raise ValueError(f"{self._part} lacks {self._left} elements of what was announced")
            self._sink.finish(self._part, xxh3=self._hash.hexdigest())
