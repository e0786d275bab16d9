"""Extractor over the staging buffer that all processes of a run share (Section 4.4 of the paper, multi-GPU)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from systems.engine.io.reader import ReadStats, RowReader
from systems.gnndrive.extractor import HostExtractor, Ids, StagedExtractor, as_table
from systems.gnndrive.shared_staging import SharedStaging
from workloads.accelerator import Accelerator, Event


class SharedStagedExtractor(HostExtractor):
    """Extractor that takes rows already in the staging buffer, reads the others into it, and copies both to the device.

    It holds as many segments as an extractor with its own staging buffer has slices. Where these would not keep the
    device's queue full, since they are small or wait for their copies, it acquires more, beyond its process's portion
    if others leave theirs idle, and releases them as copies complete.

    Args:
        share_rows: whether to take rows already in the staging buffer; False reads all rows.
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
        self._staging, self._rows = staging, as_table(staging.rows, table)
        self._accelerator, self._share_rows = accelerator, share_rows

    def load(self, nodes: Ids, slots: Ids, batch: int) -> tuple[ReadStats, float]:
        """Fetch and read group by group; all copies are complete on return."""
        stats = ReadStats()
        segments = _Segments(self._staging, self._reader.depth)

        def copy(start: int, positions: Ids, release: Callable[[], None]) -> None:
            source = self._rows[start : start + len(positions)]
            target = torch.from_numpy(slots[positions])
            segments.copying(self._accelerator.copy(self._table, source, target, batch=batch), release)

        try:
            left = self._fetch(nodes, segments, copy)
            groups = self._reader.read_groups(
                nodes[left], self._staging.rows, self._staging.segment_rows, stats, segments
            )
            try:
                for group in groups:
                    copy(group.start, left[group.positions], group.release)
                read_at = time.monotonic()
            finally:
                # Also on an error: nothing may still write to the table or read the staging buffer afterwards.
                segments.finish_all()
                groups.close()
        finally:
            segments.finish_all()
        return stats, read_at

    def _fetch(self, nodes: Ids, segments: _Segments, copy: Callable[[int, Ids, Callable[[], None]], None]) -> Ids:
        """Copy rows that any process has in the staging buffer; return the positions of the rows still to read."""
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
            # Copies no row where all were overwritten meanwhile, but gives the segment back.
            copy(segment * staging.segment_rows, found, partial(segments.give_back, segment))
        return np.flatnonzero(missing)


class _Segments:
    """Segments that hold one mini-batch's rows, as slice source of `read_groups`, and the copies from them."""

    def __init__(self, staging: SharedStaging, depth: int) -> None:
        self._staging = staging
        # Least free rows that keep the queue of `depth` reads full.
        self._enough = max(depth, 2 * staging.segment_rows)
        self._held = 0
        self._copies: deque[tuple[Event, Callable[[], None]]] = deque()

    def take(self, *, starved: bool) -> int | None:
        """Acquire a segment, or None; waits only if `starved` and no segment is held. See `SliceSource`."""
        self._finish_done()
        found = None
        scarce = (self._held - len(self._copies)) * self._staging.segment_rows < self._enough
        if scarce or self._held < StagedExtractor.SLICES:
            found = self._staging.acquire(wait=False, borrow=scarce)
        while starved and found is None:
            if self._copies:
                self._finish()
            found = self._staging.acquire(wait=not self._held)
        if found is not None:
            self._held += 1
        return found

    def filled(self, slice_: int, ids: Ids) -> None:
        """Publish a segment's rows, so that other processes may fetch them."""
        self._staging.publish(slice_, ids)

    def give_back(self, slice_: int) -> None:
        """Release the segment."""
        self._held -= 1
        self._staging.release(slice_)

    def copying(self, event: Event, release: Callable[[], None]) -> None:
        """Note a segment's copy to the device; `release` is called once the copy is complete."""
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
        """Wait for every copy."""
        while self._copies:
            self._finish()
