"""Sizes of GNNDrive's buffers from the workload and the budget.

Processes that train together share `indptr`, the staging buffer and, on the processor, the feature buffer (Section
4.4): each counts its part of them, and the feature buffer is as large as all their budgets allow.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, fields, replace

from systems.engine.io.direct_files import padded
from systems.engine.io.row_reads import feature_reader_bytes
from systems.engine.io.topology import indptr_item, map_item, row_bytes, sampling_items
from systems.gnndrive.extractor import StagedExtractor
from systems.gnndrive.feature_buffer import FeatureBuffer
from systems.gnndrive.options import GnnDriveOptions
from systems.gnndrive.shared_staging import SharedStaging
from systems.interface import MemoryBudget, Plan, PlanItem, Runtime, Tier
from workloads.accelerator import NO_ROWS
from workloads.errors import BudgetError
from workloads.sampling.bounds import Bounds, batch_bounds
from workloads.units import format_bytes, parse_bytes
from workloads.workload import Workload

NAME = "gnndrive"
_STAGING = 2 << 20


@dataclass(frozen=True)
class GnnDriveSizes:
    """Sizes of a run's buffers.

    Attributes:
        slots: rows of the feature buffer.
        max_nodes: rows of the largest mini-batch.
        on_device: whether the feature buffer lies in device memory (the paper's GPU variant).
        sharing: processes that share the feature buffer; 1: each has its own.
        staging_bytes: bytes of each extractor's staging buffer; 0: it reads into the feature buffer.
        plan: all buffers.
        portion: segments of the shared staging buffer that each process reserves; 0: it is not shared.
        segment_rows: rows of a segment.
    """

    slots: int
    max_nodes: int
    on_device: bool
    sharing: int
    staging_bytes: int
    plan: Plan
    portion: int = 0
    segment_rows: int = 0


def plan_sizes(workload: Workload, runtime: Runtime, budget: MemoryBudget, options: GnnDriveOptions) -> GnnDriveSizes:
    """Size every buffer.

    Raises:
        BudgetError: the feature buffer cannot hold the largest mini-batch of every extractor, below which extraction
            could deadlock (Section 4.2), or another buffer does not fit.
    """
    bounds = _joint_bounds(batch_bounds(workload), runtime)
    dataset, row, world = workload.dataset, row_bytes(workload), runtime.world
    on_device = runtime.accelerator.kind != "cpu"
    sharing = 1 if on_device else world
    waiting = options.extracting_queue + options.extractors + options.training_queue
    host = [
        _part(indptr_item(workload), world),
        *sampling_items(bounds, workers=options.samplers, waiting=waiting, list_threads=options.list_threads),
        map_item(workload),
    ]
    if runtime.stages == "sample":
        return GnnDriveSizes(0, bounds.max_nodes, on_device, sharing, 0, Plan(tuple(host)).require(NAME, budget))
    staging = 0  # bytes of an extractor's staging buffer, in whole rows, unless it reads into the feature buffer
    if on_device or not options.direct:
        staging = max(row, (options.staging_bytes or min(_STAGING, bounds.max_nodes * row)) // row * row)
    reader = feature_reader_bytes(workload, options, bounds.max_nodes) if options.direct else 0
    host.append(PlanItem("reader buffers", options.extractors * reader))
    portion, segment_rows = 0, 0
    if staging and runtime.group is not None:
        slices = min(StagedExtractor.SLICES, staging // row)
        portion, segment_rows = options.extractors * slices, staging // row // slices
        table_bytes = SharedStaging.plan_bytes(world, portion, segment_rows)
        host.append(PlanItem("staging buffer", portion * segment_rows * row))
        host.append(_part(PlanItem("staging table", table_bytes), world))
    elif staging:
        host.append(PlanItem("staging buffer", options.extractors * staging))
    # The feature buffer leaves memory for `indices`, which sampling reads through the page cache.
    share = dataset.topology_bytes if budget.host is None else budget.host * world // 8
    host.append(_part(PlanItem("page cache of indices", min(dataset.topology_bytes, share)), world))
    # Names a buffer that is too large before the feature buffer gets the rest.
    used = Plan(tuple(host)).require(NAME, budget).total("host")
    tier: Tier = "device" if on_device else "host"
    if on_device:
        limits = [limit for limit in (budget.device, runtime.accelerator.memory_bytes) if limit is not None]
        left = min(limits, default=None)
    else:
        left = None if budget.host is None else (budget.host - used) * sharing
    keeps_rows = not on_device or runtime.accelerator.keeps_rows
    slots = _slots(workload, options, bounds, left, tier, sharing, keeps_rows)
    host.append(_part(PlanItem("mapping table", FeatureBuffer.plan_bytes(slots)), sharing))
    host.append(_part(PlanItem("feature buffer", padded(slots * row), tier), sharing))
    plan = Plan(tuple(host)).require(
        NAME, budget, "raise memory, or lower extractors, list_threads, io_depth, batch size or fan-out"
    )
    return GnnDriveSizes(slots, bounds.max_nodes, on_device, sharing, staging, plan, portion, segment_rows)


def _part(item: PlanItem, sharing: int) -> PlanItem:
    """Return one process's part of a buffer that `sharing` processes hold together."""
    return replace(item, bytes=item.bytes // sharing)


def _joint_bounds(bounds: Bounds, runtime: Runtime) -> Bounds:
    """Return the largest bounds over all ranks, so that all ranks plan the same."""
    if runtime.group is None:
        return bounds
    ranks = runtime.group.gather(bounds)
    return Bounds(**{field.name: max(getattr(rank, field.name) for rank in ranks) for field in fields(Bounds)})


def _slots(
    workload: Workload,
    options: GnnDriveOptions,
    bounds: Bounds,
    left: int | None,
    tier: Tier,
    sharing: int,
    keeps_rows: bool,
) -> int:
    """Return the slots of the feature buffer: as wanted, or as `left` bytes of its tier hold.

    Beside a host table, `left` also holds the mapping table. Where the tier keeps no rows, at most the rows of the
    mini-batches under way.
    """
    row = row_bytes(workload)
    least = sharing * options.extractors * bounds.max_nodes
    fitting = workload.dataset.num_nodes
    if left is not None:
        table = FeatureBuffer.plan_bytes if tier == "host" else lambda slots: 0
        every = range(max(0, left) // row + 1)
        fitting = max(0, bisect_right(every, left, key=lambda slots: padded(slots * row) + table(slots)) - 1)
    under_way = sharing * (options.extractors + options.training_queue) * bounds.max_nodes
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
    # More slots than nodes are never used; with a slot for each node, every mini-batch finds its slots.
    slots = min(wanted, fitting, workload.dataset.num_nodes)
    if slots < min(least, workload.dataset.num_nodes):
        raise BudgetError(
            f"{NAME}: feature buffer needs {format_bytes(least * row)} for {options.extractors} extractors x "
            f"{bounds.max_nodes} rows of the largest mini-batch, {format_bytes(max(0, left or 0))} is left of the "
            f"{tier} budget",
            "raise memory, or lower extractors, batch size or fan-out",
        )
    return slots
