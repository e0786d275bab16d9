"""Direct reads of table rows into memory: sorted, merged, at full queue depth, with
errors raised."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.arrays import Array, as_ids, as_rows
from workloads.direct_files import cannot_open, io_failed
from workloads.errors import HostError, InputError

Granularity = Literal["logical", "4096"]
Mode = Literal["auto", "io_uring", "pread"]


@dataclass
class ReadStats:
    """Counts of a read's disk requests; all but `seconds` is the same on every machine.

    Attributes:
        bytes_read: bytes returned by reads.
        bytes_useful: bytes of the rows that were read, each row once.
        requests_by_size: number of reads by request bytes.
        rows: ids requested.
        unique_rows: rows read (with `merge=False` one for each id).
    """

    requests: int = 0
    bytes_read: int = 0
    bytes_useful: int = 0
    requests_by_size: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    unique_rows: int = 0
    seconds: float = 0.0

    def count(self, nbytes: int) -> None:
        """Count one request of `nbytes` bytes."""
        self.requests += 1
        self.bytes_read += nbytes
        self.requests_by_size[nbytes] = self.requests_by_size.get(nbytes, 0) + 1

    def add(self, other: ReadStats) -> None:
        """Add another read's counts to these."""
        self.requests += other.requests
        self.bytes_read += other.bytes_read
        self.bytes_useful += other.bytes_useful
        self.rows += other.rows
        self.unique_rows += other.unique_rows
        self.seconds += other.seconds
        for size, count in other.requests_by_size.items():
            self.requests_by_size[size] = self.requests_by_size.get(size, 0) + count


@dataclass
class RowGroup:
    """Rows of a `read_groups` call that are in the staging buffer.

    Attributes:
        positions: int64 [k], positions of these rows in the requested ids.
        start: first staging row of the group.
        rows: uint8 [k, row_bytes], a view of the staging buffer; row i is the row
            `ids[positions[i]]`.
    """

    positions: NDArray[np.int64]
    start: int
    rows: NDArray[np.uint8]
    _give_back: Callable[[int], None] | None
    _slice: int

    def release(self) -> None:
        """Return the slice for further reads; call it once the rows have been copied
        away."""
        give_back = self._give_back
        self._give_back = None
        if give_back is not None:
            give_back(self._slice)


class SliceSource(Protocol):
    """Provider of slices of a staging buffer that `read_groups` shares with other
    users."""

    def take(self, *, starved: bool) -> int | None:
        """Return a slice, or None if none is free now; `starved`: the read has none
        left, so wait for one."""

    def filled(self, slice_: int, ids: NDArray[np.int64]) -> None:
        """Note that the rows of these ids lie in the slice, from its first row on."""

    def give_back(self, slice_: int) -> None:
        """Take back a slice that the read no longer uses."""


class RowReader:
    """Reader of one table file's rows by O_DIRECT. Each thread needs its own: a reader
    serves one read at a time.

    Row `i` lies at `data_offset + i * row_bytes`. A read sorts its ids, reads each row
    once, joins rows whose blocks touch into one request up to `max_request_bytes`, and
    keeps `depth` requests in flight until none is left. The ring and its buffers are
    built once, by the constructor.

    Args:
        data_offset: bytes before row 0.
        num_rows: rows of the table; a larger id raises IndexError.
        row_bytes: bytes of a row, any number.
        depth: requests kept in flight.
        granularity: `logical`: requests begin and end at the device's logical blocks;
            `4096`: at 4 KiB.
        merge: False: one request for each id in the order given, duplicates too.
        merge_gap_bytes: unwanted bytes that may be read to join two requests; 0 joins
            touching blocks only.
        mode: `auto` uses io_uring, or the pread pool if io_uring is missing or
            forbidden; the others force one.
        threads: threads of the pread pool.
        register_buffers: register the bounce buffer with io_uring; `mode` reports if
            the memlock limit forbids it.
        buffer_bytes: size of the bounce buffer; 0 chooses (see `plan_bytes`).

    Raises:
        DataIOError: the file cannot be opened.
        HostError: `mode="io_uring"` and this host has none.
        InputError: an option is out of its range.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        data_offset: int,
        num_rows: int,
        row_bytes: int,
        depth: int = 256,
        granularity: Granularity = "logical",
        merge: bool = True,
        max_request_bytes: int = 131072,
        merge_gap_bytes: int = 0,
        mode: Mode = "auto",
        threads: int = 32,
        register_buffers: bool = True,
        buffer_bytes: int = 0,
    ) -> None:
        self.path = Path(path)
        self.row_bytes = row_bytes
        self.depth = depth
        with reader_errors(path):
            self._native: _native.Reader | None = _native.Reader(
                str(path),
                data_offset=data_offset,
                num_rows=num_rows,
                row_bytes=row_bytes,
                depth=depth,
                granularity=4096 if granularity == "4096" else 0,
                merge=merge,
                max_request_bytes=max_request_bytes,
                merge_gap_bytes=merge_gap_bytes,
                mode=mode,
                threads=threads,
                register_buffers=register_buffers,
                buffer_bytes=buffer_bytes,
            )
        #: `io_uring registered`, `io_uring unregistered (why)` or `pread pool (why)`;
        #: `; buffered…` without O_DIRECT.
        self.mode: str = self._native.mode
        #: Bytes of the bounce buffer; a plan adds `plan_bytes` for the ids of a read.
        self.memory_bytes: int = self._native.memory_bytes
        #: Alignment of requests in bytes.
        self.block_bytes: int = self._native.block_bytes

    @staticmethod
    def plan_bytes(
        *,
        row_bytes: int,
        data_offset: int = 4096,
        num_rows: int = 0,
        depth: int = 256,
        granularity: Granularity = "logical",
        merge: bool = True,
        max_request_bytes: int = 131072,
        merge_gap_bytes: int = 0,
        buffer_bytes: int = 0,
        num_ids: int = 0,
        path: Path | str | None = None,
    ) -> int:
        """Return the host memory of a reader with these arguments: its bounce buffer,
        and the plan of `num_ids` ids.

        Args:
            num_ids: most ids of one read.
            path: the file, whose device's logical block counts; None: blocks of 512
                bytes.
        """
        block = _native.block_bytes(str(path)) if path is not None else 512
        block = max(block, 4096 if granularity == "4096" else 0)
        buffer = buffer_bytes or _native.reader_buffer_bytes(
            data_offset, row_bytes, block, max(max_request_bytes, block), depth
        )
        return buffer + _native.plan_bytes(num_ids)

    def read(
        self,
        ids: Array | torch.Tensor,
        out: Array | torch.Tensor,
        out_rows: Array | torch.Tensor | None = None,
    ) -> ReadStats:
        """Read row `ids[i]` into `out[out_rows[i]]`, or `out[i]`. The GIL is released.

        Args:
            ids: int64 [n], any order, repeated or not.
            out: contiguous host table whose rows have `row_bytes` bytes.
            out_rows: int64 [n].

        Raises:
            DataIOError: the device failed or the file ends before a row; names file and
                offset. No reads remain in flight, and `out` holds some of the rows.
            IndexError: an id or a row of `out` does not exist.
        """
        rows = None if out_rows is None else as_ids(out_rows)
        return self._timed(
            self._open().read, as_ids(ids), as_rows(out, self.row_bytes), rows
        )

    def counts_of(self, ids: Array | torch.Tensor) -> ReadStats:
        """Return the exact counts of `read(ids)` without reading; any thread may call
        it at any time.

        Raises:
            IndexError: an id does not exist.
        """
        return ReadStats(**self._open().counts_of(as_ids(ids)))

    def read_range(
        self,
        offset: int,
        nbytes: int,
        out: Array | torch.Tensor,
        *,
        request_bytes: int = 1 << 20,
    ) -> ReadStats:
        """Read bytes `[offset, offset + nbytes)` of the file into the start of `out`,
        in requests of `request_bytes`.

        Raises:
            DataIOError: as `read`.
            ValueError: `out` is smaller than `nbytes`.
        """
        target = as_rows(out, 1).reshape(-1)
        if target.nbytes < nbytes:
            raise ValueError(f"out has {target.nbytes} bytes, {nbytes} were asked for")
        return self._timed(
            self._open().read_range, offset, target[:nbytes], request_bytes
        )

    def read_ranges(
        self,
        offsets: Array | torch.Tensor,
        sizes: Array | torch.Tensor,
        out: Array | torch.Tensor,
        positions: Array | torch.Tensor,
        *,
        request_bytes: int = 1 << 20,
    ) -> ReadStats:
        """Read several ranges of the file at once: the device's queue stays full from
        the first to the last.

        Bytes `[offsets[i], offsets[i] + sizes[i])` go to `out` from byte `positions[i]`
        on, in requests of `request_bytes` that never span two ranges; without a copy if
        offset, size and address are aligned to the device's block.

        Args:
            offsets, sizes: int64 [n], bytes in the file.
            positions: int64 [n], bytes from the start of `out`.

        Raises:
            DataIOError: as `read`.
            IndexError: a range would end behind `out`.
        """
        places = as_ids(offsets), as_ids(sizes), as_ids(positions)
        return self._timed(
            self._open().read_ranges,
            *places,
            as_rows(out, 1).reshape(-1),
            request_bytes,
        )

    def read_groups(
        self,
        ids: Array | torch.Tensor,
        staging: Array | torch.Tensor,
        group_rows: int,
        stats: ReadStats | None = None,
        source: SliceSource | None = None,
    ) -> Generator[RowGroup]:
        """Read rows into a bounded staging buffer; yield groups of up to `group_rows`
        as they complete.

        Reads of later groups are in flight while the caller copies a group away
        (GNNDrive, Section 4.2). The caller calls `group.release()` when it no longer
        needs the group's slice, at once or, for an asynchronous copy, later; if the
        caller holds every slice, the next step raises. Leaving the loop early waits for
        reads in flight.

        Args:
            ids: int64 [n]; a repeated id has a staging row for each occurrence.
            staging: contiguous host memory, uint8 or any dtype; cut into slices of
                `group_rows` rows.
            group_rows: rows of a group.
            stats: filled if given, before the first group.
            source: provides slices on demand if the staging buffer has other users; all
                slices return to it.

        Raises:
            DataIOError: as `read`.
            InputError: the staging buffer holds less than one group.
        """
        start = time.perf_counter()
        table = as_rows(staging, 1).reshape(-1)
        wanted = as_ids(ids)
        try:
            read = _native.GroupRead(
                self._open(), wanted, table, group_rows, source is None
            )
        except ValueError as error:
            raise InputError(
                f"staged read of {self.path}: {error}", "raise the staging buffer"
            ) from error
        lent: set[int] = set()  # slices of `source` without a yielded group
        missing = (
            0 if source is None else -(-len(wanted) // group_rows)
        )  # groups without a slice
        give_back = read.give_back if source is None else source.give_back

        def lend(*, starved: bool) -> bool:
            slice_ = None if source is None else source.take(starved=starved)
            if slice_ is not None:
                lent.add(slice_)
                read.give_back(slice_)
            return slice_ is not None

        try:
            if stats is not None:
                stats.add(ReadStats(**read.counts))
            slice_bytes = group_rows * self.row_bytes
            while True:
                while missing and lend(starved=False):
                    missing -= 1
                step = read.next()
                if step is None:
                    break
                if step == "failed":
                    self._check(read.failure)
                if isinstance(step, str):
                    if source is None:
                        raise RuntimeError(
                            "every slice of the staging buffer is held: release a "
                            "group before the next"
                        )
                    missing -= lend(starved=True)
                    continue
                index, positions = step
                lent.discard(index)
                if source is not None:
                    source.filled(index, wanted[positions])
                begin = index * slice_bytes
                rows = table[begin : begin + len(positions) * self.row_bytes].reshape(
                    -1, self.row_bytes
                )
                yield RowGroup(positions, index * group_rows, rows, give_back, index)
        finally:
            read.close()
            for index in lent:
                give_back(index)
            if stats is not None:
                stats.seconds += time.perf_counter() - start

    def close(self) -> None:
        """Close the file, end the ring or the threads, free the buffer. May be called
        more than once."""
        self._native = None

    def __enter__(self) -> RowReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open(self) -> _native.Reader:
        if self._native is None:
            raise ValueError(f"the reader of {self.path} is closed")
        return self._native

    def _timed(self, read: Callable[..., Any], *arguments: Any) -> ReadStats:
        start = time.perf_counter()
        counts, failure = read(*arguments)
        self._check(failure)
        return ReadStats(**counts, seconds=time.perf_counter() - start)

    def _check(self, failure: Any) -> None:
        if failure is not None:
            code, offset = failure
            raise io_failed(self.path, offset, code)


@contextmanager
def reader_errors(path: Path | str) -> Iterator[None]:
    """Convert the errors of a native reader's constructor: the file cannot be opened,
    an option is out of its range.

    Raises:
        DataIOError, InputError: as above.
        HostError: io_uring is forced and missing.
    """
    try:
        yield
    except OSError as error:
        raise cannot_open(Path(path), error.errno or 0) from error
    except ValueError as error:
        raise InputError(f"reader of {path}: {error}", "change that option") from error
    except RuntimeError as error:
        raise HostError(
            f"io_uring cannot be had here: {error}", "use mode auto, which falls back"
        ) from error


def range_queue(
    path: Path, *, depth: int, request_bytes: int, mode: str = "auto"
) -> _native.RangeQueue:
    """Open a file for direct reads of ranges, up to `depth` requests in flight.

    Raises:
        DataIOError: the file cannot be opened.
        InputError, HostError: as `reader_errors`.
    """
    with reader_errors(path):
        return _native.RangeQueue(
            str(path), depth=depth, request_bytes=request_bytes, mode=mode
        )


def arrived(queue: _native.RangeQueue, ticket: int, path: Path) -> float:
    """Wait for a range; return when it arrived, in monotonic seconds.

    Raises:
        DataIOError: the read failed; names file and offset.
    """
    problem, arrived_s = queue.wait(ticket)
    if problem is not None:
        code, offset = problem
        raise io_failed(path, offset, code)
    return arrived_s
