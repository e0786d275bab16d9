"""Sizes of GNNDrive's buffers.

Processes that train together share `indptr`, the staging buffer and, on the processor,
the feature buffer (Section 4.4): each counts its part of them, and the feature buffer
is as large as all their budgets allow.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, fields, replace

from systems.engine.io.row_reads import feature_reader_bytes
from systems.engine.io.topology import (
    device_limit,
    indptr_item,
    map_item,
    sampling_items,
)
from systems.gnndrive.buffers import FeatureBuffer, SharedStaging
from systems.gnndrive.extractor import StagedExtractor
from systems.gnndrive.options import GnnDriveOptions
from systems.interface import Plan, PlanItem, Runtime, System, Tier
from systems.parts.sizes import PAGE_CACHE, Need, divide, fixed, left_of
from workloads.accelerator import NO_ROWS
from workloads.direct_files import padded
from workloads.errors import BudgetError
from workloads.sampling.bounds import Bounds, batch_bounds
from workloads.units import parse_bytes

_STAGING = 2 << 20
_FIX = (
    "raise memory, or lower extractors, list_threads, io_depth, batch size or fan-out"
)


@dataclass(frozen=True)
class Staging:
    """Sizes of the staging buffer between the disk and a device, or between the page
    cache and the feature buffer.

    Attributes:
        extractor_bytes: bytes of each extractor's own buffer, in whole rows; 0: it
            reads into the feature buffer.
        portion: segments of the shared buffer that each process reserves; 0: it is not
            shared.
        segment_rows: rows of a segment.
    """

    extractor_bytes: int = 0
    portion: int = 0
    segment_rows: int = 0


@dataclass(frozen=True)
class GnnDriveSizes:
    """Sizes of a run's buffers.

    Attributes:
        plan: all buffers.
        max_nodes: rows of the largest mini-batch of any rank.
        sharing: processes that share the feature buffer; 1: each has its own.
        slots: rows of the feature buffer; 0: the run only samples.
        staging: the staging buffer.
    """

    plan: Plan
    max_nodes: int
    sharing: int
    slots: int = 0
    staging: Staging = Staging()


def size_buffers(system: System, options: GnnDriveOptions) -> GnnDriveSizes:
    """Divide a system's budget.

    Raises:
        BudgetError: the feature buffer cannot hold the largest mini-batch of every
            extractor, below which extraction could deadlock (Section 4.2), or another
            buffer does not fit.
    """
    return _Division(system, options).sizes()


class _Division:
    """Division of the budget: buffers of one size first, and the feature buffer from
    what they leave."""

    def __init__(self, system: System, options: GnnDriveOptions) -> None:
        self.name = system.info.name
        self.workload = system.workload
        self.runtime = system.runtime
        self.budget = system.budget
        self.options = options
        self.bounds = _joint_bounds(batch_bounds(self.workload), self.runtime)
        self.max_nodes = self.bounds.max_nodes
        self.row = self.workload.dataset.row_bytes
        self.on_device = self.runtime.accelerator.kind != "cpu"
        self.sharing = 1 if self.on_device else self.runtime.world
        self.tier: Tier = "device" if self.on_device else "host"

    def sizes(self) -> GnnDriveSizes:
        """Size the feature buffer, and plan all buffers."""
        sampling = self._sampling()
        if self.runtime.stages == "sample":
            plan = divide(self.name, sampling, self.budget, "raise memory").plan
            return GnnDriveSizes(plan, self.max_nodes, self.sharing)
        staging = self._staging()
        needs = [*sampling, *self._extraction(staging), self._page_cache()]
        # Refuses a buffer that is too large before the feature buffer gets the rest.
        divide(self.name, needs, self.budget, "raise memory")
        slots = self._slots(needs)
        table = PlanItem("mapping table", FeatureBuffer.plan_bytes(slots))
        rows = PlanItem("feature buffer", padded(slots * self.row), self.tier)
        needs += fixed([_part(table, self.sharing), _part(rows, self.sharing)])
        plan = divide(self.name, needs, self.budget, _FIX).plan
        return GnnDriveSizes(plan, self.max_nodes, self.sharing, slots, staging)

    def _sampling(self) -> list[Need]:
        """List the graph, the samplers and the mini-batches in queues."""
        options = self.options
        waiting = options.extracting_queue + options.extractors + options.training_queue
        samplers = sampling_items(
            self.bounds,
            workers=options.samplers,
            waiting=waiting,
            list_threads=options.list_threads,
        )
        indptr = _part(indptr_item(self.workload), self.runtime.world)
        return fixed([indptr, *samplers, map_item(self.workload)])

    def _staging(self) -> Staging:
        """Return the sizes of the staging buffer, which several processes share."""
        if not self.on_device and self.options.direct:
            return Staging()
        wanted = self.options.staging_bytes or min(_STAGING, self.max_nodes * self.row)
        rows = max(1, wanted // self.row)
        if self.runtime.group is None:
            return Staging(rows * self.row)
        slices = min(StagedExtractor.SLICES, rows)
        return Staging(
            rows * self.row, self.options.extractors * slices, rows // slices
        )

    def _extraction(self, staging: Staging) -> list[Need]:
        """List the readers and the staging buffer."""
        options = self.options
        world = self.runtime.world
        reader = (
            feature_reader_bytes(self.workload, options, self.max_nodes)
            if options.direct
            else 0
        )
        readers = Need("reader buffers", options.extractors * reader)
        if not staging.portion:
            return [
                readers,
                Need("staging buffer", options.extractors * staging.extractor_bytes),
            ]
        rows = staging.portion * staging.segment_rows
        table_bytes = SharedStaging.plan_bytes(
            world, staging.portion, staging.segment_rows
        )
        table = _part(PlanItem("staging table", table_bytes), world)
        return [readers, Need("staging buffer", rows * self.row), *fixed([table])]

    def _page_cache(self) -> Need:
        """Leave memory for `indices`, which sampling reads through the page cache."""
        world = self.runtime.world
        pages = self.workload.dataset.topology_bytes
        if self.budget.host is not None:
            pages = min(pages, self.budget.host * world // 8)
        return Need(PAGE_CACHE, pages // world)

    def _slots(self, beside: list[Need]) -> int:
        """Return the slots of the feature buffer: as wanted, or as its tier holds
        beside these buffers."""
        options = self.options
        most = (
            self.workload.dataset.num_nodes
        )  # with a slot for each node, every mini-batch finds its slots
        least = self.sharing * options.extractors * self.max_nodes
        under_way = least + self.sharing * options.training_queue * self.max_nodes
        left = self._left(beside)
        fitting = most if left is None else self._fitting(left)
        if not self._keeps_rows:
            fitting = min(fitting, under_way)
        wanted = fitting
        if options.feature_buffer == "auto":
            wanted = max(least, int(under_way * options.feature_buffer_scale))
        elif options.feature_buffer != "max":
            wanted = parse_bytes(options.feature_buffer, "feature_buffer") // self.row
            if wanted > fitting and left is not None:
                fix = (
                    "lower feature_buffer or raise memory"
                    if self._keeps_rows
                    else NO_ROWS
                )
                name = f"feature buffer of {options.feature_buffer}"
                raise self._no_room(name, wanted * self.row, beside, left, fix)
        slots = min(wanted, fitting, most)
        if slots < min(least, most):
            rows = f"{self.max_nodes} rows of the largest mini-batch"
            name = f"feature buffer for {options.extractors} extractors x {rows}"
            memory = "device memory" if self.on_device else "memory"
            fix = f"raise {memory}, or lower extractors, batch size or fan-out"
            raise self._no_room(name, self._buffer_bytes(least), beside, left, fix)
        return slots

    @property
    def _keeps_rows(self) -> bool:
        """Whether rows stay in the feature buffer; otherwise only those of mini-batches
        under way have slots."""
        return not self.on_device or self.runtime.accelerator.keeps_rows

    def _left(self, beside: list[Need]) -> int | None:
        """Return the bytes left for the feature buffer of all processes that share it;
        None: unlimited."""
        if self.on_device:
            return device_limit(self.runtime, self.budget)
        left = left_of(self.budget, beside)
        return None if left is None else left * self.sharing

    def _buffer_bytes(self, slots: int) -> int:
        """Return the bytes of so many slots in their tier: a host table lies beside its
        mapping table."""
        table = 0 if self.on_device else FeatureBuffer.plan_bytes(slots)
        return padded(slots * self.row) + table

    def _fitting(self, left: int) -> int:
        """Return the most slots of at most `left` bytes."""
        every = range(max(0, left) // self.row + 1)
        return max(0, bisect_right(every, left, key=self._buffer_bytes) - 1)

    def _no_room(
        self, name: str, nbytes: int, beside: list[Need], left: int | None, fix: str
    ) -> BudgetError:
        """Return the error that the feature buffer does not fit beside these
        buffers."""
        budget = replace(self.budget, device=left) if self.on_device else self.budget
        plan = Plan(
            tuple(PlanItem(need.name, need.bytes, need.tier) for need in beside)
        )
        item = _part(PlanItem(name, nbytes, self.tier), self.sharing)
        return plan.no_room(self.name, budget, item, fix)


def _part(item: PlanItem, sharing: int) -> PlanItem:
    """Return one process's part of a buffer that `sharing` processes hold together."""
    return replace(item, bytes=item.bytes // sharing)


def _joint_bounds(bounds: Bounds, runtime: Runtime) -> Bounds:
    """Return the largest bounds over all ranks, so that all ranks plan the same."""
    if runtime.group is None:
        return bounds
    ranks = runtime.group.gather(bounds)
    return Bounds(
        **{
            field.name: max(getattr(rank, field.name) for rank in ranks)
            for field in fields(Bounds)
        }
    )
