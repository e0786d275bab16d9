"""Reader of seed nodes' labels: labels close together in the file are read in one request where that is cheaper.

A group has thousands of seed nodes, and a label is 8 bytes: with a request for each label, a disk of few requests a
second would take longer than for the whole file.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import Mode, ReadStats, arrived, range_queue
from workloads.direct_files import padded

Ids = npt.NDArray[np.int64]
_ITEM = 8
_RANGE = 64 << 10  # the longest request
_IN_FLIGHT = 6


class LabelReader:
    """Reader of 8-byte items of one file.

    Args:
        gap_bytes: longest run of unwanted bytes that is read to save a request.

    Raises:
        DataIOError: the file cannot be opened.
    """

    def __init__(self, path: Path, *, data_offset: int, gap_bytes: int, mode: Mode = "auto") -> None:
        self._path, self._offset, self._gap, self._mode = path, data_offset, gap_bytes, mode
        self._queue: _native.RangeQueue | None = self._open()

    def _open(self) -> _native.RangeQueue:
        return range_queue(self._path, depth=_IN_FLIGHT, request_bytes=padded(_RANGE) + 4096, mode=self._mode)

    @staticmethod
    def memory_bytes() -> int:
        """Return the bytes of host memory that `read` takes beside its ids and values."""
        return _IN_FLIGHT * (padded(_RANGE) + 4096)

    def read(self, ids: Ids) -> tuple[Ids, ReadStats]:
        """Return the items of `ids` (int64 [n], any order) and the counts of their reads.

        Raises:
            DataIOError: the file ends early or its device failed; names file and offset.
        """
        queue = self._queue = self._queue or self._open()  # reopened after a failure
        values, stats, block = np.empty(len(ids), dtype=np.int64), ReadStats(), queue.block_bytes
        order = np.argsort(ids, kind="stable")
        at = self._offset + _ITEM * ids[order]
        first, last = at // block * block, (at + _ITEM - 1) // block * block + block
        begins = np.ones(len(ids), dtype=bool)
        begins[1:] = (first[1:] - last[:-1] > self._gap) | (first[1:] // _RANGE != first[:-1] // _RANGE)
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(ids))[: len(starts)]
        free = [aligned_empty(padded(_RANGE) + 4096) for _ in range(min(_IN_FLIGHT, len(starts)))]
        asked: deque[tuple[int, npt.NDArray[np.uint8], int, int]] = deque()

        def take() -> None:
            ticket, memory, begin, end = asked.popleft()
            arrived(queue, ticket, self._path)
            inside = at[begin:end] - first[begin]
            values[order[begin:end]] = memory[inside[:, None] + np.arange(_ITEM)].view(np.int64).reshape(-1)
            free.append(memory)

        try:
            for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
                if not free:
                    take()
                memory, offset = free.pop(), int(first[begin])
                need = int(at[end - 1]) + _ITEM - offset
                asked.append((queue.submit(offset, need, memory), memory, begin, end))
                nbytes = -(-need // block) * block
                stats.count(nbytes)
            while asked:
                take()
        except BaseException:
            # Reads in flight write into buffers that are about to be freed.
            self.close()
            raise
        stats.rows, stats.bytes_useful = len(ids), _ITEM * len(ids)
        return values, stats

    def close(self) -> None:
        """Wait for the reads in flight and close the file. May be called more than once."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
