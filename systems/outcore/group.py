"""Preparation of a group of mini-batches: sample them, plan slots for their rows,
distribute the rows that miss.

A group is as many successive mini-batches of an epoch as memory allows, at most the
whole epoch. The rows in the slots at its end are known, so the next group, of the next
epoch too, is planned from them.

A group is sampled right after the group before has its chunks: passes over the graph
then have the device to themselves, and training reads while slots are planned, which
needs no device.

Nothing trains yet while the first group is prepared. So its rows go straight to slots
that no mini-batch has used, as pinned rows do; only the others are written to chunks.
The second group is distributed in the same pass over the table.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.memory import aligned_empty, give_back_free_memory
from systems.engine.io.reader import ReadStats
from systems.engine.io.row_reads import RowTable
from systems.engine.io.tally import Tally
from systems.engine.passes import preparer
from systems.engine.passes.distribute import ChunkWriter, KeptRows
from systems.engine.passes.group import NO_USES, Uses
from systems.engine.passes.group import Group as SampledGroup
from systems.engine.passes.loader import GroupLoader, Slots
from systems.engine.passes.sampling import Ids, Job
from systems.engine.passes.sizes import BOUNCE
from systems.engine.store.batch_store import BatchReader
from systems.interface import StageClock
from systems.outcore.cost import GroupSeconds, gap_bytes, predict
from systems.outcore.pins import NO_PINS, Nodes, choose, slot_planner
from systems.outcore.planner import NAME, OutcoreSizes
from workloads.errors import BudgetError
from workloads.sampling.neighbor import NeighborSampler

_NO_IDS = np.empty(0, dtype=np.int64)


@dataclass
class Group(SampledGroup):
    """A group of `outcore`.

    Attributes:
        reads: reads for sampling it; once it is prepared, those during its preparation,
            for this group or the next.
        read_back: reads of its sampled mini-batches, to plan its rows after another
            group was sampled.
        hits: uses whose row is in memory.
        direct, direct_on_device: first uses of rows that went straight to their slots
            before the group trained, and those of them in device memory.
        misses: the other uses.
        carried: hits on rows that an earlier group left in their slots.
        prediction: predicted seconds of each strategy; None where the device profile
            lacks rates.
        gap_bytes: longest run of unwanted bytes of the table that is read to save a
            request.
    """

    hits: int = 0
    read_back: ReadStats = field(default_factory=ReadStats)
    direct: int = 0
    direct_on_device: int = 0
    misses: int = 0
    carried: int = 0
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
            "direct_rows": self.direct,
            "distributed_groups": self.strategy == "distribute",
            "single_read_groups": self.strategy == "single",
        }

    def count(self, tally: Tally) -> None:
        """Count the reads and writes of its preparation, those of its sampled
        mini-batches included."""
        super().count(tally)
        tally.add(self.read_back)


class Preparer(preparer.Preparer[Group]):
    """Preparer of successive groups; each is planned from the rows that the group
    before leaves in the slots.

    Args:
        graph: sampler whose graph is in memory; None: as `sizes.external` says.
        pinned: uint32 [p], rows that keep the first slots.
        slots: slots that the first group's rows are read into; None: all rows go to
            chunks.

    Raises:
        DataIOError: a file of the dataset cannot be opened.
    """

    sizes: OutcoreSizes

    def __init__(
        self,
        sizes: OutcoreSizes,
        clock: StageClock,
        graph: NeighborSampler | None = None,
        pinned: Nodes = NO_PINS,
        slots: Slots | None = None,
    ) -> None:
        options = sizes.options
        self._graph = graph
        super().__init__(
            sizes, clock, Group, options.gap_bytes or gap_bytes(sizes.runtime.disk)
        )
        #: Slots that no mini-batch uses yet; None from the first training on.
        self._unused = None if options.packing == "off" else slots
        self._slots: _native.SlotPlanner | None = None
        self._pinned = pinned
        if sizes.slots:
            self._slots = self._planner()
        self._chooses_pins = options.replay and options.belady
        #: Groups that are sampled in the same passes: as many as there are hops.
        self._together = (
            len(sizes.workload.sampler.fanout) if options.shared_passes else 1
        )
        self._waiting: Group | None = None

    def _planner(self) -> _native.SlotPlanner:
        sizes = self.sizes
        return slot_planner(
            sizes.slots,
            sizes.window,
            self._pinned,
            belady=sizes.options.belady,
            threads=sizes.threads,
        )

    def _make_online(self) -> NeighborSampler:
        return self._graph if self._graph is not None else super()._make_online()

    def prepare(self, jobs: Sequence[Job], ahead: bool) -> Group:
        """Prepare a group; for one thread at a time, in the order of the groups.

        Args:
            jobs: the group and the groups after it, as many as there are hops, which
                share passes over the graph.
            ahead: whether the next group is sampled at the end.

        Raises:
            DataIOError: a disk is full or fails; `close` removes what was written.
            InterruptedError: `stop` was called.
        """
        start = time.monotonic()
        group = self._waiting
        sampled = list[Group]()
        self._waiting = None
        if group is None or group.job != jobs[0]:
            group = self.sample(jobs[: self._together])
            sampled.append(group)
        if ahead and self._unused is not None and self._slots is not None:
            # The first two groups are distributed together, so both are sampled first.
            group.used = NO_USES
            self._waiting = self._sample_next(jobs, sampled)
            self._waiting.used = NO_USES
            self._pack([group, self._waiting])
        elif self._slots is not None and group.chunks is None:
            self._pack([group])
        if ahead and self._waiting is None:
            self._waiting = self._sample_next(jobs, sampled)
        reads = ReadStats()
        for one in sampled:
            reads.add(one.reads)
            group.graph_written += one.index.nbytes
        group.reads = reads
        group.prepared_s = time.monotonic() - start
        return group

    def _sample_next(self, jobs: Sequence[Job], sampled: list[Group]) -> Group:
        group = self.sample(jobs[1 : self._together + 1])
        sampled.append(group)
        return group

    def _pack(self, groups: Sequence[Group]) -> None:
        """Plan the slots of these groups' rows, write their address lists, and
        distribute the rows that miss in one pass; of the first group alone where memory
        does not hold the ids of both."""
        rows = self._path("rows")
        unused = self._unused
        self._unused = None
        writer = ChunkWriter(
            rows,
            RowTable.of(self.sizes.workload.dataset),
            memory_bytes=self.sizes.packing_bytes - (BOUNCE if unused else 0),
            stop=self._stop,
        )
        kept = _Kept(unused, self.sizes.row, groups[0].job.first)
        try:
            packed = list[Group]()
            for group in groups:
                if packed and not self._has_room_beside(packed[0]):
                    break
                self._place(group, direct=unused is not None)
                self._lists(group, writer, kept)
                packed.append(group)
            give_back_free_memory()
            with self.clock.stage("pack", groups[0].job.first):
                gap = groups[0].gap_bytes
                chunks, pack = writer.distribute(kept.rows(), gap_bytes=gap)
                kept.wait()
        finally:
            writer.close()
        first = 0
        for group in packed:
            count = group.job.count + (group.pinned > 0)
            group.chunks = chunks.part(first, count)
            first += count
        packed[0].pack = pack
        # The file is free for later groups once its last group has trained.
        packed[-1].rows = rows

    def _has_room_beside(self, group: Group) -> bool:
        """Return whether the ids of a second group's misses fit beside the first
        one's: at most as many rows as the first group read."""
        ids = 2 * group.misses + (group.misses + group.direct)
        return 4 * ids <= self.sizes.miss_bytes(group.job.count)

    def _place(self, group: Group, *, direct: bool) -> None:
        """Plan the slots of a group's rows, and choose how the rows that miss are
        read.

        Args:
            direct: whether rows for unused slots are read before the group trains.
        """
        sizes = self.sizes
        options = self.sizes.options
        disk = self.sizes.runtime.disk
        with self.clock.stage("inspect", group.job.first):
            uses = self._uses_of(group)
            try:
                if self._chooses_pins:
                    self._chooses_pins = False
                    self._slots = None
                    self._pinned = choose(uses, sizes.slots, sizes.window)
                    self._slots = self._planner()
                planner = self._slots
                assert planner is not None
                planner.plan(uses.nodes, uses.offsets, uses.seeds, direct)
            except ValueError as error:
                raise BudgetError(
                    f"{NAME}: {error}", "raise memory or lower window"
                ) from None
            beforehand = planner.direct_uses(sizes.slots)
            group.misses = group.uses - planner.hits - beforehand
            if direct:
                group.direct = beforehand
                group.direct_on_device = planner.direct_uses(sizes.device_slots)
            group.hits = group.uses - group.misses - group.direct
            group.carried = planner.carried
            found = group.prediction = predict(
                disk,
                uses=group.uses,
                misses=group.misses,
                row_bytes=sizes.row,
                table_bytes=sizes.workload.dataset.feature_bytes,
                block_bytes=max(
                    sizes.block_bytes, 4096 if options.io_granularity == "4096" else 0
                ),
                sampled=planner.sampled_misses,
                beside=group.reads.requests_by_size,
            )
        group.gap_bytes = gap_bytes(disk)
        if found is not None and not direct:
            group.gap_bytes = found.table_pass.gap_bytes
        # A replay always distributes, since every epoch reads the chunks again; rows
        # that go straight to their slots are read in a pass, which serves the others.
        cheaper = (
            found is not None
            and not direct
            and not options.replay
            and found.single < found.distribute
        )
        if options.packing == "off" or (options.packing == "auto" and cheaper):
            group.strategy = "single"

    def _uses_of(self, group: Group) -> Uses:
        """Return the group's uses, read from the file of its mini-batches if another
        group was sampled since."""
        if group.used is not NO_USES:
            return group.used
        seeds = self._seeds_of(group.job)
        offsets = np.zeros(group.job.count + 1, dtype=np.int64)
        nodes = np.empty(group.uses, dtype=np.uint32)
        with closing(BatchReader(group.samples, group.index)) as reader:
            for i in range(group.job.count):
                found = reader.nodes(i)
                offsets[i + 1] = offsets[i] + len(found)
                nodes[offsets[i] : offsets[i + 1]] = found
                group.read_back.count(reader.index.head_bytes(i))
        counts = np.array([len(part) for part in seeds], dtype=np.int64)
        group.used = Uses(nodes, offsets, counts)
        return group.used

    def _lists(self, group: Group, writer: ChunkWriter, kept: _Kept) -> None:
        """Append the address lists of all mini-batches and the ids of each chunk's
        rows; keep the rows that go straight to their slots."""
        planner = self._slots
        assert planner is not None
        packed = group.strategy == "distribute"

        def append(
            ids: Ids, to: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]
        ) -> None:
            arrays = {"slots": slots, "to": to}
            writer.append(
                ids if packed else _NO_IDS, arrays if packed else {**arrays, "ids": ids}
            )

        with self.clock.stage("inspect", group.job.first):
            direct, places = planner.direct()
            if kept.slots is None and len(direct):
                group.pinned = len(direct)
                writer.expect(len(direct) if packed else 0)
                append(direct.astype(np.int64), places, np.empty(0, dtype=np.int32))
            if packed:
                writer.expect(group.misses)
                writer.append_planned(planner, group.job.count)
            else:
                for i in range(group.job.count):
                    append(*planner.misses(i), planner.slots(i))
                    if self._stopped:
                        raise InterruptedError("preparing was stopped")
            planner.clear()
            group.used = NO_USES
            if kept.slots is not None:
                kept.add(direct, places)

    def load(self, group: Group, loader: GroupLoader, tally: Tally) -> None:
        """Count the first uses of the rows that went straight to their slots."""
        tally.add(direct=group.direct, direct_on_device=group.direct_on_device)

    def rest(self) -> None:
        """Free memory and close files after the last group, but keep the prepared
        groups."""
        if self._sampler is not None:
            self._sampler.close()
        self._sampler = self._slots = None
        give_back_free_memory()

    def close(self) -> None:
        """Close the files and remove the prepared groups."""
        self._waiting = None
        super().close()


class _Kept:
    """Rows that a pass reads straight into their slots.

    Args:
        slots: the slots; None: no row goes there.
        row_bytes: bytes of a row.
        batch: mini-batch for which the copies count.
    """

    def __init__(self, slots: Slots | None, row_bytes: int, batch: int) -> None:
        self.slots = slots
        self._row_bytes = row_bytes
        self._batch = batch
        self._ids = NO_PINS
        self._to = np.empty(0, dtype=np.int32)

    def add(self, ids: Nodes, to: npt.NDArray[np.int32]) -> None:
        """Add rows `ids`, ascending, for the slots `to`."""
        if not len(self._ids):
            self._ids = ids
            self._to = to
        elif len(ids):
            at = np.searchsorted(self._ids, ids)
            self._ids = np.insert(self._ids, at, ids)
            self._to = np.insert(self._to, at, to)

    def rows(self) -> KeptRows | None:
        """Return the rows as a pass takes them; None without rows."""
        slots = self.slots
        if slots is None or not len(self._ids):
            return None
        room_rows = max(1, BOUNCE // self._row_bytes)
        room = aligned_empty(room_rows * self._row_bytes).reshape(room_rows, -1)

        def give(rows: npt.NDArray[np.uint8], first: int) -> None:
            slots.put(rows, self._to[first : first + len(rows)], self._batch)

        return KeptRows(self._ids, room, give)

    def wait(self) -> None:
        """Wait until all rows are in their slots."""
        if self.slots is not None:
            self.slots.wait_for_copies(self._batch)
