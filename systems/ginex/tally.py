"""Counters of one epoch: hits, misses, reads and cache updates."""

from __future__ import annotations

import threading

from systems.engine.io.reader import ReadStats
from systems.ginex.superbatch import RuntimeFiles
from systems.interface import Counters


class GinexTally:
    """Counters of one epoch; any thread may add to them."""

    def __init__(self, depth: int, files: RuntimeFiles) -> None:
        self.files = files
        self._lock = threading.Lock()
        self._depth = depth
        self._reads = ReadStats()
        self._rows = self._hits = self._misses = 0
        self._filled = self._kept = self._updated = self._evicted = self._superbatches = self._overlapped = 0
        self._lists = self._list_hits = self._inspected = 0

    def sampled(self, lists: int, hits: int) -> None:
        """Count a sampled mini-batch's neighbour lists, `hits` of them in the neighbour cache."""
        with self._lock:
            self._inspected += 1
            self._lists += lists
            self._list_hits += hits

    def filled(self, stats: ReadStats) -> None:
        """Count the reads of a piece of the initial cache."""
        with self._lock:
            self._filled += stats.rows
            self._reads.add(stats)

    def kept(self, rows: int) -> None:
        """Count rows of the initial cache that were in memory."""
        with self._lock:
            self._kept += rows

    def missed(self, stats: ReadStats) -> None:
        """Count the reads of a mini-batch's misses."""
        with self._lock:
            self._misses += stats.rows
            self._reads.add(stats)

    def gathered(self, rows: int, hits: int, updated: int) -> None:
        """Count a mini-batch's rows, its `hits` from the cache and the `updated` rows that entered the cache."""
        with self._lock:
            self._rows += rows
            self._hits += hits
            self._updated += updated

    def superbatch(self, evictions: int) -> None:
        """Count a finished superbatch and its evictions."""
        with self._lock:
            self._superbatches += 1
            self._evicted += evictions

    def overlapped(self) -> None:
        """Count a superbatch whose changesets were planned while another was sampled."""
        with self._lock:
            self._overlapped += 1

    @property
    def misses(self) -> int:
        """Number of misses read so far."""
        with self._lock:
            return self._misses

    def counters(self) -> Counters:
        """Return the harness's counters."""
        with self._lock:
            sizes = dict(self._reads.requests_by_size)
            for size, count in self.files.loads.items():
                sizes[size] = sizes.get(size, 0) + count
            loads = sum(self.files.loads.values())
            return Counters(
                rows=self._rows,
                hits={"host": self._hits},
                misses=self._misses,
                io_requests=self._reads.requests + loads,
                bytes_read=self._reads.bytes_read + sum(size * count for size, count in self.files.loads.items()),
                bytes_useful=self._reads.bytes_useful,
                requests_by_size=sizes,
                queue_depth=self._depth,
                observed={
                    "superbatches": float(self._superbatches),
                    "overlapped_superbatches": float(self._overlapped),
                    "sampled_batches": float(self._inspected),
                    "initial_rows": float(self._filled),
                    "kept_rows": float(self._kept),
                    "cache_updates": float(self._updated),
                    "evictions": float(self._evicted),
                    "neighbour_lists": float(self._lists),
                    "neighbour_cache_hits": float(self._list_hits),
                    "runtime_bytes_written": float(self.files.written),
                    "runtime_bytes_read": float(self.files.read),
                },
            )
