"""Sizes of Ginex's superbatches, caches and buffers.

Superbatch sampling and the main loop take turns, so each has the budget to itself: they
are two phases of one plan. The buffers of both come first. The rest of the host budget
goes to the feature cache in the main loop, and to a superbatch's changesets, the
neighbour cache and rows that stay cached in sampling (Section 3.5, Cache Size).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from systems.engine.cache.changeset import ChangesetPlan
from systems.engine.cache.neighbour_cache import (
    NeighbourCachePlan,
    building_bytes,
    plan_neighbour_cache,
)
from systems.engine.io.topology import device_limit, indptr_item, list_threads_bytes
from systems.ginex.buffers import KEPT_ROW_BYTES, LOOP, SAMPLING, Buffers
from systems.ginex.options import GinexOptions
from systems.interface import Plan, PlanItem, System
from systems.parts.sizes import Need, divide, fixed, left_of
from workloads.errors import BudgetError
from workloads.sampling.bounds import batch_bounds, largest_batch
from workloads.units import format_bytes, parse_bytes

# Planning keeps 12 bytes for each cached row.
_PLANNED_ROW_BYTES = 12
# Up to this many mini-batches, a longer superbatch is worth more than another sampler.
_FEW_BATCHES = 8
# Threads that share a mini-batch's lists; 1.24 times as fast as one thread where the
# graph is four times the memory.
_LIST_THREADS = 8
_FIX = "raise memory or lower batch size or fan-out"
_NO_NEIGHBOURS = NeighbourCachePlan(0, 0, 0)


@dataclass(frozen=True)
class GinexSizes:
    """Sizes of a run's superbatches, caches and buffers.

    Attributes:
        plan: all buffers: those always held, those of the larger phase, and the files.
        superbatch: mini-batches of a superbatch, over the ends of epochs if it is
            longer than one.
        capacity: rows of the feature cache.
        kept: cached rows that fit beside sampling and planning.
        neighbours: plan of the neighbour cache; empty: none.
        samplers: threads that sample.
        list_threads: threads that share the neighbour lists of a mini-batch in
            sampling.
        readers: mini-batches whose misses are read at the same time.
        input_rows: rows of host memory for all batch inputs together.
        tables: feature tables on the device, for the largest mini-batch's rows each.
        table_rows: rows of each.
    """

    plan: Plan
    superbatch: int
    capacity: int
    kept: int
    neighbours: NeighbourCachePlan
    samplers: int
    list_threads: int
    readers: int
    input_rows: int
    tables: int
    table_rows: int

    def chosen(self, row_bytes: int) -> dict[str, int | str]:
        """Return the superbatch, bytes of both caches, and threads."""
        return {
            "superbatch": self.superbatch,
            "neighbour_cache": self.neighbours.nbytes,
            "feature_cache": self.capacity * row_bytes,
            "samplers": self.samplers,
            "list_threads": self.list_threads,
        }


def size_buffers(system: System, options: GinexOptions) -> GinexSizes:
    """Divide a system's budget, with fewer threads for each mini-batch's lists where
    the plan would not fit.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """
    threads = options.list_threads or _most_list_threads(system, options)
    while True:
        try:
            return _Division(system, options, threads).sizes()
        except BudgetError:
            if options.list_threads or threads == 1:
                raise
            threads //= 2


def _most_list_threads(system: System, options: GinexOptions) -> int:
    """Return eight; fewer where those of all samplers take over an eighth of the budget
    from superbatches."""
    bounds = batch_bounds(system.workload)
    samplers = options.samplers or 2 * system.runtime.cores
    return _most(
        _LIST_THREADS,
        system.budget.host,
        8,
        lambda count: samplers * list_threads_bytes(bounds, count),
    )


def _most(
    wanted: int, host: int | None, share: int, nbytes: Callable[[int], int]
) -> int:
    """Return `wanted`, or the largest count below it whose bytes are at most 1/`share`
    of `host`; at least 1."""
    if host is None:
        return wanted
    return next(
        (count for count in range(wanted, 1, -1) if nbytes(count) <= host // share), 1
    )


class _Division:
    """One division of the budget, with a number of threads that share a mini-batch's
    lists.

    The choices are made in the order of the constructor and of `sizes`; each has what
    those before it leave.
    """

    def __init__(
        self, system: System, options: GinexOptions, list_threads: int
    ) -> None:
        self.name = system.info.name
        self.workload = system.workload
        self.runtime = system.runtime
        device = device_limit(self.runtime, system.budget)
        self.budget = replace(system.budget, device=device)
        self.options = options
        self.list_threads = list_threads
        self.bounds = batch_bounds(self.workload)
        self.num_nodes = self.workload.dataset.num_nodes
        self.row = self.workload.dataset.row_bytes
        self.buffers = Buffers(
            self.workload, self.runtime, self.budget, options, self.bounds
        )
        self.reads = self.buffers.reads
        self.static = options.policy == "static"
        #: Mini-batches of the run; of one epoch where the run's length is unknown.
        self.run_batches = self.bounds.num_batches * max(1, self.runtime.epochs)

        self.disk_bytes, self.superbatch_bytes = self._runtime_files()
        self.readers, self.input_rows = self._inputs()
        self.needs = [
            *self.buffers.held(self.input_rows, self.readers),
            *self.buffers.loop(self.readers),
        ]
        self.samplers = self._samplers()
        self.needs += self.buffers.sampling(self.samplers, list_threads)
        divide(
            self.name, self.needs, self.budget, _FIX
        )  # refuses buffers of one size before it sizes caches

    def sizes(self) -> GinexSizes:
        """Size both caches and the superbatch, and plan all buffers."""
        capacity = self._capacity() if self.reads else 0
        superbatch = self._superbatch(capacity)
        if self.reads and not self.static:
            fix = "raise memory or lower the superbatch size"
            changesets = self._changeset_bytes(superbatch, capacity)
            self.needs.append(Need("changesets", changesets, phase=SAMPLING, fix=fix))
            divide(self.name, self.needs, self.budget, _FIX)
        neighbours = self._neighbours()
        self.needs.append(Need("neighbour cache", neighbours.nbytes, phase=SAMPLING))
        files = self.buffers.files(superbatch * self.superbatch_bytes, neighbours)
        sizes = divide(
            self.name,
            [*self.needs, *self.buffers.cache(capacity), *files],
            self.budget,
            _FIX,
        )
        return GinexSizes(
            plan=sizes.plan,
            superbatch=superbatch,
            capacity=capacity,
            kept=self.buffers.kept(sizes),
            neighbours=neighbours,
            samplers=self.samplers,
            list_threads=self.list_threads,
            readers=self.readers,
            input_rows=self.input_rows,
            tables=self.buffers.tables(sizes),
            table_rows=self.bounds.max_nodes,
        )

    def _left(self, phase: str) -> int | None:
        """Return the host bytes that a phase leaves so far; None: unlimited."""
        return left_of(self.budget, self.needs, phase)

    def _runtime_files(self) -> tuple[int, int]:
        """Return the bytes for the runtime files, and of a mini-batch in all
        superbatches on disk at once."""
        wanted = parse_bytes(self.options.runtime_files, "runtime_files")
        if self.budget.disk is not None:
            wanted = min(
                wanted, self.budget.disk - self.budget.disk // 4
            )  # a quarter for the neighbour cache's file
        per_batch = self.buffers.batch_bytes
        size = min(self.options.superbatch, self.run_batches) or self.bounds.num_batches
        if self.options.pipelined and (
            size < self.run_batches or size * per_batch > wanted
        ):
            # The runtime files of two superbatches are on disk at once (Section 3.1).
            per_batch *= 2
        least = per_batch * (size if self.options.superbatch else 1)
        if wanted < least:
            asked = (
                f"superbatches of {self.options.superbatch}"
                if self.options.superbatch
                else "one mini-batch"
            )
            raise BudgetError(
                f"{self.name}: runtime files need {format_bytes(least)} for {asked}, "
                f"{format_bytes(wanted)} of disk is allowed",
                "raise runtime_files or the disk-space limit, or lower superbatch",
            )
        return wanted, per_batch

    def _inputs(self) -> tuple[int, int]:
        """Return the readers and the rows of batch inputs: as wanted, fewer where the
        cache would get less memory."""
        mean = int(largest_batch(self.workload).nodes_by_batch.mean()) + 1
        reader_bytes = self.buffers.reader_bytes
        indptr = fixed([indptr_item(self.workload)])
        batches = self.options.batch_inputs or self.options.readers + 2
        while True:
            rows = max(self.bounds.max_nodes, batches * mean)
            readers = min(self.options.readers, batches)
            left = left_of(self.budget, [*indptr, *self.buffers.loop(readers)], LOOP)
            taken = rows * self.row + readers * reader_bytes
            # Two batch inputs keep the disk busy between mini-batches, which is worth
            # more than the cache rows lost.
            share = 0.75 if batches == 2 else 0.5
            if (
                self.options.batch_inputs
                or left is None
                or taken <= share * left
                or batches == 1
            ):
                return readers, rows
            batches -= 1

    def _samplers(self) -> int:
        """Return twice the cores; fewer where samplers take over a quarter of the
        budget or planning's memory."""
        if self.options.samplers:
            return self.options.samplers
        helpers = list_threads_bytes(self.bounds, self.list_threads)
        sampler = self.bounds.scratch_bytes + 2 * self.bounds.sampled_bytes + helpers
        count = _most(
            2 * self.runtime.cores, self.budget.host, 4, lambda count: count * sampler
        )
        in_loop = self._left(LOOP)
        if in_loop is None or self.static or not self.reads:
            return count
        one = self._changeset_bytes(1, 1)
        few = self._changeset_bytes(min(_FEW_BATCHES, self.bounds.num_batches), 1) - one
        cached = min(self.num_nodes, max(1, in_loop // self.row))
        wanted = self._changeset_bytes(1, cached) + few
        while count > 1:
            left = left_of(
                self.budget,
                [*self.needs, *self.buffers.sampling(count, self.list_threads)],
                SAMPLING,
            )
            if (left or 0) >= wanted:
                break
            count -= 1
        return count

    def _changeset_bytes(self, superbatch: int, capacity: int) -> int:
        most = self.bounds.max_nodes
        return ChangesetPlan.plan_bytes(
            num_nodes=self.num_nodes,
            capacity=capacity,
            batches=superbatch,
            max_nodes=most,
        )

    def _capacity(self) -> int:
        """Return the rows of the feature cache: as wanted, or as the main loop holds
        and planning allows."""
        in_loop = self._left(LOOP)
        if in_loop is not None and self.static:
            in_loop -= 4 * self.num_nodes
        each = self.row + KEPT_ROW_BYTES
        fitting = self.num_nodes if in_loop is None else max(0, in_loop) // each
        if not self.static:
            fitting = min(fitting, self._planned_rows(fitting))
        wanted = fitting
        if self.options.feature_cache != "auto":
            wanted = (
                parse_bytes(self.options.feature_cache, "feature_cache") // self.row
            )
        wanted = min(wanted, self.num_nodes)
        if wanted > fitting or wanted < 1:
            raise self._no_cache(max(1, wanted), in_loop)
        return wanted

    def _planned_rows(self, wanted: int) -> int:
        """Return the rows of the feature cache whose changesets can be planned, which
        limits very short rows."""
        left = self._left(SAMPLING)
        if left is None:
            return wanted
        fix = "raise memory, or lower samplers, list_threads or readers"
        planning = Need(
            "changesets", self._changeset_bytes(1, 1), phase=SAMPLING, fix=fix
        )
        divide(self.name, [*self.needs, planning], self.budget, _FIX)
        room = left - self._changeset_bytes(1, 0)
        return max(0, room) // _PLANNED_ROW_BYTES

    def _no_cache(self, rows: int, in_loop: int | None) -> BudgetError:
        """Return the error that a feature cache of so many rows does not fit."""
        name = f"feature cache ({rows} rows)"
        item = PlanItem(name, rows * (self.row + KEPT_ROW_BYTES))
        beside = self._planned(LOOP)
        if self.static:
            beside.append(PlanItem("feature cache map", 4 * self.num_nodes))
        elif in_loop is None or item.bytes <= in_loop:
            beside = [
                *self._planned(SAMPLING),
                PlanItem("changesets", self._changeset_bytes(1, 0)),
            ]
            item = PlanItem(f"planning of the {name}", _PLANNED_ROW_BYTES * rows)
        fix = (
            "raise memory, or lower feature_cache, readers, io_depth, batch size or "
            "fan-out"
        )
        return Plan(tuple(beside)).no_room(self.name, self.budget, item, fix)

    def _planned(self, phase: str) -> list[PlanItem]:
        """List the buffers of a phase so far."""
        held = [need for need in self.needs if need.phase in ("", phase)]
        return [PlanItem(need.name, need.bytes, need.tier) for need in held]

    def _superbatch(self, capacity: int) -> int:
        """Return the mini-batches of a superbatch."""
        # At most one epoch's: in a longer superbatch the first epoch would pay for the
        # inspection of all.
        most = min(self.disk_bytes // self.superbatch_bytes, self.bounds.num_batches)
        if self.options.superbatch:
            return min(self.options.superbatch, self.run_batches)
        left = self._left(SAMPLING)
        if self.static or not self.reads or left is None:
            return most
        one = self._changeset_bytes(1, capacity)
        each = max(1, self._changeset_bytes(2, capacity) - one)
        # Larger superbatches are always better (Section 3.5), but a useful neighbour
        # cache gets half of the memory.
        table = 8 * self.num_nodes
        useful = self.options.neighbour_cache != "off" and left // 2 >= 2 * table
        room = max(left // 2, min(left, one)) if useful else left
        return max(1, min(most, 1 + (room - one) // each))

    def _neighbours(self) -> NeighbourCachePlan:
        """Return the plan of the neighbour cache: of the size wanted, or of all that
        sampling leaves."""
        choice = self.options.neighbour_cache
        left = self._left(SAMPLING)
        free = left_of(self.budget, fixed([indptr_item(self.workload)]))
        can_make = free is None or building_bytes(self.workload) <= free
        room = (
            8 * self.num_nodes + self.workload.dataset.topology_bytes
            if left is None
            else left
        )
        if self.budget.disk is not None:
            room = min(room, self.budget.disk // 4 - (1 << 12))
        if choice == "off" or (choice == "auto" and not can_make):
            return _NO_NEIGHBOURS
        if choice == "auto":
            return plan_neighbour_cache(self.workload, max(0, room))
        wanted = parse_bytes(choice, "neighbour_cache")
        if not can_make or (left is not None and wanted > left):
            making = (
                ""
                if can_make
                else f", which takes {format_bytes(building_bytes(self.workload))} to "
                "make,"
            )
            item = PlanItem(f"neighbour cache of {choice}{making}", wanted)
            beside = Plan(tuple(self._planned(SAMPLING)))
            raise beside.no_room(
                self.name, self.budget, item, "lower neighbour_cache or raise memory"
            )
        if wanted > room:
            limit = (
                f"the {format_bytes(max(0, room))} that the whole graph or a quarter "
                "of the disk-space limit is"
            )
            message = f"{self.name}: neighbour cache of {choice} is more than {limit}"
            raise BudgetError(message, "lower neighbour_cache")
        return plan_neighbour_cache(self.workload, wanted)
