"""Preparation of a group of mini-batches: sample them, plan slots for their rows,
distribute the rows that miss.

A group is as many successive mini-batches of an epoch as memory allows, at most the
whole epoch. The rows in the slots at its end are known, so the next group, of the next
epoch too, is planned from them.

A group is sampled right after the group before has its chunks: passes over the graph
then have the device to themselves, and training reads while slots are planned, which
needs no device.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from systems import _native
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import ReadStats
from systems.engine.io.row_reads import RowTable
from systems.engine.passes import preparer
from systems.engine.passes.distribute import ChunkWriter
from systems.engine.passes.preparer import NO_USES
from systems.engine.passes.sampling import Ids, Job
from systems.interface import StageClock
from systems.outcore.cost import GroupSeconds, gap_bytes, predict
from systems.outcore.pins import Pins, choose
from systems.outcore.planner import NAME, OutcoreSizes
from workloads.errors import BudgetError
from workloads.sampling.neighbor import NeighborSampler

_NO_IDS = np.empty(0, dtype=np.int64)


@dataclass
class Group(preparer.Group):
    """A group of `outcore`.

    Attributes:
        reads: reads for sampling it; once it is prepared, those during its preparation,
            for this group or the next.
        hits, misses: uses whose row is in memory, and the others.
        carried: hits on rows that an earlier group left in their slots.
        prediction: predicted seconds of each strategy; None where the device profile
            lacks rates.
        gap_bytes: longest run of unwanted bytes of the table that is read to save a
            request.
    """

    hits: int = 0
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
            "distributed_groups": self.strategy == "distribute",
            "single_read_groups": self.strategy == "single",
        }


class Preparer(preparer.Preparer[Group]):
    """Preparer of successive groups; each is planned from the rows that the group
    before leaves in the slots.

    Args:
        graph: sampler whose graph is in memory; None: as `sizes.external` says.

    Raises:
        DataIOError: a file of the dataset cannot be opened.
    """

    sizes: OutcoreSizes

    def __init__(
        self,
        sizes: OutcoreSizes,
        clock: StageClock,
        graph: NeighborSampler | None = None,
    ) -> None:
        options = sizes.options
        self._graph = graph
        super().__init__(
            sizes, clock, Group, options.gap_bytes or gap_bytes(sizes.runtime.disk)
        )
        self._slots: _native.SlotPlanner | None = None
        if sizes.slots:
            self._slots = _native.SlotPlanner(
                sizes.slots, sizes.window, options.belady, sizes.threads
            )
        self._pins: Pins | None = None
        #: Groups that are sampled in the same passes: as many as there are hops.
        self._together = (
            len(sizes.workload.sampler.fanout) if options.shared_passes else 1
        )
        self._waiting: Group | None = None

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
        if self._slots is not None:
            self._pack(group, self._place(group))
        if ahead:
            self._waiting = self.sample(jobs[1 : self._together + 1])
            sampled.append(self._waiting)
        reads = ReadStats()
        for one in sampled:
            reads.add(one.reads)
            group.graph_written += one.index.nbytes
        group.reads = reads
        group.prepared_s = time.monotonic() - start
        return group

    def _place(self, group: Group) -> _native.SlotPlanner:
        """Plan the slots of a group's rows, and choose how the rows that miss are read;
        return the plan."""
        sizes = self.sizes
        options = self.sizes.options
        disk = self.sizes.runtime.disk
        uses = group.used
        with self.clock.stage("inspect", group.job.first):
            try:
                if options.replay and options.belady:
                    if self._pins is None:
                        self._slots = None
                        self._pins = choose(uses, sizes.slots, sizes.window)
                        group.pinned = len(self._pins)
                        self._slots = _native.SlotPlanner(
                            sizes.slots - len(self._pins),
                            sizes.window,
                            True,
                            sizes.threads,
                        )
                    uses = self._pins.without(uses)
                planner = self._slots
                assert planner is not None
                planner.plan(uses.nodes, uses.offsets, uses.seeds)
            except ValueError as error:
                raise BudgetError(
                    f"{NAME}: {error}", "raise memory or lower window"
                ) from None
            group.misses = len(uses.nodes) - planner.hits
            group.hits = group.uses - group.misses
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
        group.gap_bytes = (
            gap_bytes(disk) if found is None else found.table_pass.gap_bytes
        )
        # A replay always distributes, since every epoch reads the chunks again.
        cheaper = (
            found is not None and not options.replay and found.single < found.distribute
        )
        if options.packing == "off" or (options.packing == "auto" and cheaper):
            group.strategy = "single"
        return planner

    def _pack(self, group: Group, planner: _native.SlotPlanner) -> None:
        """Write the address lists, and the rows that miss where they are
        distributed."""
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
            group.used = NO_USES
            give_back_free_memory()
            with self.clock.stage("pack", group.job.first):
                group.chunks, group.pack = writer.distribute()
        finally:
            writer.close()

    def _lists(
        self, group: Group, planner: _native.SlotPlanner, writer: ChunkWriter
    ) -> None:
        """Append the address lists of all mini-batches and the ids of each chunk's
        rows."""
        packed = group.strategy == "distribute"
        pins = self._pins

        def append(
            ids: Ids, to: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]
        ) -> None:
            arrays = {"slots": slots, "to": to}
            writer.append(
                ids if packed else _NO_IDS, arrays if packed else {**arrays, "ids": ids}
            )

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
                slots = pins.slots_of(group.used.batch(i), slots)
                to = to + np.int32(len(pins))
            append(ids, to, slots)
            if self._stopped:
                raise InterruptedError("preparing was stopped")
        planner.clear()

    def rest(self) -> None:
        """Free memory and close files after the last group, but keep the prepared
        groups."""
        if self._sampler is not None:
            self._sampler.close()
        self._sampler = self._slots = self._pins = None
        give_back_free_memory()

    def close(self) -> None:
        """Close the files and remove the prepared groups."""
        self._waiting = None
        super().close()
