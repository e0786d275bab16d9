"""Options of Ginex and sizes of its buffers.

Superbatch sampling and the main loop take turns, so each has the budget to itself. Buffers of both stages come first.
The rest of the host budget goes to the feature cache in the main loop, and to a superbatch's changesets and the
neighbour cache in sampling (Section 3.5, Cache Size).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field, model_validator

from systems.engine.cache.changeset import ChangesetPlan
from systems.engine.cache.neighbour_cache import NeighbourCachePlan, building_bytes, plan_neighbour_cache
from systems.engine.io.row_reads import RowReadOptions, feature_reader_bytes
from systems.engine.io.topology import indptr_item, list_threads_bytes, map_item, sampling_items
from systems.engine.loading.gather_loader import Tables, plan_tables
from systems.engine.loading.sized import Sizes
from systems.engine.store.batch_store import BatchWriter
from systems.interface import Plan, PlanItem, System, size
from workloads.direct_files import padded
from workloads.errors import BudgetError
from workloads.sampling.bounds import Bounds, largest_batch
from workloads.units import format_bytes, parse_bytes
from workloads.workload import Workload

#: Mini-batches read from the runtime files ahead of the readers.
LOADED = 1
# A thread's stack and allocator leftovers; the loop has two threads beside the readers, and one that waits.
_THREAD_BYTES = 512 << 10
_LOOP_THREADS = 3
# Node ids of a row that stays and of the row that replaces it.
_KEPT_ROW_BYTES = 8
# Up to this many mini-batches, a longer superbatch is worth more than another sampler.
_FEW_BATCHES = 8
# Threads that share a mini-batch's lists; 1.24 times as fast as one thread where the graph is four times the memory.
_LIST_THREADS = 8
_FIX = "raise memory or lower batch size or fan-out"
_NO_NEIGHBOURS = NeighbourCachePlan(0, 0, 0)

Policy = Literal["belady", "static"]


class GinexOptions(RowReadOptions):
    """Options of `ginex`."""

    superbatch: int = Field(
        0,
        ge=0,
        description="mini-batches of a superbatch, which crosses the ends of epochs if it is longer than one; 0: as "
        "many as the runtime files' budget and memory allow, at most those of an epoch, so that each epoch inspects as "
        "much as it trains",
    )
    runtime_files: str = size("100GB", description="disk for the runtime files (Section 3.5)")
    neighbour_cache: str = size(
        "auto",
        "off",
        description="`auto`: all that superbatch sampling leaves; `off`; or a size such as 32MiB; what "
        "it leaves keeps rows cached from superbatch to superbatch",
    )
    feature_cache: str = size("auto", description="`auto`: all that the main loop leaves; or a size such as 32MiB")
    policy: Policy = Field(
        "belady", description="what the feature cache holds: `belady` follows changesets, `static` the out-degrees"
    )
    prefill: bool = Field(True, description="fill the feature cache before the main loop; False: begin empty")
    pipelined: bool = Field(
        True, description="plan a superbatch's changesets while the next one is sampled (Section 3.1)"
    )
    samplers: int = Field(
        0,
        ge=0,
        le=256,
        description="threads that sample, a mini-batch each; 0: twice the cores, fewer in little memory",
    )
    list_threads: int = Field(
        0,
        ge=0,
        le=256,
        description="threads that share each of them and wait for pages of uncached lists; 0: eight, fewer where they "
        "would take an eighth of the memory, or the plan would not fit",
    )
    readers: int = Field(3, ge=1, le=64, description="mini-batches whose misses are read beside each other")
    batch_inputs: int = Field(
        0,
        ge=0,
        le=64,
        description="mini-batches of mean size whose rows fit in host memory beside the cache; 0: "
        "readers + 2, fewer where memory is scarce",
    )
    device_buffers: int = Field(2, ge=1, le=64, description="mini-batches on the device, fewer where they do not fit")
    gather_threads: int = Field(0, ge=0, le=256, description="threads that copy cached rows; 0: one for each core")

    @model_validator(mode="after")
    def _static_is_filled(self) -> GinexOptions:
        if self.policy == "static" and not self.prefill:
            raise ValueError("policy static has nothing but its fill: leave prefill on")
        return self


def runtime_batch_bytes(workload: Workload, bounds: Bounds) -> int:
    """Return the most bytes of a mini-batch in the runtime files: ids and adj, changeset, part of the initial cache."""
    adjacency = BatchWriter.bound_bytes(bounds.sampled_bytes, len(workload.sampler.fanout))
    return adjacency + padded(12 * bounds.max_nodes + 64) + padded(4 * bounds.max_nodes + 64)


class GinexSizes(Sizes):
    """Sizes of a run's superbatches, caches and buffers.

    Attributes:
        superbatch: mini-batches of a superbatch, over the ends of epochs if it is longer than one.
        runtime_bytes: most bytes of the runtime files of all superbatches on disk at once.
        capacity: rows of the feature cache.
        kept: cached rows that fit beside sampling and planning.
        neighbours: plan of the neighbour cache; empty: none.
        samplers: threads that sample.
        list_threads: threads that share the neighbour lists of a mini-batch in sampling.
        readers: mini-batches whose misses are read at the same time.
        input_rows: rows of host memory for all batch inputs together.
        tables: feature tables on the device.
        plan: all buffers: those always held, and those of the larger of the two stages.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """

    options: GinexOptions

    def __init__(self, system: System) -> None:
        super().__init__(system)
        workload, options, self.num_batches = self.workload, self.options, self.bounds.num_batches
        self.reader_bytes = feature_reader_bytes(workload, options, self.bounds.max_nodes)
        #: Mini-batches of the run; of one epoch where the run's length is unknown.
        self.run_batches = self.num_batches * max(1, self.runtime.epochs)
        self.list_threads = self._list_threads()
        while True:
            try:
                self._fit()
                return
            except BudgetError:
                if options.list_threads or self.list_threads == 1:
                    raise
                self.list_threads //= 2

    def _fit(self) -> None:
        """Size what depends on the number of threads that share a mini-batch's lists."""
        options = self.options
        self.runtime_bytes, per_batch = self._runtime_files()
        self.input_rows, self.readers = self._inputs()
        dataset, rows, wanted = self.workload.dataset, self.bounds.max_nodes, options.device_buffers
        tables = Tables(rows, dataset.dim, dataset.feature_dtype, 0, 0)
        if not self.sampling_only:
            tables = plan_tables(self.name, self.workload, self.runtime, self.budget, rows=rows, host=1, device=wanted)
        self.tables = tables
        held = [indptr_item(self.workload)]
        if not self.sampling_only:
            held += [
                PlanItem("batch inputs", self.input_rows * self.row),
                PlanItem("reader buffers", self.readers * self.reader_bytes),
                PlanItem("device feature tables", tables.device * tables.nbytes, "device"),
            ]
        loop = self._loop_items(self.readers)
        self.samplers = self._samplers(held, loop)
        sample = self._sample_items(self.samplers)
        self.require(held + loop, _FIX)
        self.require(held + sample, _FIX)

        self.capacity = capacity = 0 if self.sampling_only else self._capacity(held, loop, sample)
        self.superbatch, changesets = self._superbatch(self.runtime_bytes // per_batch, capacity, held, sample)
        if changesets:
            sample.append(PlanItem("changesets", changesets))
        self.require(held + sample, "raise memory or lower the superbatch size")
        self.neighbours = neighbours = self._neighbours(held, sample)
        if neighbours.nodes:
            sample.append(PlanItem("neighbour cache", neighbours.nbytes))
        # Rows of the feature cache that fit beside sampling and planning stay.
        left, each = self.left(held + sample), self.row + _KEPT_ROW_BYTES
        self.kept = kept = capacity if left is None else min(capacity, max(0, left) // each)
        if kept:
            sample.append(PlanItem("rows that stay cached", kept * each))
        if capacity:
            loop.append(PlanItem("feature cache", capacity * self.row))
            if kept:
                loop.append(PlanItem("nodes of rows that stay", _KEPT_ROW_BYTES * kept))
            if options.policy == "static":
                loop.append(PlanItem("feature cache map", 4 * self.num_nodes))
        on_disk = [PlanItem("runtime files", self.superbatch * per_batch, "disk")]
        if neighbours.nodes:
            on_disk.append(PlanItem("neighbour cache file", neighbours.nbytes + (1 << 12), "disk"))
        plans = [self.require([*held, *stage, *on_disk], _FIX) for stage in (sample, loop)]
        self.plan = max(plans, key=lambda found: found.total("host"))

    def chosen(self) -> dict[str, int | str]:
        """Return the superbatch, bytes of both caches, and threads."""
        found: dict[str, int | str] = {"superbatch": self.superbatch, "neighbour_cache": self.neighbours.nbytes}
        found |= {"feature_cache": self.capacity * self.row, "samplers": self.samplers}
        return {**found, "list_threads": self.list_threads}

    def _runtime_files(self) -> tuple[int, int]:
        """Return the bytes for the runtime files, and of a mini-batch in all superbatches on disk at once."""
        wanted = parse_bytes(self.options.runtime_files, "runtime_files")
        if self.budget.disk is not None:
            wanted = min(wanted, self.budget.disk - self.budget.disk // 4)  # a quarter for the neighbour cache's file
        per_batch, batches = runtime_batch_bytes(self.workload, self.bounds), self.run_batches
        size = min(self.options.superbatch, batches) or self.bounds.num_batches
        if self.options.pipelined and (size < batches or size * per_batch > wanted):
            # The runtime files of two superbatches are on disk at once (Section 3.1).
            per_batch *= 2
        least = per_batch * (size if self.options.superbatch else 1)
        if wanted < least:
            raise BudgetError(
                f"{self.name}: runtime files need {format_bytes(least)} for "
                f"{f'superbatches of {self.options.superbatch}' if self.options.superbatch else 'one mini-batch'}, "
                f"{format_bytes(wanted)} of disk is allowed",
                "raise runtime_files or the disk-space limit, or lower superbatch",
            )
        return wanted, per_batch

    def _list_threads(self) -> int:
        """Return eight; fewer where those of all samplers take over an eighth of the budget from superbatches."""
        if self.options.list_threads:
            return self.options.list_threads
        samplers = self.options.samplers or 2 * self.runtime.cores
        return self._most(_LIST_THREADS, 8, lambda count: samplers * list_threads_bytes(self.bounds, count))

    def _most(self, wanted: int, share: int, nbytes: Callable[[int], int]) -> int:
        """Return `wanted`, or the most below it, at least 1, of which the budget's `share`-th part holds `nbytes`."""
        host = self.budget.host
        if host is None:
            return wanted
        return next((count for count in range(wanted, 1, -1) if nbytes(count) <= host // share), 1)

    def _samplers(self, held: list[PlanItem], loop: list[PlanItem]) -> int:
        """Return twice the cores; fewer where samplers take over a quarter of the budget or planning's memory."""
        if self.options.samplers:
            return self.options.samplers
        one = self.bounds.scratch_bytes + 2 * self.bounds.sampled_bytes
        one += list_threads_bytes(self.bounds, self.list_threads)
        count = self._most(2 * self.runtime.cores, 4, lambda count: count * one)
        in_loop = self.left(held + loop)
        if in_loop is None or self.options.policy == "static" or self.sampling_only:
            return count
        wanted = self._changeset_bytes(1, min(self.num_nodes, max(1, in_loop // self.row)))
        few = self._changeset_bytes(min(_FEW_BATCHES, self.bounds.num_batches), 1) - self._changeset_bytes(1, 1)
        while count > 1 and (self.left(held + self._sample_items(count)) or 0) < wanted + few:
            count -= 1
        return count

    def _inputs(self) -> tuple[int, int]:
        """Return the rows of batch inputs and the readers: as wanted, fewer where the cache would get less memory."""
        mean = int(largest_batch(self.workload).nodes_by_batch.mean()) + 1
        batches = self.options.batch_inputs or self.options.readers + 2
        while True:
            rows = max(self.bounds.max_nodes, batches * mean)
            readers = min(self.options.readers, batches)
            left = self.left([indptr_item(self.workload), *self._loop_items(readers)])
            taken = rows * self.row + readers * self.reader_bytes
            # Two batch inputs keep the disk busy between mini-batches, which is worth more than the cache rows lost.
            share = 0.75 if batches == 2 else 0.5
            if self.options.batch_inputs or left is None or taken <= share * left or batches == 1:
                return rows, readers
            batches -= 1

    def _loop_items(self, readers: int) -> list[PlanItem]:
        """List the memory of mini-batches and changesets from their load to the end of their training."""
        one = runtime_batch_bytes(self.workload, self.bounds) + self.bounds.sampled_bytes
        # Mini-batches being loaded, loaded, being read, read, (gathered, transferred,) ready and trained.
        under_way = 1 + LOADED + 2 * readers + (5 if self.runtime.accelerator.kind != "cpu" else 3)
        return [
            PlanItem("mini-batches read back", under_way * one),
            PlanItem("seed nodes", self.bounds.seed_bytes),
            PlanItem("threads of the main loop", (readers + _LOOP_THREADS) * _THREAD_BYTES),
        ]

    def _sample_items(self, samplers: int) -> list[PlanItem]:
        share = self.workload.dataset.topology_bytes if self.budget.host is None else self.budget.host // 8
        return [
            *sampling_items(self.bounds, workers=samplers, waiting=samplers, list_threads=self.list_threads),
            map_item(self.workload),
            PlanItem("runtime-file buffers", 2 * runtime_batch_bytes(self.workload, self.bounds)),
            # `indices` and labels are read through the page cache.
            PlanItem("page cache of indices", min(self.workload.dataset.topology_bytes, share)),
        ]

    def _capacity(self, held: list[PlanItem], loop: list[PlanItem], sample: list[PlanItem]) -> int:
        row, left = self.row, self.left(held + loop)
        static = self.options.policy == "static"
        if left is not None and static:
            left -= 4 * self.num_nodes
        fitting = self.num_nodes if left is None else max(0, left) // (row + _KEPT_ROW_BYTES)
        if not static:
            # Planning keeps 12 bytes a row, which limits the number of very short rows.
            room = self.left(held + sample)
            if room is not None:
                planning = PlanItem("changesets", self._changeset_bytes(1, 1))
                self.require([*held, *sample, planning], "raise memory, or lower samplers, list_threads or readers")
                fitting = min(fitting, max(0, room - self._changeset_bytes(1, 0)) // 12)
        wanted = fitting
        if self.options.feature_cache != "auto":
            wanted = parse_bytes(self.options.feature_cache, "feature_cache") // row
        wanted = min(wanted, self.num_nodes)
        if wanted > fitting or wanted < 1:
            name, rows = f"feature cache ({max(1, wanted)} rows)", max(1, wanted)
            beside, item = [*held, *loop], PlanItem(name, rows * (row + _KEPT_ROW_BYTES))
            if static:
                beside.append(PlanItem("feature cache map", 4 * self.num_nodes))
            elif left is None or item.bytes <= left:
                beside = [*held, *sample, PlanItem("changesets", self._changeset_bytes(1, 0))]
                item = PlanItem(f"planning of the {name}", 12 * rows)
            fix = "raise memory, or lower feature_cache, readers, io_depth, batch size or fan-out"
            raise Plan(tuple(beside)).no_room(self.name, self.budget, item, fix)
        return wanted

    def _changeset_bytes(self, superbatch: int, capacity: int) -> int:
        return ChangesetPlan.plan_bytes(
            num_nodes=self.num_nodes, capacity=capacity, batches=superbatch, max_nodes=self.bounds.max_nodes
        )

    def _superbatch(self, on_disk: int, capacity: int, held: list[PlanItem], sample: list[PlanItem]) -> tuple[int, int]:
        """Return the mini-batches of a superbatch, and the bytes for planning its changesets."""
        # At most one epoch's: in a longer superbatch the first epoch would pay for the inspection of all.
        most = min(on_disk, self.bounds.num_batches)
        if self.options.superbatch:
            most = min(self.options.superbatch, self.run_batches)
        if self.options.policy == "static" or self.sampling_only:
            return most, 0
        left = self.left(held + sample)
        if not self.options.superbatch and left is not None:
            one = self._changeset_bytes(1, capacity)
            each = max(1, self._changeset_bytes(2, capacity) - one)
            # Larger superbatches are always better (Section 3.5), but a useful neighbour cache gets half of the memory.
            table = 8 * self.num_nodes
            useful = self.options.neighbour_cache != "off" and left // 2 >= 2 * table
            room = max(left // 2, min(left, one)) if useful else left
            most = max(1, min(most, 1 + (room - one) // each))
        return most, self._changeset_bytes(most, capacity)

    def _neighbours(self, held: list[PlanItem], sample: list[PlanItem]) -> NeighbourCachePlan:
        choice, left = self.options.neighbour_cache, self.left(held + sample)
        if choice == "off":
            return _NO_NEIGHBOURS
        room = 8 * self.num_nodes + self.workload.dataset.topology_bytes if left is None else left
        if self.budget.disk is not None:
            room = min(room, self.budget.disk // 4 - (1 << 12))
        free = self.left([indptr_item(self.workload)])
        can_make = free is None or building_bytes(self.workload) <= free
        if choice == "auto":
            return plan_neighbour_cache(self.workload, max(0, room)) if can_make else _NO_NEIGHBOURS
        wanted = parse_bytes(choice, "neighbour_cache")
        if wanted > room or not can_make:
            if can_make and (left is None or wanted <= left):
                said = f"{self.name}: neighbour cache of {choice} is more than the {format_bytes(max(0, room))} that"
                said += " the whole graph or a quarter of the disk-space limit is"
                raise BudgetError(said, "lower neighbour_cache")
            making = "" if can_make else f", which takes {format_bytes(building_bytes(self.workload))} to make,"
            item = PlanItem(f"neighbour cache of {choice}{making}", wanted)
            raise Plan((*held, *sample)).no_room(self.name, self.budget, item, "lower neighbour_cache or raise memory")
        return plan_neighbour_cache(self.workload, wanted)
