"""Sizes of `ali+pg`'s buffers: first sampling and extraction, then the page cache's share; the caches get the rest."""

from __future__ import annotations

from dataclasses import dataclass

from systems.ali_plus_pg.options import AliPlusPgOptions
from systems.engine.cache import neighbour_cache, split_tuner
from systems.engine.cache.neighbour_cache import NeighbourCachePlan, plan_neighbour_cache
from systems.engine.cache.static_cache import StaticCache
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import reader_arguments
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


def plan_sizes(workload: Workload, runtime: Runtime, budget: MemoryBudget, options: AliPlusPgOptions) -> AliPlusPgSizes:
    """Size every buffer.

    Raises:
        BudgetError: a buffer does not fit, or the size asked for the caches.
    """
    bounds = batch_bounds(workload)
    workers = sampling_workers(runtime, options)
    sampling = sampling_items(
        bounds, workers=workers, waiting=options.prefetch * workers + BETWEEN, list_threads=options.list_threads
    )
    topology = [indptr_item(workload), *sampling, map_item(workload)]
    page_cache = _page_cache(workload, budget)

    def parts(extractors: int) -> tuple[Tables, list[PlanItem]]:
        tables = plan_tables(
            NAME,
            runtime.accelerator,
            rows=bounds.max_nodes,
            dim=workload.dataset.dim,
            dtype=workload.dataset.feature_dtype,
            host=extractors + (runtime.accelerator.kind == "cpu"),
            device=options.device_buffers,
            device_budget=budget.device,
        )
        if runtime.stages == "sample":
            return tables, [*topology, page_cache]
        path = workload.dataset.file("features")
        reader = RowReader.plan_bytes(**reader_arguments(workload, options), num_ids=bounds.max_nodes, path=path)
        working = 40 * bounds.max_nodes  # hits, misses and aliases of one mini-batch
        return tables, [
            *topology,
            page_cache,
            PlanItem("reader buffers", extractors * (reader + working)),
            *tables.items(),
        ]

    extractors = options.extractors or 2
    tables, items = parts(extractors)
    if not options.extractors and budget.host is not None and _host(items) > budget.host // 2:
        extractors = 1
        tables, items = parts(1)
    fix = "raise memory, or lower extractors, list_threads, io_depth, batch size or fan-out"
    Plan(tuple(items)).require(NAME, budget, fix)
    cache_bytes = _cache_bytes(workload, budget, options, _host(items))
    items.append(PlanItem("preparation", max(0, _scratch(workload) - cache_bytes - _tables_bytes(tables))))
    Plan(tuple(items)).require(NAME, budget, fix)
    cache_bytes = min(cache_bytes, _left(budget, _host(items), cache_bytes))
    items.append(PlanItem("neighbour and feature caches", cache_bytes))
    return AliPlusPgSizes(
        extractors, tables, cache_bytes, page_cache.bytes, Plan(tuple(items)).require(NAME, budget, fix)
    )


def sampling_workers(runtime: Runtime, options: AliPlusPgOptions) -> int:
    """Return the number of mini-batches sampled at the same time."""
    return options.sampling_workers or runtime.cores


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


def _left(budget: MemoryBudget, used: int, wanted: int) -> int:
    return wanted if budget.host is None else max(0, budget.host - used)


def _host(items: list[PlanItem]) -> int:
    return sum(item.bytes for item in items if item.tier == "host")


def _tables_bytes(tables: Tables) -> int:
    return tables.host * tables.nbytes


def _scratch(workload: Workload) -> int:
    """Return the peak bytes of preparation beside `indptr`: ranking degrees, tuning the split or filling a cache."""
    ranking = 12 * workload.dataset.num_nodes + (4 << 20)
    tuning = split_tuner.scratch_bytes(workload, 0)
    return max(ranking, tuning, neighbour_cache.building_bytes(workload), StaticCache.scratch_bytes(workload))


def _page_cache(workload: Workload, budget: MemoryBudget) -> PlanItem:
    """Return the memory that the caches leave for uncached lists, which sampling reads through the page cache."""
    share = workload.dataset.topology_bytes if budget.host is None else budget.host // 8
    return PlanItem("page cache of indices", min(workload.dataset.topology_bytes, share))
