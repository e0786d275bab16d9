"""Options of GNNDrive (Section 5, Platform and Baselines) and sizes of its buffers.

Processes that train together share `indptr`, the staging buffer and, on the processor, the feature buffer (Section
4.4): each counts its part of them, and the feature buffer is as large as all their budgets allow.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import fields, replace

from pydantic import Field

from systems.engine.io.row_reads import RowReadOptions, feature_reader_bytes
from systems.engine.io.topology import device_limit, indptr_item, map_item, sampling_items
from systems.engine.loading.sized import Sizes
from systems.gnndrive.buffers import FeatureBuffer, SharedStaging
from systems.gnndrive.extractor import StagedExtractor
from systems.interface import Plan, PlanItem, Runtime, System, Tier, auto, size
from workloads.accelerator import NO_ROWS
from workloads.direct_files import padded
from workloads.sampling.bounds import Bounds
from workloads.units import parse_bytes

NAME = "gnndrive"
_STAGING = 2 << 20


class GnnDriveOptions(RowReadOptions):
    """Options of `gnndrive`."""

    extracting_queue: int = auto(6, most=1024, description="sampled mini-batches that wait for an extractor")
    training_queue: int = auto(4, most=1024, description="extracted mini-batches that wait for training")
    samplers: int = auto(4, most=256, description="threads that sample, a mini-batch each")
    io_depth: int = Field(
        128, ge=1, le=4096, description="reads in flight for each extractor; more only makes sampling wait behind them"
    )
    extractors: int = auto(4, most=256, description="threads that extract, a mini-batch each")
    list_threads: int = Field(
        1, ge=1, le=256, description="threads that share each of them and wait for pages of neighbour lists"
    )
    keep_order: bool = Field(False, description="train in the seed plan's order instead of as extraction finishes")
    feature_buffer: str = size(
        "auto",
        "max",
        description="`auto`: rows of as many largest mini-batches as extractors and training queue hold (Section 4.2), "
        "fewer where its tier is smaller; `max`: all that is left of its tier; or a size such as 32MiB",
    )
    feature_buffer_scale: float = Field(1.0, gt=0, le=64, description="times the `auto` size (Fig. 12: 1 to 8)")
    direct: bool = Field(True, description="direct I/O; False reads through the page cache (Section 4.4)")
    merge: bool = Field(True, description="read neighbouring rows together (joint extraction, Section 4.4)")
    merge_gap_bytes: int = Field(0, ge=0, le=1 << 20, description="bytes between two rows that may be read needlessly")
    staging_bytes: int = Field(
        0, ge=0, description="staging buffer of each extractor on a device with its own memory; 0: 2 MiB or one batch"
    )
    borrow_staging: bool = Field(
        True, description="several processes share a staging buffer: take idle parts of others' portions (Section 4.4)"
    )
    share_staged_rows: bool = Field(
        True, description="and take rows that any of them has there already instead of reading them again (Section 4.4)"
    )


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
            left = device_limit(runtime, self.budget)
        self.slots = self._slots(Plan(tuple(items)), left, tier)
        items.append(_part(PlanItem("mapping table", FeatureBuffer.plan_bytes(self.slots)), self.sharing))
        items.append(_part(PlanItem("feature buffer", padded(self.slots * row), tier), self.sharing))
        fix = "raise memory, or lower extractors, list_threads, io_depth, batch size or fan-out"
        return self.require(items, fix)

    def _slots(self, beside: Plan, left: int | None, tier: Tier) -> int:
        """Return the slots of the feature buffer: as wanted, or as `left` bytes of its tier, `beside` others, hold.

        Beside a host table, `left` also holds the mapping table. Where the tier keeps no rows, at most the rows of the
        mini-batches under way.
        """
        options, row, fitting = self.options, self.row, self.num_nodes
        keeps_rows = not self.on_device or self.runtime.accelerator.keeps_rows
        least = self.sharing * options.extractors * self.max_nodes
        under_way = least + self.sharing * options.training_queue * self.max_nodes
        most = fitting  # more slots than nodes are never used; with one for each node, every mini-batch finds its slots
        table = FeatureBuffer.plan_bytes if tier == "host" else lambda slots: 0
        budget = replace(self.budget, device=left) if tier == "device" else self.budget
        if left is not None:
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
                item = _part(PlanItem(f"feature buffer of {options.feature_buffer}", wanted * row, tier), self.sharing)
                fix = "lower feature_buffer or raise memory" if keeps_rows else NO_ROWS
                raise beside.no_room(NAME, budget, item, fix)
        slots = min(wanted, fitting, most)
        if slots < min(least, most):
            name = (
                f"feature buffer for {options.extractors} extractors x {self.max_nodes} rows of the largest mini-batch"
            )
            item = _part(PlanItem(name, padded(least * row) + table(least), tier), self.sharing)
            memory = "device memory" if tier == "device" else "memory"
            raise beside.no_room(NAME, budget, item, f"raise {memory}, or lower extractors, batch size or fan-out")
        return slots

    def chosen(self) -> dict[str, int | str]:
        """Return the bytes of the feature buffer."""
        return {"feature_buffer": self.slots * self.row}


def _part(item: PlanItem, sharing: int) -> PlanItem:
    """Return one process's part of a buffer that `sharing` processes hold together."""
    return replace(item, bytes=item.bytes // sharing)


def _joint_bounds(bounds: Bounds, runtime: Runtime) -> Bounds:
    """Return the largest bounds over all ranks, so that all ranks plan the same."""
    if runtime.group is None:
        return bounds
    ranks = runtime.group.gather(bounds)
    return Bounds(**{field.name: max(getattr(rank, field.name) for rank in ranks) for field in fields(Bounds)})
