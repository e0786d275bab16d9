"""Counters of an epoch: rows used, hits, and the reads of training and of the preparation that runs beside it."""

from __future__ import annotations

import threading

from systems.engine.io.reader import ReadStats
from systems.interface import Counters
from systems.outcore.group import Group
from workloads.sampling.batch import SampledBatch


class OutcoreTally:
    """Counters of one epoch; any thread may add to them.

    Args:
        index_bytes: bytes of an entry of a neighbour list.
        depth: reads in flight.
    """

    def __init__(self, *, row_bytes: int, index_bytes: int, depth: int) -> None:
        self._lock = threading.Lock()
        self._row, self._index, self._depth = row_bytes, index_bytes, depth
        self._rows = self._misses = self._on_device = self._edges = self._groups = 0
        self._reads = ReadStats()
        self._written = 0
        self._observed: dict[str, float] = {}

    def prepared(self, group: Group) -> None:
        """Count the reads and writes of a group that was prepared in this epoch."""
        with self._lock:
            self._groups += 1
            self._reads.add(group.reads)
            pack = group.pack
            self._reads.add(pack.reads)
            self._written += pack.bytes_written + group.graph_written
            if group.chunks is not None:
                self._written += int(group.chunks.lists[:, 1].sum())
            self._add("graph_bytes_read", group.reads.bytes_read)
            self._add("table_bytes_read", pack.reads.bytes_read)
            self._add("packed_bytes_written", pack.bytes_written)
            self._add("graph_bytes_written", group.graph_written)
            self._add("carried_rows", group.carried)
            self._add("distributed_groups", float(group.strategy == "distribute"))
            self._add("single_read_groups", float(group.strategy == "single"))

    def _add(self, name: str, value: float) -> None:
        self._observed[name] = self._observed.get(name, 0.0) + float(value)

    def sampled(self, batch: SampledBatch, nbytes: int) -> None:
        """Count a mini-batch's graph, read back in one request of `nbytes` bytes."""
        with self._lock:
            self._edges += batch.edge_reads
            self._read_one(nbytes)

    def _read_one(self, nbytes: int) -> None:
        self._reads.requests += 1
        self._reads.bytes_read += nbytes
        sizes = self._reads.requests_by_size
        sizes[nbytes] = sizes.get(nbytes, 0) + 1

    def extracted(self, rows: int, misses: int, on_device: int) -> None:
        """Count a mini-batch's rows, its misses and its hits in device memory."""
        with self._lock:
            self._rows += rows
            self._misses += misses
            self._on_device += on_device

    def read(self, stats: ReadStats) -> None:
        """Count reads of rows or chunks."""
        with self._lock:
            self._reads.add(stats)

    def counters(self) -> Counters:
        """Return the harness's counters; distributed rows and rows read one by one are both misses."""
        with self._lock:
            return Counters(
                rows=self._rows,
                hits={"device": self._on_device, "host": self._rows - self._misses - self._on_device},
                misses=self._misses,
                io_requests=self._reads.requests,
                bytes_read=self._reads.bytes_read,
                bytes_useful=self._misses * self._row + self._edges * self._index,
                requests_by_size=dict(self._reads.requests_by_size),
                queue_depth=self._depth,
                bytes_written=self._written,
                observed={"groups": float(self._groups), **self._observed},
            )
