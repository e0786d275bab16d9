"""Sizes of GNNDrive's buffers from the workload and the budget.

Processes that train together share `indptr`, the staging buffer and, on the processor, the feature buffer (Section
4.4): each counts its part of them, and the feature buffer is as large as all their budgets allow.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import fields, replace

from systems.engine.io.row_reads import feature_reader_bytes
from systems.engine.io.topology import indptr_item, map_item, sampling_items
from systems.engine.loading.sized import Sizes
from systems.gnndrive.extractor import StagedExtractor
from systems.gnndrive.feature_buffer import FeatureBuffer
from systems.gnndrive.options import GnnDriveOptions
from systems.gnndrive.shared_staging import SharedStaging
from systems.interface import Plan, PlanItem, Runtime, System, Tier
from workloads.accelerator import NO_ROWS
from workloads.direct_files import padded
from workloads.errors import BudgetError
from workloads.sampling.bounds import Bounds
from workloads.units import format_bytes, parse_bytes

NAME = "gnndrive"
_STAGING = 2 << 20


class GnnDriveSizes(Sizes):
    """Sizes of a run's buffers.

    Attributes:
        slots: rows of the feature buffer.
        max_nodes: rows of the largest mini-batch.
        sharing: processes that share the feature buffer; 1: each has its own.
        staging_bytes: bytes of each extractor's staging buffer, in whole rows; 0: it reads into the feature buffer.
        portion: segments of the shared staging buffer that each process reserves; 0: it is not shared.
        segment_rows: rows of a segment.

    Raises:
        BudgetError: the feature buffer cannot hold the largest mini-batch of every extractor, below which extraction
            could deadlock (Section 4.2), or another buffer does not fit.
    """

    options: GnnDriveOptions

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self.bounds = _joint_bounds(self.bounds, self.runtime)
        self.max_nodes = self.bounds.max_nodes
        self.sharing = 1 if self.on_device else self.runtime.world
        self.slots = self.staging_bytes = self.portion = self.segment_rows = 0
        self.plan = self._plan()

    def _plan(self) -> Plan:
        options, runtime, row, world = self.options, self.runtime, self.row, self.runtime.world
        topology_bytes, host = self.workload.dataset.topology_bytes, self.budget.host
        waiting = options.extracting_queue + options.extractors + options.training_queue
        items = [
            _part(indptr_item(self.workload), world),
            *sampling_items(self.bounds, workers=options.samplers, waiting=waiting, list_threads=options.list_threads),
            map_item(self.workload),
        ]
        if self.sampling_only:
            return Plan(tuple(items)).require(NAME, self.budget)
        if self.on_device or not options.direct:
            wanted = options.staging_bytes or min(_STAGING, self.max_nodes * row)
            self.staging_bytes = max(row, wanted // row * row)
        reader = feature_reader_bytes(self.workload, options, self.max_nodes) if options.direct else 0
        items.append(PlanItem("reader buffers", options.extractors * reader))
        if self.staging_bytes and runtime.group is not None:
            rows = self.staging_bytes // row
            slices = min(StagedExtractor.SLICES, rows)
            self.portion, self.segment_rows = options.extractors * slices, rows // slices
            table_bytes = SharedStaging.plan_bytes(world, self.portion, self.segment_rows)
            items.append(PlanItem("staging buffer", self.portion * self.segment_rows * row))
            items.append(_part(PlanItem("staging table", table_bytes), world))
        elif self.staging_bytes:
            items.append(PlanItem("staging buffer", options.extractors * self.staging_bytes))
        # The feature buffer leaves memory for `indices`, which sampling reads through the page cache.
        share = topology_bytes if host is None else host * world // 8
        items.append(_part(PlanItem("page cache of indices", min(topology_bytes, share)), world))
        # Names a buffer that is too large before the feature buffer gets the rest.
        used = Plan(tuple(items)).require(NAME, self.budget).total("host")
        tier: Tier = "device" if self.on_device else "host"
        left = None if host is None else (host - used) * self.sharing
        if self.on_device:
            limits = (self.budget.device, runtime.accelerator.memory_bytes)
            left = min((limit for limit in limits if limit is not None), default=None)
        self.slots = self._slots(left, tier)
        items.append(_part(PlanItem("mapping table", FeatureBuffer.plan_bytes(self.slots)), self.sharing))
        items.append(_part(PlanItem("feature buffer", padded(self.slots * row), tier), self.sharing))
        fix = "raise memory, or lower extractors, list_threads, io_depth, batch size or fan-out"
        return self.require(items, fix)

    def _slots(self, left: int | None, tier: Tier) -> int:
        """Return the slots of the feature buffer: as wanted, or as `left` bytes of its tier hold.

        Beside a host table, `left` also holds the mapping table. Where the tier keeps no rows, at most the rows of the
        mini-batches under way.
        """
        options, row, fitting = self.options, self.row, self.num_nodes
        keeps_rows = not self.on_device or self.runtime.accelerator.keeps_rows
        least = self.sharing * options.extractors * self.max_nodes
        under_way = least + self.sharing * options.training_queue * self.max_nodes
        most = fitting  # more slots than nodes are never used; with one for each node, every mini-batch finds its slots
        if left is not None:
            table = FeatureBuffer.plan_bytes if tier == "host" else lambda slots: 0
            every = range(max(0, left) // row + 1)
            fitting = max(0, bisect_right(every, left, key=lambda slots: padded(slots * row) + table(slots)) - 1)
        if not keeps_rows:
            fitting = min(fitting, under_way)
        if options.feature_buffer == "auto":
            wanted = max(least, int(under_way * options.feature_buffer_scale))
        elif options.feature_buffer == "max":
            wanted = fitting
        else:
            wanted = parse_bytes(options.feature_buffer, "feature_buffer") // row
            if wanted > fitting and left is not None:
                raise BudgetError(
                    f"{NAME}: feature buffer of {options.feature_buffer} does not fit, {format_bytes(max(0, left))} is "
                    f"left of the {tier} budget",
                    "lower feature_buffer or raise memory" if keeps_rows else NO_ROWS,
                )
        slots = min(wanted, fitting, most)
        if slots < min(least, most):
            raise BudgetError(
                f"{NAME}: feature buffer needs {format_bytes(least * row)} for {options.extractors} extractors x "
                f"{self.max_nodes} rows of the largest mini-batch, {format_bytes(max(0, left or 0))} is left of the "
                f"{tier} budget",
                "raise memory, or lower extractors, batch size or fan-out",
            )
        return slots


def _part(item: PlanItem, sharing: int) -> PlanItem:
    """Return one process's part of a buffer that `sharing` processes hold together."""
    return replace(item, bytes=item.bytes // sharing)


def _joint_bounds(bounds: Bounds, runtime: Runtime) -> Bounds:
    """Return the largest bounds over all ranks, so that all ranks plan the same."""
    if runtime.group is None:
        return bounds
    ranks = runtime.group.gather(bounds)
    return Bounds(**{field.name: max(getattr(rank, field.name) for rank in ranks) for field in fields(Bounds)})
