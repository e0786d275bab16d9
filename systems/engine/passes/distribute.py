"""Writer of a group's chunks: address lists, then the rows that miss, distributed by
passes over the feature table.

A pass holds a write buffer for each of its chunks; where the buffers of all chunks do
not fit, there are several passes. Gaps between wanted rows are skipped where reading
them would take longer than another request. The files are overwritten from group to
group, since a file system has less work for blocks that are allocated already.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import ReadStats
from systems.engine.io.row_reads import RowTable
from systems.engine.store.packed_layout import lay_out
from workloads.direct_files import io_failed, open_direct, padded, write_at
from workloads.errors import BudgetError, InputError
from workloads.units import format_bytes

Ids = npt.NDArray[np.int64]
WRITERS = 8
_LIST_BUFFER = 1 << 20
_LEAST_WRITE = 16 << 10
_LONGEST_WRITE = 256 << 10
# (shortest write, bytes of a region, regions in flight), fastest shape first. A request
# for rows does not cross the end of its region, so short regions cost requests, and few
# regions leave the device waiting.
_SHAPES = (
    (64 << 10, 1 << 20, 4),
    (32 << 10, 1 << 20, 4),
    (_LEAST_WRITE, 1 << 20, 4),
    (_LEAST_WRITE, 256 << 10, 8),
    (_LEAST_WRITE, 128 << 10, 8),
    (_LEAST_WRITE, 64 << 10, 4),
)
_DEPTH = 64


@dataclass
class ChunkIndex:
    """Offsets of the chunks in their file, and the XXH3 of their parts.

    Attributes:
        lists: int64 [n, 2], offset and bytes of each address list.
        rows: int64 [n, 2], offset and number of each chunk's rows.
        list_digests: uint64 [n], XXH3 of each address list.
        row_digests: uint64 [n], XXH3 of each chunk's rows.
    """

    path: Path
    row_bytes: int
    lists: Ids
    rows: Ids
    list_digests: npt.NDArray[np.uint64]
    row_digests: npt.NDArray[np.uint64]

    def part(self, first: int, count: int) -> ChunkIndex:
        """Return the index of `count` chunks from `first` on."""
        chosen = slice(first, first + count)
        return ChunkIndex(
            self.path,
            self.row_bytes,
            self.lists[chosen],
            self.rows[chosen],
            self.list_digests[chosen],
            self.row_digests[chosen],
        )


@dataclass
class PassStats:
    """Counts of the passes that distribute a group's rows; the same on every
    machine."""

    passes: int = 0
    reads: ReadStats = field(default_factory=ReadStats)
    bytes_written: int = 0


@dataclass(frozen=True)
class PassPlan:
    """Memory of a pass.

    Attributes:
        region_bytes: bytes of a region of the table, which is read at a time.
        regions: regions in flight.
        buffer_bytes: bytes of a chunk's write buffer.
        chunks: chunks of one pass.
        whole: whether each region that holds a wanted row is read as a whole.
    """

    region_bytes: int
    regions: int
    buffer_bytes: int
    chunks: int
    whole: bool = False

    def memory_bytes(self, row_bytes: int, chunks: int) -> int:
        """Return the bytes of host memory for a pass that writes `chunks` chunks,
        beside their ids."""
        return _native.distribute_bytes(
            row_bytes=row_bytes,
            chunks=chunks,
            region_bytes=self.region_bytes,
            regions=self.regions,
            buffer_bytes=self.buffer_bytes,
            writers=WRITERS,
        )


@dataclass(frozen=True)
class KeptRows:
    """Rows that a pass brings to memory instead of a chunk.

    Attributes:
        ids: uint32 [n], ascending; repeated where a row is brought to several places.
        room: uint8 [m, row_bytes], rows on their way.
        give: function that takes rows (uint8 [k, row_bytes], overwritten after the
            call) of `ids` from a position on.
    """

    ids: npt.NDArray[np.uint32]
    room: npt.NDArray[np.uint8]
    give: Callable[[npt.NDArray[np.uint8], int], None]


def plan_pass(row_bytes: int, chunks: int, memory_bytes: int) -> PassPlan:
    """Plan as few passes as memory allows, then write buffers as long as it allows.

    Raises:
        BudgetError: the memory does not suffice for one chunk at a time.
    """
    for passes in count(1):
        each = -(-chunks // passes)
        for least, region, regions in _SHAPES:
            for size in (
                _LONGEST_WRITE,
                _LONGEST_WRITE // 2,
                64 << 10,
                32 << 10,
                _LEAST_WRITE,
            ):
                plan = PassPlan(region, regions, size, each)
                if size >= least and plan.memory_bytes(row_bytes, each) <= memory_bytes:
                    return plan
        if each <= 1:
            break
    needed = format_bytes(plan.memory_bytes(row_bytes, 1))
    held = format_bytes(memory_bytes)
    raise BudgetError(f"distributing needs {needed}, it has {held}", "raise memory")


def good_bytes(row_bytes: int, chunks: int, share_bytes: int) -> int:
    """Return the bytes for distributing that keep a device busy, where regions and
    buffers get `share_bytes` each."""
    shapes = [
        (region, regions)
        for _, region, regions in _SHAPES
        if region * regions <= share_bytes
    ]
    region, regions = shapes[0] if shapes else _SHAPES[-1][1:]
    sizes = [
        size
        for size in (64 << 10, 32 << 10)
        if (chunks + 2 * WRITERS) * size <= share_bytes
    ]
    size = sizes[0] if sizes else _LEAST_WRITE
    return (
        PassPlan(region, regions, size, chunks).memory_bytes(row_bytes, chunks)
        + _LIST_BUFFER
    )


def least_bytes(row_bytes: int) -> int:
    """Return the least bytes for distributing."""
    return (
        PassPlan(64 << 10, 4, _LEAST_WRITE, 1).memory_bytes(row_bytes, 1) + _LIST_BUFFER
    )


class ChunkWriter:
    """Writer of one group's chunks: `append` each mini-batch's address list, then
    `distribute` once.

    Args:
        path: file of the chunks; an existing file is overwritten in place.
        misses: number of ids that `append` gets in all; more after `expect`.
        memory_bytes: bytes of memory for distributing.
        stop: flag that ends `distribute`.
        plan: the one pass of `distribute`, for at least as many chunks; None: as few
            passes as the memory allows.

    Raises:
        DataIOError: the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        table: RowTable,
        *,
        misses: int = 0,
        memory_bytes: int = 0,
        stop: _native.StopFlag,
        plan: PassPlan | None = None,
    ) -> None:
        self._plan = plan
        self._path = path
        self._table = table
        self._memory = memory_bytes
        self._stop = stop
        self._handle = open_direct(path, os.O_RDWR | os.O_CREAT)
        self._buffer = aligned_empty(_LIST_BUFFER)
        self._fill = self._end = 0
        self._lists: list[tuple[int, int]] = []
        self._digests: list[int] = []
        self._wanted: npt.NDArray[np.uint32] = np.empty(misses, dtype=np.uint32)
        self._ends: list[int] = [0]

    def expect(self, misses: int) -> None:
        """Make room for so many more ids."""
        wanted = np.empty(len(self._wanted) + misses, dtype=np.uint32)
        wanted[: len(self._wanted)] = self._wanted
        self._wanted = wanted

    def append(self, ids: Ids, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append the next mini-batch.

        Args:
            ids: int64 [n], ascending and unique ids of its chunk's rows.
            arrays: arrays of its address list.

        Raises:
            DataIOError: the disk is full or failed.
        """
        header, starts, nbytes = lay_out(arrays)
        if self._fill + nbytes > self._buffer.nbytes:
            self._flush()
            if nbytes > self._buffer.nbytes:
                self._buffer = aligned_empty(nbytes)
        region = self._buffer[self._fill : self._fill + nbytes]
        region[:] = 0
        region[: len(header)] = np.frombuffer(header, np.uint8)
        for start, array in zip(starts, arrays.values(), strict=True):
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            region[start : start + flat.nbytes] = flat
        self._lists.append((self._end + self._fill, nbytes))
        self._digests.append(xxhash.xxh3_64_intdigest(region.data))
        self._ends.append(self._ends[-1] + len(ids))
        self._wanted[self._ends[-2] : self._ends[-1]] = ids
        self._fill += nbytes

    def append_planned(self, planner: _native.SlotPlanner, count: int) -> None:
        """Append the `count` mini-batches of a plan, with arrays `slots` and `to`, laid
        out in native code.

        Raises:
            DataIOError: the disk is full or failed.
        """
        ends = self._ends[-1] + np.cumsum(planner.miss_counts())
        planner.copy_misses(self._wanted[self._ends[-1] : int(ends[-1])])
        self._ends += ends.tolist()
        begin = 0
        while begin < count:
            end, sizes, digests = planner.write_lists(begin, self._buffer[self._fill :])
            if end == begin and self._fill:
                self._flush()
            elif end == begin:
                self._buffer = aligned_empty(planner.list_bytes(begin))
            for nbytes in sizes.tolist():
                self._lists.append((self._end + self._fill, nbytes))
                self._fill += nbytes
            self._digests += digests.tolist()
            begin = end

    def _flush(self) -> None:
        if self._fill:
            write_at(self._handle, self._buffer[: self._fill], self._end, self._path)
            self._end += self._fill
            self._fill = 0

    def distribute(
        self, kept: KeptRows | None = None, gap_bytes: int = 0
    ) -> tuple[ChunkIndex, PassStats]:
        """Copy all rows to their chunks, and the kept ones to memory, then close the
        writer.

        Args:
            kept: rows that the first pass brings to memory.
            gap_bytes: longest run of unwanted bytes of the table that is read to save
                a request.

        Raises:
            DataIOError: a read or write failed, the disk is full; names file and
                offset.
            InterruptedError: the stop flag was set.
        """
        self._flush()
        self._buffer = aligned_empty(0)
        ends = np.array(self._ends, dtype=np.int64)
        counts = ends[1:] - ends[:-1]
        sizes: Ids = counts * self._table.row_bytes
        offsets = self._end + np.concatenate([[0], np.cumsum(padded(sizes))])
        self._reserve(int(offsets[-1]))
        digests = np.zeros(len(counts), dtype=np.uint64)
        stats = PassStats()
        wanted = np.flatnonzero(counts)
        if len(wanted) or kept is not None:
            free = self._memory - 4 * int(counts.sum())
            plan = self._plan or plan_pass(
                self._table.row_bytes, max(1, len(wanted)), free
            )
            for first in range(0, max(1, len(wanted)), plan.chunks):
                part = wanted[first : first + plan.chunks]
                brought = kept if first == 0 else None
                digests[part] = self._pass(
                    part, offsets, plan, stats, brought, gap_bytes
                )
        self.close()
        index = ChunkIndex(
            self._path,
            self._table.row_bytes,
            np.array(self._lists, dtype=np.int64).reshape(-1, 2),
            np.stack([offsets[:-1], counts], axis=1),
            np.array(self._digests, dtype=np.uint64),
            digests,
        )
        return index, stats

    def _pass(
        self,
        part: Ids,
        offsets: Ids,
        plan: PassPlan,
        stats: PassStats,
        kept: KeptRows | None,
        gap_bytes: int,
    ) -> npt.NDArray[np.uint64]:
        table = self._table
        ends = np.array(self._ends, dtype=np.int64)
        kept = kept or KeptRows(
            np.empty(0, np.uint32),
            np.empty((0, table.row_bytes), np.uint8),
            lambda *_: None,
        )
        room = kept.room
        give = kept.give
        chunks = np.stack([offsets[part], ends[part], ends[part + 1]], axis=1)
        try:
            reads, _, written, digests, failure = _native.distribute(
                path=str(table.path),
                **table.place,
                file=str(self._path),
                chunks=np.ascontiguousarray(chunks),
                ids=self._wanted,
                region_bytes=plan.region_bytes,
                regions=plan.regions,
                depth=_DEPTH,
                gap_bytes=gap_bytes,
                buffer_bytes=plan.buffer_bytes,
                writers=WRITERS,
                mode="auto",
                stop=self._stop,
                whole=plan.whole,
                kept=kept.ids,
                room=room,
                give=lambda first, count: give(room[:count], first),
            )
        except OSError as error:
            raise io_failed(table.path, 0, error.errno or 0) from error
        except IndexError as error:
            raise InputError(
                f"distributing {table.path}: {error}", "report this: a node of no graph"
            ) from error
        except RuntimeError as error:
            raise InterruptedError(str(error)) from None
        if failure is not None:
            code, writing, offset = failure
            raise io_failed(
                self._path if writing else table.path, offset, code, writing=writing
            )
        stats.passes += 1
        stats.reads.add(ReadStats(**reads))
        stats.bytes_written += written
        return digests

    def _reserve(self, nbytes: int) -> None:
        """Allocate the file beforehand, so that a full disk is found now and the file
        lies in few extents."""
        held = os.fstat(self._handle).st_size
        if nbytes > held:
            try:
                # A sixteenth more, so that a slightly larger group later needs no
                # allocation.
                os.posix_fallocate(
                    self._handle, held, padded(nbytes + nbytes // 16) - held
                )
            except OSError as error:
                raise io_failed(
                    self._path, held, error.errno or 0, writing=True
                ) from error

    def close(self) -> None:
        """Close the file. May be called more than once."""
        self._wanted = np.empty(0, dtype=np.uint32)
        handle = self._handle
        self._handle = -1
        if handle >= 0:
            os.close(handle)
