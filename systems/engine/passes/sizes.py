"""Base of the options and sizes of systems that prepare groups of mini-batches by
passes over the dataset's files.

A group is as many successive mini-batches as the budget allows; slots for rows get what
preparation and the mini-batches under way leave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from systems.engine.io.topology import device_limit, indptr_item
from systems.engine.passes.sampling import ExternalSampler, in_flight
from systems.engine.store.batch_store import BatchWriter
from systems.engine.store.packed_layout import slot_rows
from systems.interface import Options, Plan, PlanItem, System, size
from systems.parts.sizes import divide, fixed, left_of
from workloads.accelerator import NO_ROWS
from workloads.direct_files import PAGE
from workloads.errors import BudgetError
from workloads.sampling.bounds import batch_bounds, largest_batch
from workloads.units import parse_bytes

LISTS_AHEAD = 3  # address lists of mini-batches that are read ahead
BOUNCE = (
    512 << 10
)  # bytes of each of the two buffers through which rows are copied to a device
BYTES_PER_S = 1e9  # of a device without a profile, for estimates
SAMPLED_PER_S = 2e6  # uses of rows that a thread samples
_SLACK = 1.05  # the bounds may come from fewer epochs than the run has
_THREADS = 2 << 20  # stacks, the allocator's leftovers
_UNBOUNDED_SHARE = 10
_MOST_GROUP = 4096
_FEW_THREADS = 48 << 20  # host budget below which one thread samples


class PassOptions(Options):
    """Options of systems that prepare groups of mini-batches; each system adds its
    own."""

    window: int = Field(
        2,
        ge=1,
        le=64,
        description="mini-batches whose rows are in memory at a time, at least",
    )
    slots: str = size(
        "auto",
        description="memory for rows: `auto` (what the budget leaves), or a size",
    )
    queue: int = Field(
        2, ge=1, le=64, description="graphs of mini-batches that are read ahead"
    )
    device_slots: str = size(
        "auto",
        "off",
        description="of the memory for rows, on a device of its own: `auto` (what "
        "it has), "
        "`off`, or a size; "
        "the device reads the others itself",
    )
    samplers: int = Field(
        0,
        ge=0,
        le=256,
        description="threads that sample; 0: one for each core if memory allows",
    )
    request_bytes: int = Field(
        512 << 10, ge=4096, le=1 << 24, description="a read of a packed chunk, about"
    )
    read_ahead_bytes: int = Field(
        8 << 20, ge=1 << 16, description="of packed chunks in flight, at most"
    )
    copy_threads: int = Field(
        1, ge=1, le=64, description="threads that copy rows to their slots"
    )


class PassSizes(ABC):
    """Sizes of a run's groups and buffers; the class of each system plans preparation.

    Attributes:
        name: name of the system.
        bounds: bounds of the workload's mini-batches.
        row: bytes of a feature row.
        sampling_only: whether a run only samples.
        plan: all buffers.
        fix: remedy for a budget that is too small.
        graph_whole: whether pieces of the graph are read as wholes, once for each hop.
        group_option: option that sets the mini-batches of a group; 0: as many of an
            epoch as `default_group` and memory allow.
        external: whether mini-batches are sampled out of core.
        group: mini-batches prepared together.
        group_uses: most rows that a group uses.
        window: least number of mini-batches whose rows are in memory together.
        slots, device_slots: rows of the table that training reads, and those of them in
            device memory.
        piece_bytes, pieces: bytes of a read of a packed chunk, whole rows and whole
            pages; and such reads in flight.
        graph_piece_bytes, graph_pieces: bytes of a read of the graph, and such pieces
            in memory.
        graph_nodes: destination nodes drawn at a time.
        threads: threads that sample.
        room_bytes: bytes in which sampled mini-batches are laid out to be written
            together.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """

    fix: ClassVar[str]
    graph_whole: ClassVar[bool] = False
    group_option: ClassVar[str] = "group"
    default_group: ClassVar[int] = 4096
    options: PassOptions
    plan: Plan
    external: bool
    graph_piece_bytes: int
    graph_pieces: int
    graph_nodes: int
    window: int
    group: int
    group_uses: int
    slots: int

    def __init__(self, system: System) -> None:
        self.name = system.info.name
        self.workload = system.workload
        self.runtime = system.runtime
        self.budget = system.budget
        assert isinstance(system.options, PassOptions)
        options = self.options = system.options
        self.bounds = batch_bounds(self.workload)
        self.row = self.workload.dataset.row_bytes
        self.num_nodes = self.workload.dataset.num_nodes
        self.sampling_only = self.runtime.stages == "sample"
        host = self.budget.host
        disk = self.runtime.disk
        self.sizes_of_batches = largest_batch(self.workload).nodes_by_batch.reshape(-1)
        self._set_graph()
        self.graph_nodes = 2048 if host is not None and host < 256 << 20 else 8192
        self.threads = options.samplers or self._threads()
        unit = slot_rows(self.row) * self.row
        ahead = min(options.read_ahead_bytes, in_flight(disk))
        ahead = ahead if host is None else max(4 * unit, min(ahead, host // 16))
        self.piece_bytes = max(
            unit, min(options.request_bytes, ahead // 4) // unit * unit
        )
        self.pieces = max(2, ahead // self.piece_bytes)
        self.device_slots = self._device_slots()
        while True:
            try:
                self._fit()
                break
            except BudgetError:
                if options.samplers or self.threads == 1:
                    raise
                self.threads //= 2
        hops = len(self.workload.sampler.fanout)
        self.room_bytes = (self.threads + 1) * BatchWriter.bound_bytes(
            self.bounds.sampled_bytes, hops
        )

    def left(self, items: Sequence[PlanItem]) -> int | None:
        """Return the bytes of the host budget beside these buffers, below 0 if they do
        not fit; None: unlimited."""
        return left_of(self.budget, fixed(items))

    def require(self, items: Sequence[PlanItem], fix: str) -> Plan:
        """Return the plan of these buffers.

        Raises:
            BudgetError: they do not fit the budget; names the first that does not.
        """
        return divide(self.name, fixed(items), self.budget, fix).plan

    @abstractmethod
    def _set_graph(self) -> None:
        """Set `external` and the sizes of the graph's pieces."""

    @abstractmethod
    def _fit(self) -> None:
        """Size all that depends on the number of threads: window, group, slots and
        plan."""

    @abstractmethod
    def _preparing_least(self, group: int) -> int:
        """Return the least bytes of host memory for preparing a group of so many
        mini-batches."""

    @abstractmethod
    def _slot_bytes(self) -> int:
        """Return the bytes of host memory that each slot takes beside its row."""

    def uses(self, count: int) -> int:
        """Return the most rows that `count` successive mini-batches use; far fewer than
        `count` times the largest."""
        found = self.sizes_of_batches
        sums = np.cumsum(np.concatenate([[0], found]))
        step = min(count, len(found))
        busiest = int((sums[step:] - sums[:-step]).max()) * -(-count // step)
        return min(
            count * self.bounds.max_nodes, int(_SLACK * busiest) + int(found.std())
        )

    def _rows_of(self, window: int) -> int:
        """Return the least slots for `window` successive mini-batches."""
        return min(self.num_nodes, self.uses(window))

    def chosen(self) -> dict[str, int | str]:
        """Return the mini-batches of a group, threads, and bytes of slots by tier."""
        found: dict[str, int | str] = {
            self.group_option: self.group,
            "samplers": self.threads,
        }
        slots: dict[str, int | str] = {
            "slots": (self.slots - self.device_slots) * self.row,
            "device_slots": self.device_slots * self.row,
        }
        return found | ({} if self.sampling_only else slots)

    def _threads(self) -> int:
        """Return one thread a core, as far as an eighth of the budget holds their
        working memory."""
        host = self.budget.host
        cores = self.runtime.cores
        bounds = self.bounds
        if host is None:
            return cores
        working = (
            ExternalSampler.relabel_bytes(bounds)
            if self.external
            else bounds.scratch_bytes
        )
        return (
            1
            if host < _FEW_THREADS
            else max(1, min(cores, host // 8 // (working + 2 * bounds.sampled_bytes)))
        )

    def _device_slots(self) -> int:
        """Return the number of slots in device memory; at least one slot is left to the
        host."""
        accelerator = self.runtime.accelerator
        options = self.options
        if (
            self.sampling_only
            or accelerator.kind == "cpu"
            or options.device_slots == "off"
        ):
            return 0
        if not accelerator.keeps_rows:
            if options.device_slots != "auto":
                raise BudgetError(
                    f"{self.name}: no room for device_slots of {options.device_slots}",
                    NO_ROWS,
                )
            return 0
        limit = device_limit(self.runtime, self.budget) or 0
        wanted = fitting = limit // PAGE * PAGE // self.row
        if self.budget.host is not None:
            wanted = min(
                wanted, self.budget.host // 8 // self._slot_bytes()
            )  # the planner's host memory
        if options.device_slots != "auto":
            wanted = parse_bytes(options.device_slots, "device_slots") // self.row
            if wanted > fitting:
                item = PlanItem(
                    f"device_slots of {options.device_slots}",
                    wanted * self.row,
                    "device",
                )
                budget = replace(self.budget, device=limit)
                raise Plan().no_room(
                    self.name, budget, item, "lower device_slots or raise device memory"
                )
        if options.slots != "auto":
            wanted = min(wanted, parse_bytes(options.slots, "slots") // self.row - 1)
        return max(0, min(wanted, self.num_nodes - 1))

    def _held(self, *more: PlanItem) -> list[PlanItem]:
        """List training's memory beside the slots, what preparation holds in every
        phase, and `more`."""
        bounds = self.bounds
        options = self.options
        most = self.bounds.max_nodes
        under_way = options.queue + options.window + 4
        share = self.uses(under_way) / (under_way * most)
        read_back = max(2, int(share * under_way + 1)) * bounds.sampled_bytes
        sizes = {
            "mini-batches read back": read_back,
            "threads": _THREADS,
            "seed nodes": bounds.seed_bytes,
        }
        items = [PlanItem(name, size) for name, size in sizes.items()]
        if not self.sampling_only:
            items.append(
                PlanItem("packed rows in flight", self.piece_bytes * self.pieces)
            )
            items.append(PlanItem("address lists", 12 * (LISTS_AHEAD + 4) * most))
            items += more
            if self.device_slots:
                items.append(PlanItem("staging", 2 * max(BOUNCE, self.row)))
        if self.external:
            fixed = ExternalSampler.fixed_bytes(
                self.graph_piece_bytes,
                self.graph_pieces,
                self.graph_nodes,
                max(self.workload.sampler.fanout),
                self.graph_whole,
            )
            relabelling = self.threads * ExternalSampler.relabel_bytes(bounds)
            items.append(PlanItem("passes over the graph", fixed + relabelling))
        else:
            items.append(indptr_item(self.workload))
        self.require(items, self.fix)
        return items

    def _window(self, held: list[PlanItem], most: int = 0) -> tuple[int, int]:
        """Return the mini-batches whose rows are in memory together, fewer in little
        memory, and the slots for them.

        `most` is the number that is tried first; 0: that of the options.
        """
        if self.sampling_only:
            return self.options.window, 0
        left = self.left(held)
        for window in range(most or self.options.window, 0, -1):
            least = self._rows_of(window)
            need = self._slots_bytes(least) + self._preparing_least(1)
            if left is None or need <= left:
                break
        else:
            self.require(
                [
                    *held,
                    PlanItem(
                        "rows of the largest mini-batch and its preparation", need
                    ),
                ],
                self.fix,
            )
        return window, least

    def _group(self, held: list[PlanItem], least: int) -> int:
        """Return the mini-batches of a group: as many as leave `least` slots, the whole
        epoch where it fits."""
        asked = int(getattr(self.options, self.group_option))
        batches = min(
            self.bounds.num_batches, _MOST_GROUP if asked else self.default_group
        )
        wanted = most = min(asked or batches, batches)
        left = self.left(held)
        if left is None or wanted == 1:
            return wanted
        # Saving a pass over the table is worth far more than the slots that a larger
        # group's preparation takes.
        limit = left - self._slots_bytes(least)
        while wanted > 1 and self._preparing_least(wanted) > limit:
            wanted -= 1
        if asked and wanted < most:
            item = PlanItem(
                f"a {self.group_option} of {most} mini-batches",
                self._preparing_least(most),
            )
            beside = Plan((*held, PlanItem("slots for rows", self._slots_bytes(least))))
            fix = f"lower {self.group_option} to {wanted} or raise memory"
            raise beside.no_room(self.name, self.budget, item, fix)
        # Split the epoch as evenly as possible.
        return wanted if asked else -(-batches // -(-batches // wanted))

    def _sampling(self, group: int) -> int:
        """Return the bytes of host memory for sampling a group, its list of nodes
        included."""
        bounds = self.bounds
        uses = self.uses(group)
        share = uses / (group * bounds.max_nodes)  # mean mini-batch over the largest
        if self.external:
            sampling = int(share * group * ExternalSampler.batch_bytes(bounds))
        else:
            sampling = self.threads * bounds.scratch_bytes
        # For each thread a mini-batch being finished and one waiting or laid out, and
        # one being written.
        sampling += (2 * self.threads + 1) * bounds.sampled_bytes
        return sampling if self.sampling_only else sampling + 4 * uses

    def _slots_bytes(self, slots: int) -> int:
        """Return the bytes of host memory for `slots` slots, some of which the device
        holds."""
        return (
            max(1, slots - self.device_slots) * self.row
            + max(slots, self.device_slots + 1) * self._slot_bytes()
        )

    def _slots(self, items: list[PlanItem], least: int) -> int:
        nodes = self.num_nodes
        left = self.left(items)
        each = self.row + self._slot_bytes()
        least = max(least, self.device_slots + 1)
        if left is not None:
            left += (
                self.device_slots * self.row - PAGE
            )  # the device's slots take no host memory
        wanted = least + nodes // _UNBOUNDED_SHARE if left is None else left // each
        if self.options.slots != "auto":
            wanted = parse_bytes(self.options.slots, "slots") // self.row
            if wanted < least:
                message = (
                    f"slots of {self.options.slots} are {wanted} rows, the "
                    f"mini-batches under way need {least}"
                )
                raise BudgetError(
                    f"{self.name}: {message}", f"raise slots to {least * self.row}"
                )
            if left is not None and wanted * each > left:
                item = PlanItem(f"slots of {self.options.slots}", wanted * each)
                raise Plan(tuple(items)).no_room(
                    self.name, self.budget, item, "lower slots or raise memory"
                )
        if wanted < least:
            self.require(
                [*items, PlanItem("slots for rows", self._slots_bytes(least))], self.fix
            )
            wanted = least  # fits within the page that was left for rounding up
        return max(1, min(wanted, max(least, nodes)))

    def _slot_items(self, slots: int, packed: int, sampled: int) -> list[PlanItem]:
        """List the slots by tier, and the disk space of groups of which so many are
        packed and sampled at a time."""
        items = [
            PlanItem("slots for rows", (slots - self.device_slots) * self.row),
            PlanItem("what slots hold", slots * self._slot_bytes()),
        ]
        if self.device_slots:
            items.append(
                PlanItem("slots on the device", self.device_slots * self.row, "device")
            )
        graph = self.bounds.sampled_bytes + 16 * self.bounds.max_nodes + 4 * PAGE
        disk = packed * self.group_uses * self.row + sampled * self.group * graph
        items.append(
            PlanItem("chunks and graphs of the groups under way", disk, "disk")
        )
        return items
