"""Parts of MariusGNN: a graph and rows among the partitions in memory, and mini-batches
that are sampled there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.arrays import gather
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import ReadStats, RowReader
from systems.engine.io.topology import DatasetFiles, indptr_item, sampling_items
from systems.engine.store import artefacts
from systems.mariusgnn.buffer import PartitionBuffer
from systems.mariusgnn.options import (
    HELD_BYTES,
    NAME,
    REQUEST_BYTES,
    MariusOptions,
    depths,
)
from systems.mariusgnn.partition_writer import write_partitions
from systems.mariusgnn.partitioned import Layout
from systems.mariusgnn.sizes import buffered, max_edges, unit_bytes
from systems.parts.rows import Rows
from systems.parts.sample import Ids, Sample
from systems.parts.sizes import Follower, Need, fixed
from systems.parts.topology import Graph, Topology
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import Bounds, batch_bounds
from workloads.sampling.make import advise_random, make_sampler
from workloads.workload import Workload

_PAGE_CACHE_BYTES = 2 << 20
_WRITE_BYTES = 256 << 20  # most bytes of rows or edges in memory while they are written
_NAMES = ("max_nodes", "max_edges", "sampled_bytes", "scratch_bytes")


@dataclass(eq=False)
class BufferedPartitions(Topology):
    """Graph and rows of the partitions in memory, which change between epochs and never
    within one.

    Attributes:
        layout: places of all partitions and edge buckets in the prepared files.
        options: options of the system.
        capacity: partitions in memory at once.
        key: identity of the prepared files.
        assign: returns the partition of each node, uint8 [N].
    """

    title = "graph among the partitions in memory"
    layout: Layout = field(kw_only=True)
    options: MariusOptions = field(kw_only=True)
    capacity: int = field(kw_only=True)
    key: dict[str, Any] = field(kw_only=True)
    assign: Callable[[], npt.NDArray[np.uint8]] = field(kw_only=True)
    _buffer: PartitionBuffer | None = field(init=False, repr=False, default=None)

    @property
    def buffer(self) -> PartitionBuffer:
        """The partition buffer, open."""
        assert self._buffer is not None
        return self._buffer

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows in memory; 0 in a run that only samples."""
        return (
            0
            if self.site.sampling_only
            else self.capacity * self.layout.parts.slot_bytes
        )

    @cached_property
    def _most_edges(self) -> int:
        pinned = self.layout.parts.pinned
        return max_edges(self.layout.counts, pinned, self.capacity - pinned)

    @cached_property
    def _unit_bytes(self) -> int:
        return unit_bytes(self.layout, self.capacity, self.site.budget.host)

    def needs(self) -> Sequence[Need | Follower]:
        """List the graph among the buffered nodes, their rows, and the files of
        partitions and edge buckets."""
        parts = self.layout.parts
        edge_bytes = parts.index_dtype.itemsize + 1
        return [
            *fixed([indptr_item(self.site.workload)]),
            Need("rows of nodes", 4 * parts.num_nodes),
            Need("buffered edges", self._most_edges * edge_bytes),
            Need("buffered node ids", 8 * self.capacity * parts.size),
            Need("read buffer", self._unit_bytes + self._reader_bytes()),
            # Labels are read through the page cache, and training's peak differs from
            # step to step: if the buffer took the last page of the cap, the kernel
            # would kill the run.
            Need("page cache", _PAGE_CACHE_BYTES),
            Need("buffered features", self.row_bytes, best=self.row_bytes),
            Need("partitions and edge buckets", self.layout.disk_bytes, "disk"),
        ]

    def _reader_bytes(self) -> int:
        """Return the bytes of the readers' own buffers, which only take ends within a
        block."""
        most = REQUEST_BYTES
        readers = [
            RowReader.plan_bytes(
                data_offset=0, row_bytes=4096, depth=depth, max_request_bytes=most
            )
            for depth in depths(self.options)
        ]
        return sum(readers)

    def chosen(self) -> dict[str, int | str]:
        """Return the numbers of partitions on disk and in memory."""
        return {"partitions": self.layout.parts.count, "buffer": self.capacity}

    def prepare(self) -> None:
        """Write partitions and edge buckets, or find them."""
        site = self.site
        DatasetFiles(site.workload, ["indices", "features", "labels"]).check()
        disk = site.budget.disk
        made = artefacts.prepare(
            site.runtime.artefacts, NAME, self.key, self._write, disk_budget=disk
        )
        self.prepared.append(made)

    def _write(self, folder: Any) -> dict[str, int]:
        # The buffers are not allocated yet, so their planned memory is free for
        # writing.
        site = self.site
        assert site.sizes is not None
        memory = (
            site.sizes.plan.total("host") - HELD_BYTES * site.workload.dataset.num_nodes
        )
        moved = write_partitions(
            site.workload,
            self.layout,
            self.assign(),
            folder,
            memory_bytes=min(memory, _WRITE_BYTES),
            threads=site.runtime.cores,
            progress=site.runtime.progress,
        )
        reads = {"reads": moved.reads.requests, "bytes_read": moved.reads.bytes_read}
        return {**reads, "writes": moved.writes, "bytes_written": moved.bytes_written}

    def open(self) -> None:
        """Allocate the buffer, which the epochs fill, and map the labels."""
        self._buffer = PartitionBuffer(
            self.prepared[0].path,
            self.layout,
            self.options,
            capacity=self.capacity,
            max_edges=self._most_edges,
            unit_bytes=self._unit_bytes,
            features=not self.site.sampling_only,
        )
        self._labels = self.source.dataset.memmap("labels")
        advise_random(self._labels)
        self._label_file = DatasetFiles(self.site.workload, ["labels"])

    def partitions_of(self, epoch: int) -> list[int]:
        """Return the partitions in memory during an epoch, ascending."""
        parts = self.layout.parts
        seed = self.site.workload.seed
        ordering = self.options.ordering
        return buffered(
            parts.count, parts.pinned, self.capacity, ordering, seed=seed, epoch=epoch
        )

    def load(self, epoch: int) -> ReadStats:
        """Read the partitions that an epoch needs and that are not in memory."""
        with self.site.clock.stage("data_prep"):
            stats = self.buffer.load(self.partitions_of(epoch))
            give_back_free_memory()
        return stats

    def graph(self) -> Graph:
        """Return the graph among the partitions in memory."""
        return Graph(self.buffer.indptr, self.buffer.indices, self._labels)

    def check_files(self) -> None:
        """Check the mapped labels."""
        self._label_file.check()

    def observed(self) -> dict[str, float]:
        """Return the edges in memory."""
        return {"buffered_edges": float(len(self.buffer.indices))}

    def facts(self) -> dict[str, Any]:
        """Return the read mode and the stage that reads."""
        mode = self._buffer.mode if self._buffer is not None else None
        return {"io": mode, "reads_in": ("data_prep",)}

    def notes(self) -> dict[str, str]:
        """Return the number of partitions, and the share of the graph in memory."""
        parts = self.layout.parts
        counts = self.layout.counts
        now = np.array(self.partitions_of(0))
        edges = int(counts[np.ix_(now, now)].sum())
        share = 100 * edges / max(1, int(counts.sum()))
        return {
            "partitions": f"{parts.count} of {parts.size} nodes, {parts.pinned} "
            "with training "
            "nodes",
            "buffer": f"{self.capacity} partitions, {share:.1f} % of the edges",
            "ordering": self.options.ordering,
        }

    def close(self) -> None:
        """Close the files and free the buffer."""
        buffer = self._buffer
        self._buffer = None
        if buffer is not None:
            buffer.close()


@dataclass(eq=False)
class BufferedNeighbours(Sample):
    """Mini-batches among the partitions in memory, which are loaded when an epoch
    begins."""

    title = "neighbour sampler"
    topology: BufferedPartitions
    _draw: Callable[..., SampledBatch] | None = field(
        init=False, repr=False, default=None
    )

    def bounds(self, workload: Workload) -> Bounds:
        """Return bounds of mini-batches among the buffered nodes, from the bounds on
        the whole graph."""
        bounds = batch_bounds(workload)
        graph = self.topology
        parts = graph.layout.parts
        if graph.capacity >= parts.count:
            return bounds  # the same graph, so the same mini-batches
        nodes = min(parts.num_nodes, graph.capacity * parts.size)
        slack = graph.options.batch_slack
        grown = {name: math.ceil(getattr(bounds, name) * slack) for name in _NAMES}
        grown["max_nodes"] = min(nodes, _reached(workload, nodes), grown["max_nodes"])
        return replace(bounds, **grown)

    def needs(self) -> Sequence[Need | Follower]:
        """List workspace, sampled mini-batches in flight and seed nodes."""
        waiting = self.waiting + self.site.in_flight
        return fixed(
            sampling_items(self.site.bounds, workers=self.workers, waiting=waiting)
        )

    def start(self, epoch: int) -> ReadStats:
        """Load the epoch's partitions, and make a sampler of the graph among them."""
        stats = self.topology.load(epoch)
        graph = self.topology.graph()
        sampler = make_sampler(
            self.site.workload,
            indptr=graph.indptr,
            indices=graph.indices,
            labels=graph.labels,
        )
        self._draw = sampler.sample
        return stats

    def draw(self, epoch: int, index: int, seeds: Ids) -> SampledBatch:
        """Sample one mini-batch. Raises BudgetError where it is larger than its
        table."""
        self.topology.check_files()
        assert self._draw is not None
        sampled = self._draw(epoch, index, seeds)
        most = self.site.bounds.max_nodes
        if sampled.num_nodes > most:
            raise BudgetError(
                f"{NAME}: mini-batch {index} of epoch {epoch} has {sampled.num_nodes} "
                f"nodes among the buffered ones, its table holds {most}",
                f"raise batch_slack above {self.topology.options.batch_slack:g}",
            )
        return sampled

    def close(self) -> None:
        """Drop the graph."""
        self._draw = None


def _reached(workload: Workload, nodes: int) -> int:
    """Bound the nodes that a mini-batch reaches among `nodes`, by the fan-outs
    alone."""
    reached = most = workload.sampler.batch_size
    for fanout in workload.sampler.fanout:
        most *= fanout if fanout >= 0 else nodes
        reached = min(nodes, reached + most)
    return reached


@dataclass(eq=False)
class BufferedRows(Rows):
    """Rows of the partitions in memory, gathered by many threads.

    Attributes:
        graph: the partitions.
        threads: threads that gather one mini-batch; 0: one for each core.
    """

    title = "rows of the partitions in memory"
    graph: BufferedPartitions = field(kw_only=True)
    threads: int = 0

    @property
    def tier(self) -> str:
        """All rows are in host memory."""
        return "host"

    @property
    def queue_depth(self) -> int:
        """Reads in flight while partitions are loaded."""
        return self.graph.options.io_depth

    def read(
        self, sampled: SampledBatch, ids: Ids, out: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ReadStats | None]:
        """Gather the rows."""
        assert out is not None
        self.gather(ids, out.numpy())
        return out, None

    def gather(self, ids: Ids, out: npt.NDArray[np.generic]) -> None:
        """Copy rows to `out`."""
        buffer = self.graph.buffer
        gather(
            buffer.features,
            buffer.row_of[ids],
            out,
            self.threads or self.site.runtime.cores,
        )
