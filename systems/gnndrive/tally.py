"""What the extractors of an epoch asked for, found and read."""

from __future__ import annotations

import threading

from systems.engine import ReadStats
from systems.interface import Counters


class Tally:
    """Counters of one epoch, added to by all extractors."""

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
        """A mini-batch of `rows` rows has its slots; `waited_rows` of them are in loading by other extractors."""
        with self._lock:
            self._rows += rows
            self._misses += misses
            self._waited_rows += waited_rows
            self._waited_batches += waited_rows > 0
            self._slot_wait_s += slot_wait_s

    def loaded(self, stats: ReadStats) -> None:
        """A mini-batch's misses were read."""
        with self._lock:
            self._reads.add(stats)

    def waited(self, seconds: float) -> None:
        """An extractor waited so long for rows of its wait list."""
        with self._lock:
            self._row_wait_s += seconds

    @staticmethod
    def staged(counters: Counters, borrowed: int, found: int) -> None:
        """Rows found in the staging buffer of all processes were not read: hits in host memory, not misses."""
        counters.hits["host"] = counters.hits.get("host", 0) + found
        counters.misses -= found
        counters.observed |= {"staging_borrowed_segments": float(borrowed), "staging_found_rows": float(found)}

    def counters(self, evictions: int) -> Counters:
        """As the harness wants them."""
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
