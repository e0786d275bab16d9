"""PyG+ with two static caches, at its strongest: the best split of their memory, direct reads that never pause.

Sampling finds important nodes' neighbour lists in the neighbour cache and the other lists in the mapped `indices`.
Extraction finds rows of high out-degree in the feature cache and reads the others with O_DIRECT, several mini-batches
at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from systems.ali_plus_pg.planner import SPLITS, AliPlusPgOptions, AliPlusPgSizes, Shares, shares
from systems.engine.cache import neighbour_cache, split_tuner
from systems.engine.cache.static_cache import StaticCache
from systems.engine.io.arrays import gather
from systems.engine.io.reader import ReadStats, RowReader
from systems.engine.io.row_reads import ReaderPool, feature_reader, reader_arguments
from systems.engine.io.tally import Tally
from systems.engine.io.topology import DatasetFiles, mapped_sampler
from systems.engine.loading.gather_loader import GatherSystem, HostTable
from systems.engine.rank.ranking import out_degrees, top
from systems.engine.store.artefacts import Prepared, identity, prepare
from systems.forecast import sequential
from systems.interface import Counters, Facts, Forecast, SystemInfo, Trace
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_seed_plan


class AliPlusPg(GatherSystem):
    """Ali+PG of the Ginex paper."""

    info = SystemInfo(
        name="ali+pg",
        paper="ginex",
        summary="static caches of neighbour lists and feature rows; direct reads of what they miss",
        options=AliPlusPgOptions,
    )
    options: AliPlusPgOptions

    _cache: StaticCache | None = None
    _shares: Shares | None = None
    _readers: ReaderPool[RowReader] | None = None
    _tuned = "given"
    _mode = "not prepared"
    _cached = (0, 0)

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._prepared: list[Prepared] = []
        self._tally = Tally()

    @cached_property
    def _sizes(self) -> AliPlusPgSizes:
        return self.fit(lambda: AliPlusPgSizes(self, self._workers, self._waiting))

    def prepare(self) -> None:
        """Choose the split, fill both caches and open the readers."""
        workload, sizes, sampling_only = self.workload, self._sizes, self.runtime.stages == "sample"
        self._topology = DatasetFiles(workload, ["indices", "labels"])
        self._topology.check()
        indptr = workload.dataset.load("indptr")
        found = self._shares = shares(workload, sizes.cache_bytes, self._split(indptr), sampling_only=sampling_only)
        cached = None
        if found.neighbours.nodes:
            made = neighbour_cache.build(
                workload, self.runtime.artefacts, found.neighbours, indptr=indptr, disk_budget=self.budget.disk
            )
            cached = neighbour_cache.load(workload.dataset, made)
            self._prepared.append(made)
            self._cached = int(made.facts["nodes"]), int(made.facts["entries"])
        sampler = mapped_sampler(workload, indptr=indptr, cached=cached, threads=self.options.list_threads)
        ranking = top(self._degrees(), found.rows) if found.rows else np.empty(0, dtype=np.int64)
        self._allocate(front=len(ranking))
        self._draw = sampler.sample
        if not sampling_only:
            self._cache = StaticCache.build(workload, ranking, self._front_rows)
            self._readers = ReaderPool(lambda: feature_reader(workload, self.options), sizes.extractors)
            self._mode = self._readers.mode

    def _split(self, indptr: npt.NDArray[np.int64]) -> int:
        """Return the neighbour cache's per cent: the option's, or the tuner's choice, kept as an artefact."""
        if self.options.split != "auto":
            return int(self.options.split)
        if self.runtime.stages == "sample":
            self._tuned = "sampling only"
            return 100
        sizes = self._sizes
        key = identity(
            self.workload,
            caches=sizes.cache_bytes,
            page_cache=sizes.page_cache_bytes,
            reads=reader_arguments(self.workload, self.options),
            batches=self.options.tune_batches,
            disk=split_tuner.disk_class(self.runtime.disk),
        )
        found = prepare(self.runtime.artefacts, "split", key, lambda folder: self._tune(indptr))
        self._prepared.append(found)
        costs = ", ".join(f"{split}:{100 - int(split)} {cost}" for split, cost in found.facts["costs"].items())
        self._tuned = f"auto; predicted {costs}"
        return int(found.facts["split"])

    def _tune(self, indptr: npt.NDArray[np.int64]) -> dict[str, object]:
        sizes, workload = self._sizes, self.workload
        parts = [shares(workload, sizes.cache_bytes, split) for split in SPLITS]
        item = workload.dataset.index_dtype.itemsize
        candidates = [
            split_tuner.Candidate(
                str(part.split),
                part.neighbours.list_bytes // item,
                part.rows,
                sizes.page_cache_bytes
                + sizes.cache_bytes
                - part.neighbours.nbytes
                - StaticCache.plan_bytes(workload, part.rows),
            )
            for part in parts
        ]
        sampler = mapped_sampler(workload, indptr=indptr, threads=self.options.list_threads)
        seeds = make_seed_plan(workload).batches(0)[: self.options.tune_batches or None]
        with feature_reader(workload, self.options) as reader:
            forecasts = split_tuner.forecast(
                workload,
                candidates,
                (sampler.sample(0, index, nodes) for index, nodes in enumerate(seeds)),
                indptr=indptr,
                degrees=self._degrees(),
                reader=reader,
                disk=self.runtime.disk,
                most_accesses=max(1 << 16, sizes.cache_bytes // 32),
            )
        chosen = forecasts[split_tuner.best(forecasts)]
        unit = "s" if chosen.seconds is not None else "reads"
        return {
            "split": int(chosen.name),
            "costs": {entry.name: f"{entry.cost:.4g} {unit}" for entry in forecasts},
            "forecasts": [entry.as_dict() for entry in forecasts],
        }

    def _degrees(self) -> npt.NDArray[np.integer]:
        return out_degrees(self.workload, 8 * self.workload.dataset.num_nodes + (4 << 20))

    def _sample(self, work: Callable[[], SampledBatch]) -> SampledBatch:
        self._topology.check()
        sampled = work()
        self._tally.add(list_reads=sampled.list_reads, list_hits=sampled.list_hits)
        return sampled

    def _fill(self, sampled: SampledBatch, table: HostTable) -> torch.Tensor:
        """Read misses into the table; hits stay in the cache (processor) or are copied in front of the misses."""
        assert self._cache is not None and self._readers is not None
        on_device = table.whole is table.rows and bool(self._sizes.tables.device)
        copied = 0
        found = self._cache.lookup(sampled.nodes)
        rows, misses = found.slots, found.misses
        if on_device and self._cache.capacity:
            hits = np.flatnonzero(rows >= 0)
            copied, cached = len(hits), rows[hits]
            rows[hits] = np.arange(copied)
            rows[misses] = np.arange(copied, sampled.num_nodes)
        else:
            rows[misses] = np.arange(table.first, table.first + len(misses))
        stats = ReadStats()
        if len(misses):
            with self._readers.borrow() as reader:
                stats = reader.read(sampled.nodes[misses], table.rows[copied:])
        if copied:
            gather(self._front_rows, cached, table.rows[:copied], 1)
        self._tally.add(stats, rows=sampled.num_nodes, hits=sampled.num_nodes - len(misses))
        return torch.from_numpy(rows)

    @property
    def _extractors(self) -> int:
        return self._sizes.extractors

    def _begin(self) -> None:
        self._tally.restart()

    def counters(self) -> Counters:
        """Return the feature cache's hits, the misses and the reads; `observed` counts neighbour lists."""
        tally = self._tally
        return tally.counters(
            self.options.io_depth * self._sizes.extractors,
            rows=tally["rows"],
            hits={"host": tally["hits"]},
            misses=tally["rows"] - tally["hits"],
            observed=tally.observed("list_reads", "list_hits"),
        )

    def files(self) -> list[Path]:
        """Return the files of the neighbour cache and of the split's choice."""
        return [path for found in self._prepared for path in found.files]

    def facts(self) -> Facts:
        """Return the read mode, and whether split and neighbour cache were found."""
        if self._shares is None:
            return Facts()
        reused = bool(self._prepared) and all(found.reused for found in self._prepared)
        return Facts(io=f"{self._mode}, {self._sizes.extractors} extractors", prepared_reused=reused)

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast the misses of a feature cache in all of the caches' memory; other lists come through pages."""
        sizes = self._sizes
        held = trace.hottest(sizes.cache_bytes // trace.row_bytes)
        missed = trace.missed(held)
        found = trace.with_sampling(
            trace.read_of(missed, self.runtime.disk.logical_block_bytes),
            self.unplanned_bytes() + sizes.page_cache_bytes,
            f"caches {trace.hit_rate(missed)} of the accesses",
            trace.accesses,
        )
        return replace(found, prepare_reads=sequential(int(held.sum()) * trace.row_bytes))

    def notes(self) -> dict[str, str]:
        """Return the split and its origin, the contents of both caches, and the read mode."""
        if self._shares is None:
            return {}
        nodes, entries = self._cached
        return {
            **super().notes(),
            "split": f"{self._shares.split}:{100 - self._shares.split} ({self._tuned})",
            "neighbour_cache": f"{nodes} nodes, {entries} of {self.workload.dataset.num_edges} entries",
            "feature_cache": f"{self._shares.rows} of {self.workload.dataset.num_nodes} rows",
        }

    def close(self) -> None:
        """End the threads, close the files and free the caches."""
        super().close()
        self._close("_readers")
        self._cache = None
