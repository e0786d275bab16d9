"""Bounds of DiskGNN's levels and buffers from workload and budget; `fit.py` has exact sizes once rows are ranked.

Training needs no graph in memory, only the caches and the mini-batches under way; preparation needs the graph and no
caches. The plan is the larger of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from systems.diskgnn.layout import segment_bytes
from systems.diskgnn.options import DiskGnnOptions
from systems.diskgnn.ranking import AccessCounts
from systems.engine.io.reader import RowReader
from systems.engine.io.topology import indptr_item, map_item, row_bytes
from systems.engine.store.batch_store import BatchWriter
from systems.engine.store.packed_store import PackedWriter, slot_rows
from systems.interface import MemoryBudget, Plan, PlanItem, Runtime
from workloads.accelerator import NO_ROWS
from workloads.errors import BudgetError
from workloads.sampling.bounds import Bounds, batch_bounds
from workloads.units import format_bytes, parse_bytes
from workloads.workload import Workload

NAME = "diskgnn"
_PAGE = 4096
_UNBOUNDED_PACKING = 256 << 20
_UNBOUNDED_SHARE = 10
_INDEX_BYTES = 64
_WORKING = 2 << 20
_AHEAD = 12
_GATHERED = 4 << 20
FIX = "raise memory, or lower batch size, fan-out, queue, readers or io_depth"


@dataclass(frozen=True)
class DiskGnnSizes:
    """Bounds before any row is ranked.

    Attributes:
        on_device: whether the table that training reads lies in device memory.
        table_rows: rows of the table: cached rows and buffers.
        direct_rows: cached rows of the table that the user asks for; None: as many as fit.
        host_rows: host rows beside the table (host cache and staging buffers); 0 on the processor.
        host_cache_rows: rows of the host cache that the user asks for; None: as many as fit.
        buffers: most mini-batches' buffers in the table.
        staging: most staging buffers; 0 on the processor.
        ahead_rows: rows of mini-batches requested at a time to keep the disk busy.
        graphs: chunks' graphs held at a time.
        graph_bytes: bytes for one graph.
        padding: rows that a buffer needs beside those of its mini-batch, since packed rows arrive in whole pages.
        align: multiple of rows at which each buffer of a host table begins.
        packing_bytes: bytes of host memory for packing.
        single_rows: whether rows may be read one by one.
    """

    on_device: bool
    table_rows: int
    direct_rows: int | None
    host_rows: int
    host_cache_rows: int | None
    buffers: int
    staging: int
    ahead_rows: int
    graphs: int
    graph_bytes: int
    padding: int
    align: int
    packing_bytes: int
    single_rows: bool
    bounds: Bounds
    plan: Plan

    def key(self) -> dict[str, Any]:
        """Return the fields that decide the levels of an episode, for its artefact's identity."""
        names = (
            "on_device",
            "table_rows",
            "direct_rows",
            "host_rows",
            "host_cache_rows",
            "buffers",
            "staging",
            "graphs",
            "ahead_rows",
        )
        return {name: getattr(self, name) for name in names}


def plan_sizes(
    workload: Workload, runtime: Runtime, budget: MemoryBudget, options: DiskGnnOptions, drawn: int
) -> DiskGnnSizes:
    """Bound every buffer.

    Args:
        drawn: sampled epochs that are prepared together.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """
    bounds = batch_bounds(workload)
    row, nodes = row_bytes(workload), workload.dataset.num_nodes
    on_device = runtime.accelerator.kind != "cpu"
    padding = _PAGE // row + 2
    align = 1 if on_device else slot_rows(row)
    graph_bytes = rounded_up(bounds.sampled_bytes + 16 * bounds.max_nodes, _PAGE) + 2 * _PAGE
    limit = options.limit_bytes(workload.dataset.feature_bytes, budget.disk)
    single = options.packing == "off" or (limit is not None and options.disk_cache == "auto")
    if runtime.stages == "sample":
        single = False
    wanted = options.queue + 2 if options.pipeline else 1
    staging = (options.queue + 1 if options.pipeline else 1) if on_device else 0
    usual = wanted + (staging if options.pipeline else 0)
    ahead = options.read_ahead_bytes // row if options.pipeline else 0
    graphs = _graphs(usual, usual + (_AHEAD if ahead else 0), graph_bytes, budget.host)
    items = [
        PlanItem("index of chunks", _INDEX_BYTES * drawn * bounds.num_batches),
        PlanItem("sampled mini-batches", graphs * graph_bytes),
        PlanItem("threads and address lists", _WORKING + 16 * (wanted + 1) * bounds.max_nodes),
    ]
    if single:
        one = RowReader.plan_bytes(
            row_bytes=row, depth=options.io_depth, granularity=options.io_granularity, num_ids=bounds.max_nodes
        )
        items.append(PlanItem("single-row readers", options.readers * one))
    disk = _disk_item(workload, bounds, limit, drawn, row, graph_bytes)
    preparing, packing = _preparing(workload, runtime, budget, options, bounds, drawn)
    direct: int | None = 0
    host_cache: int | None = 0
    if runtime.stages == "sample":
        table_rows, host_rows, buffers, staging = 0, 0, 0, 0
    elif on_device:
        buffers = max(1, options.queue if options.pipeline else 1)
        table_rows, direct = _device_rows(runtime, budget, options, bounds, row, nodes, buffers)
        items += [
            PlanItem("device table", table_rows * row, "device"),
            # The processor gathers rows of a table in two places through copies.
            PlanItem("gathered rows", min(_GATHERED, (budget.host or 0) // 8)),
        ]
        host_rows, host_cache = _host_rows(options, budget, items, row, nodes, bounds.max_nodes + padding, staging, 1)
        items.append(PlanItem("host cache and staging buffers", rounded_up(host_rows * row, _PAGE)))
    else:
        buffers = min(wanted, graphs)
        host_rows = 0
        table_rows, direct = _host_rows(options, budget, items, row, nodes, bounds.max_nodes + padding, buffers, align)
        items.append(PlanItem("host cache and buffers", rounded_up(table_rows * row, _PAGE)))
    training = sum(item.bytes for item in items if item.tier == "host")
    beyond = max(0, preparing - training)
    plan = Plan((*items, PlanItem("preparation beyond that", beyond), disk)).require(NAME, budget, FIX)
    return DiskGnnSizes(
        on_device,
        table_rows,
        direct,
        host_rows,
        host_cache,
        buffers,
        staging,
        ahead,
        graphs,
        graph_bytes,
        padding,
        align,
        packing,
        single,
        bounds,
        plan,
    )


def _graphs(usual: int, most: int, graph_bytes: int, host: int | None) -> int:
    """Return the usual number of graphs if a quarter of the budget holds them, `most` if an eighth does, at least 1."""
    if host is None:
        return most
    return max(1, min(usual, host // 4 // graph_bytes), min(most, host // 8 // graph_bytes))


def _device_rows(
    runtime: Runtime, budget: MemoryBudget, options: DiskGnnOptions, bounds: Bounds, row: int, nodes: int, buffers: int
) -> tuple[int, int | None]:
    """Return the rows of the device table, and the cached rows that the user asks for."""
    limits = [limit for limit in (budget.device, runtime.accelerator.memory_bytes) if limit is not None]
    limit = min(limits) if limits else 0
    if runtime.accelerator.kind == "cuda" and budget.device is None:
        limit -= limit // 4  # the model, its gradients and activations are on the device too
    fitting = limit // _PAGE * _PAGE // row
    if fitting < bounds.max_nodes:
        raise BudgetError(
            f"{NAME}: device table needs {format_bytes(bounds.max_nodes * row)} for the {bounds.max_nodes} rows of the "
            f"largest mini-batch, {format_bytes(limit)} is left of the device budget",
            "raise device memory or lower the batch size or fan-out",
        )
    if options.device_cache == "auto" and runtime.accelerator.keeps_rows:
        return min(fitting, nodes + buffers * bounds.max_nodes), None
    none = options.device_cache in ("auto", "off")
    wanted = 0 if none else parse_bytes(options.device_cache, "device_cache") // row
    if wanted and not runtime.accelerator.keeps_rows:
        raise BudgetError(f"{NAME}: no room for a device_cache of {options.device_cache}", NO_ROWS)
    if wanted + bounds.max_nodes > fitting:
        raise BudgetError(
            f"{NAME}: device_cache of {options.device_cache} leaves no room for a mini-batch of {bounds.max_nodes} "
            f"rows in {format_bytes(limit)} of device memory",
            "lower device_cache or raise device memory",
        )
    return min(fitting, wanted + buffers * bounds.max_nodes), wanted


def _host_rows(
    options: DiskGnnOptions,
    budget: MemoryBudget,
    items: list[PlanItem],
    row: int,
    nodes: int,
    largest: int,
    buffers: int,
    align: int,
) -> tuple[int, int | None]:
    """Return the rows of host cache and buffers together, and the cached rows that the user asks for."""
    buffer = rounded_up(largest, align)
    left: int | None = None
    if budget.host is not None:
        left = (budget.host - sum(item.bytes for item in items if item.tier == "host")) // _PAGE * _PAGE // row
        if left < buffer:
            raise BudgetError(
                f"{NAME}: buffer of the largest mini-batch needs {format_bytes(buffer * row)}, "
                f"{format_bytes(max(0, left * row))} is left of the {format_bytes(budget.host)} host budget after "
                f"{', '.join(f'{item.name} ({format_bytes(item.bytes)})' for item in items if item.tier == 'host')}",
                FIX,
            )
    if options.host_cache == "auto":
        cached = nodes // _UNBOUNDED_SHARE if left is None else nodes
        rows = rounded_up(cached, align) + buffers * buffer
        return (rows if left is None else min(left, rows)), None
    wanted = 0 if options.host_cache == "off" else parse_bytes(options.host_cache, "host_cache") // row
    if left is not None and rounded_up(wanted, align) + buffer > left:
        raise BudgetError(
            f"{NAME}: host_cache of {options.host_cache} leaves no room for a mini-batch of {largest} rows in the "
            f"{format_bytes(left * row)} that is left of the host budget",
            "lower host_cache or raise memory",
        )
    rows = rounded_up(wanted, align) + buffers * buffer
    return (rows if left is None else min(left, rows)), wanted


def _disk_item(
    workload: Workload, bounds: Bounds, limit: int | None, drawn: int, row: int, graph_bytes: int
) -> PlanItem:
    most = drawn * bounds.num_batches * (bounds.max_nodes * row + graph_bytes + 2 * _PAGE)
    most += workload.dataset.feature_bytes
    return PlanItem("packed features, caches and samples", most if limit is None else min(most, limit), "disk")


def _preparing(
    workload: Workload, runtime: Runtime, budget: MemoryBudget, options: DiskGnnOptions, bounds: Bounds, drawn: int
) -> tuple[int, int]:
    """Return the bytes of host memory of preparation's largest phase, and of packing alone; phases do not overlap."""
    nodes, row = workload.dataset.num_nodes, row_bytes(workload)
    samplers = options.samplers or runtime.cores
    waiting = (samplers + 1) * bounds.sampled_bytes + BatchWriter.bound_bytes(bounds.sampled_bytes, 8)
    ranked = nodes if budget.host is None else min(nodes, budget.host // row)
    batch = PlanItem("one mini-batch", 6 * bounds.sampled_bytes + segment_bytes(1, bounds.max_nodes))
    per_node = PlanItem("slots and positions by node", 8 * nodes)
    least = PackedWriter.least_bytes(row_bytes=row, longest=bounds.max_nodes)
    if options.packing_memory != "auto":
        memory = max(least, parse_bytes(options.packing_memory, "packing_memory"))
    elif budget.host is None:
        memory = max(least, _UNBOUNDED_PACKING)
    else:
        memory = max(least, budget.host - per_node.bytes - batch.bytes - _WORKING)
    phases = {
        "sampling": (
            indptr_item(workload),
            PlanItem("access counts", 4 * nodes),
            PlanItem("samplers", samplers * (bounds.scratch_bytes + bounds.sampled_bytes)),
            PlanItem("sampled mini-batches", waiting),
            map_item(workload),
            PlanItem("seed nodes", (drawn + 2) * bounds.seed_bytes // 3),
        ),
        "ranking": (
            PlanItem("access counts and ranks", AccessCounts.plan_bytes(nodes, ranked) + 4 * nodes),
            PlanItem("one mini-batch", 4 * bounds.sampled_bytes),
        ),
        "packing": (per_node, batch, PlanItem("threads", _WORKING), PlanItem("partition and chunk buffers", memory)),
    }
    for phase, items in phases.items():
        Plan(items).require(f"{NAME}, {phase} beforehand", MemoryBudget(budget.host), FIX)
    return max(Plan(items).total("host") for items in phases.values()), memory


def rounded_up(value: int, align: int) -> int:
    """Return the least multiple of `align` that is not below `value`."""
    return -(-value // align) * align
