"""The loader of the systems that copy rows to the device: sample, look up the cache, gather the misses, copy them.

A limited number of mini-batches may be between the start of loading and the end of training: with one, loading waits
for the previous mini-batch's training, like DGL's loader; with more, sampling, loading and training overlap (PaGraph,
Section 3.3). Rows that miss the cache go into a ring of rows beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.loading.device_cache import DeviceCache, Lookup
from systems.engine.loading.gather_loader import torch_dtype
from systems.engine.loading.host_features import HostFeatures
from systems.engine.loading.pipeline import Channel, Drained, Pipeline
from systems.engine.loading.row_ring import RowRing
from systems.interface import Batch, Counters, Runtime, StageClock
from workloads.errors import BudgetError
from workloads.feature_table import Table
from workloads.sampling.batch import SampledBatch

Ids = npt.NDArray[np.int64]
Sample = Callable[[int, int, Ids], SampledBatch]


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


class Gatherer(ABC):
    """Source of missing rows in host memory, one mini-batch at a time, on one thread.

    Attributes:
        samples: whether the gatherer samples too, instead of the loader.
    """

    samples = False

    def begin(self, epoch: int, seeds: Sequence[Ids], start: int) -> None:  # noqa: B027 - most gatherers ignore it
        """Note that mini-batches `start` and later of `epoch` come next, with these seed nodes."""

    @abstractmethod
    def gathered(
        self, pipe: Pipeline, sampled: Iterator[SampledBatch], take: Callable[[], object], ring: RowRing
    ) -> Iterator[GatheredBatch]:
        """Yield every mini-batch of `sampled` with its missing rows; before each, `take` waits until it may load."""

    def counts(self, counters: Counters) -> None:  # noqa: B027 - rows in memory need no reads
        """Add the reads of the last epoch to `counters`."""

    def close(self) -> None:  # noqa: B027 - some hold no resources
        """Free the gatherer's resources."""


@dataclass(eq=False)
class HostGatherer(Gatherer):
    """Gatherer of rows in host memory by many threads: into staging buffers or, on the processor, the table itself.

    Attributes:
        threads: threads that gather one mini-batch.
        staging: number of staging buffers of `rows` rows: one is filled while another is copied away.
    """

    features: HostFeatures
    cache: DeviceCache
    runtime: Runtime
    clock: StageClock
    threads: int
    staging: int
    rows: int

    def __post_init__(self) -> None:
        source = self.features.source
        self._staging: list[torch.Tensor] = []
        if self.runtime.accelerator.kind != "cpu":
            for _ in range(self.staging):
                raw = self.runtime.accelerator.host_buffer(self.rows * source.row_bytes)
                self._staging.append(raw.view(torch_dtype(source.dtype)).view(self.rows, source.dim))

    def gathered(
        self, pipe: Pipeline, sampled: Iterator[SampledBatch], take: Callable[[], object], ring: RowRing
    ) -> Iterator[GatheredBatch]:
        """Yield every mini-batch with its missing rows, gathered on the calling thread."""
        free = pipe.filled(self._staging)
        while True:
            take()
            structure = next(sampled, None)
            if structure is None:
                return
            found = self.cache.lookup(structure.nodes)
            count = len(found.misses)
            if self._staging:
                _, buffer = free.get()
                rows = buffer[:count]
                item = GatheredBatch(structure, found, rows, on_copied=partial(free.give_back, buffer))
            else:
                start = ring.take(count)
                rows = self.cache.buffer(start, count)
                item = GatheredBatch(structure, found, None, start)
            with self.clock.stage("extract", structure.index):
                self.features.gather(structure.nodes[found.misses], rows.numpy(), self.threads)
            yield item

    def close(self) -> None:
        """Free the staging buffers."""
        self._staging.clear()


@dataclass(eq=False)
class CacheLoader:
    """Loader that runs epochs over a device cache and a gatherer.

    Attributes:
        sample: samples one mini-batch; called by any thread.
        features: rows that fill the cache; None without a cache.
        ahead: mini-batches between the start of their loading and the end of their training.
        largest: rows of the largest mini-batch in the plan.
        workers: sampling threads.
        waiting: sampled mini-batches that may wait.
        threads: threads that fill the cache.
        tier: tier of `Counters.hits` that counts cache misses; empty: they are `misses`, read from disk.
        aggregated: whether the rows hold the first layer's aggregates.
    """

    name: str
    runtime: Runtime
    clock: StageClock
    sample: Sample
    cache: DeviceCache | None
    gatherer: Gatherer | None
    features: HostFeatures | None
    ahead: int
    largest: int
    workers: int
    waiting: int
    threads: int
    tier: str
    aggregated: bool = False

    def __post_init__(self) -> None:
        self._pipeline: Pipeline | None = None
        self._rows = self._loaded = 0

    def epoch(self, k: int, seeds: Sequence[Ids]) -> Iterator[Batch]:
        """Yield the mini-batches of epoch `k` in order; errors of any thread are raised here."""
        self._rows = self._loaded = 0
        start = 0
        if self.cache is not None and not self.cache.is_final and self.features is not None:
            # The first mini-batch alone shows how much device memory training takes (PaGraph, Section 4).
            yield from self._run(k, seeds[:1], 0)
            with self.clock.stage("data_prep"):
                self.cache.fill_rest(self.features, self.threads)
            start = 1
        yield from self._run(k, seeds[start:], start)

    def _run(self, k: int, seeds: Sequence[Ids], start: int) -> Iterator[Batch]:
        with Pipeline(self.name) as pipe:
            self._pipeline = pipe

            def sample(number: int, nodes: Ids) -> SampledBatch:
                with self.clock.stage("sample", start + number):
                    return self.sample(k, start + number, nodes)

            sampled: Channel[SampledBatch] = pipe.channel(self.waiting, ordered=True)
            sampling = self.gatherer is None or not self.gatherer.samples
            pipe.stage("sample", self.workers, sample, seeds if sampling else (), sampled)
            if self.gatherer is None:
                for structure in pipe.results(sampled):
                    yield Batch(structure, None)
                return
            assert self.cache is not None
            turns = pipe.filled(range(self.ahead))
            ring = RowRing(self.cache.buffer_rows)
            pipe.on_stop(ring.stop)
            self.gatherer.begin(k, seeds, start)
            gathered = self.gatherer.gathered(pipe, self._checked(sampled), turns.get, ring)
            loaded: Channel[GatheredBatch] = pipe.channel(1)
            ready: Channel[Batch] = pipe.channel(1)
            pipe.stage("extract", 1, lambda _, item: item, gathered, loaded)
            pipe.stage("transfer", 1, lambda _, item: self._transfer(item, turns, ring), loaded, ready)
            yield from pipe.results(ready)

    def _checked(self, sampled: Channel[SampledBatch]) -> Iterator[SampledBatch]:
        while True:
            try:
                _, structure = sampled.get()
            except Drained:
                return
            if structure.num_nodes > self.largest:
                raise BudgetError(
                    f"mini-batch {structure.index} of epoch {structure.epoch} has {structure.num_nodes} nodes, "
                    f"the plan holds {self.largest}",
                    "report this: the bound of the largest mini-batch is wrong",
                )
            yield structure

    def _transfer(self, item: GatheredBatch, turns: Channel[int], ring: RowRing) -> Batch:
        sampled, count = item.sampled, len(item.found.misses)
        self._rows += sampled.num_nodes
        self._loaded += count
        table, rows, held = self._place(item, ring)

        def give_back() -> None:
            if held is not None:
                ring.give_back(held, count)
            turns.give_back(0)

        return Batch(sampled, table, rows, first_layer_aggregated=self.aggregated, on_release=give_back)

    def _place(self, item: GatheredBatch, ring: RowRing) -> tuple[Table, torch.Tensor | None, int | None]:
        """Copy the missing rows to the device; return the batch's table, alias list, and start row in the ring."""
        assert self.cache is not None
        cache, alias, misses = self.cache, item.found.alias, item.found.misses
        start = item.start
        if item.rows is not None:
            if self.runtime.accelerator.kind == "cpu" and not cache.rows:
                return item.rows, None, None
            start = ring.take(len(misses))
            index = item.sampled.index
            with self.clock.stage("transfer", index):
                self.runtime.accelerator.copy(cache.buffer(start, len(misses)), item.rows, batch=index).wait()
            if item.on_copied is not None:
                item.on_copied()
        if not cache.rows:
            return cache.buffer(start, len(misses)), None, start
        alias[misses] = cache.rows + start + np.arange(len(misses))
        return cache.table, torch.from_numpy(alias), start

    def counters(self, row_bytes: int) -> Counters:
        """Return the counts of the last epoch."""
        hits = {"device": self._rows - self._loaded}
        if self.tier:
            hits[self.tier] = self._loaded
        counters = Counters(
            rows=self._rows, hits=hits, misses=0 if self.tier else self._loaded, bytes_loaded=self._loaded * row_bytes
        )
        if self.gatherer is not None:
            self.gatherer.counts(counters)
        return counters

    def close(self) -> None:
        """End the threads; the cache belongs to the caller."""
        if self._pipeline is not None:
            self._pipeline.close()
        if self.gatherer is not None:
            self.gatherer.close()
