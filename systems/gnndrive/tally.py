"""Counters of one epoch's extractors: rows used, hits, reads and waits."""

from __future__ import annotations

import threading

from systems.engine.io.reader import ReadStats
from systems.interface import Counters


class GnnDriveTally:
    """Counters of one epoch, to which all extractors add."""

    def __init__(self, tier: str, depth: int) -> None:
        self._lock = threading.Lock()
        self._tier = tier
        self._depth = depth
        self._rows = 0
        self._misses = 0
        self._waited_rows = 0
        self._waited_batches = 0
        self._slot_wait_s = 0.0
        self._row_wait_s = 0.0
        self._reads = ReadStats()

    def acquired(self, rows: int, misses: int, waited_rows: int, slot_wait_s: float) -> None:
        """Count a mini-batch that has its slots; other extractors are loading `waited_rows` of its rows."""
        with self._lock:
            self._rows += rows
            self._misses += misses
            self._waited_rows += waited_rows
            self._waited_batches += waited_rows > 0
            self._slot_wait_s += slot_wait_s

    def loaded(self, stats: ReadStats) -> None:
        """Count the reads of a mini-batch's misses."""
        with self._lock:
            self._reads.add(stats)

    def waited(self, seconds: float) -> None:
        """Add the seconds that an extractor waited for rows of its wait list."""
        with self._lock:
            self._row_wait_s += seconds

    @staticmethod
    def staged(counters: Counters, borrowed: int, found: int) -> None:
        """Count rows found in the shared staging buffer as hits in host memory, since they were not read."""
        counters.hits["host"] = counters.hits.get("host", 0) + found
        counters.misses -= found
        counters.observed |= {"staging_borrowed_segments": float(borrowed), "staging_found_rows": float(found)}

    def counters(self, evictions: int) -> Counters:
        """Return the harness's counters."""
        with self._lock:
            return Counters(
                rows=self._rows,
                hits={self._tier: self._rows - self._misses},
                misses=self._misses,
                io_requests=self._reads.requests,
                bytes_read=self._reads.bytes_read,
                bytes_useful=self._reads.bytes_useful,
                requests_by_size=dict(self._reads.requests_by_size),
                queue_depth=self._depth,
                observed={
                    "wait_list_rows": float(self._waited_rows),
                    "wait_list_batches": float(self._waited_batches),
                    "slot_wait_s": self._slot_wait_s,
                    "row_wait_s": self._row_wait_s,
                    "evictions": float(evictions),
                },
            )
