"""MariusGNN for node classification: train on the partitions in memory, change them between epochs.

Before the first epoch the graph is cut into partitions and edge buckets (`systems/mariusgnn/partitioned.py`). Each
epoch begins by filling the buffer (stage `data_prep`): partitions of training nodes stay, the others follow the
ordering. Then nothing is read: mini-batches are sampled among the buffered nodes alone, which saves reads and costs
accuracy (GNNDrive, Sections 2 and 5.4; DiskGNN, Section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from systems.engine.io.arrays import gather
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import ReadStats
from systems.engine.io.tally import counters_of
from systems.engine.io.topology import DatasetFiles
from systems.engine.loading.gather_loader import GatherSystem
from systems.engine.loading.sized import Ids
from systems.engine.store import artefacts
from systems.interface import Batch, Counters, Facts, SystemInfo
from systems.mariusgnn.buffer import PartitionBuffer
from systems.mariusgnn.partition_writer import write_partitions
from systems.mariusgnn.partitioned import COUNTS, Layout, Partitions, count_buckets
from systems.mariusgnn.planner import HELD_BYTES, NAME, MariusOptions, MariusSizes, buffered, partitions_for, plan_sizes
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import advise_random, make_sampler

#: Edges by bucket, int64 [p, p], of the layouts that this process has counted, by key.
_COUNTED: dict[str, npt.NDArray[np.int64]] = {}
_COUNT_BYTES = 64 << 20  # most bytes of edges in memory while they are counted
_WRITE_BYTES = 256 << 20  # most bytes of rows or edges in memory while they are written


class MariusGnn(GatherSystem):
    """MariusGNN: partition buffer, edge buckets, sampling inside the buffer."""

    info = SystemInfo(
        name=NAME,
        paper="gnndrive",
        summary="partitions buffered in memory; sampling only among them",
        faithful=False,
        options=MariusOptions,
        artefact_share=1.2,
    )
    options: MariusOptions

    _stats = ReadStats()
    _prepared: artefacts.Prepared | None = None
    _buffer: PartitionBuffer | None = None

    @cached_property
    def _parts(self) -> Partitions:
        return Partitions.of(self.workload, self.options.partitions or partitions_for(self.workload, self.budget))

    @cached_property
    def _key(self) -> dict[str, Any]:
        # Without the sampler: the same partitions serve all samplers.
        workload, size = self.workload, self._parts.size
        return {"dataset": workload.dataset.content, "seed": workload.seed, "size": size, "format": 2}

    @cached_property
    def _layout(self) -> Layout:
        """Layout of the partition files, which follows from the number of edges in each bucket, counted once."""
        found = artefacts.find(self.runtime.artefacts, NAME, self._key)
        if found is not None:
            return Layout(self._parts, np.load(found.path / COUNTS))
        key = repr(self._key)
        if key not in _COUNTED:  # plans within other budgets of the same process ask again
            memory = min(_COUNT_BYTES, max(1 << 20, (self.budget.host or 1 << 62) // 4))
            _COUNTED[key] = count_buckets(self.workload, self._parts, self._assign(), memory_bytes=memory)
        return Layout(self._parts, _COUNTED[key])

    def _assign(self) -> npt.NDArray[np.uint8]:
        return self._parts.assign(self.workload.dataset.load("train"), self.workload.seed)

    @cached_property
    def _sizes(self) -> MariusSizes:
        layout = self._layout
        return self.fit(
            lambda: plan_sizes(self.workload, self.runtime, self.budget, self.options, layout, self._workers)
        )

    def chosen(self) -> dict[str, int | str]:
        """Return the base's values, and the numbers of partitions on disk and in memory."""
        return {**super().chosen(), "partitions": self._parts.count, "buffer": self._sizes.capacity}

    def prepare(self) -> None:
        """Write partitions and edge buckets or find them; allocate the buffer, which the epochs fill."""
        sizes = self._sizes
        DatasetFiles(self.workload, ["indices", "features", "labels"]).check()
        self._prepared = artefacts.prepare(
            self.runtime.artefacts, NAME, self._key, self._write, disk_budget=self.budget.disk
        )
        with_features = self.runtime.stages != "sample"
        self._buffer = PartitionBuffer(self._prepared.path, self._layout, sizes, self.options, features=with_features)
        self._labels = self.workload.dataset.memmap("labels")
        advise_random(self._labels)
        self._label_file = DatasetFiles(self.workload, ["labels"])
        self._allocate()
        self._draw = _no_graph_yet

    def _write(self, folder: Path) -> dict[str, int]:
        # The buffers are not allocated yet, so their planned memory is free for writing.
        nodes = self.workload.dataset.num_nodes
        memory = self._sizes.plan.total("host") - HELD_BYTES * nodes
        moved = write_partitions(
            self.workload,
            self._layout,
            self._assign(),
            folder,
            memory_bytes=min(memory, _WRITE_BYTES),
            threads=self.runtime.cores,
            progress=self.runtime.progress,
        )
        reads = {"reads": moved.reads.requests, "bytes_read": moved.reads.bytes_read}
        return {**reads, "writes": moved.writes, "bytes_written": moved.bytes_written}

    def _sample(self, work: Callable[[], SampledBatch]) -> SampledBatch:
        self._label_file.check()
        sampled = work()
        if sampled.num_nodes > self._sizes.tables.rows:
            raise BudgetError(
                f"{NAME}: mini-batch {sampled.index} of epoch {sampled.epoch} has {sampled.num_nodes} nodes among the "
                f"buffered ones, its table holds {self._sizes.tables.rows}",
                f"raise batch_slack above {self.options.batch_slack:g}",
            )
        return sampled

    def _gather(self, nodes: npt.NDArray[np.int64], out: npt.NDArray[np.generic]) -> None:
        assert self._buffer is not None
        rows = self._buffer.row_of[nodes]
        gather(self._buffer.features, rows, out, self.options.gather_threads or self.runtime.cores)
        self._rows += len(nodes)

    def partitions_of(self, epoch: int) -> list[int]:
        """Return the partitions in memory during an epoch, ascending."""
        parts, ordering = self._parts, self.options.ordering
        return buffered(parts.count, parts.pinned, self._sizes.capacity, ordering, seed=self.workload.seed, epoch=epoch)

    def _begin(self) -> None:
        super()._begin()
        self._stats = ReadStats()

    def _epoch(self, k: int, seeds: Sequence[Ids]) -> Iterator[Batch]:
        """Prepare data, then yield the mini-batches of epoch `k`: each epoch begins with a sampler of the graph."""
        buffer = self._buffer
        assert buffer is not None
        with self.clock.stage("data_prep"):
            self._stats = buffer.load(self.partitions_of(k))
            give_back_free_memory()
            self._draw = make_sampler(
                self.workload, indptr=buffer.indptr, indices=buffer.indices, labels=self._labels
            ).sample
        yield from super()._epoch(k, seeds)

    def counters(self) -> Counters:
        """Return the counters: every row is a hit in the buffer, and all reads are those of data preparation."""
        edges = len(self._buffer.indices) if self._buffer is not None else 0
        return counters_of(
            self._stats,
            self.options.io_depth,
            rows=self._rows,
            hits={"host": self._rows},
            observed={"buffered_edges": float(edges)},
        )

    def files(self) -> list[Path]:
        """Return the files of partitions and edge buckets."""
        return self._prepared.files if self._prepared is not None else []

    def facts(self) -> Facts:
        """Return the read mode, the reading stage, and whether the partitions were found."""
        return Facts(
            io=self._buffer.mode if self._buffer is not None else None,
            reads_in=("data_prep",),
            prepared_reused=self._prepared.reused if self._prepared is not None else None,
        )

    def notes(self) -> dict[str, str]:
        """Return the number of partitions, the buffered share of the graph, and the read mode."""
        parts, layout, sizes = self._parts, self._layout, self._sizes
        now = np.array(self.partitions_of(0))
        share = 100 * int(layout.counts[np.ix_(now, now)].sum()) / max(1, int(layout.counts.sum()))
        return {
            **super().notes(),
            "partitions": f"{parts.count} of {parts.size} nodes, {parts.pinned} with training nodes",
            "buffer": f"{sizes.capacity} partitions, {share:.1f} % of the edges",
            "ordering": self.options.ordering,
        }

    def close(self) -> None:
        """End the threads, close the files and free the buffer."""
        super().close()
        self._close("_buffer")
        self._labels = None  # type: ignore[assignment]


def _no_graph_yet(epoch: int, index: int, nodes: Ids) -> SampledBatch:
    raise RuntimeError("no partition is in the buffer yet")
