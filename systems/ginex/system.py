"""Ginex's four stages: superbatch sampling, changeset precomputation, feature-cache initialisation, main loop.

The changesets of a superbatch are planned while the next one is sampled; sampling and gathering take turns, each with
all of the memory (Section 3). Everything a superbatch needs later goes to runtime files.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from systems.engine import RowReader
from systems.engine.bounds import batch_bounds
from systems.engine.gather_loader import torch_dtype
from systems.engine.memory import aligned_empty, give_back_free_memory
from systems.engine.neighbour_cache import NeighbourCache
from systems.engine.pipeline import Channel, Pipeline
from systems.engine.row_reads import reader_arguments
from systems.engine.topology import DatasetFiles, row_bytes
from systems.ginex.loop import MainLoop, Readers
from systems.ginex.options import GinexOptions
from systems.ginex.planner import Sizes, plan_sizes, runtime_batch_bytes
from systems.ginex.policy import Belady, Policy, Static
from systems.ginex.superbatch import Superbatch
from systems.ginex.tally import Tally
from systems.interface import Batch, Counters, Plan, System, SystemInfo
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import advise_random, make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler

Seeds = npt.NDArray[np.int64]


class Ginex(System):
    """Ginex of Park et al., VLDB 2022."""

    info: ClassVar[SystemInfo] = SystemInfo(
        name="ginex",
        paper="ginex",
        summary="superbatches sampled ahead, then a provably optimal feature cache",
        devices=("cpu", "cuda", "emulated"),
        faithful=True,
        options=GinexOptions,
    )
    options: GinexOptions

    _loop: MainLoop | None = None
    _readers: Readers | None = None
    _policy: Policy | None = None
    _pipeline: Pipeline | None = None
    _neighbours: NeighbourCache | None = None
    _indptr: npt.NDArray[np.int64] | None = None
    _tally: Tally | None = None
    _mode = "not prepared"

    @cached_property
    def _sizes(self) -> Sizes:
        return plan_sizes(self.info.name, self.workload, self.runtime, self.budget, self.options)

    def plan(self) -> Plan:
        """All buffers; see `planner.py`."""
        return self._sizes.plan

    def prepare(self) -> None:
        """Load `indptr`, make the neighbour cache (or find it made), allocate batch inputs, open the readers."""
        sizes, options = self._sizes, self.options
        self._topology = DatasetFiles(self.workload, ["indices", "labels"])
        self._topology.check()
        self._indptr = self.workload.dataset.load("indptr")
        if sizes.neighbours.nodes:
            self._neighbours = NeighbourCache(self.workload, self.runtime.artefacts, indptr=self._indptr)
            self._neighbours.prepare(sizes.neighbours)
        self.runtime.scratch.mkdir(parents=True, exist_ok=True)
        if self.runtime.stages == "sample":
            return
        if options.policy == "static":
            self._policy = Static(self.workload, sizes.capacity, True)
            self._policy.rank()
        else:
            self._policy = Belady(self.workload, sizes.capacity, options.prefill)
        self._readers = Readers(self._make_reader, sizes.readers)
        self._mode = self._readers.mode
        self._loop = MainLoop(
            self.info.name, self.runtime.accelerator, self.clock, self._readers, sizes.input_rows,
            sizes.tables,
            options.gather_threads or self.runtime.cores,
        )  # fmt: skip

    def _make_reader(self) -> RowReader:
        return RowReader(self.workload.dataset.file("features"), **reader_arguments(self.workload, self.options))

    def epoch(self, k: int) -> Iterator[Batch]:
        """The mini-batches of epoch `k`, in the seed plan's order, superbatch by superbatch."""
        if self._indptr is None:
            raise RuntimeError("prepare() comes before epoch()")
        self._tally = Tally(self.options.io_depth * self._sizes.readers)
        return self._run(k, make_seed_plan(self.workload).batches(k), self._tally)

    def _run(self, epoch: int, seeds: list[Seeds], tally: Tally) -> Iterator[Batch]:
        size = self._sizes.superbatch
        superbatches = [
            Superbatch(self.runtime.scratch, epoch, number, start, min(start + size, len(seeds)), tally.files)
            for number, start in enumerate(range(0, len(seeds), size))
        ]
        planning = self._policy is not None
        try:
            for number, superbatch in enumerate(superbatches):
                following = superbatches[number + 1 : number + 2]
                if number == 0 or not self.options.pipelined:
                    self._inspect(epoch, seeds, superbatch, None, tally)
                    following = following if self.options.pipelined else []
                if planning or following:
                    self._inspect(epoch, seeds, following[0] if following else None, superbatch, tally)
                yield from self._train(superbatch, tally)
                superbatch.discard()
        finally:
            for superbatch in superbatches:
                superbatch.discard()

    def _inspect(
        self, epoch: int, seeds: list[Seeds], sampling: Superbatch | None, planning: Superbatch | None, tally: Tally
    ) -> None:
        """Sample one superbatch and plan another at once; either may be None."""
        with self._pipe("inspect") as pipe, self.clock.stage("inspect"):
            planned: Channel[None] = pipe.channel(1)
            policy = self._policy
            if planning is not None and policy is not None:
                cores = self.runtime.cores
                pipe.stage(
                    "changesets",
                    1,
                    lambda _, one: policy.inspect(one, cores, lambda: pipe.stopping),
                    [planning],
                    planned,
                )
            else:
                planned.close()
            if sampling is not None:
                if planning is not None and policy is not None:
                    tally.overlapped()
                self._sample(pipe, epoch, seeds, sampling, tally)
            for _ in pipe.results(planned):
                pass
        # What sampling and planning had is the feature cache's now.
        give_back_free_memory()

    def _sample(self, pipe: Pipeline, epoch: int, seeds: list[Seeds], superbatch: Superbatch, tally: Tally) -> None:
        sampler = self._sampler()
        writer = superbatch.begin_sampling(
            len(superbatch) * runtime_batch_bytes(self.workload, batch_bounds(self.workload))
        )
        workers = self._sizes.samplers
        sampled: Channel[SampledBatch] = pipe.channel(workers, ordered=True)
        written: Channel[None] = pipe.channel(len(superbatch))

        def sample(i: int, nodes: Seeds) -> SampledBatch:
            self._topology.check()
            index = superbatch.start + i
            with self.clock.stage("sample", index):
                batch = sampler.sample(epoch, index, nodes)
            tally.sampled(batch.list_reads, batch.list_hits)
            return batch

        pipe.stage("sample", workers, sample, seeds[superbatch.start : superbatch.stop], sampled)
        pipe.stage("write", 1, lambda _, batch: writer.append(batch), sampled, written)
        for _ in pipe.results(written):
            pass
        superbatch.sampled(writer)

    def _sampler(self) -> NeighborSampler:
        """A sampler for one superbatch, with the neighbour cache, read from its file as the paper has it."""
        self._topology.check()
        dataset = self.workload.dataset
        indices, labels = dataset.memmap("indices"), dataset.memmap("labels")
        advise_random(indices)
        advise_random(labels)
        cached = self._neighbours.load() if self._neighbours is not None else None
        return make_sampler(
            self.workload, indptr=self._indptr, indices=indices, labels=labels, cached=cached,
            threads=self.options.list_threads,
        )  # fmt: skip

    def _train(self, superbatch: Superbatch, tally: Tally) -> Iterator[Batch]:
        if self._loop is None or self._policy is None:
            for i in range(len(superbatch)):
                yield Batch(superbatch.batch(i), None)
            return
        dataset, capacity = self.workload.dataset, self._sizes.capacity
        # Memory of this superbatch alone: sampling the next one has it back.
        memory = torch.from_numpy(aligned_empty(capacity * row_bytes(self.workload)))
        cache = memory.view(torch_dtype(dataset.feature_dtype)).view(capacity, dataset.dim)
        with self._pipe("switch") as pipe, self.clock.stage("switch"):
            self._loop.fill(pipe, cache, self._policy, superbatch, tally)
        with self._pipe("loop") as pipe:
            yield from self._loop.run(pipe, cache, self._policy, superbatch, tally)
        del cache, memory
        give_back_free_memory()
        tally.superbatch(superbatch.planned.evictions)

    def _pipe(self, stage: str) -> Pipeline:
        self._pipeline = Pipeline(f"{self.info.name}-{stage}")
        return self._pipeline

    def counters(self) -> Counters:
        """Hits and misses are those planned, read for read; `observed` has fills, updates and runtime files."""
        return self._tally.counters() if self._tally is not None else Counters()

    def files(self) -> list[Path]:
        """The neighbour cache's file."""
        prepared = self._neighbours.prepared if self._neighbours is not None else None
        return sorted(path for path in prepared.path.iterdir() if path.is_file()) if prepared is not None else []

    def notes(self) -> dict[str, str]:
        """How it reads, how large superbatch and caches are."""
        sizes = self._sizes
        found = {
            "io": self._mode,
            "superbatch": f"{sizes.superbatch} mini-batches",
            "feature_cache": f"{sizes.capacity} rows, {self.options.policy}",
            "neighbour_cache": "off",
            "batch_inputs": f"{sizes.input_rows} rows for {sizes.readers} readers, {sizes.tables.device} device tables",
            "reads_in": "switch+extract",
        }
        prepared = self._neighbours.prepared if self._neighbours is not None else None
        if prepared is not None:
            found["neighbour_cache"] = f"{prepared.facts['nodes']} lists, {prepared.facts['entries']} entries"
            found["prepared"] = "reused" if prepared.reused else "made"
        return found

    def close(self) -> None:
        """End the threads, close the files, free the buffers."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()
        if self._readers is not None:
            self._readers.close()
            self._readers = None
        if self._loop is not None:
            self._loop.close()
            self._loop = None
        self._policy = None
        self._indptr = None
