"""Preparation of a group of mini-batches: sample them, plan slots for their rows, distribute the rows that miss.

A group is as many successive mini-batches of an epoch as memory allows, at most the whole epoch. The rows in the slots
at its end are known, so the next group, of the next epoch too, is planned from them.

A group is sampled right after the group before has its chunks: passes over the graph then have the device to
themselves, and training reads while slots are planned, which needs no device.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import ReadStats
from systems.engine.io.regions import RegionIndex
from systems.engine.io.row_reads import RowTable
from systems.engine.io.topology import mapped_sampler
from systems.engine.loading.pipeline import Channel, Pipeline
from systems.engine.store.batch_store import BatchWriter
from systems.interface import StageClock
from systems.outcore.cost import GroupSeconds, gap_bytes, predict
from systems.outcore.distribute import ChunkIndex, ChunkWriter, PassStats
from systems.outcore.pins import Pins, Uses, choose
from systems.outcore.planner import NAME, OutcoreSizes
from systems.outcore.sampling import ExternalSampler, Ids, Job, Nodes
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_seed_plan

_FIX = "make room on the disk of the results folder, or lower group"
_NO_IDS = np.empty(0, dtype=np.int64)
_NO_USES = Uses(np.empty(0, dtype=np.uint32), _NO_IDS, _NO_IDS)


@dataclass
class Group:
    """A sampled group of mini-batches, then prepared for training.

    Attributes:
        samples, index: file of its mini-batches, and the index of that file.
        used: rows that its mini-batches use; none once their slots are planned.
        uses: number of these uses; `hits` are in memory, `misses` are not.
        written_s: seconds of writing `samples`.
        rows, chunks: file of its chunks, and the index of that file; None where no rows are extracted.
        strategy: whether misses are distributed to chunks or read one by one.
        carried: hits on rows that an earlier group left in their slots.
        pinned: rows that stay in their slots; they form a chunk before those of the mini-batches.
        reads: reads for sampling it; once it is prepared, those during its preparation, for this group or the next.
        graph_written: bytes of graphs written during its preparation.
        pack: counts of distributing.
        prediction: predicted seconds of each strategy; None where the device profile lacks rates.
        gap_bytes: longest run of unwanted bytes of the table that is read to save a request.
    """

    job: Job
    samples: Path
    index: RegionIndex
    used: Uses
    uses: int
    reads: ReadStats
    written_s: float
    rows: Path | None = None
    chunks: ChunkIndex | None = None
    strategy: Literal["distribute", "single"] = "distribute"
    hits: int = 0
    misses: int = 0
    carried: int = 0
    pinned: int = 0
    graph_written: int = 0
    pack: PassStats = field(default_factory=PassStats)
    prediction: GroupSeconds | None = None
    gap_bytes: int = 0
    prepared_s: float = 0.0

    def observed(self) -> dict[str, float]:
        """Return the counts of its preparation, as `Counters.observed` has them."""
        return {
            "graph_bytes_read": self.reads.bytes_read,
            "table_bytes_read": self.pack.reads.bytes_read,
            "packed_bytes_written": self.pack.bytes_written,
            "graph_bytes_written": self.graph_written,
            "carried_rows": self.carried,
            "distributed_groups": self.strategy == "distribute",
            "single_read_groups": self.strategy == "single",
        }


@dataclass(eq=False)
class Preparer:
    """Preparer of successive groups; each is planned from the rows that the group before leaves in the slots.

    Raises:
        DataIOError: a file of the dataset cannot be opened.
    """

    sizes: OutcoreSizes
    clock: StageClock

    def __post_init__(self) -> None:
        sizes, options, workload = self.sizes, self.sizes.options, self.sizes.workload
        self._seeds = make_seed_plan(workload)
        self._slots: _native.SlotPlanner | None = None
        if sizes.slots:
            self._slots = _native.SlotPlanner(sizes.slots, sizes.window, options.belady, sizes.threads)
        self._pins: Pins | None = None
        self._sampler: ExternalSampler | None = None
        if sizes.external:
            self._sampler = ExternalSampler(
                workload,
                gap_bytes=options.gap_bytes or gap_bytes(sizes.runtime.disk),
                piece_bytes=sizes.graph_piece_bytes,
                pieces=sizes.graph_pieces,
                group_nodes=sizes.graph_nodes,
                threads=sizes.threads,
            )
        else:
            self._online = mapped_sampler(workload)
        #: Groups that are sampled in the same passes: as many as there are hops.
        self._together = len(workload.sampler.fanout) if options.shared_passes else 1
        self._pipe: Pipeline | None = None
        self._folder: Path | None = None
        self._made = Counter[str]()
        self._free: dict[str, list[Path]] = {"samples": [], "rows": []}
        self._waiting: Group | None = None
        self._stop = _native.StopFlag()
        self._stopped = False

    def prepare(self, jobs: Sequence[Job], ahead: bool) -> Group:
        """Prepare a group; for one thread at a time, in the order of the groups.

        Args:
            jobs: the group and the groups after it, as many as there are hops, which share passes over the graph.
            ahead: whether the next group is sampled at the end.

        Raises:
            DataIOError: a disk is full or fails; `close` removes what was written.
            InterruptedError: `stop` was called.
        """
        start, group, sampled = time.monotonic(), self._waiting, list[Group]()
        self._waiting = None
        if group is None or group.job != jobs[0]:
            group = self._sample(jobs[: self._together])
            sampled.append(group)
        if self._slots is not None:
            self._pack(group, self._place(group))
        if ahead:
            self._waiting = self._sample(jobs[1 : self._together + 1])
            sampled.append(self._waiting)
        reads = ReadStats()
        for one in sampled:
            reads.add(one.reads)
            group.graph_written += one.index.nbytes
        group.reads, group.prepared_s = reads, time.monotonic() - start
        return group

    def _path(self, kind: str) -> Path:
        """Return a file that no group needs any more, or a new one."""
        if self._folder is None:
            self._folder = self.sizes.runtime.scratch / f"{NAME}-{self.sizes.runtime.rank}"
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
        if self._free[kind]:
            return self._free[kind].pop()
        self._made[kind] += 1
        return self._folder / f"{kind}-{self._made[kind]}"

    def release(self, group: Group) -> None:
        """Free a group's files, so that a later group overwrites them."""
        self._free["samples"].append(group.samples)
        if group.rows is not None:
            self._free["rows"].append(group.rows)

    def _reads(self) -> ReadStats:
        return self._sampler.reads() if self._sampler is not None else ReadStats()

    def _sample(self, jobs: Sequence[Job]) -> Group:
        """Sample and write the first of these groups; later ones share its passes over the graph."""
        job, before, path = jobs[0], self._reads(), self._path("samples")
        seeds = self._seeds_of(job)
        nodes = np.empty(self.sizes.group_uses, dtype=np.uint32) if self.sizes.slots else None
        graphs, written_s = BatchWriter(path, fix=_FIX, reuse=True), 0.0
        try:
            if self._sampler is None:
                offsets, nodes = self._write_online(job, seeds, graphs, nodes)
            else:
                with self.clock.stage("sample", job.first):
                    self._sampler.sample(jobs, lambda one: seeds if one is job else self._seeds_of(one))
                    start = time.monotonic()
                    offsets, nodes = self._sampler.write(graphs, self.sizes.room_bytes, nodes)
                    written_s = time.monotonic() - start
            index = graphs.close(sync=False)
        except BaseException:
            graphs.abandon()
            raise
        del graphs
        give_back_free_memory()
        count, counts = int(offsets[-1]), np.array([len(part) for part in seeds], dtype=np.int64)
        used = _NO_USES if nodes is None else Uses(nodes[:count], offsets, counts)
        return Group(job, path, index, used, count, _difference(self._reads(), before), written_s)

    def _write_online(
        self, job: Job, seeds: list[Ids], graphs: BatchWriter, nodes: Nodes | None
    ) -> tuple[Ids, Nodes | None]:
        """Write mini-batches that are sampled one by one; returns as `ExternalSampler.write`."""
        offsets, threads = np.zeros(job.count + 1, dtype=np.int64), self.sizes.threads

        def sample(number: int, part: Ids) -> SampledBatch:
            with self.clock.stage("sample", job.first + number):
                return self._online.sample(job.epoch, job.first + number, part)

        with Pipeline(f"{NAME}-sampling") as pipe:
            self._pipe = pipe
            done: Channel[SampledBatch] = pipe.channel(threads, ordered=True)
            pipe.stage("sample", threads, sample, seeds, done)
            for i, batch in enumerate(pipe.results(done)):
                offsets[i + 1] = offsets[i] + batch.num_nodes
                if nodes is not None:
                    if offsets[i + 1] > len(nodes):  # an epoch larger than all that the bounds come from
                        nodes = np.concatenate([nodes, np.empty(batch.num_nodes, dtype=np.uint32)])
                    nodes[offsets[i] : offsets[i + 1]] = batch.nodes
                graphs.append(batch)
        return offsets, nodes

    def _seeds_of(self, job: Job) -> list[Ids]:
        return self._seeds.batches(job.epoch)[job.first : job.first + job.count]

    def _place(self, group: Group) -> _native.SlotPlanner:
        """Plan the slots of a group's rows, and choose how the rows that miss are read; return the plan."""
        sizes, options, disk, uses = self.sizes, self.sizes.options, self.sizes.runtime.disk, group.used
        with self.clock.stage("inspect", group.job.first):
            try:
                if options.replay and options.belady:
                    if self._pins is None:
                        self._slots = None
                        self._pins = choose(uses, sizes.slots, sizes.window)
                        group.pinned = len(self._pins)
                        self._slots = _native.SlotPlanner(
                            sizes.slots - len(self._pins), sizes.window, True, sizes.threads
                        )
                    uses = self._pins.without(uses)
                planner, start = self._slots, time.monotonic()
                assert planner is not None
                planner.plan(uses.nodes, uses.offsets, uses.seeds)
                planned_s = time.monotonic() - start
            except ValueError as error:
                raise BudgetError(f"{NAME}: {error}", "raise memory or lower window") from None
            group.misses = len(uses.nodes) - planner.hits
            group.hits, group.carried = group.uses - group.misses, planner.carried
            found = group.prediction = predict(
                disk,
                uses=group.uses,
                misses=group.misses,
                row_bytes=sizes.row,
                table_bytes=sizes.workload.dataset.feature_bytes,
                block_bytes=max(sizes.block_bytes, 4096 if options.io_granularity == "4096" else 0),
                sampled=planner.sampled_misses,
                beside=group.reads.requests_by_size,
                planned_s=planned_s,
                written_s=group.written_s,
            )
        group.gap_bytes = gap_bytes(disk) if found is None else found.table_pass.gap_bytes
        # A replay always distributes, since every epoch reads the chunks again.
        cheaper = found is not None and not options.replay and found.single < found.distribute
        if options.packing == "off" or (options.packing == "auto" and cheaper):
            group.strategy = "single"
        return planner

    def _pack(self, group: Group, planner: _native.SlotPlanner) -> None:
        """Write the address lists, and the rows that miss where they are distributed."""
        group.rows = self._path("rows")
        writer = ChunkWriter(
            group.rows,
            RowTable.of(self.sizes.workload.dataset),
            misses=group.misses + group.pinned if group.strategy == "distribute" else 0,
            memory_bytes=self.sizes.packing_bytes,
            gap_bytes=group.gap_bytes,
            stop=self._stop,
        )
        try:
            with self.clock.stage("inspect", group.job.first):
                self._lists(group, planner, writer)
            group.used = _NO_USES
            give_back_free_memory()
            with self.clock.stage("pack", group.job.first):
                group.chunks, group.pack = writer.distribute()
        finally:
            writer.close()

    def _lists(self, group: Group, planner: _native.SlotPlanner, writer: ChunkWriter) -> None:
        """Append the address lists of all mini-batches and the ids of each chunk's rows."""
        packed, pins = group.strategy == "distribute", self._pins

        def append(ids: Ids, to: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]) -> None:
            arrays = {"slots": slots, "to": to}
            writer.append(ids if packed else _NO_IDS, arrays if packed else {**arrays, "ids": ids})

        if packed and pins is None:
            writer.append_planned(planner, group.job.count)
            planner.clear()
            return
        if pins is not None and group.pinned:
            append(pins.ids.astype(np.int64), pins.slots, np.empty(0, dtype=np.int32))
        for i in range(group.job.count):
            ids, to = planner.misses(i)
            slots = planner.slots(i)
            if pins is not None:
                slots, to = pins.slots_of(group.used.batch(i), slots), to + np.int32(len(pins))
            append(ids, to, slots)
            if self._stopped:
                raise InterruptedError("preparing was stopped")
        planner.clear()

    def rest(self) -> None:
        """Free memory and close files after the last group, but keep the prepared groups."""
        if self._sampler is not None:
            self._sampler.close()
        self._sampler = self._slots = self._pins = None
        give_back_free_memory()

    def stop(self) -> None:
        """End a `prepare` of another thread with InterruptedError."""
        self._stopped = True
        self._stop.set()
        if self._sampler is not None:
            self._sampler.stop()
        if self._pipe is not None:
            self._pipe.stop()

    def close(self) -> None:
        """Close the files and remove the prepared groups."""
        if self._sampler is not None:
            self._sampler.close()
        self._waiting = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _difference(after: ReadStats, before: ReadStats) -> ReadStats:
    names = ("requests", "bytes_read", "bytes_useful", "rows", "unique_rows", "seconds")
    sizes = Counter(after.requests_by_size) - Counter(before.requests_by_size)
    return ReadStats(
        requests_by_size=dict(sizes), **{name: getattr(after, name) - getattr(before, name) for name in names}
    )
