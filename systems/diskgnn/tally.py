"""Counters of one epoch: rows used, hits on each level, and reads."""

from __future__ import annotations

import threading

import numpy as np

from systems.diskgnn.structure import Addresses, Levels
from systems.engine.io.reader import ReadStats
from systems.interface import Counters
from workloads.sampling.batch import SampledBatch


class DiskGnnTally:
    """Counters of one epoch; any thread may add to them.

    Args:
        levels: rows held in memory.
        on_device: whether the table's cached rows are in device memory, else in host memory.
        cached_singles: whether single rows come from a disk cache, else from the feature table.
        depth: reads kept in flight.
    """

    def __init__(self, levels: Levels, *, on_device: bool, cached_singles: bool, row_bytes: int, depth: int) -> None:
        self._lock = threading.Lock()
        self._levels = levels
        self._on_device = on_device
        self._cached_singles = cached_singles
        self._row_bytes = row_bytes
        self._depth = depth
        self._rows = self._direct = self._host = self._packed = self._single = self._graph_bytes = 0
        self._reads = ReadStats()

    def asked(self, sampled: SampledBatch, addresses: Addresses, packed: int) -> None:
        """Count a mini-batch's graph and its rows by level; `packed` rows are in its chunk."""
        with self._lock:
            self._graph_bytes += sampled.nbytes
            self._packed += packed
            self._rows += len(addresses.place)
            direct = int(np.count_nonzero(addresses.place < self._levels.direct))
            self._direct += direct
            self._host += int(np.count_nonzero(addresses.place < self._levels.cached)) - direct
            self._single += len(addresses.single)

    def read(self, stats: ReadStats) -> None:
        """Count reads of single rows."""
        with self._lock:
            self._reads.add(stats)

    def counters(self, chunks: ReadStats) -> Counters:
        """Return the harness's counters; `chunks` counts the reads of packed chunks.

        Rows of a disk cache are hits of that tier although they are read from disk: they count as useful bytes like the
        rows of packed chunks, and so do the graphs, which are read with them.
        """
        with self._lock:
            reads = ReadStats()
            reads.add(self._reads)
            reads.add(chunks)
            hits = {"device": self._direct, "host": self._host} if self._on_device else {"host": self._direct}
            misses = self._packed
            if self._cached_singles:
                hits["disk_cache"] = self._single
            else:
                misses += self._single
            return Counters(
                rows=self._rows,
                hits=hits,
                misses=misses,
                io_requests=reads.requests,
                bytes_read=reads.bytes_read,
                bytes_useful=(self._packed + self._single) * self._row_bytes + self._graph_bytes,
                requests_by_size=dict(reads.requests_by_size),
                queue_depth=self._depth,
            )
