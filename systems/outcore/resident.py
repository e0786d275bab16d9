"""The resident way: graph and hottest rows stay in memory; other rows are read alone,
many at a time.

Threads sample mini-batches from the graph in memory. The table that training reads
holds the resident rows, first those on the device, then those in host memory, and
behind them a ring into which the rows that miss are read. Resident rows are read once,
when the system is prepared, in the order of the file; where nearly all rows of a region
are wanted, the gaps between them are read too, so that this is a pass over the table.
With all rows resident an epoch reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from systems import _native
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import ReaderPool, RowTable
from systems.engine.io.tally import Tally
from systems.engine.io.topology import SAMPLING_BUFFERS, indptr_item, sampling_items
from systems.engine.passes.loader import Slots
from systems.engine.passes.sizes import BOUNCE
from systems.engine.pipeline import Channel, Pipeline, RowRing
from systems.interface import Batch, Counters, Facts, PartUse, PlanItem, StageClock
from systems.outcore.cost import gap_bytes
from systems.outcore.graph import Graph, graph_items
from systems.outcore.planner import OutcoreSizes
from systems.parts.uses import cache_use, reads_use
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import check_size
from workloads.sampling.make import make_seed_plan

Ids = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.uint32]
_EXTRACTORS = 2
# Mini-batches whose rows that miss may lie in the ring: being read, waiting for
# training, in training.
_IN_RING = 2 * _EXTRACTORS + 1
# Mini-batches whose rows the ring would hold if all missed; few do.
_RING_BATCHES = 2
_FILL_REQUEST = 1 << 20
_LEAST_FILL_ROWS = 4096
_WORKING = 40  # bytes a node of a mini-batch for its look-up
_RANKING = 40  # bytes a node of the graph while the rows are ranked
_TRACED = 8  # bytes a use of the two groups by which the way is chosen
_PAGE = 4096
_GRAPH = ("indptr", "indices in memory", "labels in memory", "graph and rows in memory")
_ROWS = ("rows in memory", "slots of nodes", "slots on the device", "staging")
_READS = ("reader of rows", "look-up of rows", "choice of the rows")


def path_of_resident(counters: Counters) -> list[PartUse]:
    """Return the parts of the resident way with their counts."""
    return [
        PartUse(name="graph in memory", buffers=_GRAPH),
        PartUse(name="neighbour sampler", buffers=SAMPLING_BUFFERS),
        cache_use("hottest rows in memory", _ROWS, counters),
        reads_use("direct reads", _READS, counters),
    ]


class ResidentSizes(OutcoreSizes):
    """Sizes of the resident way: rows get what the graph, mini-batches under way and
    reading leave.

    Attributes:
        resident: rows that stay in memory, on the device or in host memory.
        ring: rows of the table into which misses are read; 0 where all rows are
            resident.
        fill_rows: most rows of a read of resident rows.
    """

    graph_in_memory = True
    resident: int
    ring: int
    fill_rows: int

    @property
    def all_resident(self) -> bool:
        """Whether all rows are in memory."""
        return self.resident == self.num_nodes

    @property
    def reads_nothing(self) -> bool:
        """Whether an epoch reads nothing: graph and rows are in memory, or the graph
        where runs only sample."""
        return self.sampling_only or self.all_resident

    @property
    def keeps_map(self) -> bool:
        """Whether a row's slot differs from its id."""
        return not self.all_resident or self.device_slots > 0

    @property
    def fill_bytes(self) -> int:
        """Bytes of rows on their way to slots of both tiers; 0 where the host has all
        slots."""
        return self.fill_rows * self.row if self.device_slots else 0

    def reader(self) -> RowReader:
        """Open a reader of rows that miss."""
        table = RowTable.of(self.workload.dataset)
        options = self.options
        return RowReader(
            table.path,
            **table.place,
            depth=options.io_depth,
            granularity=options.io_granularity,
        )

    def fill_reader(self) -> RowReader:
        """Open a reader of resident rows, which reads gaps where another request would
        take longer."""
        table = RowTable.of(self.workload.dataset)
        gap = gap_bytes(self.runtime.disk)
        return RowReader(
            table.path,
            **table.place,
            depth=self.options.io_depth,
            max_request_bytes=_FILL_REQUEST,
            merge_gap_bytes=gap,
        )

    def _reader_bytes(self) -> int:
        options = self.options
        one = RowReader.plan_bytes(
            row_bytes=self.row,
            depth=options.io_depth,
            granularity=options.io_granularity,
            num_ids=self.bounds.max_nodes,
        )
        fill = RowReader.plan_bytes(
            row_bytes=self.row,
            depth=options.io_depth,
            max_request_bytes=_FILL_REQUEST,
            merge_gap_bytes=gap_bytes(self.runtime.disk),
            num_ids=self.fill_rows,
        )
        return max(_EXTRACTORS * one, fill + 24 * self.fill_rows + self.fill_bytes)

    def _fit(self) -> None:
        self.window = _IN_RING
        self.group = self.bounds.num_batches
        self.group_uses = 0
        self.packing_bytes = 0
        self.fill_rows = max(_LEAST_FILL_ROWS, self.bounds.max_nodes)
        waiting = 2 * self.threads + _IN_RING
        items = [
            indptr_item(self.workload),
            *graph_items(self.workload),
            *sampling_items(self.bounds, workers=self.threads, waiting=waiting),
        ]
        self.resident = self.ring = self.slots = 0
        if not self.sampling_only:
            items += self._row_items(items)
        self.plan = self.require(items, self.fix)

    def _row_items(self, items: list[PlanItem]) -> list[PlanItem]:
        """Size the rows in memory, and list them with what reading takes."""
        working = _WORKING * self.bounds.max_nodes * _IN_RING
        found = [
            PlanItem("reader of rows", self._reader_bytes()),
            PlanItem("look-up of rows", working),
        ]
        if self.device_slots:
            found.append(PlanItem("staging", 2 * max(BOUNCE, self.row)))
        left = self.left([*items, *found])
        assert left is not None, "the resident way needs a budget"
        ring = self._rows_of(_RING_BATCHES)
        on_device = self.device_slots
        row = self.row
        nodes = self.num_nodes
        slot_map = 4 * nodes
        free = left - _PAGE
        if (nodes - on_device) * row <= free - (slot_map if on_device else 0):
            self.resident = nodes
            self.ring = 0
        else:
            rows = max(0, free - slot_map) // row
            self.resident = max(on_device, on_device + rows - ring)
            self.ring = ring
        self.slots = self.resident + self.ring
        held = (self.slots - on_device) * row
        found.append(PlanItem("rows in memory", held))
        if self.keeps_map:
            found.append(PlanItem("slots of nodes", slot_map))
        found.append(
            PlanItem("choice of the rows", max(0, self._choice_bytes() - held))
        )
        if on_device:
            found.append(PlanItem("slots on the device", on_device * row, "device"))
        return found

    def _choice_bytes(self) -> int:
        """Return the bytes of tracing, planning and ranking by which the way and its
        rows are chosen."""
        batches = self.bounds.num_batches
        uses = self.uses(batches)
        planning = _native.SlotPlanner.bytes(
            slots=self.num_nodes, batches=batches, accesses=uses, threads=self.threads
        )
        return _RANKING * self.num_nodes + _TRACED * uses + planning

    def chosen(self) -> dict[str, int | str]:
        """Return the threads, and the bytes of rows by tier."""
        on_device = self.device_slots * self.row
        return {
            "external_sampling": "off",
            "group": self.group,
            "samplers": self.threads,
            "slots": self.slots * self.row - on_device,
            "device_slots": on_device,
        }


class Resident:
    """Mini-batches from a graph and rows in memory.

    Args:
        rows: uint32 [sizes.resident], the resident rows, row i in slot i; each tier's
            ascend. None: all rows, in their order.

    Raises:
        DataIOError: the features cannot be read; names file and offset.
    """

    def __init__(
        self, sizes: ResidentSizes, clock: StageClock, graph: Graph, rows: Nodes | None
    ) -> None:
        self.sizes = sizes
        self._clock = clock
        self._graph = graph
        self._seeds = make_seed_plan(sizes.workload)
        self._tally = Tally()
        self._slots: Slots | None = None
        self._readers: ReaderPool[RowReader] | None = None
        self._slot_of: npt.NDArray[np.int32] | None = None
        self._mode = "no reads"
        if sizes.sampling_only:
            return
        self._slots = Slots(sizes, clock)
        self._fill(rows)
        if sizes.ring:
            self._readers = ReaderPool(sizes.reader, _EXTRACTORS)
            self._mode = self._readers.mode

    def _fill(self, rows: Nodes | None) -> None:
        """Read the resident rows into their slots, in the order of the table."""
        sizes = self.sizes
        slots = self._slots
        assert slots is not None
        cut = sizes.device_slots
        ids = np.arange(sizes.resident) if rows is None else rows.astype(np.int64)
        to = np.arange(len(ids), dtype=np.int32)
        if cut:
            # Both tiers in one order, so that the table is passed once.
            by_id = np.argsort(ids, kind="stable")
            ids = ids[by_id]
            to = by_id.astype(np.int32)
        if sizes.keeps_map:
            self._slot_of = np.full(sizes.num_nodes, -1, dtype=np.int32)
            self._slot_of[ids] = to
        room = aligned_empty(sizes.fill_bytes).reshape(-1, sizes.row)
        with sizes.fill_reader() as reader:
            for first in range(0, len(ids), sizes.fill_rows):
                part = slice(first, first + sizes.fill_rows)
                if not cut:
                    slots.read(reader, ids[part], to[part], 0)
                    continue
                staged = room[: len(ids[part])]
                reader.read(ids[part], staged)
                slots.put(staged, to[part], 0)
        slots.wait_for_copies(0)

    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield the mini-batches of epoch `k` in order; an exception of any thread is
        raised here."""
        self._tally.restart()
        sizes = self.sizes
        with Pipeline(sizes.name) as pipe:

            def sample(number: int, seeds: Ids) -> SampledBatch:
                with self._clock.stage("sample", number):
                    return self._graph.sampler.sample(k, number, seeds)

            sampled: Channel[SampledBatch] = pipe.channel(
                2 * sizes.threads, ordered=True
            )
            pipe.stage("sample", sizes.threads, sample, self._seeds.batches(k), sampled)
            if self._slots is None:
                for structure in pipe.results(sampled):
                    yield Batch(structure, None)
            else:
                yield from pipe.results(self._extract(pipe, self._slots, sampled))

    def _extract(
        self, pipe: Pipeline, slots: Slots, sampled: Channel[SampledBatch]
    ) -> Channel[Batch]:
        """Start the threads that look rows up, and read those that miss into the
        ring."""
        sizes = self.sizes
        tally = self._tally
        ring = RowRing(sizes.ring)
        turnstile = pipe.turnstile()
        pipe.on_stop(ring.stop)

        def extract(number: int, structure: SampledBatch) -> Batch:
            check_size(structure, sizes.bounds.max_nodes)
            places = self._places(structure.nodes)
            missing = np.flatnonzero(places < 0)
            # The ring is taken from in the order of mini-batches, so that training
            # never waits for a later one.
            turnstile.enter(number)
            start = ring.take(len(missing))
            turnstile.leave()
            on_device = int(np.count_nonzero(places < sizes.device_slots)) - len(
                missing
            )
            tally.add(
                rows=len(places),
                misses=len(missing),
                on_device=on_device if sizes.device_slots else 0,
            )
            if len(missing):
                first = sizes.resident + start
                to = np.arange(first, first + len(missing), dtype=np.int32)
                places[missing] = to
                self._read(slots, structure, missing, to)
            rows = torch.from_numpy(places)
            return Batch(
                structure,
                slots.table,
                rows,
                on_release=lambda: ring.give_back(start, len(missing)),
            )

        ready: Channel[Batch] = pipe.channel(_EXTRACTORS, ordered=True)
        pipe.stage("extract", _EXTRACTORS, extract, sampled, ready)
        return ready

    def _places(self, nodes: Ids) -> Ids:
        """Return each node's slot, int64 [n], -1 where its row is not resident."""
        if self._slot_of is None:
            return nodes.astype(np.int64)
        return self._slot_of[nodes].astype(np.int64)

    def _read(
        self,
        slots: Slots,
        structure: SampledBatch,
        missing: Ids,
        to: npt.NDArray[np.int32],
    ) -> None:
        assert self._readers is not None
        with (
            self._clock.stage("extract", structure.index),
            self._readers.borrow() as reader,
        ):
            self._tally.add(
                slots.read(reader, structure.nodes[missing], to, structure.index)
            )

    def counters(self) -> Counters:
        """Return the last epoch's hits by tier, misses and reads."""
        tally = self._tally
        rows, misses, on_device = (
            tally[name] for name in ("rows", "misses", "on_device")
        )
        return tally.counters(
            self.sizes.options.io_depth * _EXTRACTORS,
            rows=rows,
            hits={"device": on_device, "host": rows - misses - on_device},
            misses=misses,
            observed={"graph_bytes_read": 0.0, "table_bytes_read": 0.0},
        )

    def facts(self) -> Facts:
        """Return the read mode."""
        return Facts(io=self._mode)

    def notes(self) -> dict[str, str]:
        """Return how many rows are in memory."""
        sizes = self.sizes
        return {
            "sampling": "in memory",
            "resident_rows": f"{sizes.resident} of {sizes.num_nodes}",
        }

    def close(self) -> None:
        """Free the rows and close the files. May be called more than once."""
        readers = self._readers
        self._readers = None
        slots = self._slots
        self._slots = None
        if readers is not None:
            readers.close()
        if slots is not None:
            slots.close()
        self._slot_of = None
