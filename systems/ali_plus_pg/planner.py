"""Sizes of `ali+pg`'s buffers: first sampling and extraction, then the page cache's share; the caches get the rest."""

from __future__ import annotations

from dataclasses import dataclass

from systems.ali_plus_pg.options import AliPlusPgOptions
from systems.engine.cache import neighbour_cache, split_tuner
from systems.engine.cache.neighbour_cache import NeighbourCachePlan, plan_neighbour_cache
from systems.engine.cache.static_cache import StaticCache
from systems.engine.io.row_reads import feature_reader_bytes
from systems.engine.io.topology import indptr_item, map_item, sampling_items
from systems.engine.loading.gather_loader import BETWEEN, Tables, plan_tables
from systems.interface import MemoryBudget, Plan, PlanItem, Runtime
from workloads.errors import BudgetError
from workloads.sampling.bounds import batch_bounds
from workloads.units import format_bytes, parse_bytes
from workloads.workload import Workload

NAME = "ali+pg"
_UNLIMITED_SHARE = 4  # without a budget the caches hold a fourth of graph and features


@dataclass(frozen=True)
class Shares:
    """One split of the caches' memory.

    Attributes:
        split: per cent of the memory for the neighbour cache.
        neighbours: plan of the neighbour cache.
        rows: rows of the feature cache.
    """

    split: int
    neighbours: NeighbourCachePlan
    rows: int


@dataclass(frozen=True)
class AliPlusPgSizes:
    """Sizes of a run's buffers.

    Attributes:
        extractors: mini-batches read at the same time.
        tables: feature tables of mini-batches, on host and device.
        cache_bytes: bytes of both caches together.
        page_cache_bytes: bytes left for pages of `indices` and labels.
        plan: all buffers.
    """

    extractors: int
    tables: Tables
    cache_bytes: int
    page_cache_bytes: int
    plan: Plan


def shares(workload: Workload, cache_bytes: int, split: int, *, sampling_only: bool = False) -> Shares:
    """Split `cache_bytes`: `split` per cent for neighbour lists, the rest for rows (none where only sampling runs)."""
    neighbours = plan_neighbour_cache(workload, cache_bytes * split // 100)
    rows = 0 if sampling_only else StaticCache.capacity_of(workload, cache_bytes - cache_bytes * split // 100)
    return Shares(split, neighbours, rows)


def plan_sizes(
    workload: Workload, runtime: Runtime, budget: MemoryBudget, options: AliPlusPgOptions, workers: int, waiting: int
) -> AliPlusPgSizes:
    """Size every buffer.

    Args:
        workers, waiting: threads that sample, and sampled mini-batches that may wait for extraction.

    Raises:
        BudgetError: a buffer does not fit, or the size asked for the caches.
    """
    dataset, bounds, on_cpu = workload.dataset, batch_bounds(workload), runtime.accelerator.kind == "cpu"
    # The caches leave memory for uncached lists, which sampling reads through the page cache.
    share = dataset.topology_bytes if budget.host is None else budget.host // 8
    page_cache = min(dataset.topology_bytes, share)
    topology = [
        indptr_item(workload),
        *sampling_items(bounds, workers=workers, waiting=waiting + BETWEEN, list_threads=options.list_threads),
        map_item(workload),
        PlanItem("page cache of indices", page_cache),
    ]

    def parts(extractors: int) -> tuple[Tables, list[PlanItem]]:
        host, device = extractors + on_cpu, options.device_buffers
        tables = plan_tables(NAME, workload, runtime, budget, rows=bounds.max_nodes, host=host, device=device)
        if runtime.stages == "sample":
            return tables, [*topology]
        working = 40 * bounds.max_nodes  # hits, misses and aliases of one mini-batch
        reader = feature_reader_bytes(workload, options, bounds.max_nodes) + working
        return tables, [*topology, PlanItem("reader buffers", extractors * reader), *tables.items()]

    extractors = options.extractors or 2
    tables, items = parts(extractors)
    if not options.extractors and budget.host is not None and Plan(tuple(items)).total("host") > budget.host // 2:
        extractors = 1
        tables, items = parts(1)
    fix = "raise memory, or lower extractors, list_threads, io_depth, batch size or fan-out"
    used = Plan(tuple(items)).require(NAME, budget, fix).total("host")
    cache_bytes = _cache_bytes(workload, budget, options, used)
    items.append(PlanItem("preparation", max(0, _scratch(workload) - cache_bytes - tables.host * tables.nbytes)))
    used = Plan(tuple(items)).require(NAME, budget, fix).total("host")
    if budget.host is not None:
        cache_bytes = min(cache_bytes, max(0, budget.host - used))
    items.append(PlanItem("neighbour and feature caches", cache_bytes))
    plan = Plan(tuple(items)).require(NAME, budget, fix)
    return AliPlusPgSizes(extractors, tables, cache_bytes, page_cache, plan)


def _cache_bytes(workload: Workload, budget: MemoryBudget, options: AliPlusPgOptions, used: int) -> int:
    dataset = workload.dataset
    whole = dataset.topology_bytes + dataset.feature_bytes + 12 * dataset.num_nodes
    if options.cache == "auto":
        return min(whole, whole // _UNLIMITED_SHARE if budget.host is None else budget.host - used)
    wanted = parse_bytes(options.cache, "cache")
    if budget.host is not None and wanted > budget.host - used:
        raise BudgetError(
            f"{NAME}: caches of {options.cache} do not fit, {format_bytes(max(0, budget.host - used))} is left of the "
            "host budget",
            "lower cache or raise memory",
        )
    return min(wanted, whole)


def _scratch(workload: Workload) -> int:
    """Return the peak bytes of preparation beside `indptr`: ranking degrees, tuning the split or filling a cache."""
    ranking = 12 * workload.dataset.num_nodes + (4 << 20)
    tuning = split_tuner.scratch_bytes(workload, 0)
    return max(ranking, tuning, neighbour_cache.building_bytes(workload), StaticCache.scratch_bytes(workload))
