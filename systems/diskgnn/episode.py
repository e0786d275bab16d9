"""Preparation of an episode: sample epochs, rank rows, search a layout, pack it; kept
as artefact (Sections 4, 5.2).

All mini-batches of an episode are prepared together: one ranking, one set of caches,
one pass over the feature table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from systems.diskgnn.fit import Fit, fit
from systems.diskgnn.layout import (
    ADDRESSES,
    ColdSamples,
    Levels,
    Placement,
    Shape,
    address_arrays,
    graph_arrays,
    segment_bytes,
    segments,
    unpacked,
)
from systems.diskgnn.options import NAME
from systems.diskgnn.ranking import (
    AccessCounts,
    Ids,
    Slots,
    by_node,
    miss_curve,
    slots_of,
)
from systems.diskgnn.search import (
    Search,
    ShapeCost,
    Space,
    feature_reads,
    simulate_reads,
)
from systems.diskgnn.sizes import DiskGnnSizes
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import ReadStats
from systems.engine.io.regions import RegionIndex
from systems.engine.io.row_reads import RowTable
from systems.engine.io.topology import mapped_sampler
from systems.engine.pipeline import Channel, Pipeline
from systems.engine.store.artefacts import Prepared, identity, prepare
from systems.engine.store.batch_store import BatchReader, BatchWriter
from systems.engine.store.packed_layout import arrays_bytes
from systems.engine.store.packed_writer import PackedWriter
from systems.engine.store.packing import PackStats
from systems.interface import StageClock
from workloads.direct_files import padded
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_seed_plan

DEVICE = "device_cache"
HOST = "host_cache"
DISK = "disk_cache"
# Bytes on disk of the names, shapes and padding of a chunk's arrays, and of an
# episode's index, seal and folder.
_PER_CHUNK = 768
_PER_EPISODE = 16384
Simulated = dict[str, Any]


@dataclass(frozen=True)
class Ready(Prepared):
    """A prepared episode, a folder of `packed_store`.

    Attributes:
        epochs: sampled epochs, in order, with `num_batches` chunks each.
        fit: rows held in memory, and buffers.
    """

    epochs: tuple[int, ...]
    num_batches: int
    fit: Fit

    def chunk(self, epoch: int, batch: int) -> int:
        """Return the chunk number of mini-batch `batch` of sampled epoch `epoch`."""
        return self.epochs.index(epoch) * self.num_batches + batch


@dataclass(eq=False)
class Episodes:
    """Maker of episodes, which reuses the episodes of earlier runs.

    Attributes:
        sizes: bounds of memory.
        block_bytes: block size to which single-row reads are rounded up.
        stop: ends a `get` of another thread.
    """

    sizes: DiskGnnSizes
    clock: StageClock
    block_bytes: int
    stop: Callable[[], None] = lambda: None

    def get(self, epochs: tuple[int, ...]) -> Ready:
        """Make the episode of these sampled epochs, or find it made.

        Raises:
            BudgetError: it does not fit memory or the disk-space limit.
            DataIOError: a disk is full or fails; nothing is left behind.
        """
        sizes = self.sizes
        layout = (
            "packing disk_cache search search_points segment threshold hashes".split()
        )
        key = identity(
            sizes.workload,
            epochs=epochs,
            structure_only=sizes.sampling_only,
            limit=sizes.limit,
            block=self.block_bytes,
            sizes=sizes.key(),
            addresses=ADDRESSES,
            **{name: getattr(sizes.options, name) for name in layout},
        )
        make = partial(self._make, epochs=epochs)
        found = prepare(
            sizes.runtime.artefacts, NAME, key, make, disk_budget=sizes.limit
        )
        kept = found.facts["fit"]
        fitted = Fit(**{**kept, "levels": Levels(**kept["levels"])})
        return Ready(
            **vars(found),
            epochs=epochs,
            num_batches=found.facts["num_batches"],
            fit=fitted,
        )

    def _make(self, folder: Path, epochs: tuple[int, ...]) -> Mapping[str, Any]:
        dataset = self.sizes.workload.dataset
        options = self.sizes.options
        samples = folder / "samples"
        counts = AccessCounts(dataset.num_nodes)
        graph_bytes, index, sampled_s = self._sample(samples, epochs, counts)
        give_back_free_memory()
        with closing(BatchReader(samples, index)) as reader:
            with self.clock.stage("inspect"):
                slots, found = self._rank(reader, counts)
                del counts
                give_back_free_memory()
                self.sizes.runtime.progress("searching a layout", math.nan)
                layout = _Layout(
                    self,
                    ColdSamples(reader, slots),
                    slots,
                    found.levels,
                    graph_bytes,
                    index,
                )
                prediction = layout.search()
            writing = PackedWriter(
                folder,
                RowTable.of(dataset),
                memory_bytes=self.sizes.packing_bytes,
                request_bytes=options.request_bytes,
                depth=options.request_depth,
            )
            with self.clock.stage("pack"), writing as writer:
                simulated = layout.write(writer, reader, prediction)
                samples.unlink()
                if found.levels.direct:
                    writer.add_rows(DEVICE, layout.ranked[: found.levels.direct])
                if found.levels.host:
                    writer.add_rows(HOST, layout.ranked[found.levels.direct :])
                del slots, layout
                give_back_free_memory()
                stats = writer.pack(
                    "individual" if options.packing == "individual" else "batched",
                    lambda share: self.sizes.runtime.progress("packing", share),
                )
        return {
            "num_batches": len(index) // len(epochs),
            "fit": asdict(found),
            "samples_bytes": index.nbytes,
            "pack": asdict(stats),
            "shared_s": reading_the_graph(sampled_s, len(epochs)) + _one_pass(stats),
            **simulated,
        }

    def _sample(
        self, path: Path, epochs: tuple[int, ...], counts: AccessCounts
    ) -> tuple[Ids, RegionIndex, list[float]]:
        """Sample all mini-batches to disk, counting accesses.

        Returns:
            The bytes of each graph, the index, and the seconds from the begin until
            each mini-batch was written.
        """
        workload = self.sizes.workload
        sampler = mapped_sampler(workload)
        plan = make_seed_plan(workload)
        jobs = [
            (epoch, batch, nodes)
            for epoch in epochs
            for batch, nodes in enumerate(plan.batches(epoch))
        ]
        graph_bytes = np.zeros(len(jobs), dtype=np.int64)
        began = time.monotonic()
        sampled_s: list[float] = []
        writer = BatchWriter(path, fix="make room on the disk of the results folder")

        def sample(_: int, job: tuple[int, int, Ids]) -> SampledBatch:
            with self.clock.stage("sample", job[1]):
                return sampler.sample(*job)

        try:
            with Pipeline(f"{NAME}-offline") as pipe:
                self.stop = pipe.stop
                workers = self.sizes.options.samplers or self.sizes.runtime.cores
                sampled: Channel[SampledBatch] = pipe.channel(workers, ordered=True)
                pipe.stage("sample", workers, sample, jobs, sampled)
                for number, batch in enumerate(pipe.results(sampled)):
                    self.sizes.runtime.progress("sampling", number / len(jobs))
                    counts.add(batch.nodes)
                    graph_bytes[number] = arrays_bytes(graph_arrays(batch))
                    writer.append(batch)
                    sampled_s.append(time.monotonic() - began)
            return graph_bytes, writer.close(), sampled_s
        except BaseException:
            writer.abandon()
            raise

    def _rank(self, samples: BatchReader, counts: AccessCounts) -> tuple[Slots, Fit]:
        """Return the slots of the rows held in memory, hottest first, and the exact
        sizes of the levels."""
        sizes = self.sizes
        nodes = self.sizes.workload.dataset.num_nodes
        if sizes.sampling_only:
            return by_node(nodes), Fit(Levels(0, 0), 0, 0, 0, 0)
        ranked = counts.hottest(sizes.table_rows + sizes.host_rows)
        slots = slots_of(ranked, nodes)
        curve = miss_curve(
            (samples.nodes(batch) for batch in range(len(samples))), slots, len(ranked)
        )
        found = fit(sizes, curve)
        slots[ranked[found.levels.cached :]] = -1
        return slots, found

    def simulate(self, rows: Ids, num_rows: int = 1 << 40) -> ReadStats:
        """Return the predicted counts of reading these single rows."""
        from_table = self.sizes.options.packing == "off"
        dataset = self.sizes.workload.dataset
        start = dataset.data_offset("features") if from_table else 0
        return simulate_reads(
            rows,
            row_bytes=self.sizes.row,
            num_rows=dataset.num_nodes if from_table else num_rows,
            file_bytes=start + dataset.feature_bytes if from_table else None,
            data_offset=start,
            granularity=self.sizes.options.io_granularity,
            logical_bytes=self.block_bytes,
        )


def reading_the_graph(sampled_s: Sequence[float], epochs: int) -> float:
    """Return the seconds of sampling all epochs that bring the graph into memory, which
    a further epoch finds there.

    The second half of the last epoch's mini-batches shows the seconds of sampling
    itself.

    Args:
        sampled_s: seconds from the begin until each mini-batch of all epochs was
            sampled, ascending.
    """
    half = len(sampled_s) // epochs // 2
    if epochs < 2 or half == 0:
        return 0.0
    steady_s = (sampled_s[-1] - sampled_s[-1 - half]) / half
    return max(0.0, sampled_s[-1] - steady_s * len(sampled_s))


def _one_pass(stats: PackStats) -> float:
    """Return the seconds of packing that a further epoch does not lengthen, if one pass
    over the table served all.

    Writes run beside the pass's reads, so they lengthen it only where they are more.
    More epochs than fit one pass are packed in several, whose number grows with theirs.
    """
    if stats.passes != 1:
        return 0.0
    return stats.seconds * min(1.0, stats.bytes_read / max(1, stats.bytes_written))


class _Layout:
    """Layout of one episode's samples: searched, then written."""

    def __init__(
        self,
        episodes: Episodes,
        cold: ColdSamples,
        slots: Slots,
        levels: Levels,
        graph_bytes: Ids,
        index: RegionIndex,
    ) -> None:
        self.episodes = episodes
        self.sizes = episodes.sizes
        self.options = episodes.sizes.options
        self._cold = cold
        self._slots = slots
        self._levels = levels
        # Caches in memory are kept on disk too.
        self._cached_bytes = sum(
            padded(count * self.sizes.row) for count in (levels.direct, levels.host)
        )
        self._where = by_node(len(slots))
        self.search_seconds = 0.0
        self._unpacked = self.options.packing == "off" or self.sizes.sampling_only
        self._sampled_bytes = int(graph_bytes.sum()) + 12 * int(index.counts.sum())
        order = (
            np.flatnonzero(slots >= 0)
            if not self.sizes.sampling_only
            else np.empty(0, dtype=np.int64)
        )
        #: int64, nodes in memory, hottest first.
        self.ranked: Ids = order[np.argsort(slots[order], kind="stable")]

    def search(self) -> ShapeCost:
        """Find the shape of the disk caches; segments of one mini-batch where there are
        none."""
        options = self.options
        sizes = self.sizes
        chunks = len(self._cold)
        if self._unpacked:
            return ShapeCost(Shape(1, 2), 0)
        max_segment = max(
            1, sizes.packing_bytes // segment_bytes(1, sizes.bounds.max_nodes)
        )
        fixed = (
            self._sampled_bytes
            + self._cached_bytes
            + chunks * (_PER_CHUNK + 2 * 4096)
            + _PER_EPISODE
            + 4096
        )
        search = Search(
            self._cold,
            Space(sizes.row, fixed, sizes.limit),
            self._where,
            simulate=self.episodes.simulate,
            hashes=options.hashes,
            seed=sizes.workload.seed,
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

    def _segments(
        self, prediction: ShapeCost
    ) -> Iterator[tuple[Ids, Iterator[Placement]]]:
        if self._unpacked:
            return iter([(np.empty(0, dtype=np.int64), unpacked(self._cold))])
        shape = prediction.shape
        seed = self.sizes.workload.seed
        return segments(
            self._cold, shape, self._where, hashes=self.options.hashes, seed=seed
        )

    def write(
        self, writer: PackedWriter, samples: BatchReader, prediction: ShapeCost
    ) -> Simulated:
        """Append every chunk and the disk caches to the packer, and return the
        predicted reads."""
        orders: list[Ids] = []
        disk = self._cached_bytes
        read = useful = 0
        singles: dict[int, ReadStats] = {}
        for order, placements in self._segments(prediction):
            orders.append(order)
            for placement in placements:
                self.sizes.runtime.progress(
                    "laying out chunks", placement.batch / len(self._cold)
                )
                batch = samples.read(placement.batch)
                arrays = graph_arrays(batch)
                if not self.sizes.sampling_only:
                    arrays |= address_arrays(
                        batch.nodes, placement, self._slots, self._levels
                    )
                writer.append(placement.packed, arrays)
                disk += padded(len(placement.packed) * self.sizes.row) + arrays_bytes(
                    arrays
                )
                single = (
                    self.episodes.simulate(placement.rows)
                    if len(placement.rows)
                    else ReadStats()
                )
                singles.setdefault(batch.epoch, ReadStats()).add(single)
                part = feature_reads(placement, self.sizes.row, single)
                read = read + part[0]
                useful = useful + part[1]
        shared = np.concatenate(orders)
        if len(shared):
            writer.add_rows(DISK, shared)
            disk += padded(len(shared) * self.sizes.row)
        return {
            "predicted": ShapeCost(prediction.shape, disk, read, useful).as_dict(),
            "search_s": self.search_seconds,
            "shared_rows": len(shared),
            "single_reads": {
                str(epoch): asdict(stats) for epoch, stats in singles.items()
            },
        }
