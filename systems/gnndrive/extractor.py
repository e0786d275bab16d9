"""Extractors: each reads the missing rows of a mini-batch from disk into the feature
buffer's table.

Four kinds, by place of the table and reading of the file: straight into a host table
(the paper's CPU variant), over a bounded staging buffer with asynchronous copies to a
device (GPU variant), over one that all processes of a run share (Section 4.4,
multi-GPU), or over the page cache (`direct=False`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.arrays import gather
from systems.engine.io.reader import ReadStats, RowGroup, RowReader
from systems.engine.io.topology import DatasetFiles
from systems.gnndrive.buffers import SharedStaging
from workloads.accelerator import Accelerator, Event

Ids = npt.NDArray[np.int64]


def as_table(staging: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """View the uint8 buffer as rows of `table`'s dimension and dtype, as many as it
    holds."""
    row = table.shape[1] * table.element_size()
    rows = staging.nbytes // row
    return staging[: rows * row].view(table.dtype).view(rows, table.shape[1])


class Extractor(ABC):
    """Loader of missing rows, for one thread at a time."""

    mode: str

    @abstractmethod
    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Load rows `nodes` (int64 [m]) into the table's rows `slots`; they are there
        on return.

        Returns:
            Counts of the reads, and the monotonic time at which the last read completed
            and only copies were left.
        """

    def close(self) -> None:  # noqa: B027 - some hold nothing
        """Free files and buffers."""


class HostExtractor(Extractor):
    """Extractor that reads into the feature buffer itself; the base of those that read
    over a staging buffer."""

    def __init__(self, reader: RowReader, table: torch.Tensor) -> None:
        self._reader = reader
        self._table = table
        self.mode = reader.mode

    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Read all rows in one call."""
        stats = self._reader.read(nodes, self._table, slots)
        return stats, time.monotonic()

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


class StagedExtractor(HostExtractor):
    """Extractor that reads into a staging buffer; each group is copied to the device
    while later groups are read.

    Args:
        staging: uint8 host buffer (pinned on CUDA), whole rows.
    """

    # parts of the staging buffer: one is read into while others are copied to the
    # device
    SLICES = 8

    def __init__(
        self,
        reader: RowReader,
        table: torch.Tensor,
        staging: torch.Tensor,
        accelerator: Accelerator,
    ) -> None:
        super().__init__(reader, table)
        rows = staging.nbytes // reader.row_bytes
        self._slices = min(self.SLICES, rows)
        self._group_rows = rows // self._slices
        self._staging = staging[: rows * reader.row_bytes]
        self._rows = as_table(self._staging, table)
        self._accelerator = accelerator

    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Read and copy group by group; all copies are complete on return."""
        stats = ReadStats()
        copies: deque[tuple[Event, RowGroup]] = deque()
        groups = self._reader.read_groups(nodes, self._staging, self._group_rows, stats)
        try:
            for group in groups:
                count = len(group.positions)
                source = self._rows[group.start : group.start + count]
                target = torch.from_numpy(slots[group.positions])
                copies.append(
                    (
                        self._accelerator.copy(
                            self._table, source, target, batch=batch
                        ),
                        group,
                    )
                )
                while copies and (copies[0][0].done() or len(copies) == self._slices):
                    self._finish(copies)
            read_at = time.monotonic()
        finally:
            # Also on an error: nothing may still write to the table or read the staging
            # buffer afterwards.
            while copies:
                self._finish(copies)
            groups.close()
        return stats, read_at

    @staticmethod
    def _finish(copies: deque[tuple[Event, RowGroup]]) -> None:
        event, group = copies.popleft()
        event.wait()
        group.release()

    def close(self) -> None:
        """Close the file, and unpin the staging buffer."""
        super().close()
        self._accelerator.free_host(self._staging)


@dataclass(eq=False)
class CachedExtractor(Extractor):
    """Extractor through the page cache, with threads that fault rows in parallel; it
    submits and counts no read.

    Attributes:
        staging: its own staging buffer, uint8, or the shared one, of which it takes
            segments.
    """

    features: npt.NDArray[np.generic]
    files: DatasetFiles
    table: torch.Tensor
    staging: torch.Tensor | SharedStaging
    accelerator: Accelerator

    THREADS: ClassVar[int] = 32
    mode = f"page cache, {THREADS} threads"

    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Gather and copy rows, one staging buffer at a time."""
        self.files.check()
        begin = 0
        while begin < len(nodes):
            staging = self.staging
            with (
                nullcontext(staging)
                if isinstance(staging, torch.Tensor)
                else staging.part() as buffer
            ):
                rows = as_table(buffer, self.table)
                part = nodes[begin : begin + len(rows)]
                gather(self.features, part, rows, self.THREADS)
                target = torch.from_numpy(slots[begin : begin + len(rows)])
                self.accelerator.copy(
                    self.table, rows[: len(part)], target, batch=batch
                ).wait()
            begin += len(part)
        return ReadStats(rows=len(nodes), unique_rows=len(nodes)), time.monotonic()

    def close(self) -> None:
        """Unpin its own staging buffer."""
        if isinstance(self.staging, torch.Tensor):
            self.accelerator.free_host(self.staging)


class SharedStagedExtractor(HostExtractor):
    """Extractor that takes rows already in the staging buffer, reads the others into
    it, and copies both to the device.

    It holds as many segments as an extractor with its own staging buffer has slices.
    Where these would not keep the device's queue full, since they are small or wait for
    their copies, it acquires more, beyond its process's portion if others leave theirs
    idle, and releases them as copies complete.

    Args:
        share_rows: whether to take rows already in the staging buffer; False reads all
            rows.
    """

    def __init__(
        self,
        reader: RowReader,
        table: torch.Tensor,
        staging: SharedStaging,
        accelerator: Accelerator,
        *,
        share_rows: bool = True,
    ) -> None:
        super().__init__(reader, table)
        self._staging = staging
        self._rows = as_table(staging.rows, table)
        self._accelerator = accelerator
        self._share_rows = share_rows

    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Fetch and read group by group; all copies are complete on return."""
        stats = ReadStats()
        segments = _Segments(self._staging, self._reader.depth)

        def copy(start: int, positions: Ids, release: Callable[[], None]) -> None:
            source = self._rows[start : start + len(positions)]
            target = torch.from_numpy(slots[positions])
            segments.copying(
                self._accelerator.copy(self._table, source, target, batch=batch),
                release,
            )

        with ExitStack() as ends:
            # Also on an error: nothing may still write to the table or read the staging
            # buffer afterwards.
            ends.callback(segments.finish_all)
            left = self._fetch(nodes, segments, copy)
            rows = self._staging.rows
            segment_rows = self._staging.segment_rows
            groups = self._reader.read_groups(
                nodes[left], rows, segment_rows, stats, segments
            )
            ends.callback(groups.close)
            ends.callback(segments.finish_all)  # before the groups are closed
            for group in groups:
                copy(group.start, left[group.positions], group.release)
            read_at = time.monotonic()
        return stats, read_at

    def _fetch(
        self,
        nodes: Ids,
        segments: _Segments,
        copy: Callable[[int, Ids, Callable[[], None]], None],
    ) -> Ids:
        """Copy rows that any process has in the staging buffer; return the positions of
        the rows still to read."""
        staging = self._staging
        if not self._share_rows:
            return np.arange(len(nodes))
        there = staging.present(nodes)
        missing = np.ones(len(nodes), dtype=np.bool_)
        for begin in range(0, len(there), staging.segment_rows):
            chunk = there[begin : begin + staging.segment_rows]
            segment = segments.take(starved=True)
            assert segment is not None
            found = chunk[staging.fetch(segment, nodes[chunk])]
            missing[found] = False
            # Copies no row where all were overwritten meanwhile, but gives the segment
            # back.
            copy(
                segment * staging.segment_rows,
                found,
                partial(segments.give_back, segment),
            )
        return np.flatnonzero(missing)


class _Segments:
    """Segments that hold one mini-batch's rows, as slice source of `read_groups`, and
    the copies from them."""

    def __init__(self, staging: SharedStaging, depth: int) -> None:
        self._staging = staging
        # Least free rows that keep the queue of `depth` reads full.
        self._enough = max(depth, 2 * staging.segment_rows)
        self._held = 0
        self._copies: deque[tuple[Event, Callable[[], None]]] = deque()

    def take(self, *, starved: bool) -> int | None:
        """Acquire a segment, or None; waits only if `starved` and no segment is held.
        See `SliceSource`."""
        self._finish_done()
        scarce = (
            self._held - len(self._copies)
        ) * self._staging.segment_rows < self._enough
        wanted = scarce or self._held < StagedExtractor.SLICES
        found = self._staging.acquire(wait=False, borrow=scarce) if wanted else None
        while starved and found is None:
            if self._copies:
                self._finish()
            found = self._staging.acquire(wait=not self._held)
        self._held += found is not None
        return found

    def filled(self, slice_: int, ids: Ids) -> None:
        """Publish a segment's rows, so that other processes may fetch them."""
        self._staging.publish(slice_, ids)

    def give_back(self, slice_: int) -> None:
        """Release the segment."""
        self._held -= 1
        self._staging.release(slice_)

    def copying(self, event: Event, release: Callable[[], None]) -> None:
        """Note a segment's copy to the device; `release` is called once the copy is
        complete."""
        self._copies.append((event, release))
        self._finish_done()

    def _finish_done(self) -> None:
        while self._copies and self._copies[0][0].done():
            self._finish()

    def _finish(self) -> None:
        event, release = self._copies.popleft()
        event.wait()
        release()

    def finish_all(self) -> None:
        while self._copies:
            self._finish()
