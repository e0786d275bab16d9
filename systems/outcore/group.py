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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

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
from systems.outcore.sampling import Ahead, ExternalSampler
from workloads.errors import BudgetError
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_seed_plan

Ids = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.uint32]
Strategy = Literal["distribute", "single"]
_FIX = "make room on the disk of the results folder, or lower group"


@dataclass(frozen=True)
class Job:
    """Mini-batches `first` to `first + count - 1` of an epoch."""

    epoch: int
    first: int
    count: int


@dataclass
class Group:
    """A prepared group.

    Attributes:
        samples: file of its mini-batches.
        index: index of `samples`.
        rows: file of its chunks; None where no rows are extracted.
        chunks: index of `rows`.
        strategy: whether misses are distributed to chunks or read one by one.
        uses: rows that its mini-batches use; `hits` are in memory, `misses` are not.
        carried: hits on rows that an earlier group left in their slots.
        pinned: rows that stay in their slots; they form a chunk before those of the mini-batches.
        reads: reads for sampling during its preparation, for this group or the next.
        graph_written: bytes of graphs written during its preparation.
        pack: counts of distributing.
        prediction: predicted seconds of each strategy; None where the device profile lacks rates.
        gap_bytes: longest run of unwanted bytes of the table that is read to save a request.
        seconds: seconds of `prepare` and of `train`.
    """

    job: Job
    samples: Path
    index: RegionIndex
    rows: Path | None = None
    chunks: ChunkIndex | None = None
    strategy: Strategy = "distribute"
    uses: int = 0
    hits: int = 0
    misses: int = 0
    carried: int = 0
    pinned: int = 0
    reads: ReadStats = field(default_factory=ReadStats)
    graph_written: int = 0
    pack: PassStats = field(default_factory=PassStats)
    prediction: GroupSeconds | None = None
    gap_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

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


@dataclass
class _Sampled:
    """A sampled group: its file, the rows that its mini-batches use, the reads for it and the seconds of writing it."""

    job: Job
    path: Path
    index: RegionIndex
    uses: Uses
    count: int
    reads: ReadStats
    written_s: float


@dataclass(eq=False)
class Preparer:
    """Preparer of successive groups; each is planned from the rows that the group before leaves in the slots.

    Raises:
        DataIOError: a file of the dataset cannot be opened.
    """

    sizes: OutcoreSizes
    clock: StageClock
    block_bytes: int

    def __post_init__(self) -> None:
        sizes, options = self.sizes, self.sizes.options
        self._seeds = make_seed_plan(self.sizes.workload)
        self._slots: _native.SlotPlanner | None = None
        if sizes.slots:
            self._slots = _native.SlotPlanner(sizes.slots, sizes.window, options.belady, sizes.threads)
        self._pins: Pins | None = None
        self._sampler: ExternalSampler | None = None
        if sizes.external:
            self._sampler = ExternalSampler(
                self.sizes.workload,
                gap_bytes=options.gap_bytes or gap_bytes(self.sizes.runtime.disk),
                piece_bytes=sizes.graph_piece_bytes,
                pieces=sizes.graph_pieces,
                group_nodes=sizes.graph_nodes,
                threads=sizes.threads,
            )
        else:
            self._online = mapped_sampler(self.sizes.workload)
        self._pipe: Pipeline | None = None
        self._folder: Path | None = None
        self._made: dict[str, int] = {}
        self._free: dict[str, list[Path]] = {"samples": [], "rows": []}
        self._waiting: _Sampled | None = None
        self._stop = _native.StopFlag()
        self._stopped = False

    def prepare(
        self, job: Job, then: Sequence[Job] = (), upcoming: Job | None = None, then_upcoming: Sequence[Job] = ()
    ) -> Group:
        """Prepare a group; for one thread at a time, in the order of the groups.

        Args:
            job: mini-batches of the group.
            then: jobs that follow `job`, sampled ahead in the same passes over the graph.
            upcoming: job of the next call, sampled at the end of this one.
            then_upcoming: jobs that follow `upcoming`.

        Raises:
            DataIOError: a disk is full or fails; `close` removes what was written.
            InterruptedError: `stop` was called.
        """
        start, before = time.monotonic(), self._reads()
        sampled, self._waiting = self._waiting, None
        written = 0
        if sampled is None or sampled.job != job:
            sampled = self._sample(job, then)
            written += sampled.index.nbytes
        group = self._make(sampled)
        del sampled
        if upcoming is not None:
            self._waiting = self._sample(upcoming, then_upcoming)
            written += self._waiting.index.nbytes
        group.reads, group.graph_written = difference(self._reads(), before), written
        group.seconds["prepare"] = time.monotonic() - start
        return group

    def _reads(self) -> ReadStats:
        return self._sampler.reads() if self._sampler is not None else ReadStats()

    def _path(self, kind: str) -> Path:
        """Return a file that no group needs any more, or a new one."""
        if self._folder is None:
            self._folder = self.sizes.runtime.scratch / f"{NAME}-{self.sizes.runtime.rank}"
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
        if self._free[kind]:
            return self._free[kind].pop()
        self._made[kind] = number = self._made.get(kind, -1) + 1
        return self._folder / f"{kind}-{number}"

    def release(self, group: Group) -> None:
        """Free a group's files, so that a later group overwrites them."""
        self._free["samples"].append(group.samples)
        if group.rows is not None:
            self._free["rows"].append(group.rows)

    def _sample(self, job: Job, then: Sequence[Job]) -> _Sampled:
        nodes = np.empty(self.sizes.group_uses, dtype=np.uint32) if self.sizes.slots > 0 else None
        seeds, before, path = self._seeds_of(job), self._reads(), self._path("samples")
        graphs, written_s = BatchWriter(path, fix=_FIX, reuse=True), 0.0
        try:
            if self._sampler is None:
                offsets, nodes = self._write_online(job, seeds, graphs, nodes)
            else:
                with self.clock.stage("sample", job.first):
                    ahead = [Ahead(one.epoch, one.first, one.count, partial(self._seeds_of, one)) for one in then]
                    self._sampler.sample(job.epoch, job.first, seeds, ahead)
                    start = time.monotonic()
                    offsets, nodes = self._sampler.write(graphs, self.sizes.room_bytes, nodes)
                    written_s = time.monotonic() - start
            index = graphs.close(sync=False)
        except BaseException:
            graphs.abandon()
            raise
        del graphs
        give_back_free_memory()
        count = int(offsets[-1])
        used = np.empty(0, dtype=np.uint32) if nodes is None else nodes[:count]
        counts = np.array([len(part) for part in seeds], dtype=np.int64)
        reads = difference(self._reads(), before)
        return _Sampled(job, path, index, Uses(used, offsets, counts), count, reads, written_s)

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

    def _make(self, sampled: _Sampled) -> Group:
        group = Group(sampled.job, sampled.path, sampled.index, uses=sampled.count)
        if self._slots is not None:
            uses = self._pin(group, sampled.uses)
            self._place(group, self._slots, uses, sampled)
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
                self._lists(group, self._slots, writer, sampled.uses)  # the last use of the nodes
                sampled.uses = Uses(np.empty(0, dtype=np.uint32), uses.offsets, uses.seeds)
                del uses
                give_back_free_memory()
                with self.clock.stage("pack", group.job.first):
                    group.chunks, group.pack = writer.distribute()
            finally:
                writer.close()
        return group

    def _seeds_of(self, job: Job) -> list[Ids]:
        return self._seeds.batches(job.epoch)[job.first : job.first + job.count]

    def _pin(self, group: Group, uses: Uses) -> Uses:
        """Choose the pinned rows once where a run replays an epoch, and return the uses of all other rows."""
        options, sizes = self.sizes.options, self.sizes
        if not (options.replay and options.belady):
            return uses
        with self.clock.stage("inspect", group.job.first):
            if self._pins is None:
                self._slots = None
                with _window_fits():
                    self._pins = choose(uses, sizes.slots, sizes.window)
                group.pinned = len(self._pins)
                self._slots = _native.SlotPlanner(sizes.slots - len(self._pins), sizes.window, True, sizes.threads)
            return self._pins.without(uses)

    def _place(self, group: Group, planner: _native.SlotPlanner, uses: Uses, sampled: _Sampled) -> None:
        start = time.monotonic()
        with self.clock.stage("inspect", group.job.first), _window_fits():
            planner.plan(uses.nodes, uses.offsets, uses.seeds)
        planned_s = time.monotonic() - start
        group.misses = len(uses.nodes) - planner.hits
        group.hits, group.carried = group.uses - group.misses, planner.carried
        dataset, disk = self.sizes.workload.dataset, self.sizes.runtime.disk
        group.gap_bytes = gap_bytes(disk)
        with self.clock.stage("inspect", group.job.first):
            group.prediction = predict(
                disk,
                uses=group.uses,
                misses=group.misses,
                row_bytes=self.sizes.row,
                table_bytes=dataset.feature_bytes,
                block_bytes=max(self.block_bytes, 4096 if self.sizes.options.io_granularity == "4096" else 0),
                sampled=planner.sampled_misses,
                beside=sampled.reads.requests_by_size,
                planned_s=planned_s,
                written_s=sampled.written_s,
            )
        if group.prediction is not None:
            group.gap_bytes = group.prediction.table_pass.gap_bytes
        if self.sizes.options.packing == "off":
            group.strategy = "single"
        elif self.sizes.options.packing == "auto" and group.prediction is not None and not self.sizes.options.replay:
            # A replay always distributes, since every epoch reads the chunks again.
            cheaper = group.prediction.single < group.prediction.distribute
            group.strategy = "single" if cheaper else "distribute"

    def _lists(self, group: Group, planner: _native.SlotPlanner, writer: ChunkWriter, uses: Uses) -> None:
        """Append the address lists of all mini-batches and the ids of each chunk's rows."""
        packed = group.strategy == "distribute"
        none = np.empty(0, dtype=np.int64)
        pins = self._pins

        def append(ids: Ids, to: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]) -> None:
            arrays: Mapping[str, npt.NDArray[Any]] = {"slots": slots, "to": to}
            writer.append(ids if packed else none, arrays if packed else {**arrays, "ids": ids})

        with self.clock.stage("inspect", group.job.first):
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
                    slots, to = pins.slots_of(uses.batch(i), slots), to + np.int32(len(pins))
                append(ids, to, slots)
                if self._stopped:
                    raise InterruptedError("preparing was stopped")
            planner.clear()

    def rest(self) -> None:
        """Free memory and close files after the last group, but keep the prepared groups."""
        if self._sampler is not None:
            self._sampler.close()
        self._sampler = self._slots = None
        self._pins = None
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


@contextmanager
def _window_fits() -> Iterator[None]:
    """Convert the slot planner's errors to BudgetError."""
    try:
        yield
    except ValueError as error:
        raise BudgetError(f"{NAME}: {error}", "raise memory or lower window") from None


def difference(after: ReadStats, before: ReadStats) -> ReadStats:
    """Return the reads between two counts."""
    names = ("requests", "bytes_read", "bytes_useful", "rows", "unique_rows", "seconds")
    sizes = Counter(after.requests_by_size) - Counter(before.requests_by_size)
    return ReadStats(
        requests_by_size=dict(sizes), **{name: getattr(after, name) - getattr(before, name) for name in names}
    )
