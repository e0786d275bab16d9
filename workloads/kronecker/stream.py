"""Streaming writer of one part of a dataset: direct I/O from aligned buffers, hashed while generation runs."""

from __future__ import annotations

import errno
import fcntl
import os
import queue
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from workloads.errors import DataIOError
from workloads.kronecker.spec import TopologySink
from workloads.mapped import aligned_empty
from workloads.npyfile import padded_header

BUFFER_BYTES = 4 << 20
DEPTH = 8
STREAM_BYTES = BUFFER_BYTES * DEPTH + (2 << 20)  # with the stacks of the threads
_WRITERS = 6  # buffers written at once, while others are filled and hashed
_BLOCK = 4096


class _Buffer:
    """Page-aligned memory, free again once it is both written and hashed."""

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory
        self.used = 0
        self.offset = 0
        self.users = 0


class PartWriter:
    """Streaming writer of a part of `count` elements: fill `buffer()`, `commit` it; or `write` arrays of any length.

    Up to eight buffers of 4 MiB are in flight; six threads write, one hashes in order. Page cache is not used where the
    file system does direct I/O. The next call raises the first error of a thread.

    Raises:
        OSError: the disk is full or failed.
        DataIOError: a write ended short with no reason given.
    """

    def __init__(self, sink: TopologySink, part: str, dtype: npt.DTypeLike, count: int) -> None:
        self._sink, self._part, self._dtype = sink, part, np.dtype(dtype)
        self._path, self._offset = sink.begin(part, self._dtype, count)
        self._left = count
        self._hash = xxhash.xxh3_64(padded_header(self._dtype, (count,)))
        self._file = _open_direct(self._path)
        self._free: queue.SimpleQueue[_Buffer] = queue.SimpleQueue()
        memory = aligned_empty(DEPTH * BUFFER_BYTES).data
        for first in range(0, DEPTH * BUFFER_BYTES, BUFFER_BYTES):
            self._free.put(_Buffer(memory[first : first + BUFFER_BYTES]))
        self._to_write: queue.SimpleQueue[_Buffer | None] = queue.SimpleQueue()
        self._to_hash: queue.SimpleQueue[_Buffer | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._current: _Buffer | None = None
        self._threads = [threading.Thread(target=self._write_loop, daemon=True) for _ in range(_WRITERS)]
        self._threads.append(threading.Thread(target=self._hash_loop, daemon=True))
        for thread in self._threads:
            thread.start()

    def buffer(self) -> npt.NDArray[Any]:
        """Return a view of the free part of the current buffer, never empty, to fill with the next elements."""
        self._check()
        if self._current is None:
            self._current = self._free.get()
            self._current.used = 0
            self._check()
        return np.frombuffer(self._current.memory, dtype=np.uint8)[self._current.used :].view(self._dtype)

    def commit(self, count: int) -> None:
        """Accept the first `count` elements of `buffer()`."""
        assert self._current is not None
        if count > self._left:
            raise ValueError(f"{self._part} gets {count - self._left} elements more than announced")
        self._left -= count
        self._current.used += count * self._dtype.itemsize
        if self._current.used == BUFFER_BYTES or self._left == 0:
            self._submit(self._current)
            self._current = None

    def write(self, array: npt.NDArray[Any]) -> None:
        """Append a copy of `array`."""
        done = 0
        while done < array.shape[0]:
            room = self.buffer()
            step = min(room.shape[0], array.shape[0] - done)
            room[:step] = array[done : done + step]
            self.commit(step)
            done += step

    def close(self) -> None:
        """Wait for the disk, then finish the part; every announced element must have been written."""
        self._stop()
        self._check()
        if self._left:
            raise ValueError(f"{self._part} lacks {self._left} elements of what was announced")
        self._sink.finish(self._part, xxh3=self._hash.hexdigest())

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._stop()

    def _submit(self, buffer: _Buffer) -> None:
        tail = -buffer.used % _BLOCK
        if tail:  # the last buffer: direct I/O takes whole blocks, and the sink cuts the file
            buffer.memory[buffer.used : buffer.used + tail] = bytes(tail)
        buffer.offset = self._offset
        buffer.users = 2
        self._offset += buffer.used
        self._to_hash.put(buffer)
        self._to_write.put(buffer)

    def _stop(self) -> None:
        if self._file < 0:
            return
        for _ in range(_WRITERS):
            self._to_write.put(None)
        self._to_hash.put(None)
        for thread in self._threads:
            thread.join()
        os.close(self._file)
        self._file = -1

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _done(self, buffer: _Buffer) -> None:
        with self._lock:
            buffer.users -= 1
            last = buffer.users == 0
        if last:
            self._free.put(buffer)

    def _write_loop(self) -> None:
        while (buffer := self._to_write.get()) is not None:
            if self._failure is None:  # after a failure buffers are only recycled, so that no thread waits for ever
                try:
                    self._write_out(buffer)
                except BaseException as failure:
                    self._failure = failure
            self._done(buffer)

    def _write_out(self, buffer: _Buffer) -> None:
        size = buffer.used + -buffer.used % _BLOCK
        done = 0
        while done < size:
            try:
                count = os.pwrite(self._file, buffer.memory[done:size], buffer.offset + done)
            except OSError as error:
                if error.errno != errno.EINVAL or not _is_direct(self._file):
                    error.filename = str(self._path)
                    raise
                _go_buffered(self._file)  # the file system accepted the flag and rejects the request
                continue
            if count == 0:
                raise DataIOError(
                    f"writing {self._path} stopped at offset {buffer.offset + done}",
                    path=str(self._path),
                    offset=buffer.offset + done,
                )
            done += count

    def _hash_loop(self) -> None:
        while (buffer := self._to_hash.get()) is not None:
            self._hash.update(buffer.memory[: buffer.used])
            self._done(buffer)


def _open_direct(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, os.O_WRONLY)


def _is_direct(file: int) -> bool:
    return bool(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT)


def _go_buffered(file: int) -> None:
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_DIRECT)
