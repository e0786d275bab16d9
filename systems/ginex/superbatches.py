"""Ginex's four stages: superbatch sampling, changeset precomputation, feature-cache
initialisation, main loop.

A superbatch's changesets are planned while the next one is sampled. Sampling and
gathering take turns, each with all of the memory (Section 3); only rows that fit beside
sampling stay cached. A superbatch's data goes to runtime files. Superbatches end with
their epoch, so that epochs do equal work. Only those that are asked to be longer than
an epoch cross its end: their stages count for the epoch in which they run. Nothing runs
between two epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from systems.engine.cache import neighbour_cache
from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import ReaderPool, feature_reader
from systems.engine.io.tally import Tally
from systems.engine.io.topology import SAMPLING_BUFFERS, DatasetFiles, mapped_sampler
from systems.engine.pipeline import Channel, Pipeline
from systems.engine.store.artefacts import Prepared
from systems.forecast import sequential
from systems.ginex.buffers import runtime_batch_bytes
from systems.ginex.loop import FeatureCache, MainLoop
from systems.ginex.options import GinexOptions
from systems.ginex.sizes import GinexSizes, size_buffers
from systems.ginex.superbatch import (
    Belady,
    Policy,
    Static,
    Superbatch,
    superbatch_misses,
)
from systems.interface import Batch, Counters, Facts, Forecast, PartUse, System, Trace
from systems.parts.sizes import PAGE_CACHE
from systems.parts.uses import cache_use, reads_use
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import batch_bounds
from workloads.sampling.make import make_seed_plan
from workloads.sampling.neighbor import NeighborSampler

Seeds = npt.NDArray[np.int64]
_LISTS = ("neighbour cache", "neighbour cache file")
_GRAPH = ("indptr", "page tables of maps", PAGE_CACHE, *_LISTS)
_RUNTIME = ("runtime files", "runtime-file buffers", "mini-batches read back")
_FILES = (*SAMPLING_BUFFERS, *_RUNTIME, "changesets")
_KEPT = ("rows that stay cached", "nodes of rows that stay")
_CACHE = ("feature cache", "feature cache map", *_KEPT)
_READS = ("reader buffers", "threads of the main loop")
_TABLES = ("batch inputs", "device feature tables")


class Superbatches:
    """All superbatches of a run: their sampling and planning, and the main loop over
    them.

    Args:
        system: the system, of which name, workload, runtime, budget and clock are used.
        options: its options.
    """

    def __init__(self, system: System, options: GinexOptions) -> None:
        self.name = system.info.name
        self.workload = system.workload
        self.runtime = system.runtime
        self.clock = system.clock
        self.options = options
        self._system = system
        self._current: Superbatch | None = None
        self._following: Superbatch | None = None
        #: Mini-batch that cache and superbatches are ready for, counted over epochs.
        self._expected: int | None = None
        self._turn = 0
        self._loop: MainLoop | None = None
        self._readers: ReaderPool[RowReader] | None = None
        self._pipeline: Pipeline | None = None
        self._neighbours: Prepared | None = None
        self._indptr: Seeds | None = None
        self._files = Tally()  # of the runtime files
        self._tally: Tally | None = None
        self._mode = "not prepared"

    @cached_property
    def sizes(self) -> GinexSizes:
        """Sizes of all buffers. Raises BudgetError where one does not fit."""
        return size_buffers(self._system, self.options)

    def chosen(self) -> dict[str, int | str]:
        """Return the sizes of superbatch and caches, and the threads."""
        return self.sizes.chosen(self.workload.dataset.row_bytes)

    def prepare(self) -> None:
        """Load `indptr`, make or find the neighbour cache, allocate batch inputs and
        open the readers."""
        sizes = self.sizes
        workload = self.workload
        self._topology = DatasetFiles(workload, ["indices", "labels"])
        self._topology.check()
        self._indptr = workload.dataset.load("indptr")
        if sizes.neighbours.nodes:
            artefacts = self.runtime.artefacts
            self._neighbours = neighbour_cache.build(
                workload, artefacts, sizes.neighbours, indptr=self._indptr
            )
        self.runtime.scratch.mkdir(parents=True, exist_ok=True)
        self._files = Tally()
        self._seeds = lru_cache(maxsize=1)(make_seed_plan(workload).batches)
        if self.runtime.stages == "sample":
            return
        policy = Static if self.options.policy == "static" else Belady
        chosen = policy(workload, sizes.capacity, sizes.kept, self.options.prefill)
        self._readers = ReaderPool(
            lambda: feature_reader(workload, self.options), sizes.readers
        )
        self._mode = self._readers.mode
        cache = FeatureCache(workload, sizes.capacity, sizes.kept)
        threads = self.options.gather_threads or self.runtime.cores
        self._loop = MainLoop(
            self.name,
            sizes,
            self.runtime.accelerator,
            self.clock,
            self._readers,
            cache,
            chosen,
            threads,
        )

    @property
    def _per_epoch(self) -> int:
        """Mini-batches of an epoch."""
        return batch_bounds(self.workload).num_batches

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k` in the seed plan's order.

        Successive epochs share superbatches that are longer than an epoch; any other
        epoch begins a new one.
        """
        if self._indptr is None:
            raise RuntimeError("prepare() comes before epoch()")
        self._files.restart()
        self._tally = Tally()
        return self._run(k, self._tally)

    def _run(self, epoch: int, tally: Tally) -> Iterator[Batch]:
        batches = self._per_epoch
        at = epoch * batches
        end = (epoch + 1) * batches
        # Superbatches end with their epoch, so that epochs do equal work, except those
        # asked to be longer.
        last = (
            max(end, self.runtime.epochs * batches)
            if self.sizes.superbatch > batches
            else end
        )
        if self._expected != at:
            self._drop()
        self._turn += 1
        turn = self._turn
        self._expected = None
        try:
            while at < end:
                superbatch = self._current or self._next_superbatch(at, last, tally)
                count = min(end - at, len(superbatch) - superbatch.done)
                yield from self._train(superbatch, count, tally)
                at += count
                if superbatch.done == len(superbatch):
                    tally.add(superbatches=1, evictions=superbatch.planned.evictions)
                    superbatch.discard()
                    self._current = None
        except BaseException:
            # Abandoned or failed: the rows in the slots differ from the plan.
            if turn == self._turn:
                self._drop()
            raise
        self._expected = at
        if at == last:
            self._shrink()

    def _next_superbatch(self, start: int, last: int, tally: Tally) -> Superbatch:
        """Return the superbatch of the next mini-batch, sampled and planned, with the
        cache filled for it."""
        self._shrink()
        sampled = self._following
        self._following = None
        current = self._current = sampled or self._superbatch(start, last)
        if sampled is None:
            self._inspect(current, None, tally)
        if self.options.pipelined and current.stop < last:
            self._following = self._superbatch(current.stop, last)
        if self._loop is not None or self._following is not None:
            self._inspect(self._following, current, tally)
        if self._loop is not None:
            with self._pipe("switch") as pipe, self.clock.stage("switch"):
                self._loop.fill(pipe, current, tally)
        return current

    def _superbatch(self, start: int, last: int) -> Superbatch:
        stop = min(start + self.sizes.superbatch, last)
        return Superbatch(
            self.runtime.scratch, start, stop, self._per_epoch, self._files
        )

    def _shrink(self) -> None:
        """Free the cache's memory for sampling and planning, but for the rows that
        stay."""
        if self._loop is not None:
            self._loop.cache.shrink()
            give_back_free_memory()

    def _drop(self) -> None:
        """Discard every superbatch and forget the rows in the slots."""
        for superbatch in (self._current, self._following):
            if superbatch is not None:
                superbatch.discard()
        self._current = self._following = self._expected = None
        self._shrink()
        if self._loop is not None:
            self._loop.policy.forget()

    def _inspect(
        self, sampling: Superbatch | None, planning: Superbatch | None, tally: Tally
    ) -> None:
        """Sample one superbatch and plan another at once; either may be None."""
        loop = self._loop
        cores = self.runtime.cores
        wanted = [] if planning is None or loop is None else [(planning, loop.policy)]
        with self._pipe("inspect") as pipe, self.clock.stage("inspect"):

            def plan(_: int, one: tuple[Superbatch, Policy]) -> None:
                one[1].inspect(one[0], cores, lambda: pipe.stopping)

            planned: Channel[None] = pipe.channel(1)
            pipe.stage("changesets", 1, plan, wanted, planned)
            if sampling is not None:
                tally.add(overlapped_superbatches=len(wanted))
                self._sample(pipe, sampling, tally)
            for _ in pipe.results(planned):
                pass
        # The feature cache takes over the memory of sampling and planning.
        give_back_free_memory()

    def _sample(self, pipe: Pipeline, superbatch: Superbatch, tally: Tally) -> None:
        sampler = self._sampler()
        most = runtime_batch_bytes(self.workload, batch_bounds(self.workload))
        writer = superbatch.begin_sampling(len(superbatch) * most)
        workers = self.sizes.samplers
        sampled: Channel[SampledBatch] = pipe.channel(workers, ordered=True)
        written: Channel[None] = pipe.channel(len(superbatch))

        places = map(superbatch.place, range(len(superbatch)))
        jobs = ((epoch, index, self._seeds(epoch)[index]) for epoch, index in places)

        def sample(_: int, job: tuple[int, int, Seeds]) -> SampledBatch:
            self._topology.check()
            with self.clock.stage("sample", job[1]):
                batch = sampler.sample(*job)
            tally.add(
                sampled_batches=1,
                neighbour_lists=batch.list_reads,
                neighbour_cache_hits=batch.list_hits,
            )
            return batch

        pipe.stage("sample", workers, sample, jobs, sampled)
        pipe.stage("write", 1, lambda _, batch: writer.append(batch), sampled, written)
        for _ in pipe.results(written):
            pass
        superbatch.sampled(writer)

    def _sampler(self) -> NeighborSampler:
        """Return a sampler for one superbatch, with the neighbour cache read from its
        file as in the paper."""
        self._topology.check()
        built = self._neighbours
        cached = (
            neighbour_cache.load(self.workload.dataset, built)
            if built is not None
            else None
        )
        return mapped_sampler(
            self.workload,
            indptr=self._indptr,
            cached=cached,
            threads=self.sizes.list_threads,
        )

    def _train(
        self, superbatch: Superbatch, count: int, tally: Tally
    ) -> Iterator[Batch]:
        if self._loop is None:
            for i in range(superbatch.done, superbatch.done + count):
                yield Batch(superbatch.batch(i), None)
            superbatch.done += count
            return
        with self._pipe("loop") as pipe:
            yield from self._loop.run(pipe, superbatch, count, tally)

    def _pipe(self, stage: str) -> Pipeline:
        self._pipeline = Pipeline(f"{self.name}-{stage}")
        return self._pipeline

    def counters(self) -> Counters:
        """Return hits and misses, which equal the plan's; `observed` has fills, updates
        and runtime files."""
        if self._tally is None:
            return Counters()
        tally = self._tally
        files = self._files
        done = (
            "superbatches",
            "overlapped_superbatches",
            "sampled_batches",
            "initial_rows",
            "kept_rows",
        )
        observed = tally.observed(
            *done,
            "cache_updates",
            "evictions",
            "neighbour_lists",
            "neighbour_cache_hits",
        )
        moved = {
            f"runtime_bytes_{way}": float(files[way]) for way in ("written", "read")
        }
        found = tally.counters(
            self.options.io_depth * self.sizes.readers,
            files.reads(),
            rows=tally["rows"],
            hits={"host": tally["hits"]},
            misses=tally["misses"],
            observed=observed | moved,
        )
        if self.options.policy == "static":
            # Of the fill, no more rows are useful than were hit.
            unused = max(0, tally["initial_rows"] - tally["hits"])
            found.bytes_useful -= unused * self.workload.dataset.row_bytes
        return found

    def files(self) -> list[Path]:
        """Return the neighbour cache's files."""
        return self._neighbours.files if self._neighbours is not None else []

    def forecast(self, trace: Trace, host_bytes: int, unplanned_bytes: int) -> Forecast:
        """Forecast the misses of Belady's rule over superbatches, or of the static
        cache, and the runtime files.

        Args:
            host_bytes: bytes of all host memory for data.
            unplanned_bytes: bytes of the host budget that no buffer takes.
        """
        sizes = self.sizes
        plan = self.sizes.plan
        if self.options.policy == "static":
            missed = trace.missed(trace.hottest(sizes.capacity))
            how = "static"
        else:
            missed = superbatch_misses(trace, sizes.superbatch, sizes.capacity)
            how = f"Belady over superbatches of {sizes.superbatch}"
        # Sampling does not run beside the main loop, so its page cache also has the
        # memory of the loop's buffers, less the rows that stay cached, and no less than
        # the plan's page cache of indices.
        loop = (
            plan.bytes_of("feature cache")
            + plan.bytes_of("mini-batches read back")
            - sizes.kept * trace.row_bytes
        )
        own = min(trace.workload.dataset.topology_bytes, host_bytes // 8)
        graph = (
            2 * trace.graph_bytes * trace.sampled
        )  # written by sampling, read back by the loop
        reads = trace.read_of(
            missed, self.runtime.disk.logical_block_bytes
        ) | sequential(graph)
        why = f"caches {trace.hit_rate(missed)} of the accesses ({how})"
        return trace.with_sampling(
            reads, max(own, unplanned_bytes + loop), why, trace.accesses
        )

    def data_path(self) -> list[PartUse]:
        """List the parts that hold buffers, with their counts."""
        counters = self.counters()
        files = {
            name: count
            for name, count in counters.observed.items()
            if name.startswith("runtime_bytes")
        }
        rule = "out-degree" if self.options.policy == "static" else "Belady's rule"
        return [
            PartUse(name="mapped graph, important lists in memory", buffers=_GRAPH),
            PartUse(name="superbatches in files", buffers=_FILES, counts=files),
            cache_use(f"cache in host memory by {rule}", _CACHE, counters),
            reads_use("direct reads", _READS, counters),
            PartUse(name="a table for each mini-batch", buffers=_TABLES),
        ]

    def facts(self) -> Facts:
        """Return the read mode, the reading stages, and whether the neighbour cache was
        found."""
        reused = self._neighbours.reused if self._neighbours is not None else None
        return Facts(
            io=self._mode, reads_in=("switch", "extract"), prepared_reused=reused
        )

    def notes(self) -> dict[str, str]:
        """Return the read mode and the sizes of superbatch and caches."""
        sizes = self.sizes
        found = {
            "superbatch": f"{sizes.superbatch} mini-batches",
            "feature_cache": f"{sizes.capacity} rows, {self.options.policy}",
            "kept_rows": f"{sizes.kept} stay cached while the next superbatch is "
            "sampled",
            "neighbour_cache": "off",
            "batch_inputs": f"{sizes.input_rows} rows for {sizes.readers} readers, "
            f"{sizes.tables} device tables",
        }
        if self._neighbours is not None:
            made = self._neighbours.facts
            found["neighbour_cache"] = (
                f"{made['nodes']} lists, {made['entries']} entries"
            )
        return found

    def close(self) -> None:
        """End the threads, close the files and free the buffers."""
        pipeline = self._pipeline
        self._pipeline = None
        if pipeline is not None:
            pipeline.close()
        self._drop()
        readers = self._readers
        self._readers = None
        if readers is not None:
            readers.close()
        loop = self._loop
        self._loop = None
        if loop is not None:
            loop.close()
        self._indptr = None
