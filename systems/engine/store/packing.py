"""Out-of-core rewriting of feature rows in other orders (DiskGNN, Section 5.2):
batched, or chunk by chunk.

A chunk is a run of a file that receives selected rows of the table. Batched packing
streams the table once in partitions of consecutive rows and serves all chunks from
each; individual packing reads each chunk's rows by random reads. Both write the same
bytes.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from systems import _native
from systems.engine.io.arrays import as_ids
from systems.engine.io.memory import aligned_empty, give_back_free_memory
from systems.engine.io.reader import Mode, RowReader
from systems.engine.io.row_reads import RowTable
from systems.engine.store.packed_layout import piece_rows, slot_rows
from workloads.direct_files import (
    PAGE,
    io_errors,
    io_failed,
    open_direct,
    padded,
    read_at,
    write_at,
)
from workloads.errors import BudgetError, InputError
from workloads.units import format_bytes

# per chunk of batched packing, beside its page: cursor, digest, position in the file
_CHUNK_STATE_BYTES = 256
_LEAST_PARTITION = 1 << 20
_GOOD_PARTITION = 16 << 20
_SMALL_PARTITION = (
    8 << 20
)  # for chunks that hold rows back: enough for the reads in flight
_LEAST_BUFFERS = 2
_MOST_BUFFERS = 4  # partitions in memory
_LEAST_WRITE = 64 << 10
_GOOD_WRITE = 512 << 10
_LONGEST_WRITE = 1 << 20


@dataclass
class PackStats:
    """Counts of packing; all but `seconds` is the same on every machine.

    Attributes:
        passes: times the table was streamed (0 for individual packing).
        partitions: partitions read, over all passes.
        partition_bytes: bytes of a partition.
        bytes_read: bytes returned by reads.
        writes: writes of packed rows; their number depends on the ends of partitions.
        bytes_written: bytes of packed rows with their padding.
    """

    passes: int = 0
    partitions: int = 0
    partition_bytes: int = 0
    requests: int = 0
    bytes_read: int = 0
    writes: int = 0
    bytes_written: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class PackOptions:
    """Options of packing.

    Attributes:
        memory_bytes: bytes of all allocations.
        threads: threads that gather and write rows; also the number of writes in
            flight.
    """

    memory_bytes: int
    threads: int = 16
    request_bytes: int = 1 << 20
    depth: int = 16
    mode: Mode = "auto"


@dataclass
class PackJob:
    """Chunks to pack, with their ids kept in a spool file until then.

    Attributes:
        files: output files, which exist with their full size.
        chunks: for each chunk: file, offset (whole pages), position of its ascending
            ids in the spool, number of rows, and position in the spool of the packed
            row of each row of the chunk (-1: the ids ascend already).
    """

    spool: Path
    files: list[Path] = field(default_factory=list)
    chunks: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    _spooled: int = 0

    def add(self, file: int, offset: int, ids: NDArray[np.int64]) -> int:
        """Add a chunk with these rows, in any order; return its number."""
        ascending, came_from = _native.ascending(ids)
        begin = self._append(ascending)
        order = -1
        if len(ids) and not bool((came_from[1:] > came_from[:-1]).all()):
            place = np.empty(len(ids), np.uint32)
            place[came_from] = np.arange(len(ids), dtype=np.uint32)
            order = self._append(place)
        self.chunks.append((file, offset, begin, len(ids), order))
        return len(self.chunks) - 1

    def _append(self, values: NDArray[np.uint32]) -> int:
        with self.spool.open("ab") as file:
            values.tofile(file)
        self._spooled += len(values)
        return self._spooled - len(values)

    def spooled(self, begin: int, count: int) -> NDArray[np.uint32]:
        """Read values from the spool."""
        return (
            np.fromfile(self.spool, np.uint32, count, offset=4 * begin)
            if count
            else np.empty(0, np.uint32)
        )


def least_memory(row_bytes: int, num_rows: Sequence[int], options: PackOptions) -> int:
    """Return the smallest `memory_bytes` for chunks of `num_rows` rows each: of one
    pass a chunk or of reordering."""
    partitions = _LEAST_BUFFERS * _partition_bytes(row_bytes, _LEAST_PARTITION)
    one_pass = (
        options.threads * _LEAST_WRITE
        + _chunk_bytes(max(num_rows, default=0))
        + partitions
    )
    return max(one_pass, _reorder_bytes(row_bytes, piece_rows(row_bytes)))


def _chunk_bytes(rows: int) -> int:
    return 4 * rows + PAGE + _CHUNK_STATE_BYTES


def _partition_bytes(row_bytes: int, partition_bytes: int) -> int:
    return _native.partition_buffer_bytes(
        max(1, partition_bytes // row_bytes), row_bytes
    )


def _reorder_bytes(row_bytes: int, rows: int) -> int:
    return 2 * padded(rows * row_bytes) + 12 * rows


@dataclass(frozen=True)
class PackPlan:
    """Use of memory in batched packing.

    Attributes:
        groups: chunks of each pass.
        partition_rows: rows of a partition.
        buffers: partitions in memory.
        write_bytes: longest write.
        hold: True: each chunk has a buffer of `write_bytes` (less if it is shorter),
            written when full; False: each thread has one, and a partition's rows of a
            chunk are written at once.
    """

    groups: list[list[int]]
    partition_rows: int
    buffers: int
    write_bytes: int
    hold: bool = False

    def memory_bytes(
        self, row_bytes: int, num_rows: Sequence[int], threads: int
    ) -> int:
        """Return the bytes of the largest pass over chunks of `num_rows` rows each,
        within the options' limit."""
        fixed = self.buffers * _native.partition_buffer_bytes(
            self.partition_rows, row_bytes
        )
        if not self.hold:
            fixed += threads * self.write_bytes
        return fixed + max(
            (self._group_bytes(group, row_bytes, num_rows) for group in self.groups),
            default=0,
        )

    def _group_bytes(
        self, group: Sequence[int], row_bytes: int, num_rows: Sequence[int]
    ) -> int:
        rows = [num_rows[number] for number in group]
        held = (
            sum(
                min(self.write_bytes, padded(count * row_bytes)) - PAGE
                for count in rows
            )
            if self.hold
            else 0
        )
        return held + sum(map(_chunk_bytes, rows))


def plan_packing(
    table_bytes: int, row_bytes: int, num_rows: Sequence[int], options: PackOptions
) -> PackPlan:
    """Plan passes and partitions for chunks of `num_rows` rows each.

    One pass if the ids and pages of all chunks leave half of the memory to partitions;
    else as many as needed ("episodes" in the paper). The rest of the memory lengthens
    writes, up to 1 MiB, since devices write small pieces slowly. If chunks take many
    rows of each partition, partitions are large, but only until a chunk's share of one
    is a write of 512 KiB, so that reading, gathering and writing overlap early. If they
    take few, partitions are small, and each chunk buffers rows until they are worth a
    write.

    Raises:
        BudgetError: the memory does not suffice for one chunk at a time.
    """
    least = least_memory(row_bytes, num_rows, options)
    if options.memory_bytes < least:
        raise BudgetError(
            f"packing needs {format_bytes(least)} (ids of the largest chunk, "
            f"{_LEAST_BUFFERS} partitions of {format_bytes(_LEAST_PARTITION)}, "
            f"{options.threads} write buffers), it has "
            f"{format_bytes(options.memory_bytes)}",
            "raise memory or lower the batch size",
        )
    one = _chunk_bytes(max(num_rows, default=0))
    spare = (
        options.memory_bytes
        - one
        - _LEAST_BUFFERS * _partition_bytes(row_bytes, _LEAST_PARTITION)
    )
    share = min(spare, options.memory_bytes // 16) // options.threads
    write = min(_LONGEST_WRITE, max(_LEAST_WRITE, share // PAGE * PAGE))
    left = options.memory_bytes - options.threads * write
    room = max(
        one,
        min(
            left // 2,
            left - _LEAST_BUFFERS * _partition_bytes(row_bytes, _LEAST_PARTITION),
        ),
    )
    groups: list[list[int]] = []
    used = largest = 0
    for number, rows in enumerate(num_rows):
        if rows == 0:
            continue
        wanted = _chunk_bytes(rows)
        if not groups or used + wanted > room:
            groups.append([])
            used = 0
        groups[-1].append(number)
        used += wanted
        largest = max(largest, used)
    most = max(_LEAST_PARTITION, (left - largest) // _LEAST_BUFFERS - 4 * PAGE)
    taken = max(1, sum(num_rows) * row_bytes)
    chunks = max(map(len, groups), default=1) * len(groups)
    good = chunks * _GOOD_WRITE * table_bytes // taken
    partition = min(most, max(_GOOD_PARTITION, good))
    buffers = (left - largest) // _partition_bytes(row_bytes, partition)
    at_once = PackPlan(
        groups,
        max(1, partition // row_bytes),
        max(_LEAST_BUFFERS, min(_MOST_BUFFERS, buffers)),
        write,
    )
    held = _holding(groups, row_bytes, num_rows, options)
    brought = max(
        1, min(partition, table_bytes) * taken // max(1, chunks * table_bytes)
    )  # bytes per chunk
    usual = brought // -(-brought // write)  # a partial write still costs one
    return held if held is not None and held.write_bytes > usual else at_once


def _holding(
    groups: list[list[int]],
    row_bytes: int,
    num_rows: Sequence[int],
    options: PackOptions,
) -> PackPlan | None:
    """Plan chunks that buffer rows, with the longest writes that fit; None: not even
    one page fits."""
    partition = min(
        _SMALL_PARTITION,
        max(_LEAST_PARTITION, options.memory_bytes // (8 * _MOST_BUFFERS)),
    )

    def plan(pages: int) -> PackPlan:
        return PackPlan(
            groups,
            max(1, partition // row_bytes),
            _MOST_BUFFERS,
            pages * PAGE,
            hold=True,
        )

    fitting = bisect_right(
        range(1, _LONGEST_WRITE // PAGE + 1),
        options.memory_bytes,
        key=lambda pages: plan(pages).memory_bytes(
            row_bytes, num_rows, options.threads
        ),
    )
    return plan(fitting) if fitting else None


def pack_batched(
    table: RowTable, job: PackJob, options: PackOptions, done: Callable[[float], None]
) -> tuple[PackStats, NDArray[np.uint64]]:
    """Fill the job's chunks while streaming the table once per pass; return the XXH3 of
    each chunk with its padding.

    Args:
        done: callback for the share of completed passes; NaN if there is only one.

    Raises:
        DataIOError: a read or a write failed; names file and offset.
        BudgetError: too little memory.
        InputError: an id is not in the table.
    """
    digests = np.zeros(len(job.chunks), np.uint64)
    plan = plan_packing(
        table.nbytes, table.row_bytes, [chunk[3] for chunk in job.chunks], options
    )
    stats = PackStats(
        passes=len(plan.groups), partition_bytes=plan.partition_rows * table.row_bytes
    )
    for turn, group in enumerate(plan.groups):
        done(turn / len(plan.groups) if len(plan.groups) > 1 else math.nan)
        ids = np.empty(sum(job.chunks[number][3] for number in group), np.uint32)
        rows = np.empty((len(group), 4), np.int64)
        at = 0
        for place, number in enumerate(group):
            file, offset, begin, count, _ = job.chunks[number]
            ids[at : at + count] = job.spooled(begin, count)
            rows[place] = (file, offset, at, at + count)
            at += count
        try:
            with io_errors(table.path):
                counts, found, failure = _native.pack_pass(
                    str(table.path),
                    **table.place,
                    files=[str(path) for path in job.files],
                    chunks=rows,
                    ids=ids,
                    partition_rows=plan.partition_rows,
                    buffers=plan.buffers,
                    write_bytes=plan.write_bytes,
                    hold=plan.hold,
                    threads=options.threads,
                    depth=options.depth,
                    request_bytes=options.request_bytes,
                    mode=options.mode,
                )
        except IndexError as error:
            raise InputError(
                f"packing {table.path}: {error}", "report this: a node of no graph"
            ) from error
        if failure is not None:
            code, writing, file, offset = failure
            raise io_failed(
                job.files[file] if writing else table.path,
                offset,
                code,
                writing=writing,
            )
        digests[group] = found
        stats.partitions += counts["partitions"]
        stats.requests += counts["reads"]
        stats.bytes_read += counts["bytes_read"]
        stats.writes += counts["writes"]
        stats.bytes_written += counts["bytes_written"]
        # Freed heap that stayed would count beside the next pass, or beside the buffers
        # that reorder.
        del ids, rows
        give_back_free_memory()
    _reorder(table.row_bytes, job, digests, options)
    return stats, digests


def _reorder(
    row_bytes: int, job: PackJob, digests: NDArray[np.uint64], options: PackOptions
) -> None:
    """Restore the original row order of chunks whose ids did not ascend."""
    wanted = [number for number, chunk in enumerate(job.chunks) if chunk[4] >= 0]
    if not wanted:
        return
    largest = max(job.chunks[number][3] for number in wanted)
    workers = max(
        1,
        min(
            options.threads,
            len(wanted),
            options.memory_bytes // _reorder_bytes(row_bytes, largest),
        ),
    )
    handles = {
        path: open_direct(path, os.O_RDWR)
        for path in {job.files[job.chunks[n][0]] for n in wanted}
    }
    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="reorder") as pool:
            room = padded(largest * row_bytes)
            spare = [(aligned_empty(room), aligned_empty(room)) for _ in range(workers)]

            def one(number: int) -> None:
                file, offset, _, count, order = job.chunks[number]
                used = count * row_bytes
                path = job.files[file]
                buffers = spare.pop()
                source, target = (buffer[: padded(used)] for buffer in buffers)
                read_at(handles[path], source, offset, path)
                rows = job.spooled(order, count).astype(np.int64)
                _native.gather(
                    source[:used].reshape(-1, row_bytes),
                    rows,
                    target[:used].reshape(-1, row_bytes),
                    1,
                )
                target[used:] = 0
                write_at(handles[path], target, offset, path)
                digests[number] = xxhash.xxh3_64_intdigest(target.data)
                spare.append(buffers)

            list(pool.map(one, wanted))
    finally:
        for handle in handles.values():
            os.close(handle)


def pack_individually(
    table: RowTable, job: PackJob, options: PackOptions, done: Callable[[float], None]
) -> tuple[PackStats, NDArray[np.uint64]]:
    """Fill the job's chunks one after another, each by random direct reads of its rows
    and one sequential write.

    Kept for comparison (the paper's "individual packing"). Same results and errors as
    `pack_batched`.
    """
    stats = PackStats()
    digests = np.zeros(len(job.chunks), np.uint64)
    unit = slot_rows(table.row_bytes)
    # Bytes a row: the row, its id and position, its part of the reader's plan.
    each = table.row_bytes + 24 + _native.plan_bytes(1)
    with RowReader(table.path, **table.place, mode=options.mode) as reader:
        longest = max((chunk[3] for chunk in job.chunks), default=0)
        rows_at_once = (
            max(1, (options.memory_bytes - reader.memory_bytes) // (each * unit)) * unit
        )
        buffer = aligned_empty(padded(min(rows_at_once, longest) * table.row_bytes))
        for number, (file, offset, begin, count, order) in enumerate(job.chunks):
            done(number / len(job.chunks))
            if count == 0:
                continue
            ids = job.spooled(begin, count)
            if order >= 0:
                ids = ids[job.spooled(order, count)]
            digest = xxhash.xxh3_64()
            handle = open_direct(job.files[file], os.O_WRONLY)
            try:
                for first in range(0, count, rows_at_once):
                    wanted = as_ids(ids[first : first + rows_at_once])
                    used = len(wanted) * table.row_bytes
                    try:
                        read = reader.read(
                            wanted, buffer[:used].reshape(-1, table.row_bytes)
                        )
                    except IndexError as error:
                        raise InputError(
                            f"packing {table.path}: {error}",
                            "report this: a node of no graph",
                        ) from error
                    piece = buffer[: padded(used)]
                    piece[used:] = 0
                    write_at(
                        handle, piece, offset + first * table.row_bytes, job.files[file]
                    )
                    digest.update(piece.data)
                    stats.requests += read.requests
                    stats.bytes_read += read.bytes_read
                    stats.writes += 1
                    stats.bytes_written += piece.nbytes
            finally:
                os.close(handle)
            digests[number] = digest.intdigest()
    return stats, digests
