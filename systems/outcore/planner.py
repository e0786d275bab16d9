"""Sizes of outcore's buffers: slots for rows get the budget that preparation and
mini-batches under way leave.

Preparation runs beside training, so the plan counts both; its phases follow one
another, so the largest counts. All sizes grow with mini-batches and the budget: nothing
is held for each node or edge of the graph.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from systems import _native
from systems.engine.io.reader import RowReader
from systems.engine.passes.distribute import good_bytes, least_bytes
from systems.engine.passes.sampling import ExternalSampler
from systems.engine.passes.sizes import PassOptions, PassSizes
from systems.interface import PlanItem
from systems.outcore.cost import predict
from systems.outcore.graph import graph_items
from workloads.direct_files import PAGE
from workloads.units import parse_bytes

NAME = "outcore"
# (least host budget, bytes of a piece of the graph).
_GRAPH_PIECES = (
    (256 << 20, 512 << 10),
    (64 << 20, 256 << 10),
    (32 << 20, 128 << 10),
    (0, 16 << 10),
)
_MISS_SHARE = 0.7
_LIKELY_MISS_SHARE = 0.35
_PACKING_THREADS = (
    3 << 20
)  # of packing, beside its buffers: stacks, digests, the list of chunks
_GOOD_PACKING = 64 << 20
# a fifteenth of the host budget each for table regions in flight and for write buffers
_PACKING_SHARE = 15
# Options that no other way has.
_OF_PASSES = (
    "resident",
    "external_sampling",
    "shared_passes",
    "belady",
    "packing",
    "look_ahead",
    "replay",
    "group",
    "gap_bytes",
    "slots",
    "window",
)


class OutcoreOptions(PassOptions):
    """Options of `outcore`: how groups of mini-batches are prepared, and with how much
    memory."""

    external_sampling: Literal["auto", "on", "off"] = Field(
        "auto",
        description="sample by passes over the graph's files (auto: where the "
        "sampler is "
        "neighbour sampling); "
        "off: with indptr in memory and indices memory-mapped",
    )
    shared_passes: bool = Field(
        True,
        description="sample later groups of mini-batches in the passes over the "
        "graph that "
        "one makes, one hop "
        "less each, so that a group costs one pass; off: one for each of its hops",
    )
    belady: bool = Field(
        True,
        description="keep rows from one use to the next by Belady's rule; off: for the "
        "window",
    )
    packing: Literal["auto", "on", "off"] = Field(
        "auto",
        description="distribute rows into a chunk for each mini-batch by one pass "
        "over the "
        "feature table; off: "
        "read them one by one; auto: what the device profile predicts to take less "
        "time",
    )
    look_ahead: bool = Field(
        True,
        description="prepare the next group of mini-batches while this one trains, "
        "that of "
        "the next epoch too "
        "(after the last epoch as well, so that every epoch counts one preparation)",
    )
    replay: bool = Field(
        False,
        description="train all epochs on the first one's samples, prepared once; "
        "the run is "
        "then not faithful",
    )
    group: int = Field(
        0,
        ge=0,
        description="mini-batches prepared together; 0: as many of an epoch as "
        "memory allows",
    )
    io_depth: int = Field(128, ge=1, le=4096, description="single-row reads in flight")
    io_granularity: Literal["logical", "4096"] = Field(
        "logical",
        description="smallest read of single rows: the device's logical block, or 4096",
    )
    gap_bytes: int = Field(
        0,
        ge=0,
        description="unwanted bytes of the graph that are read rather than begin "
        "another "
        "request; 0: those "
        "that the device streams in the time of one random read",
    )

    resident: bool = Field(
        True,
        description="keep the graph, or graph and rows, in memory where the budget "
        "holds "
        "the graph and the cost model "
        "predicts a shorter epoch; off, or where an option sets a part of the "
        "passes: by passes alone",
    )

    @property
    def sets_passes(self) -> bool:
        """Whether an option asks for passes, or sets a part of them that the other ways
        lack."""
        fields = type(self).model_fields
        return any(getattr(self, name) != fields[name].default for name in _OF_PASSES)


class OutcoreSizes(PassSizes):
    """Sizes of a run's groups and buffers.

    Attributes:
        graph_in_memory: whether the whole graph is in memory.
        packing_bytes: bytes of memory for packing.
        slots_under_way: least slots that the mini-batches under way need.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """

    fix = "raise memory, or lower batch size, fan-out, group or window"
    graph_in_memory: ClassVar[bool] = False
    options: OutcoreOptions

    def _set_graph(self) -> None:
        can = ExternalSampler.can_sample(self.workload)
        wanted = self.options.external_sampling
        host = self.budget.host
        self.external = not self.graph_in_memory and (
            wanted == "on" or (wanted == "auto" and can)
        )
        self.block_bytes = _native.block_bytes(
            str(self.workload.dataset.file("features"))
        )
        self.graph_piece_bytes = next(
            size for least, size in _GRAPH_PIECES if host is None or host >= least
        )
        self.graph_pieces = ExternalSampler.pieces(
            self.graph_piece_bytes, self.runtime.disk
        )

    def _fit(self) -> None:
        held = self._held()
        self.window, least = self._window(held)
        self.slots_under_way = least
        self.group = group = self._group(held, least)
        self.group_uses = self.uses(group)
        self.packing_bytes = self._packing_bytes(held, least, group)
        preparing = self._preparing(group, self.packing_bytes)
        slots = 0
        items = [*held, PlanItem("preparing a group", preparing)]
        if self.options.replay and not self.sampling_only:
            # Slots take over preparation's memory once all is prepared; the slot
            # planner's memory is held beside both.
            slots = self._slots(held, least)
            left = self.left(held)
            if left is not None and preparing > (slots - self.device_slots) * self.row:
                slots = max(
                    least,
                    self.device_slots + 1,
                    min(slots, (left - preparing - PAGE) // self._slot_bytes()),
                )
            more = preparing - (slots - self.device_slots) * self.row
            items[-1] = PlanItem("preparing, beyond the slots", max(0, more))
        if not self.sampling_only:
            slots = slots or self._slots(items, least)
            # Replay keeps all groups; else one trains, the next is packed, and the one
            # after it is sampled.
            packed = -(-self.bounds.num_batches // group) if self.options.replay else 2
            items += self._slot_items(
                slots,
                packed,
                packed + (self.options.look_ahead and not self.options.replay),
            )
        self.slots = slots
        self.plan = self.require(items, self.fix)

    def chosen(self) -> dict[str, int | str]:
        """Return the way of sampling, and the base's choices."""
        return {
            "external_sampling": "on" if self.external else "off",
            **super().chosen(),
        }

    def _slot_bytes(self) -> int:
        return _native.SlotPlanner.bytes(slots=1 << 20, batches=0, accesses=0) // (
            1 << 20
        )

    def _preparing_least(self, group: int) -> int:
        return self._preparing(group, self._packing_floor(group))

    def _held(self, *more: PlanItem) -> list[PlanItem]:
        options = self.options
        most = self.bounds.max_nodes
        if options.packing != "on":
            one = RowReader.plan_bytes(
                row_bytes=self.row,
                depth=options.io_depth,
                granularity=options.io_granularity,
                num_ids=most,
            )
            more = (*more, PlanItem("reader of single rows", one))
        if self.graph_in_memory:
            more = (*more, *graph_items(self.workload))
        return super()._held(*more)

    def _packing_bytes(self, held: list[PlanItem], least: int, group: int) -> int:
        """Return the bytes for packing: those of preparation's other phases, or more to
        keep the device busy."""
        floor = self._packing_floor(group)
        host = self.budget.host
        if host is None or not floor:
            return max(floor, _GOOD_PACKING if floor else 0)
        good = 0
        if self._will_distribute(group):
            good = good_bytes(
                self.row, group, host // _PACKING_SHARE
            ) + self.miss_bytes(group)
        slots = (
            least
            if self.options.slots == "auto"
            else parse_bytes(self.options.slots, "slots") // self.row
        )
        spare = (
            (self.left(held) or 0)
            - self._slots_bytes(max(least, slots))
            - _PACKING_THREADS
            - 2 * PAGE
        )
        spare -= self._ahead(group)
        return max(
            floor,
            min(good, spare),
            max(self._phases(group)) - _PACKING_THREADS - self._ahead(group),
        )

    def _will_distribute(self, group: int) -> bool:
        """Predict whether misses will be distributed; their number is known only once
        mini-batches are sampled."""
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
        return (
            0 if self.sampling_only else least_bytes(self.row) + self.miss_bytes(group)
        )

    def miss_bytes(self, group: int) -> int:
        """Return the bytes of the ids of a group's misses, at most."""
        # uint32 ids of the misses: all rows of a single mini-batch; in larger groups
        # hits keep them below _MISS_SHARE.
        return 4 * max(int(_MISS_SHARE * self.uses(group)), self.bounds.max_nodes)

    def _phases(self, group: int) -> tuple[int, int]:
        """Return the bytes of host memory for sampling a group and for planning its
        slots."""
        bounds = self.bounds
        uses = self.uses(group)
        nodes = 4 * uses
        ahead = self._ahead(group)
        # During the pass the edges of later groups are read in.
        sampling = self._sampling(group) + ahead + ahead // 2
        if self.sampling_only:
            return sampling, 0
        planning = _native.SlotPlanner.bytes(
            slots=0, batches=group, accesses=uses, threads=self.threads
        )
        if self.options.replay:  # uses without pinned rows; each row's id and count
            planning += 4 * uses + 16 * min(uses, self.num_nodes)
        # While address lists are made, the ids of the misses are held, but each use's
        # next use is freed.
        lists = max(40 * bounds.max_nodes, self.miss_bytes(group) - 4 * uses)
        return sampling, planning + nodes + lists + ahead

    def _ahead(self, group: int) -> int:
        """Return the bytes held in all phases for later groups that are sampled in this
        group's passes."""
        alone = (
            self.options.replay and group >= self.bounds.num_batches
        )  # there is no other group
        if alone or not self.external or not self.options.shared_passes:
            return 0
        share = self.uses(group) / (group * self.bounds.max_nodes)
        return int(
            share
            * group
            * ExternalSampler.ahead_bytes(
                self.bounds, len(self.workload.sampler.fanout)
            )
        )

    def _preparing(self, group: int, packing: int) -> int:
        return max(
            *self._phases(group),
            packing + _PACKING_THREADS + self._ahead(group) if packing else 0,
        )


class GraphInMemorySizes(OutcoreSizes):
    """Sizes of groups that are sampled from a graph in memory; slots get what the graph
    leaves."""

    graph_in_memory = True
