"""Preparation of an episode: sample epochs, rank rows, search a layout, pack it; kept as artefact (Sections 4, 5.2).

All mini-batches of an episode are prepared together: one ranking, one set of caches, one pass over the feature table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from systems.diskgnn.fit import Fit, fit
from systems.diskgnn.layout import ColdSamples, Placement, Segment, Shape, segment_bytes, segments, unpacked
from systems.diskgnn.minhash import simulate_reads
from systems.diskgnn.options import DiskGnnOptions
from systems.diskgnn.planner import NAME, DiskGnnSizes
from systems.diskgnn.ranking import AccessCounts, Ids, Slots, by_node, miss_curve, slots_of
from systems.diskgnn.search import Search, ShapeCost, Space, feature_reads
from systems.diskgnn.structure import ADDRESSES, Levels, address_arrays, graph_arrays
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import ReadStats
from systems.engine.io.regions import RegionIndex
from systems.engine.io.row_reads import RowTable
from systems.engine.io.topology import mapped_sampler, row_bytes
from systems.engine.loading.pipeline import Channel, Pipeline
from systems.engine.store.artefacts import Prepared, identity, prepare
from systems.engine.store.batch_store import BatchReader, BatchWriter
from systems.engine.store.packed_store import PackedWriter, arrays_bytes, packed_bytes, rows_bytes
from systems.interface import Runtime, StageClock
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_seed_plan
from workloads.workload import Workload

DEVICE, HOST, DISK = "device_cache", "host_cache", "disk_cache"
# Bytes on disk of the names, shapes and padding of a chunk's arrays, and of an episode's index, seal and folder.
_PER_CHUNK = 768
_PER_EPISODE = 16384
Simulated = dict[str, Any]


@dataclass(frozen=True)
class Ready:
    """A prepared episode.

    Attributes:
        folder: folder of its files (`packed_store`).
        epochs: sampled epochs, in order, with `num_batches` chunks each.
        fit: rows held in memory, and buffers.
        facts: facts recorded when the episode was made.
        reused: whether an earlier run made it.
    """

    folder: Path
    epochs: tuple[int, ...]
    num_batches: int
    fit: Fit
    facts: dict[str, Any]
    reused: bool

    def single_reads(self, epoch: int) -> ReadStats:
        """Return the predicted counts of reading single rows for sampled epoch `epoch`."""
        content = self.facts["single_reads"][str(epoch)]
        by_size = {int(size): count for size, count in content["requests_by_size"].items()}
        return ReadStats(**{**content, "requests_by_size": by_size})

    def chunk(self, epoch: int, batch: int) -> int:
        """Return the chunk number of mini-batch `batch` of sampled epoch `epoch`."""
        return self.epochs.index(epoch) * self.num_batches + batch


@dataclass(eq=False)
class Episodes:
    """Maker of episodes, which reuses the episodes of earlier runs.

    Attributes:
        sizes: bounds of memory.
        limit: most bytes of an episode on disk; None: no limit.
        block_bytes: block size to which single-row reads are rounded up.
        stop: ends a `get` of another thread.
    """

    workload: Workload
    runtime: Runtime
    options: DiskGnnOptions
    sizes: DiskGnnSizes
    clock: StageClock
    _: KW_ONLY
    limit: int | None
    block_bytes: int
    stop: Callable[[], None] = lambda: None

    def get(self, epochs: tuple[int, ...]) -> Ready:
        """Make the episode of these sampled epochs, or find it made.

        Raises:
            BudgetError: it does not fit memory or the disk-space limit.
            DataIOError: a disk is full or fails; nothing is left behind.
        """
        found: Prepared = prepare(
            self.runtime.artefacts,
            NAME,
            self._identity(epochs),
            lambda folder: self._make(folder, epochs),
            disk_budget=self.limit,
        )
        facts = found.facts
        return Ready(found.path, epochs, facts["num_batches"], Fit.parse(facts["fit"]), facts, found.reused)

    def _identity(self, epochs: tuple[int, ...]) -> dict[str, Any]:
        options = self.options
        layout = {
            name: getattr(options, name)
            for name in ("packing", "disk_cache", "search", "search_points", "segment", "threshold", "hashes")
        }
        return identity(
            self.workload,
            epochs=epochs,
            structure_only=self.runtime.stages == "sample",
            limit=self.limit,
            block=self.block_bytes,
            sizes=self.sizes.key(),
            addresses=ADDRESSES,
            **layout,
        )

    def _make(self, folder: Path, epochs: tuple[int, ...]) -> Mapping[str, Any]:
        dataset, options = self.workload.dataset, self.options
        samples = folder / "samples"
        counts = AccessCounts(dataset.num_nodes)
        graph_bytes, index = self._sample(samples, epochs, counts)
        give_back_free_memory()
        with closing(BatchReader(samples, index)) as reader:
            with self.clock.stage("inspect"):
                slots, found = self._rank(reader, counts)
                del counts
                give_back_free_memory()
                self.runtime.progress("searching a layout", math.nan)
                layout = _Layout(self, ColdSamples(reader, slots), slots, found.levels, graph_bytes, index)
                prediction = layout.search()
            with self.clock.stage("pack"), self._writer(folder) as writer:
                simulated = layout.write(writer, reader, prediction)
                ranked = layout.ranked
                del slots
                samples.unlink()
                if found.levels.direct:
                    writer.add_rows(DEVICE, ranked[: found.levels.direct])
                if found.levels.host:
                    writer.add_rows(HOST, ranked[found.levels.direct :])
                del ranked, layout
                give_back_free_memory()
                stats = writer.pack(
                    "individual" if options.packing == "individual" else "batched",
                    lambda share: self.runtime.progress("packing", share),
                )
        return {
            "num_batches": len(index) // len(epochs),
            "fit": asdict(found),
            "samples_bytes": index.nbytes,
            "pack": asdict(stats),
            **simulated,
        }

    def _writer(self, folder: Path) -> PackedWriter:
        return PackedWriter(
            folder,
            RowTable.of(self.workload.dataset),
            memory_bytes=self.sizes.packing_bytes,
            request_bytes=self.options.request_bytes,
            depth=self.options.request_depth,
        )

    def _sample(self, path: Path, epochs: tuple[int, ...], counts: AccessCounts) -> tuple[Ids, RegionIndex]:
        """Sample all mini-batches to disk, counting accesses; return the bytes of each graph, and the index."""
        workload = self.workload
        sampler, plan = mapped_sampler(workload), make_seed_plan(workload)
        jobs = [(epoch, batch, nodes) for epoch in epochs for batch, nodes in enumerate(plan.batches(epoch))]
        graph_bytes = np.zeros(len(jobs), dtype=np.int64)
        writer = BatchWriter(path, fix="make room on the disk of the results folder")

        def sample(_: int, job: tuple[int, int, Ids]) -> SampledBatch:
            with self.clock.stage("sample", job[1]):
                return sampler.sample(*job)

        try:
            with Pipeline(f"{NAME}-offline") as pipe:
                self.stop = pipe.stop
                workers = self.options.samplers or self.runtime.cores
                sampled: Channel[SampledBatch] = pipe.channel(workers, ordered=True)
                pipe.stage("sample", workers, sample, jobs, sampled)
                for number, batch in enumerate(pipe.results(sampled)):
                    self.runtime.progress("sampling", number / len(jobs))
                    counts.add(batch.nodes)
                    graph_bytes[number] = arrays_bytes(graph_arrays(batch))
                    writer.append(batch)
            return graph_bytes, writer.close()
        except BaseException:
            writer.abandon()
            raise

    def _rank(self, samples: BatchReader, counts: AccessCounts) -> tuple[Slots, Fit]:
        """Return the slots of the rows held in memory, hottest first, and the exact sizes of the levels."""
        sizes, nodes = self.sizes, self.workload.dataset.num_nodes
        if self.runtime.stages == "sample":
            return by_node(nodes), Fit(Levels(0, 0), 0, 0, 0, 0)
        ranked = counts.hottest(sizes.table_rows + sizes.host_rows)
        slots = slots_of(ranked, nodes)
        curve = miss_curve((samples.nodes(batch) for batch in range(len(samples))), slots, len(ranked))
        found = fit(sizes, curve)
        slots[ranked[found.levels.cached :]] = -1
        return slots, found

    def simulate(self, rows: Ids, num_rows: int = 1 << 40) -> ReadStats:
        """Return the predicted counts of reading these single rows."""
        from_table = self.options.packing == "off"
        dataset = self.workload.dataset
        start = dataset.data_offset("features") if from_table else 0
        return simulate_reads(
            rows,
            row_bytes=row_bytes(self.workload),
            num_rows=dataset.num_nodes if from_table else num_rows,
            file_bytes=start + dataset.feature_bytes if from_table else None,
            data_offset=start,
            granularity=self.options.io_granularity,
            logical_bytes=self.block_bytes,
        )


class _Layout:
    """Layout of one episode's samples: searched, then written."""

    def __init__(
        self, episodes: Episodes, cold: ColdSamples, slots: Slots, levels: Levels, graph_bytes: Ids, index: RegionIndex
    ) -> None:
        self.episodes, self.options = episodes, episodes.options
        self._cold, self._slots, self._levels = cold, slots, levels
        self._row = row_bytes(episodes.workload)
        # Caches in memory are kept on disk too.
        self._cached_bytes = sum(rows_bytes(count, self._row) for count in (levels.direct, levels.host))
        self._where = by_node(len(slots))
        self._sampling_only = episodes.runtime.stages == "sample"
        self._sampled_bytes = int(graph_bytes.sum()) + 12 * int(index.counts.sum())
        order = np.flatnonzero(slots >= 0) if not self._sampling_only else np.empty(0, dtype=np.int64)
        #: int64, nodes in memory, hottest first.
        self.ranked: Ids = order[np.argsort(slots[order], kind="stable")]

    @property
    def _unpacked(self) -> bool:
        return self.options.packing == "off" or self._sampling_only

    def search(self) -> ShapeCost:
        """Find the shape of the disk caches; segments of one mini-batch where there are none."""
        options, episodes = self.options, self.episodes
        if self._unpacked:
            return ShapeCost(Shape(1, 2), 0)
        max_segment = max(1, episodes.sizes.packing_bytes // segment_bytes(1, episodes.sizes.bounds.max_nodes))
        search = Search(
            self._cold,
            self._space(),
            self._where,
            simulate=episodes.simulate,
            hashes=options.hashes,
            seed=episodes.workload.seed,
            max_segment=1 if options.disk_cache == "off" else max_segment,
        )
        if options.segment and options.disk_cache != "off":
            found = search.fixed(Shape(options.segment, options.threshold))
        elif options.search == "brute-force":
            found = search.brute_force(options.search_points)
        else:
            found = search.heuristic(options.threshold)
        self.search_seconds = search.seconds
        return found

    search_seconds = 0.0

    def _space(self) -> Space:
        chunks = len(self._cold)
        fixed = self._sampled_bytes + self._cached_bytes + chunks * (_PER_CHUNK + 2 * 4096) + _PER_EPISODE + 4096
        return Space(self._row, fixed, self.episodes.limit)

    def _segments(self, prediction: ShapeCost) -> Iterator[tuple[Ids, Iterator[Placement]]]:
        empty: Ids = np.empty(0, dtype=np.int64)
        if self._sampling_only:
            yield empty, (Placement(batch, empty, empty, empty) for batch in range(len(self._cold)))
        elif self._unpacked:
            yield empty, unpacked(self._cold)
        else:
            found: Iterator[Segment] = segments(
                self._cold, prediction.shape, self._where, hashes=self.options.hashes, seed=self.episodes.workload.seed
            )
            for segment in found:
                yield segment.order, segment.placements()

    def write(self, writer: PackedWriter, samples: BatchReader, prediction: ShapeCost) -> Simulated:
        """Append every chunk and the disk caches to the packer, and return the predicted reads."""
        orders: list[Ids] = []
        disk = self._cached_bytes
        read = useful = 0
        singles: dict[int, ReadStats] = {}
        for order, placements in self._segments(prediction):
            orders.append(order)
            for placement in placements:
                self.episodes.runtime.progress("laying out chunks", placement.batch / len(self._cold))
                batch = samples.read(placement.batch)
                arrays = graph_arrays(batch)
                if not self._sampling_only:
                    arrays |= address_arrays(batch.nodes, placement, self._slots, self._levels)
                writer.append(placement.packed, arrays)
                disk += packed_bytes(len(placement.packed), self._row, arrays_bytes(arrays))
                single = self.episodes.simulate(placement.rows) if len(placement.rows) else ReadStats()
                singles.setdefault(batch.epoch, ReadStats()).add(single)
                part = feature_reads(placement, self._row, single)
                read, useful = read + part[0], useful + part[1]
        shared = np.concatenate(orders)
        if len(shared):
            writer.add_rows(DISK, shared)
            disk += rows_bytes(len(shared), self._row)
        predicted = ShapeCost(prediction.shape, disk, read, useful)
        return {
            "predicted": predicted.as_dict(),
            "search_s": self.search_seconds,
            "shared_rows": len(shared),
            "single_reads": {str(epoch): asdict(stats) for epoch, stats in singles.items()},
        }
