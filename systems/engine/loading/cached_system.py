"""The base of the systems with features in host memory and, for some, a static cache in device memory.

`pagraph`, `pagraph+pp`, `dgl`, `dgl+cache` and `dgl+pp` differ in their options: sampler and gather (our threads or
DGL), rows (features or first-layer aggregates), with a cache or without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from systems.engine.io.topology import DatasetFiles, indptr_item, loaded, map_item, sampling_items
from systems.engine.loading.cache_loader import CacheLoader, Gatherer, HostGatherer, Sample
from systems.engine.loading.device_cache import CacheSizes, DeviceCache, check_share, plan_cache
from systems.engine.loading.host_features import HostFeatures, HostStore, RowFile, feature_rows
from systems.engine.loading.sized import SamplingOptions, SamplingSystem
from systems.engine.rank import ranking
from systems.engine.store.artefacts import Prepared, identity, prepare
from systems.interface import Batch, Counters, Facts, Forecast, Options, Plan, PlanItem, System, Trace
from workloads.dataset import Dataset
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import Bounds, batch_bounds
from workloads.sampling.make import advise_random, make_sampler, make_seed_plan
from workloads.units import format_bytes, parse_bytes

Ids = npt.NDArray[np.int64]
RankingName = ranking.Method
# Bytes a node for ranking: score and order, with the copies made by sorting.
_RANKING_BYTES = 40
# Smallest buffers for reading the graph; PageRank also has windows over the nodes.
_RANKING_BUFFERS, _PAGERANK_BUFFERS = 3 << 20, 10 << 20


class LoaderOptions(SamplingOptions):
    """Options of all systems with features in host memory."""

    gather_threads: int = Field(
        0, ge=0, le=1024, description="threads that gather one mini-batch; 0: the cores, or twice as many where mapped"
    )
    host_store: HostStore = Field(
        "memory",
        description="`memory`: graph and features are loaded, as the papers have it; `mapped`: both come through the "
        "page cache, for graphs larger than memory",
    )


class CacheOptions(LoaderOptions):
    """Options of the static cache in device memory (PaGraph, Sections 3.1 and 4)."""

    cache: str = Field(
        "auto",
        description="`auto`: device memory free after the first mini-batch, minus the reserve; a share of the rows, as "
        "0.25x; or a size such as 32MiB; 0x: none",
    )
    reserve: str = Field(
        "auto", description="device memory left free; `auto`: an eleventh, 1 GiB at most (the paper's 1 GB of 11 GB)"
    )
    ranking: RankingName = Field("out-degree", description="which rows are cached: those of highest score")

    @field_validator("cache")
    @classmethod
    def _cache(cls, value: str) -> str:
        return check_share(value)

    @field_validator("reserve")
    @classmethod
    def _reserve(cls, value: str) -> str:
        if value != "auto":
            try:
                parse_bytes(value, "reserve")
            except Exception as error:
                raise ValueError(f"{error}; or write auto") from None
        return value


class CacheFacts(Facts):
    """Facts of a system with a cache in device memory: rows cached, and rows of the table."""

    cached_rows: int | None = Field(default=None, repr=False)
    table_rows: int | None = Field(default=None, repr=False)


def ranked(system: System, method: RankingName, budget_bytes: int | None = None) -> Prepared:
    """Rank all nodes by `method`, highest score first, as an artefact: int32 or int64 [N] in `order.npy`.

    Args:
        budget_bytes: most bytes for scoring; None: unlimited.
    """
    workload = system.workload

    def make(folder: Path) -> dict[str, str]:
        runtime = system.runtime
        scores = ranking.scores(
            workload, method, budget_bytes=budget_bytes, threads=runtime.cores, progress=runtime.progress
        )
        order = ranking.top(scores, len(scores))
        np.save(folder / "order.npy", order.astype(np.int32 if len(order) < 2**31 else np.int64))
        return {"method": method}

    return prepare(system.runtime.artefacts, "ranking", identity(workload, ranking=method), make)


def highest(prepared: Prepared, k: int) -> Ids:
    """Return the first `k` nodes of an order prepared by `ranked`, int64 [k]."""
    order = np.load(prepared.path / "order.npy", mmap_mode="r")
    return np.array(order[:k], dtype=np.int64)


class CachedSystem(SamplingSystem):
    """System with features in host memory. With `host_store=mapped` features and graph may exceed memory.

    With `host_store=memory` the plan refuses a budget that does not hold graph and features, and the run ends as `oom`,
    as in the papers' tables.
    """

    loader: ClassVar[type[CacheLoader]] = CacheLoader

    _loader: CacheLoader | None = None
    _cache: DeviceCache | None = None
    _features: HostFeatures | None = None
    _prepared: tuple[Prepared, ...] = ()

    @property
    def _mapped(self) -> bool:
        return self._store == "mapped"

    @classmethod
    def loads_everything(cls, options: Options) -> bool:
        """Return whether `host_store` is `memory`: mapped rows, or rows read from disk, need not fit."""
        return isinstance(options, LoaderOptions) and options.host_store == "memory"

    @property
    def _store(self) -> HostStore:
        return self.options.host_store if isinstance(self.options, LoaderOptions) else "mapped"

    @property
    def _threads(self) -> int:
        asked = self.options.gather_threads if isinstance(self.options, LoaderOptions) else 0
        return asked or (2 if self._mapped else 1) * self.runtime.cores

    @property
    def _ahead(self) -> int:
        """Mini-batches between the start of their loading and the end of their training; 1: loading waits."""
        return 1

    @property
    def _buffers(self) -> float:
        """Buffers of the largest mini-batch that the device holds beside the cache; 0: as many as useful."""
        return 1

    @property
    def _staging(self) -> int:
        return min(2, self._ahead)

    @property
    def _largest_on_device(self) -> int:
        """Most rows of a mini-batch that must be copied to the device."""
        return self._bounds.max_nodes

    @cached_property
    def _bounds(self) -> Bounds:
        return batch_bounds(self.workload)

    @property
    def _rows(self) -> RowFile:
        """Rows of mini-batches: the feature table; `+pp` systems override it."""
        return feature_rows(self.workload)

    @property
    def _index_bytes(self) -> int:
        return self.workload.dataset.topology_bytes

    def _topology_items(self) -> tuple[PlanItem, ...]:
        dataset = self.workload.dataset
        loaded: tuple[PlanItem, ...] = (
            PlanItem("indices", self._index_bytes),
            PlanItem("labels", 8 * dataset.num_nodes),
        )
        if self._mapped:
            loaded = (map_item(self.workload, features=isinstance(self.options, LoaderOptions)),)
        return (
            indptr_item(self.workload),
            *loaded,
            *sampling_items(self._bounds, workers=self._workers, waiting=self._waiting + self._ahead),
        )

    def _staging_items(self) -> tuple[PlanItem, ...]:
        if self.runtime.accelerator.kind == "cpu":
            return ()
        return (PlanItem("staging buffers", self._staging * self._bounds.max_nodes * self._rows.row_bytes),)

    @cached_property
    def _host_items(self) -> tuple[PlanItem, ...]:
        items = self._topology_items()
        if self.runtime.stages != "sample":
            alias = PlanItem("alias lists", 16 * (self._ahead + 1) * self._bounds.max_nodes)
            items += (*HostFeatures.items(self._rows, self._store), alias, *self._staging_items())
        return items

    @property
    def _keeps_map(self) -> bool:
        """Whether a map is needed to tell which rows are cached; False if the cached rows are the first ones."""
        return True

    @property
    def _caches(self) -> bool:
        return isinstance(self.options, CacheOptions)

    @cached_property
    def _sizes(self) -> CacheSizes:
        host = self.budget.host
        left = None
        if host is not None:
            # Mapped files need page cache too: half of the budget left.
            left = max(0, host - sum(item.bytes for item in self._host_items)) // (2 if self._mapped else 1)
        options = self.options
        return plan_cache(
            self.info.name,
            self.runtime.accelerator,
            self._rows,
            self.budget,
            host_left=left,
            largest=self._largest_on_device,
            buffers=self._buffers,
            wanted=options.cache if isinstance(options, CacheOptions) else "0x",
            reserve=options.reserve if isinstance(options, CacheOptions) else "auto",
            keeps_map=self._keeps_map,
        )

    def plan(self) -> Plan:
        """Plan graph and features (unless mapped), mini-batches in flight, and the device table at its largest."""
        return self.fit(self._plan)

    def _plan(self) -> Plan:
        self._check_workload()
        items = self._host_items
        if self.runtime.stages != "sample":
            items += (*self._sizes.items(), *self._prepared_items())
            if self._sizes.most_rows:
                # Ranking runs before the other items are allocated: count only the excess over them.
                planned = sum(item.bytes for item in items if item.tier == "host")
                pagerank = isinstance(self.options, CacheOptions) and "pagerank" in self.options.ranking
                wanted = _RANKING_BYTES * self._rows.num_rows + (_PAGERANK_BUFFERS if pagerank else _RANKING_BUFFERS)
                items += (PlanItem("ranking", max(0, wanted - planned)),)
        fix = "raise memory, or lower cache, batch size or fan-out"
        if self._store == "memory":
            fix = "raise memory, or set host_store=mapped, which leaves graph and features to the page cache"
        return Plan(items).require(self.info.name, self.budget, fix)

    def _check_workload(self) -> None:
        """Refuse a workload that the system does not support."""

    def _prepared_items(self) -> tuple[PlanItem, ...]:
        """Plan the results of preparation, on disk and in memory."""
        return ()

    def prepare(self) -> None:
        """Rank the nodes, load or map graph and features; the cache is filled after the first mini-batch."""
        self._prepared = ()
        self._check_workload()
        if self.runtime.stages == "sample":
            self._loader = self._make_loader(self._make_sample(), None)
            return
        feature_rows(self.workload).check()
        chosen = self._rank()
        self._prepare_rows()
        sample = self._make_sample()
        self._features = self._make_features()
        self._cache = DeviceCache(self.runtime.accelerator, self._sizes, lambda k: self._cached_rows(chosen, k))
        self._loader = self._make_loader(sample, self._make_gatherer(self._features, self._cache))

    def _rank(self) -> Prepared | None:
        """Return the order in which rows are cached, or None without a cache."""
        options = self.options
        if not isinstance(options, CacheOptions) or not self._sizes.most_rows:
            return None
        order = ranked(self, options.ranking, self.budget.host)
        self._prepared += (order,)
        return order

    def _cached_rows(self, order: Prepared | None, k: int) -> Ids:
        return highest(order, k) if order is not None else np.empty(0, np.int64)

    def _prepare_rows(self) -> None:
        """Prepare the rows offline; the base needs no preparation."""

    @property
    def _hops(self) -> int:
        """Sampled hops of a mini-batch; `+pp` systems skip the first layer's."""
        return len(self.workload.sampler.fanout)

    @property
    def _dataset(self) -> Dataset:
        return self.workload.dataset

    def _check_files(self) -> None:
        self._files = DatasetFiles(replace(self.workload, dataset=self._dataset), ["indices", "labels"])
        self._files.check()

    def _make_sample(self) -> Sample:
        dataset = self._dataset
        self._check_files()
        group = self.runtime.group
        if not self._mapped:
            return self._sample_of(*(loaded(dataset, part, group) for part in ("indptr", "indices", "labels")))
        indices, labels = dataset.memmap("indices"), dataset.memmap("labels")
        advise_random(indices)
        advise_random(labels)
        return self._sample_of(loaded(dataset, "indptr", group), indices, labels)

    def _sample_of(
        self, indptr: npt.NDArray[np.int64], indices: npt.NDArray[Any], labels: npt.NDArray[np.int64]
    ) -> Sample:
        return make_sampler(self.workload, indptr=indptr, indices=indices, labels=labels, hops=self._hops).sample

    def _make_features(self) -> HostFeatures | None:
        return HostFeatures(self._rows, self._store, group=self.runtime.group)

    def _make_gatherer(self, features: HostFeatures | None, cache: DeviceCache) -> Gatherer:
        assert features is not None
        return HostGatherer(
            features,
            cache,
            self.runtime,
            self.clock,
            threads=self._threads,
            staging=self._staging,
            rows=self._bounds.max_nodes,
        )

    def _make_loader(self, sample: Sample, gatherer: Gatherer | None) -> CacheLoader:
        def checked(epoch: int, index: int, nodes: Ids) -> SampledBatch:
            if self._mapped:
                self._files.check()
            return sample(epoch, index, nodes)

        return self.loader(
            self.info.name,
            self.runtime,
            self.clock,
            checked,
            self._cache,
            gatherer,
            self._features,
            ahead=self._ahead,
            largest=self._bounds.max_nodes,
            workers=self._workers,
            waiting=self._waiting,
            threads=self._threads,
            tier=self._features.tier() if self._features else "",
            aggregated=self.aggregated,
        )

    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield the mini-batches of epoch `k`, in the seed plan's order."""
        if self._loader is None:
            raise RuntimeError("prepare() comes before epoch()")
        return self._loader.epoch(k, make_seed_plan(self.workload).batches(k))

    def counters(self) -> Counters:
        """Return hits in the device cache; misses come from host memory or through the page cache."""
        return self._loader.counters(self._rows.row_bytes) if self._loader is not None else Counters()

    def files(self) -> list[Path]:
        """List the files of prepared artefacts, which the run reads."""
        return [file for prepared in self._prepared for file in prepared.files]

    def facts(self) -> CacheFacts:
        """Return the size of the cache, and whether all artefacts were found."""
        cached = self._cache.rows if self._cache is not None and self._caches else None
        return CacheFacts(
            prepared_reused=all(prepared.reused for prepared in self._prepared) if self._prepared else None,
            cached_rows=cached,
            table_rows=None if cached is None else self._rows.num_rows,
        )

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast the misses of the device cache; nothing is read from disk but in preparation."""
        cached = max(self.plan().bytes_of(name, "device") for name in ("device cache", "feature cache"))
        return trace.resident(cached // trace.row_bytes)

    def notes(self) -> dict[str, str]:
        """Return the size of the cache, and how the rows are held."""
        found = {
            **super().notes(),
            "features": "in host memory" if not self._mapped else "memory-mapped, read-ahead off",
            "loading": "overlaps training" if self._ahead > 1 else "waits for training",
        }
        if self._cache is not None and self._caches:
            cached = self._cache.rows
            found["device_cache"] = (
                f"{cached} of {self._rows.num_rows} rows, {format_bytes(cached * self._rows.row_bytes)}"
            )
        return found

    def close(self) -> None:
        """End the threads, free the device table, drop the arrays."""
        self._close("_loader", "_cache")
        self._features = None
