"""The base of the systems with features in host memory and, for some, a static cache in device memory.

`pagraph`, `pagraph+pp`, `dgl`, `dgl+cache` and `dgl+pp` differ in their options: sampler and gather (our threads or
DGL), rows (features or first-layer aggregates), with a cache or without.

Each mini-batch is sampled and looked up in the cache; its misses are gathered and copied to the device. A limited
number of mini-batches may be between the start of loading and the end of training: with one, loading waits for the
previous mini-batch's training, like DGL's loader; with more, sampling, loading and training overlap (PaGraph, Section
3.3). Rows that miss the cache go into a ring of rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import AfterValidator, Field

from systems.engine.cache.static_cache import Lookup
from systems.engine.io.row_reads import RowTable
from systems.engine.io.topology import DatasetFiles, device_limit, indptr_item, loaded, map_item, sampling_items
from systems.engine.loading.gather_loader import check_size, torch_dtype
from systems.engine.loading.pipeline import Channel, RowRing
from systems.engine.loading.row_tiers import CacheSizes, DeviceCache, HostFeatures, HostStore, check_share, wanted_rows
from systems.engine.loading.sized import LoadingRun, Sample, SamplingOptions, SamplingSystem
from systems.engine.rank import ranking
from systems.engine.store.artefacts import Prepared, identity, prepare
from systems.interface import Batch, Counters, Facts, Forecast, Options, Plan, PlanItem, System, Tier, Trace, size
from workloads.accelerator import NO_ROWS
from workloads.dataset import Dataset
from workloads.direct_files import PAGE, padded
from workloads.errors import BudgetError
from workloads.feature_table import Table
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import Bounds, batch_bounds
from workloads.sampling.make import advise_random, make_sampler
from workloads.units import format_bytes, parse_bytes

Ids = npt.NDArray[np.int64]
RankingName = ranking.Method
# PaGraph keeps 1 GB of an 11 GB device free for fluctuations of training (Section 4).
_RESERVE_SHARE, _RESERVE_MOST = 11, 1 << 30
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

    cache: Annotated[str, AfterValidator(check_share)] = Field(
        "auto",
        description="`auto`: device memory free after the first mini-batch, minus the reserve; a share of the rows, as "
        "0.25x; or a size such as 32MiB; 0x: none",
    )
    reserve: str = size(
        "auto", description="device memory left free; `auto`: an eleventh, 1 GiB at most (the paper's 1 GB of 11 GB)"
    )
    ranking: RankingName = Field("out-degree", description="which rows are cached: those of highest score")


class CacheFacts(Facts):
    """Facts of a system with a cache in device memory: rows cached, and rows of the table."""

    cached_rows: int | None = Field(default=None, repr=False)
    table_rows: int | None = Field(default=None, repr=False)


def ranked(system: System, method: RankingName, budget_bytes: int | None = None) -> Prepared:
    """Rank all nodes within `budget_bytes`, highest score first, as an artefact: int32 or int64 [N] in `order.npy`."""
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


@dataclass
class GatheredBatch:
    """A mini-batch whose missing rows are in host memory.

    Attributes:
        found: its cache hits and misses.
        rows: [m, dim], the rows of `found.misses`; None if they are in the device's table already, from `start` on.
        start: first row of the ring that holds them.
        on_copied: called once the rows have been copied away.
    """

    sampled: SampledBatch
    found: Lookup
    rows: torch.Tensor | None
    start: int = 0
    on_copied: Callable[[], None] | None = None


class CachedSystem(SamplingSystem):
    """System with features in host memory. With `host_store=mapped` features and graph may exceed memory.

    With `host_store=memory` the plan refuses a budget that does not hold graph and features, and the run ends as `oom`,
    as in the papers' tables.
    """

    _cache: DeviceCache | None = None
    _features: HostFeatures | None = None
    _staging_buffers: Sequence[torch.Tensor] = ()
    _ring = RowRing(0)
    _asked = _loaded = 0
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
    def _rows(self) -> RowTable:
        """Rows of mini-batches: the feature table; `+pp` systems override it."""
        return RowTable.of(self.workload.dataset)

    @property
    def _index_bytes(self) -> int:
        return self.workload.dataset.topology_bytes

    def _topology_items(self) -> tuple[PlanItem, ...]:
        loaded = [PlanItem("indices", self._index_bytes), PlanItem("labels", 8 * self.workload.dataset.num_nodes)]
        if self._mapped:
            loaded = [map_item(self.workload, features=isinstance(self.options, LoaderOptions))]
        sampled = sampling_items(self._bounds, workers=self._workers, waiting=self._waiting + self._ahead)
        return (indptr_item(self.workload), *loaded, *sampled)

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
        """Sizes of the device cache.

        Raises:
            BudgetError: the buffers, or a cache of the requested size, do not fit.
        """
        accelerator, source, largest = self.runtime.accelerator, self._rows, self._largest_on_device
        on_host, row = accelerator.kind == "cpu", max(1, source.row_bytes)
        limit = None if on_host else device_limit(self.runtime, self.budget)
        roomy = limit is None or 2 * largest * row <= limit / 4
        buffer_rows = max(largest, int(largest * (self._buffers or (2 if roomy else 1))))
        table = buffer_rows * row
        options, reserve = self.options, 0
        if limit is not None:
            if padded(table) > limit:
                raise BudgetError(
                    f"{self.info.name}: device buffers need {format_bytes(table)} for {buffer_rows} rows (the largest "
                    f"mini-batch has {largest}), the device has {format_bytes(limit)}",
                    "raise device memory, or lower device_buffers, batch size or fan-out",
                )
            reserve = min(_RESERVE_MOST, limit // _RESERVE_SHARE)
            if isinstance(options, CacheOptions) and options.reserve != "auto":
                reserve = parse_bytes(options.reserve, "reserve")
            room = max(0, limit - reserve - padded(table)) // PAGE * PAGE
        elif self.budget.host is not None:
            # The map from nodes to cache rows is also on the host; mapped files need page cache: half of what is left.
            left = max(0, self.budget.host - Plan(self._host_items).total("host")) // (2 if self._mapped else 1)
            room = max(0, left - table - 4 * source.num_rows - PAGE)
        else:
            room = source.nbytes
        fitting = min(source.num_rows, room // row) if accelerator.keeps_rows else 0
        wanted = options.cache if isinstance(options, CacheOptions) else "0x"
        rows = fitting if wanted == "auto" else min(source.num_rows, wanted_rows(wanted, source.num_rows, row))
        if rows > fitting:
            raise BudgetError(
                f"{self.info.name}: device cache of {wanted} needs {format_bytes(rows * row)}, "
                f"{format_bytes(room if accelerator.keeps_rows else 0)} is left after {format_bytes(table)} of buffers "
                f"and a reserve of {format_bytes(reserve)}",
                "lower cache or reserve, or raise device memory" if accelerator.keeps_rows else NO_ROWS,
            )
        tier: Tier = "host" if on_host else "device"
        return CacheSizes(source, rows, buffer_rows, reserve, limit, tier, self._keeps_map)

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

    def chosen(self) -> dict[str, int | str]:
        """Return the base's values, and of a system with a cache those of its most bytes and the reserve."""
        found, limits = super().chosen(), self._sizes if self.runtime.stages != "sample" and self._caches else None
        if limits is None:
            return found
        return {**found, "cache": limits.most_rows * self._rows.row_bytes, "reserve": limits.reserve_bytes}

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
            self._draw = self._make_sample()
            return
        RowTable.of(self.workload.dataset).check()
        chosen = self._rank()
        self._prepare_rows()
        sample = self._make_sample()
        self._features = self._make_features()
        self._cache = DeviceCache(self.runtime.accelerator, self._sizes, lambda k: self._cached_rows(chosen, k))
        self._prepare_gathering()
        self._draw = sample

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

    def _prepare_gathering(self) -> None:
        """Allocate the buffers into which missing rows are gathered; on the processor the cache's table has them."""
        accelerator, rows, dim = self.runtime.accelerator, self._bounds.max_nodes, self._rows.dim
        if accelerator.kind != "cpu":
            raw = [accelerator.host_buffer(rows * self._rows.row_bytes) for _ in range(self._staging)]
            self._staging_buffers = [one.view(torch_dtype(self._rows.dtype)).view(rows, dim) for one in raw]

    def _sample(self, work: Callable[[], SampledBatch]) -> SampledBatch:
        if self._mapped:
            self._files.check()
        return work()

    def _begin(self) -> None:
        self._asked = self._loaded = 0

    def _epoch(self, k: int, seeds: Sequence[Ids]) -> Iterator[Batch]:
        start = 0
        if self._cache is not None and not self._cache.is_final and self._features is not None:
            # The first mini-batch alone shows how much device memory training takes (PaGraph, Section 4).
            yield from self._run(k, 0, seeds[:1])
            with self.clock.stage("data_prep"):
                self._cache.fill_rest(self._features, self._threads)
            start = 1
        yield from self._run(k, start, seeds[start:])

    def _load(self, run: LoadingRun, sampled: Channel[SampledBatch]) -> Channel[Batch]:
        assert self._cache is not None
        pipe, turns, ring = run.pipe, run.pipe.filled(range(self._ahead)), RowRing(self._sizes.buffer_rows)
        pipe.on_stop(ring.stop)
        self._ring = ring

        def checked() -> Iterator[SampledBatch]:
            for structure in sampled.items():
                check_size(structure, self._bounds.max_nodes)
                yield structure

        loaded: Channel[GatheredBatch] = pipe.channel(1)
        ready: Channel[Batch] = pipe.channel(1)
        pipe.stage("extract", 1, lambda _, item: item, self._gathered(run, checked(), turns), loaded)
        pipe.stage("transfer", 1, lambda _, item: self._transfer(item, turns), loaded, ready)
        return ready

    def _gathered(
        self, run: LoadingRun, sampled: Iterator[SampledBatch], turns: Channel[int]
    ) -> Iterator[GatheredBatch]:
        """Yield every mini-batch with its missing rows, gathered by many threads into staging buffers or the table.

        Runs on one thread; takes a turn before each mini-batch, which its training gives back.
        """
        cache, features = self._cache, self._features
        assert cache is not None and features is not None
        free = run.pipe.filled(self._staging_buffers)
        while True:
            turns.get()
            structure = next(sampled, None)
            if structure is None:
                return
            found = cache.lookup(structure.nodes)
            count = len(found.misses)
            if self._staging_buffers:
                _, buffer = free.get()
                rows = buffer[:count]
                item = GatheredBatch(structure, found, rows, on_copied=partial(free.give_back, buffer))
            else:
                start = self._ring.take(count)
                rows = cache.buffer(start, count)
                item = GatheredBatch(structure, found, None, start)
            with self.clock.stage("extract", structure.index):
                features.gather(structure.nodes[found.misses], rows.numpy(), self._threads)
            yield item

    def _transfer(self, item: GatheredBatch, turns: Channel[int]) -> Batch:
        sampled, count, ring = item.sampled, len(item.found.misses), self._ring
        self._asked += sampled.num_nodes
        self._loaded += count
        table, rows, held = self._place(item)

        def give_back() -> None:
            if held is not None:
                ring.give_back(held, count)
            turns.give_back(0)

        return Batch(sampled, table, rows, first_layer_aggregated=self.aggregated, on_release=give_back)

    def _place(self, item: GatheredBatch) -> tuple[Table, torch.Tensor | None, int | None]:
        """Copy the missing rows to the device; return the batch's table, alias list, and start row in the ring."""
        assert self._cache is not None
        cache, alias, misses = self._cache, item.found.slots, item.found.misses
        accelerator, start = self.runtime.accelerator, item.start
        if item.rows is not None:
            if accelerator.kind == "cpu" and not cache.rows:
                return item.rows, None, None
            start = self._ring.take(len(misses))
            index = item.sampled.index
            with self.clock.stage("transfer", index):
                accelerator.copy(cache.buffer(start, len(misses)), item.rows, batch=index).wait()
            if item.on_copied is not None:
                item.on_copied()
        if not cache.rows:
            return cache.buffer(start, len(misses)), None, start
        alias[misses] = cache.rows + start + np.arange(len(misses))
        return cache.table, torch.from_numpy(alias), start

    def counters(self) -> Counters:
        """Return hits in the device cache; misses come from host memory, through the page cache or from disk."""
        if self._draw is None:
            return Counters()
        loaded, tier = self._loaded, self._features.tier() if self._features else ""
        hits = {"device": self._asked - loaded} | ({tier: loaded} if tier else {})
        misses = 0 if tier else loaded
        return Counters(rows=self._asked, hits=hits, misses=misses, bytes_loaded=loaded * self._rows.row_bytes)

    def files(self) -> list[Path]:
        """List the files of prepared artefacts, which the run reads."""
        return [file for prepared in self._prepared for file in prepared.files]

    def facts(self) -> CacheFacts:
        """Return the size of the cache, and whether all artefacts were found."""
        cached = self._cache.rows if self._cache is not None and self._caches else None
        reused = all(prepared.reused for prepared in self._prepared) if self._prepared else None
        table_rows = None if cached is None else self._rows.num_rows
        return CacheFacts(prepared_reused=reused, cached_rows=cached, table_rows=table_rows)

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
            cached, rows = self._cache.rows, self._rows
            found["device_cache"] = f"{cached} of {rows.num_rows} rows, {format_bytes(cached * rows.row_bytes)}"
        return found

    def close(self) -> None:
        """End the threads, free the device table, drop the arrays."""
        super().close()
        self._close("_cache", "_features")
        for buffer in self._staging_buffers:
            self.runtime.accelerator.free_host(buffer)
        self._staging_buffers = ()
