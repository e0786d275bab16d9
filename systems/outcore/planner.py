"""Sizes of outcore's buffers: slots for rows get the budget that preparation and mini-batches under way leave.

Preparation runs beside training, so the plan counts both; its phases follow one another, so the largest counts. All
sizes grow with mini-batches and the budget: nothing is held for each node or edge of the graph.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from systems import _native
from systems.engine.io.reader import RowReader
from systems.engine.io.topology import device_limit, indptr_item
from systems.engine.loading.sized import Sizes
from systems.engine.store.batch_store import BatchWriter
from systems.engine.store.packed_layout import slot_rows
from systems.interface import Options, Plan, PlanItem, System, size
from systems.outcore.cost import predict
from systems.outcore.distribute import good_bytes, least_bytes
from systems.outcore.sampling import ExternalSampler, in_flight
from workloads.accelerator import NO_ROWS
from workloads.direct_files import PAGE
from workloads.errors import BudgetError
from workloads.sampling.bounds import largest_batch
from workloads.units import parse_bytes

NAME = "outcore"
FIX = "raise memory, or lower batch size, fan-out, group or window"
LISTS_AHEAD = 3  # address lists of mini-batches that are read ahead
BOUNCE = 512 << 10  # bytes of each of the two buffers through which rows are copied to a device
_SLACK = 1.05  # the bounds may come from fewer epochs than the run has
_THREADS = 2 << 20  # stacks, the allocator's leftovers
_UNBOUNDED_SHARE = 10
_MOST_GROUP = 4096
# (least host budget, bytes of a piece of the graph).
_GRAPH_PIECES = ((256 << 20, 512 << 10), (64 << 20, 256 << 10), (32 << 20, 128 << 10), (0, 16 << 10))
_MISS_SHARE = 0.7
_LIKELY_MISS_SHARE = 0.35
_FEW_THREADS = 48 << 20  # host budget below which one thread samples
_PACKING_THREADS = 3 << 20  # of packing, beside its buffers: stacks, digests, the list of chunks
_GOOD_PACKING = 64 << 20
_PACKING_SHARE = 15  # a fifteenth of the host budget each for table regions in flight and for write buffers


class OutcoreOptions(Options):
    """Options of `outcore`: how groups of mini-batches are prepared, and with how much memory."""

    external_sampling: Literal["auto", "on", "off"] = Field(
        "auto",
        description="sample by passes over the graph's files (auto: where the sampler is neighbour sampling); "
        "off: with indptr in memory and indices memory-mapped",
    )
    shared_passes: bool = Field(
        True,
        description="sample later groups of mini-batches in the passes over the graph that one makes, one hop "
        "less each, so that a group costs one pass; off: one for each of its hops",
    )
    belady: bool = Field(True, description="keep rows from one use to the next by Belady's rule; off: for the window")
    packing: Literal["auto", "on", "off"] = Field(
        "auto",
        description="distribute rows into a chunk for each mini-batch by one pass over the feature table; off: "
        "read them one by one; auto: what the device profile predicts to take less time",
    )
    look_ahead: bool = Field(
        True,
        description="prepare the next group of mini-batches while this one trains, that of the next epoch too "
        "(after the last epoch as well, so that every epoch counts one preparation)",
    )
    replay: bool = Field(
        False, description="train all epochs on the first one's samples, prepared once; the run is then not faithful"
    )
    group: int = Field(0, ge=0, description="mini-batches prepared together; 0: as many of an epoch as memory allows")
    window: int = Field(2, ge=1, le=64, description="mini-batches whose rows are in memory at a time, at least")
    slots: str = size("auto", description="memory for rows: `auto` (what the budget leaves), or a size")
    queue: int = Field(2, ge=1, le=64, description="graphs of mini-batches that are read ahead")
    device_slots: str = size(
        "auto",
        "off",
        description="of the memory for rows, on a device of its own: `auto` (what it has), `off`, or a size; "
        "the device reads the others itself",
    )
    samplers: int = Field(0, ge=0, le=256, description="threads that sample; 0: one for each core if memory allows")
    io_depth: int = Field(128, ge=1, le=4096, description="single-row reads in flight")
    io_granularity: Literal["logical", "4096"] = Field(
        "logical", description="smallest read of single rows: the device's logical block, or 4096"
    )
    request_bytes: int = Field(512 << 10, ge=4096, le=1 << 24, description="a read of a packed chunk, about")
    read_ahead_bytes: int = Field(8 << 20, ge=1 << 16, description="of packed chunks in flight, at most")
    gap_bytes: int = Field(
        0,
        ge=0,
        description="unwanted bytes of the graph that are read rather than begin another request; 0: those "
        "that the device streams in the time of one random read",
    )
    copy_threads: int = Field(1, ge=1, le=64, description="threads that copy rows to their slots")


class OutcoreSizes(Sizes):
    """Sizes of a run's groups and buffers.

    Attributes:
        external: whether mini-batches are sampled out of core.
        group: mini-batches prepared together.
        group_uses: most rows that a group uses.
        window: least number of mini-batches whose rows are in memory together.
        slots, device_slots: rows of the table that training reads, and those of them in device memory.
        piece_bytes, pieces: bytes of a read of a packed chunk, whole rows and whole pages; and such reads in flight.
        packing_bytes: bytes of memory for packing.
        graph_piece_bytes, graph_pieces: bytes of a read of the graph, and such pieces in memory.
        graph_nodes: destination nodes drawn at a time.
        threads: threads that sample.
        room_bytes: bytes in which sampled mini-batches are laid out to be written together.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """

    options: OutcoreOptions

    def __init__(self, system: System) -> None:
        super().__init__(system)
        workload, runtime, options = self.workload, self.runtime, self.options
        self.block_bytes = _native.block_bytes(str(workload.dataset.file("features")))
        self.sizes_of_batches = largest_batch(workload).nodes_by_batch.reshape(-1)
        can = ExternalSampler.can_sample(workload)
        self.external = options.external_sampling == "on" or (options.external_sampling == "auto" and can)
        host = self.budget.host
        self.graph_piece_bytes = next(size for least, size in _GRAPH_PIECES if host is None or host >= least)
        self.graph_pieces = ExternalSampler.pieces(self.graph_piece_bytes, runtime.disk)
        self.graph_nodes = 2048 if host is not None and host < 256 << 20 else 8192
        self.threads = options.samplers or self._threads()
        unit = slot_rows(self.row) * self.row
        ahead = min(options.read_ahead_bytes, in_flight(runtime.disk))
        ahead = ahead if host is None else max(4 * unit, min(ahead, host // 16))
        self.piece_bytes = max(unit, min(options.request_bytes, ahead // 4) // unit * unit)
        self.pieces = max(2, ahead // self.piece_bytes)
        self.device_slots = self._device_slots()
        while True:
            try:
                self._fit()
                return
            except BudgetError:
                if options.samplers or self.threads == 1:
                    raise
                self.threads //= 2

    def _threads(self) -> int:
        """Return one thread a core, as far as an eighth of the budget holds their working memory."""
        host, cores, bounds = self.budget.host, self.runtime.cores, self.bounds
        if host is None:
            return cores
        working = ExternalSampler.relabel_bytes(bounds) if self.external else bounds.scratch_bytes
        return 1 if host < _FEW_THREADS else max(1, min(cores, host // 8 // (working + 2 * bounds.sampled_bytes)))

    def _fit(self) -> None:
        """Size what depends on the number of threads."""
        held = self._held()
        self.window, least = self._window(held)
        self.group = group = self._group(held, least)
        self.group_uses = self.uses(group)
        self.packing_bytes = self._packing_bytes(held, least, group)
        preparing, slots = self._preparing(group, self.packing_bytes), 0
        items = [*held, PlanItem("preparing a group", preparing)]
        if self.options.replay and not self.sampling_only:
            # Slots take over preparation's memory once all is prepared; the slot planner's memory is held beside both.
            slots, left = self._slots(held, least), self.left(held)
            if left is not None and preparing > (slots - self.device_slots) * self.row:
                slots = max(least, self.device_slots + 1, min(slots, (left - preparing - PAGE) // self._slot_bytes()))
            more = preparing - (slots - self.device_slots) * self.row
            items[-1] = PlanItem("preparing, beyond the slots", max(0, more))
        if not self.sampling_only:
            slots = slots or self._slots(items, least)
            items.append(PlanItem("slots for rows", (slots - self.device_slots) * self.row))
            items.append(PlanItem("what slots hold", slots * self._slot_bytes()))
            if self.device_slots:
                items.append(PlanItem("slots on the device", self.device_slots * self.row, "device"))
            graph = self.bounds.sampled_bytes + 16 * self.bounds.max_nodes + 4 * PAGE
            # Replay keeps all groups; else one trains, the next is packed, and the one after it is sampled.
            packed = -(-self.bounds.num_batches // group) if self.options.replay else 2
            sampled = packed + (self.options.look_ahead and not self.options.replay)
            disk = packed * self.group_uses * self.row + sampled * group * graph
            items.append(PlanItem("chunks and graphs of the groups under way", disk, "disk"))
        self.slots, self.plan = slots, self.require(items, FIX)
        hops = len(self.workload.sampler.fanout)
        self.room_bytes = (self.threads + 1) * BatchWriter.bound_bytes(self.bounds.sampled_bytes, hops)

    def chosen(self) -> dict[str, int | str]:
        """Return the way of sampling, mini-batches of a group, bytes of slots by tier, and threads."""
        host = (self.slots - self.device_slots) * self.row
        slots: dict[str, int | str] = {"slots": host, "device_slots": self.device_slots * self.row}
        found = {"external_sampling": "on" if self.external else "off", "group": self.group, "samplers": self.threads}
        return found | ({} if self.sampling_only else slots)

    def uses(self, count: int) -> int:
        """Return the most rows that `count` successive mini-batches use; far fewer than `count` times the largest."""
        found = self.sizes_of_batches
        sums = np.cumsum(np.concatenate([[0], found]))
        step = min(count, len(found))
        busiest = int((sums[step:] - sums[:-step]).max()) * -(-count // step)
        return min(count * self.bounds.max_nodes, int(_SLACK * busiest) + int(found.std()))

    @staticmethod
    def _slot_bytes() -> int:
        return _native.SlotPlanner.bytes(slots=1 << 20, batches=0, accesses=0) // (1 << 20)

    def _device_slots(self) -> int:
        """Return the number of slots in device memory; at least one slot is left to the host."""
        accelerator, options = self.runtime.accelerator, self.options
        if self.sampling_only or accelerator.kind == "cpu" or options.device_slots == "off":
            return 0
        if not accelerator.keeps_rows:
            if options.device_slots != "auto":
                raise BudgetError(f"{NAME}: no room for device_slots of {options.device_slots}", NO_ROWS)
            return 0
        limit = device_limit(self.runtime, self.budget) or 0
        wanted = fitting = limit // PAGE * PAGE // self.row
        if self.budget.host is not None:
            wanted = min(wanted, self.budget.host // 8 // self._slot_bytes())  # the planner's host memory
        if options.device_slots != "auto":
            wanted = parse_bytes(options.device_slots, "device_slots") // self.row
            if wanted > fitting:
                item = PlanItem(f"device_slots of {options.device_slots}", wanted * self.row, "device")
                budget = replace(self.budget, device=limit)
                raise Plan().no_room(NAME, budget, item, "lower device_slots or raise device memory")
        if options.slots != "auto":
            wanted = min(wanted, parse_bytes(options.slots, "slots") // self.row - 1)
        return max(0, min(wanted, self.num_nodes - 1))

    def _held(self) -> list[PlanItem]:
        """List training's memory beside the slots, and the memory that preparation holds in every phase."""
        bounds, options, most = self.bounds, self.options, self.bounds.max_nodes
        under_way = options.queue + options.window + 4
        share = self.uses(under_way) / (under_way * most)
        read_back = max(2, int(share * under_way + 1)) * bounds.sampled_bytes
        sizes = {"mini-batches read back": read_back, "threads": _THREADS, "seed nodes": bounds.seed_bytes}
        items = [PlanItem(name, size) for name, size in sizes.items()]
        if not self.sampling_only:
            items.append(PlanItem("packed rows in flight", self.piece_bytes * self.pieces))
            items.append(PlanItem("address lists", 12 * (LISTS_AHEAD + 4) * most))
            if options.packing != "on":
                one = RowReader.plan_bytes(
                    row_bytes=self.row, depth=options.io_depth, granularity=options.io_granularity, num_ids=most
                )
                items.append(PlanItem("reader of single rows", one))
            if self.device_slots:
                items.append(PlanItem("staging", 2 * max(BOUNCE, self.row)))
        if self.external:
            fixed = ExternalSampler.fixed_bytes(
                self.graph_piece_bytes, self.graph_pieces, self.graph_nodes, max(self.workload.sampler.fanout)
            )
            relabelling = self.threads * ExternalSampler.relabel_bytes(bounds)
            items.append(PlanItem("passes over the graph", fixed + relabelling))
        else:
            items.append(indptr_item(self.workload))
        self.require(items, FIX)
        return items

    def _window(self, held: list[PlanItem]) -> tuple[int, int]:
        """Return the mini-batches whose rows are in memory together, fewer in little memory, and the slots for them."""
        if self.sampling_only:
            return self.options.window, 0
        left = self.left(held)
        for window in range(self.options.window, 0, -1):
            least = min(self.num_nodes, self.uses(window))
            need = self._slots_bytes(least) + self._preparing(1, self._packing_floor(1))
            if left is None or need <= left:
                break
        else:
            self.require([*held, PlanItem("rows of the largest mini-batch and its preparation", need)], FIX)
        return window, least

    def _group(self, held: list[PlanItem], least: int) -> int:
        """Return the mini-batches of a group: as many as leave `least` slots, the whole epoch where it fits."""
        batches = min(self.bounds.num_batches, _MOST_GROUP)
        wanted = min(self.options.group or batches, batches)
        left = self.left(held)
        if left is None or wanted == 1:
            return wanted
        # Saving a pass over the table is worth far more than the slots that a larger group's preparation takes.
        limit = left - self._slots_bytes(least)
        while wanted > 1 and self._preparing(wanted, self._packing_floor(wanted)) > limit:
            wanted -= 1
        if self.options.group and wanted < min(self.options.group, batches):
            group = min(self.options.group, batches)
            item = PlanItem(f"a group of {group} mini-batches", self._preparing(group, self._packing_floor(group)))
            beside = Plan((*held, PlanItem("slots for rows", self._slots_bytes(least))))
            raise beside.no_room(NAME, self.budget, item, f"lower group to {wanted} or raise memory")
        # Split the epoch as evenly as possible.
        return -(-batches // -(-batches // wanted)) if not self.options.group else wanted

    def _packing_bytes(self, held: list[PlanItem], least: int, group: int) -> int:
        """Return the bytes for packing: those of preparation's other phases, or more to keep the device busy."""
        floor, host = self._packing_floor(group), self.budget.host
        if host is None or not floor:
            return max(floor, _GOOD_PACKING if floor else 0)
        good = 0
        if self._will_distribute(group):
            good = good_bytes(self.row, group, host // _PACKING_SHARE) + self._miss_bytes(group)
        slots = least if self.options.slots == "auto" else parse_bytes(self.options.slots, "slots") // self.row
        spare = (self.left(held) or 0) - self._slots_bytes(max(least, slots)) - _PACKING_THREADS - 2 * PAGE
        spare -= self._ahead(group)
        return max(floor, min(good, spare), max(self._phases(group)) - _PACKING_THREADS - self._ahead(group))

    def _will_distribute(self, group: int) -> bool:
        """Predict whether misses will be distributed; their number is known only once mini-batches are sampled."""
        if self.options.packing != "auto" or self.options.replay:
            return self.options.packing != "off"
        uses = self.uses(group)
        found = predict(
            self.runtime.disk,
            uses=uses,
            misses=int(_LIKELY_MISS_SHARE * uses),
            row_bytes=self.row,
            table_bytes=self.workload.dataset.feature_bytes,
            block_bytes=self.block_bytes,
        )
        return found is None or found.distribute <= found.single

    def _packing_floor(self, group: int) -> int:
        return 0 if self.sampling_only else least_bytes(self.row) + self._miss_bytes(group)

    def _miss_bytes(self, group: int) -> int:
        # uint32 ids of the misses: all rows of a single mini-batch; in larger groups hits keep them below _MISS_SHARE.
        return 4 * max(int(_MISS_SHARE * self.uses(group)), self.bounds.max_nodes)

    def _phases(self, group: int) -> tuple[int, int]:
        """Return the bytes of host memory for sampling a group and for planning its slots."""
        bounds, uses = self.bounds, self.uses(group)
        nodes = 4 * uses
        share = uses / (group * bounds.max_nodes)  # mean mini-batch over the largest
        if self.external:
            sampling = int(share * group * ExternalSampler.batch_bytes(bounds))
        else:
            sampling = self.threads * bounds.scratch_bytes
        # For each thread a mini-batch being finished and one waiting or laid out, and one being written.
        sampling += (2 * self.threads + 1) * bounds.sampled_bytes
        ahead = self._ahead(group)
        # During the pass the edges of later groups are read in.
        sampling += ahead + ahead // 2
        if self.sampling_only:
            return sampling, 0
        planning = _native.SlotPlanner.bytes(slots=0, batches=group, accesses=uses, threads=self.threads)
        if self.options.replay:  # uses without pinned rows; each row's id and count
            planning += 4 * uses + 16 * min(uses, self.num_nodes)
        # While address lists are made, the ids of the misses are held, but each use's next use is freed.
        lists = max(40 * bounds.max_nodes, self._miss_bytes(group) - 4 * uses)
        return sampling + nodes, planning + nodes + lists + ahead

    def _ahead(self, group: int) -> int:
        """Return the bytes held in all phases for later groups that are sampled in this group's passes."""
        alone = self.options.replay and group >= self.bounds.num_batches  # there is no other group
        if alone or not self.external or not self.options.shared_passes:
            return 0
        share = self.uses(group) / (group * self.bounds.max_nodes)
        return int(share * group * ExternalSampler.ahead_bytes(self.bounds, len(self.workload.sampler.fanout)))

    def _preparing(self, group: int, packing: int) -> int:
        return max(*self._phases(group), packing + _PACKING_THREADS + self._ahead(group) if packing else 0)

    def _slots_bytes(self, slots: int) -> int:
        """Return the bytes of host memory for `slots` slots, some of which the device holds."""
        return max(1, slots - self.device_slots) * self.row + max(slots, self.device_slots + 1) * self._slot_bytes()

    def _slots(self, items: list[PlanItem], least: int) -> int:
        nodes, left, each = self.num_nodes, self.left(items), self.row + self._slot_bytes()
        least = max(least, self.device_slots + 1)
        if left is not None:
            left += self.device_slots * self.row - PAGE  # the device's slots take no host memory
        wanted = least + nodes // _UNBOUNDED_SHARE if left is None else left // each
        if self.options.slots != "auto":
            wanted = parse_bytes(self.options.slots, "slots") // self.row
            if wanted < least:
                said = (
                    f"{NAME}: slots of {self.options.slots} are {wanted} rows, the mini-batches under way need {least}"
                )
                raise BudgetError(said, f"raise slots to {least * self.row}")
            if left is not None and wanted * each > left:
                item = PlanItem(f"slots of {self.options.slots}", wanted * each)
                raise Plan(tuple(items)).no_room(NAME, self.budget, item, "lower slots or raise memory")
        if wanted < least:
            self.require([*items, PlanItem("slots for rows", self._slots_bytes(least))], FIX)
            wanted = least  # fits within the page that was left for rounding up
        return max(1, min(wanted, max(least, nodes)))
