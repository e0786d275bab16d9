"""Options of `ali+pg` and sizes of its buffers: sampling, extraction, the page cache's share; the caches get the rest.

The splits are those that the Ginex paper tried (Section 4.1, Comparison Baselines).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from systems.engine.cache import neighbour_cache, split_tuner
from systems.engine.cache.neighbour_cache import NeighbourCachePlan, plan_neighbour_cache
from systems.engine.cache.static_cache import StaticCache
from systems.engine.io.row_reads import RowReadOptions, feature_reader_bytes
from systems.engine.io.topology import indptr_item, map_item, sampling_items
from systems.engine.loading.gather_loader import BETWEEN, plan_tables
from systems.engine.loading.sized import SamplingOptions, Sizes
from systems.interface import Plan, PlanItem, System, auto, size
from workloads.units import parse_bytes
from workloads.workload import Workload

NAME = "ali+pg"
FIX = "raise memory, or lower extractors, list_threads, io_depth, batch size or fan-out"
_UNLIMITED_SHARE = 4  # without a budget the caches hold a fourth of graph and features
SPLITS = (0, 25, 50, 75, 100)


class AliPlusPgOptions(SamplingOptions, RowReadOptions):
    """Options of `ali+pg`."""

    split: Literal["auto", "0", "25", "50", "75", "100"] = Field(
        "auto",
        description="per cent of the caches' memory for the neighbour cache, the rest for the feature cache; `auto` "
        "takes the best by simulation, found once for a setting",
    )
    cache: str = size(
        "auto",
        description="memory of both caches: `auto`: all that is left of the host budget (a quarter of the graph and "
        "features without one); or a size such as 32MiB",
    )
    tune_batches: int = Field(0, ge=0, description="mini-batches of the first epoch that `auto` simulates; 0: all")
    sampling_workers: int = auto(most=256, description="mini-batches sampled beside each other")
    list_threads: int = auto(
        8, most=256, description="threads that share each of them and wait for pages of uncached lists"
    )
    io_depth: int = Field(256, ge=1, le=4096, description="reads in flight for each extractor")
    prefetch: int = Field(1, ge=1, le=64, description="sampled mini-batches that may wait for each sampler")
    extractors: int = Field(
        0,
        ge=0,
        le=64,
        description="mini-batches read beside each other; 0: two, or one where a small budget holds no more",
    )
    device_buffers: int = Field(2, ge=1, le=64, description="mini-batches on the device, fewer where they do not fit")


@dataclass(frozen=True)
class Shares:
    """One split of the caches' memory.

    Attributes:
        split: per cent of the memory for the neighbour cache.
        neighbours, rows: plan of the neighbour cache, and rows of the feature cache.
    """

    split: int
    neighbours: NeighbourCachePlan
    rows: int


def shares(workload: Workload, cache_bytes: int, split: int, *, sampling_only: bool = False) -> Shares:
    """Split `cache_bytes`: `split` per cent for neighbour lists, the rest for rows (none where only sampling runs)."""
    neighbours = plan_neighbour_cache(workload, cache_bytes * split // 100)
    rows = 0 if sampling_only else StaticCache.capacity_of(workload, cache_bytes - cache_bytes * split // 100)
    return Shares(split, neighbours, rows)


class AliPlusPgSizes(Sizes):
    """Sizes of a run's buffers.

    Args:
        workers, waiting: threads that sample, and sampled mini-batches that may wait for extraction.

    Attributes:
        extractors: mini-batches read at the same time.
        tables: feature tables of mini-batches, on host and device.
        cache_bytes: bytes of both caches together.
        page_cache_bytes: bytes left for pages of `indices` and labels.

    Raises:
        BudgetError: a buffer does not fit, or the size asked for the caches.
    """

    options: AliPlusPgOptions

    def __init__(self, system: System, workers: int, waiting: int) -> None:
        super().__init__(system)
        options, host, topology_bytes = self.options, self.budget.host, self.workload.dataset.topology_bytes
        # The caches leave memory for uncached lists, which sampling reads through the page cache.
        self.page_cache_bytes = min(topology_bytes, topology_bytes if host is None else host // 8)
        threads = options.list_threads
        topology = [
            indptr_item(self.workload),
            *sampling_items(self.bounds, workers=workers, waiting=waiting + BETWEEN, list_threads=threads),
            map_item(self.workload),
            PlanItem("page cache of indices", self.page_cache_bytes),
        ]
        self.extractors = options.extractors or 2
        items = topology + self._extracting()
        if not options.extractors and host is not None and Plan(tuple(items)).total("host") > host // 2:
            self.extractors = 1
            items = topology + self._extracting()
        self.require(items, FIX)
        self.cache_bytes = self._cache_bytes(items)
        beyond = _scratch(self.workload) - self.cache_bytes - self.tables.host * self.tables.nbytes
        items.append(PlanItem("preparation", max(0, beyond)))
        self.require(items, FIX)
        left = self.left(items)
        if left is not None:
            self.cache_bytes = min(self.cache_bytes, left)
        items.append(PlanItem("neighbour and feature caches", self.cache_bytes))
        self.plan = self.require(items, FIX)

    def _extracting(self) -> list[PlanItem]:
        options, rows = self.options, self.bounds.max_nodes
        host, device = self.extractors + (not self.on_device), options.device_buffers
        self.tables = plan_tables(NAME, self.workload, self.runtime, self.budget, rows=rows, host=host, device=device)
        if self.sampling_only:
            return []
        working = 40 * rows  # hits, misses and aliases of one mini-batch
        reader = feature_reader_bytes(self.workload, options, rows) + working
        return [PlanItem("reader buffers", self.extractors * reader), *self.tables.items()]

    def _cache_bytes(self, items: list[PlanItem]) -> int:
        dataset, left = self.workload.dataset, self.left(items)
        whole = dataset.topology_bytes + dataset.feature_bytes + 12 * dataset.num_nodes
        if self.options.cache == "auto":
            return min(whole, whole // _UNLIMITED_SHARE if left is None else left)
        wanted = parse_bytes(self.options.cache, "cache")
        if left is not None and wanted > left:
            item = PlanItem(f"caches of {self.options.cache}", wanted)
            raise Plan(tuple(items)).no_room(NAME, self.budget, item, "lower cache or raise memory")
        return min(wanted, whole)

    def chosen(self) -> dict[str, int | str]:
        """Return the bytes of both caches, and the extractors; the split between the caches is tuned in preparation."""
        return {"cache": self.cache_bytes, "extractors": self.extractors}


def _scratch(workload: Workload) -> int:
    """Return the peak bytes of preparation beside `indptr`: ranking degrees, tuning the split or filling a cache."""
    ranking = 12 * workload.dataset.num_nodes + (4 << 20)
    tuning = split_tuner.scratch_bytes(workload, 0)
    return max(ranking, tuning, neighbour_cache.building_bytes(workload), StaticCache.scratch_bytes(workload))
