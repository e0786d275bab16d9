"""Options of MariusGNN, sizes of its buffers, and the partitions that an epoch has in memory."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from systems.engine.io.reader import RowReader
from systems.engine.io.topology import indptr_item, sampling_items
from systems.engine.loading.gather_loader import BETWEEN, Tables, plan_tables
from systems.engine.loading.sized import SamplingOptions
from systems.interface import MemoryBudget, Plan, PlanItem, Runtime
from systems.mariusgnn.partitioned import Layout
from workloads.errors import BudgetError
from workloads.sampling.bounds import Bounds, batch_bounds
from workloads.sampling.seeds import SeedPlan
from workloads.workload import Workload

NAME = "mariusgnn"
_PAGE_CACHE_BYTES = 2 << 20
_PARTITIONS, _MOST_PARTITIONS = 32, 256
#: Bytes a node that partitioning the graph holds: `indptr`, the node's partition, and pieces derived from both.
HELD_BYTES = 12
REQUEST_BYTES = 64 << 10  # largest read through a reader's own buffer
_UNIT_BYTES = 8 << 20  # topology is read in units of this size, or of one partition's if that is larger
Ordering = Literal["random", "rotation", "sequential", "fixed"]


class MariusOptions(SamplingOptions):
    """Options of `mariusgnn`."""

    partitions: int = Field(
        0,
        ge=0,
        le=256,
        description="p: partitions of the nodes; fewer where a partition would be no whole sectors; 0: 32, and more "
        "where the budget would not hold a handful of them",
    )
    buffer: int = Field(0, ge=0, le=256, description="c: partitions in memory at once; 0: as many as the budget holds")
    ordering: Ordering = Field(
        "random",
        description="which partitions join those of the training nodes in an epoch: `random` draws them anew; "
        "`rotation` takes the next ones, so that all have their turn soonest; `sequential` moves on by one, which "
        "reads least; `fixed` never changes them",
    )
    io_depth: int = Field(
        32, ge=2, le=1024, description="reads kept in flight: three of four for rows, the others for edge buckets"
    )
    gather_threads: int = Field(0, ge=0, le=256, description="threads that gather one mini-batch; 0: one for each core")
    request_bytes: int = Field(1 << 20, ge=4096, le=1 << 24, description="bytes of one read of a partition or buckets")
    batch_slack: float = Field(
        1.25,
        ge=1,
        le=16,
        description="rows of a mini-batch's table, as a multiple of the largest mini-batch of the whole graph: without "
        "its hubs, what is buffered can give larger ones",
    )


@dataclass(frozen=True)
class MariusSizes:
    """Sizes of a run's buffers.

    Attributes:
        capacity: c, partitions in memory at once.
        max_edges: most edges among the partitions that may be in memory together.
        unit_bytes: bytes of the buffer through which lists and edge buckets are read.
    """

    capacity: int
    max_edges: int
    unit_bytes: int
    tables: Tables
    plan: Plan


def partitions_for(workload: Workload, budget: MemoryBudget) -> int:
    """Return the number of partitions, 32 to 256, at which half of the budget holds eight partitions."""
    if budget.host is None:
        return _PARTITIONS
    count = _PARTITIONS
    while count < _MOST_PARTITIONS and 8 * workload.dataset.feature_bytes // count > budget.host // 2:
        count *= 2
    return count


def max_edges(counts: npt.NDArray[np.int64], pinned: int, free: int) -> int:
    """Bound the edges among the first `pinned` partitions and any `free` others; exact where all are buffered.

    Args:
        counts: int64 [p, p], edges from j to i at [i, j].
    """
    others = len(counts) - pinned
    if free >= others:
        return int(counts.sum())
    inner = counts[pinned:, pinned:].copy()
    own = inner.diagonal().copy()
    np.fill_diagonal(inner, 0)
    # Most edges that partition j adds: with the pinned ones, its own, and with the companions that share most edges.
    companions = np.sort(inner, axis=1)[:, others - max(0, free - 1) :].sum(axis=1)
    brings = counts[:pinned, pinned:].sum(axis=0) + counts[pinned:, :pinned].sum(axis=1) + own + companions
    return int(counts[:pinned, :pinned].sum() + np.sort(brings)[others - free :].sum())


def unit_bytes(layout: Layout, capacity: int, host: int | None) -> int:
    """Return the read buffer's bytes: the longest lists or buckets of a partition, or a 32nd of the budget if more."""
    rows = np.sort(layout.bucket_bytes, axis=1)[:, layout.parts.count - capacity :].sum(axis=1)
    most = max(int(rows.max(initial=0)), int(layout.list_bytes.max(initial=0)))
    wanted = _UNIT_BYTES if host is None else min(_UNIT_BYTES, host // 32)
    return max(most, min(wanted, int(layout.list_bytes.sum()), int(layout.bucket_bytes.sum())), 4096)


def depths(options: MariusOptions) -> tuple[int, int]:
    """Return the reads in flight of rows, and of lists and edge buckets."""
    topology = max(1, options.io_depth // 4)
    return options.io_depth - topology, topology


def plan_sizes(
    workload: Workload, runtime: Runtime, budget: MemoryBudget, options: MariusOptions, layout: Layout, workers: int
) -> MariusSizes:
    """Plan the largest partition buffer that the budget holds, or the one that the options ask for.

    Args:
        workers: threads that sample.

    Raises:
        BudgetError: it does not fit; names the buffer.
    """
    parts = layout.parts
    least = min(parts.count, parts.pinned + 1)

    # The readers' own buffers only take ends within a block: rows are read in place.
    reading = sum(
        RowReader.plan_bytes(data_offset=0, row_bytes=4096, depth=depth, max_request_bytes=REQUEST_BYTES)
        for depth in depths(options)
    )

    def sized(capacity: int) -> MariusSizes:
        nodes = min(parts.num_nodes, capacity * parts.size)
        bounds = _bounds(workload, options, nodes, whole=capacity >= parts.count)
        edges = max_edges(layout.counts, parts.pinned, capacity - parts.pinned)
        unit = unit_bytes(layout, capacity, budget.host)
        tables = plan_tables(NAME, workload, runtime, budget, rows=bounds.max_nodes, host=0, device=2)
        items = [
            indptr_item(workload),
            PlanItem("rows of nodes", 4 * parts.num_nodes),
            PlanItem("buffered edges", edges * (parts.index_dtype.itemsize + 1)),
            PlanItem("buffered node ids", 8 * capacity * parts.size),
            PlanItem("read buffer", unit + reading),
            *sampling_items(bounds, workers=workers, waiting=options.prefetch * workers + BETWEEN),
            # Labels are read through the page cache, and training's peak differs from step to step: if the buffer took
            # the last page of the cap, the kernel would kill the run.
            PlanItem("page cache", _PAGE_CACHE_BYTES),
        ]
        if runtime.stages != "sample":
            items += [*tables.items(), PlanItem("buffered features", capacity * parts.slot_bytes)]
        items.append(PlanItem("partitions and edge buckets", layout.disk_bytes, "disk"))
        return MariusSizes(capacity, edges, unit, tables, Plan(tuple(items)))

    def host(capacity: int) -> int:
        return sized(capacity).plan.total("host")

    if options.buffer:
        capacity = min(options.buffer, parts.count)
        if capacity < least:
            raise BudgetError(
                f"{NAME}: a buffer of {capacity} partitions is too small for the {parts.pinned} that hold training "
                f"nodes and one more",
                f"raise buffer to {least}",
            )
    elif budget.host is None or host(parts.count) <= budget.host:
        # All partitions may fit where one fewer does not: their mini-batches need no slack.
        capacity = parts.count
    else:
        fewer = range(least, parts.count)
        capacity = max(least, least + bisect_right(fewer, budget.host, key=host) - 1)
    chosen = sized(capacity)
    fix = "lower buffer, or leave it to the budget (0)" if options.buffer else "raise memory"
    chosen.plan.require(NAME, budget, fix)
    return chosen


def _bounds(workload: Workload, options: MariusOptions, nodes: int, *, whole: bool) -> Bounds:
    """Return bounds of mini-batches among `nodes` buffered nodes, from the bounds on the whole graph."""
    bounds = batch_bounds(workload)
    if whole:
        return bounds  # the same graph, so the same mini-batches
    reached = most = workload.sampler.batch_size
    for fanout in workload.sampler.fanout:
        most *= fanout if fanout >= 0 else nodes
        reached = min(nodes, reached + most)
    names = ("max_nodes", "max_edges", "sampled_bytes", "scratch_bytes")
    grown = {name: math.ceil(getattr(bounds, name) * options.batch_slack) for name in names}
    return replace(bounds, **{**grown, "max_nodes": min(nodes, reached, grown["max_nodes"])})


def buffered(count: int, pinned: int, capacity: int, ordering: Ordering, *, seed: int, epoch: int) -> list[int]:
    """Return the partitions of an epoch, ascending; a function of its arguments alone.

    Training nodes fill the first partitions, which stay; the other slots change between epochs and never within one
    (MariusGNN's policy for node classification, as described by GNNDrive, Section 2).

    Args:
        count: number of partitions.
        pinned: number of partitions with training nodes, the first ones.
        capacity: partitions in memory at once, at least `pinned`.
        ordering: rule by which the other partitions change.
        seed: seed of the run.
    """
    others = np.arange(pinned, count, dtype=np.int64)
    free = capacity - pinned
    if free <= 0 or free >= len(others):
        chosen = others[: max(0, free)]
    elif ordering == "random":
        chosen = SeedPlan(others, free, seed=seed, max_batches=1).batches(epoch)[0]
    else:
        step = {"rotation": free, "sequential": 1, "fixed": 0}[ordering]
        chosen = others[(epoch * step + np.arange(free)) % len(others)]
    return [*range(pinned), *sorted(int(k) for k in chosen)]
