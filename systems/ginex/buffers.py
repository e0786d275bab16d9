"""Buffers of Ginex: those always held, and those of its two phases, superbatch sampling
and the main loop."""

from __future__ import annotations

from dataclasses import dataclass

from systems.engine.cache.neighbour_cache import NeighbourCachePlan
from systems.engine.io.row_reads import feature_reader_bytes
from systems.engine.io.topology import indptr_item, map_item, sampling_items
from systems.engine.store.batch_store import BatchWriter
from systems.ginex.options import GinexOptions
from systems.interface import MemoryBudget, Runtime
from systems.parts.sizes import PAGE_CACHE, Follower, Need, Sizes, fixed
from workloads.direct_files import padded
from workloads.sampling.bounds import Bounds
from workloads.workload import Workload

#: Mini-batches read from the runtime files ahead of the readers.
LOADED = 1
#: The phases.
LOOP = "main loop"
SAMPLING = "sampling"
# A thread's stack and allocator leftovers; the loop has two threads beside the readers,
# and one that waits.
_THREAD_BYTES = 512 << 10
_LOOP_THREADS = 3
#: Tables for the rows of mini-batches on the device.
TABLES = "device feature tables"
_TABLES_FIX = "raise device memory, or lower device_buffers, batch size or fan-out"
#: Bytes of the node ids of a row that stays and of the row that replaces it.
KEPT_ROW_BYTES = 8


def runtime_batch_bytes(workload: Workload, bounds: Bounds) -> int:
    """Return the most bytes of a mini-batch in the runtime files: ids and adj,
    changeset, part of the initial cache."""
    adjacency = BatchWriter.bound_bytes(
        bounds.sampled_bytes, len(workload.sampler.fanout)
    )
    return (
        adjacency
        + padded(12 * bounds.max_nodes + 64)
        + padded(4 * bounds.max_nodes + 64)
    )


@dataclass(frozen=True)
class Buffers:
    """Buffers of a run, as needs for `divide`.

    Attributes:
        bounds: bounds of the workload's mini-batches.
    """

    workload: Workload
    runtime: Runtime
    budget: MemoryBudget
    options: GinexOptions
    bounds: Bounds

    @property
    def reads(self) -> bool:
        """Whether the run reads rows, and not only samples."""
        return self.runtime.stages != "sample"

    @property
    def row(self) -> int:
        """Bytes of a feature row."""
        return self.workload.dataset.row_bytes

    @property
    def batch_bytes(self) -> int:
        """Most bytes of a mini-batch in the runtime files."""
        return runtime_batch_bytes(self.workload, self.bounds)

    @property
    def reader_bytes(self) -> int:
        """Bytes of a reader of feature rows."""
        return feature_reader_bytes(self.workload, self.options, self.bounds.max_nodes)

    def held(self, input_rows: int, readers: int) -> list[Need]:
        """List the buffers that both phases hold, beside the seed nodes."""
        indptr = fixed([indptr_item(self.workload)])
        if not self.reads:
            return indptr
        found = [
            *indptr,
            Need("batch inputs", input_rows * self.row),
            Need("reader buffers", readers * self.reader_bytes),
        ]
        if self.runtime.accelerator.kind != "cpu":
            found.append(self._tables())
        return found

    def _tables(self) -> Need:
        """Return the tables on the device: as many as wanted, fewer where they do not
        fit."""
        one = self._table_bytes
        most = self.options.device_buffers * one
        return Need(TABLES, one, "device", best=most, step=one, fix=_TABLES_FIX)

    @property
    def _table_bytes(self) -> int:
        return self.bounds.max_nodes * self.row

    def tables(self, sizes: Sizes) -> int:
        """Return the number of tables on the device."""
        return sizes.granted.get(TABLES, 0) // self._table_bytes

    def loop(self, readers: int) -> list[Need]:
        """List the memory of mini-batches and changesets from their load to the end of
        their training.

        Seed nodes are held in both phases.
        """
        # Mini-batches being loaded, loaded, being read, read, (gathered, transferred,)
        # ready and trained.
        trained = 5 if self.runtime.accelerator.kind != "cpu" else 3
        under_way = 1 + LOADED + 2 * readers + trained
        threads = readers + _LOOP_THREADS
        read_back = self.batch_bytes + self.bounds.sampled_bytes
        return [
            Need("mini-batches read back", under_way * read_back, phase=LOOP),
            Need("seed nodes", self.bounds.seed_bytes),
            Need("threads of the main loop", threads * _THREAD_BYTES, phase=LOOP),
        ]

    def sampling(self, samplers: int, list_threads: int) -> list[Need]:
        """List the memory of samplers and of the files that they read and write."""
        items = sampling_items(
            self.bounds, workers=samplers, waiting=samplers, list_threads=list_threads
        )
        own = [
            Need(item.name, item.bytes, phase=SAMPLING)
            for item in items
            if item.name != "seed nodes"
        ]
        pages = self.workload.dataset.topology_bytes
        if self.budget.host is not None:
            pages = min(pages, self.budget.host // 8)
        return [
            *own,
            Need("page tables of maps", map_item(self.workload).bytes, phase=SAMPLING),
            Need("runtime-file buffers", 2 * self.batch_bytes, phase=SAMPLING),
            # `indices` and labels are read through the page cache.
            Need(PAGE_CACHE, pages, phase=SAMPLING),
        ]

    def cache(self, capacity: int) -> list[Need | Follower]:
        """List the feature cache, and the rows of it that stay where they fit beside
        sampling and planning."""
        if not capacity:
            return []
        each = self.row + KEPT_ROW_BYTES
        most = capacity * each
        slots = (
            4 * self.workload.dataset.num_nodes
            if self.options.policy == "static"
            else 0
        )
        return [
            Need("feature cache", capacity * self.row, phase=LOOP),
            Need("feature cache map", slots, phase=LOOP),
            Need("rows that stay cached", 0, best=most, step=each, phase=SAMPLING),
            Follower(
                "nodes of rows that stay",
                lambda sizes: KEPT_ROW_BYTES * self.kept(sizes),
                phase=LOOP,
            ),
        ]

    def kept(self, sizes: Sizes) -> int:
        """Return the cached rows that stay while the next superbatch is sampled."""
        return sizes.granted.get("rows that stay cached", 0) // (
            self.row + KEPT_ROW_BYTES
        )

    def files(self, runtime_bytes: int, neighbours: NeighbourCachePlan) -> list[Need]:
        """List the files of a run."""
        cached = neighbours.nbytes + (1 << 12) if neighbours.nodes else 0
        return [
            Need("runtime files", runtime_bytes, "disk"),
            Need("neighbour cache file", cached, "disk"),
        ]
