"""Stream of bytes into a file past the page cache: aligned buffers, written by threads
while the next are filled."""

from __future__ import annotations

import fcntl
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import xxhash

from workloads.arraytypes import UInt8Array
from workloads.direct_files import aligned_empty, open_direct, padded, read_at, write_at
from workloads.errors import DataIOError

Bytes = UInt8Array
BUFFER_BYTES = 4 << 20
DEPTH = 8
STREAM_BYTES = BUFFER_BYTES * DEPTH + (2 << 20)  # with the stacks of the threads
_WRITERS = 6  # buffers written at once, while others are filled and hashed


class DirectStream:
    """Stream of bytes into an existing file, in order: fill `room()` and `advance`, or
    `write` arrays of any length.

    Up to eight buffers of 4 MiB are in flight, six threads write. Page cache is not
    used where the file system does direct I/O. A later call raises the first error of a
    thread: DataIOError where the disk is full or failed.
    """

    def __init__(
        self,
        path: Path,
        offset: int,
        *,
        digest: xxhash.xxh3_64 | None = None,
        read_back: bool = False,
    ) -> None:
        """Open the file to write from `offset` on.

        Args:
            path: the file.
            offset: a multiple of 4096.
            digest: updated in order with every byte, by a thread of its own.
            read_back: whether each buffer, once written, is read back from disk and
                compared; buffers are half as large then, so that the memory for reading
                is included in `STREAM_BYTES`.
        """
        self._path = path
        self._offset = offset
        self._digest = digest
        self._file = open_direct(path, os.O_RDWR if read_back else os.O_WRONLY)
        self._writers = ThreadPoolExecutor(_WRITERS)
        self._hasher = ThreadPoolExecutor(1)
        self._size = BUFFER_BYTES // 2 if read_back else BUFFER_BYTES
        memory = aligned_empty(DEPTH * self._size).reshape(DEPTH, self._size)
        # In the order of their last use, each with the work that has to end before the
        # next one.
        self._buffers = deque[tuple[Bytes, list[Future[None]]]](
            (row, []) for row in memory
        )
        self._work = self._write
        self._spare = deque[Bytes]()
        if read_back:
            self._work = self._write_and_compare
            self._spare.extend(
                aligned_empty(_WRITERS * self._size).reshape(_WRITERS, self._size)
            )
        self._current: Bytes | None = None
        self._used = 0

    def room(self) -> Bytes:
        """Return the free part of the current buffer, never empty, to fill with the
        next bytes."""
        if self._current is None:
            # The free buffer that was used last: memory that the disk's speed does not
            # need is never touched.
            newest_first = reversed([*enumerate(self._buffers)])
            free = (
                at
                for at, (_, work) in newest_first
                if all(write.done() for write in work)
            )
            at = next(free, 0)
            self._current, under_way = self._buffers[at]
            del self._buffers[at]
            for work in under_way:
                work.result()
        return self._current[self._used :]

    def advance(self, nbytes: int) -> None:
        """Accept the first `nbytes` of `room()`."""
        self._used += nbytes
        if self._used == self._size:
            self.flush()

    def flush(self) -> None:
        """Begin to write the current buffer; if it is not full, no more bytes may
        follow."""
        memory = self._current
        used = self._used
        if memory is None:
            return
        whole = memory[: padded(used)]
        # direct I/O takes whole pages: the file is up to a page longer than its content
        whole[used:] = 0
        work = [self._writers.submit(self._work, whole, self._offset)]
        if self._digest is not None:
            work.append(self._hasher.submit(self._digest.update, memory[:used].data))
        self._buffers.append((memory, work))
        self._offset += used
        self._current = None
        self._used = 0

    def write(self, data: Bytes) -> None:
        """Append a copy of flat `data`."""
        done = 0
        while done < len(data):
            room = self.room()
            step = min(len(room), len(data) - done)
            room[:step] = data[done : done + step]
            self.advance(step)
            done += step

    def close(self, *, cancel: bool = False) -> None:
        """Wait for the disk, close the file, free the memory; raises the first error,
        unless the rest is cancelled."""
        for threads in (self._writers, self._hasher):
            threads.shutdown(cancel_futures=cancel)
        os.close(self._file)
        ended = [
            work for _, under_way in self._buffers if not cancel for work in under_way
        ]
        self._buffers.clear()
        self._spare.clear()
        self._current = None
        for work in ended:
            work.result()

    def _write(self, data: Bytes, offset: int) -> None:
        write_at(self._file, data, offset, self._path)

    def _write_and_compare(self, data: Bytes, offset: int) -> None:
        self._write(data, offset)
        # the read is not to find the page cache's copy
        if not fcntl.fcntl(self._file, fcntl.F_GETFL) & os.O_DIRECT:
            os.fdatasync(self._file)
            os.posix_fadvise(self._file, offset, len(data), os.POSIX_FADV_DONTNEED)
        memory = self._spare.pop()
        found = memory[: len(data)]
        read_at(self._file, found, offset, self._path)
        if not np.array_equal(found.view(np.uint64), data.view(np.uint64)):
            fault = (
                f"{self._path.name} reads back other than it was written, in the "
                f"{len(data)} bytes from {offset} on"
            )
            raise DataIOError(
                fault, path=str(self._path), offset=offset, fix="check the device"
            )
        self._spare.append(memory)
