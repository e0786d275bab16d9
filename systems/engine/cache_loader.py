"""The loader of the systems that copy rows to the device: sample, look up the cache, gather what misses, copy it.

Loading a mini-batch takes one of the device table's buffers. With one buffer loading waits until the mini-batch before
was trained, as DGL's loader has it; with more of them sampling, loading and training overlap (PaGraph, Section 3.3).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.device_cache import DeviceCache, Lookup
from systems.engine.gather_loader import torch_dtype
from systems.engine.host_features import HostFeatures
from systems.engine.pipeline import Channel, Drained, Pipeline, Stopped
from systems.interface import Batch, Counters, Runtime, StageClock
from workloads.accelerator import Event
from workloads.errors import BudgetError
from workloads.feature_table import Table
from workloads.sampling.batch import SampledBatch

Ids = npt.NDArray[np.int64]
Sample = Callable[[int, int, Ids], SampledBatch]


@dataclass
class Gathered:
    """A mini-batch whose missing rows are in host memory.

    Attributes:
        buffer: the device table's buffer that is kept for it.
        rows: [m, dim], the rows of `found.misses`; a table of its own, or the buffer itself (`in_place`).
    """

    sampled: SampledBatch
    found: Lookup
    buffer: int
    rows: torch.Tensor
    in_place: bool = False


class Gatherer(ABC):
    """Brings rows from where they are kept to host memory, a mini-batch at a time, on one thread.

    Attributes:
        samples: it samples too: nothing is sampled for it.
    """

    samples = False

    def begin(self, epoch: int, seeds: Sequence[Ids], start: int) -> None:  # noqa: B027 - most need not know
        """Mini-batches `start` and after of `epoch` come next, with these seed nodes."""

    @abstractmethod
    def gathered(self, sampled: Iterator[SampledBatch], take: Callable[[], int]) -> Iterator[Gathered]:
        """Every mini-batch of `sampled` with its missing rows; before each, a buffer is taken."""

    def counts(self, counters: Counters) -> None:  # noqa: B027 - rows in memory are nobody's reads
        """Add what it read for the epoch that ran last."""

    def close(self) -> None:  # noqa: B027 - some hold nothing
        """Free what it holds."""


class HostGatherer(Gatherer):
    """Rows of host memory, gathered by many threads: into staging buffers, or on the processor into the table itself.

    Args:
        threads: that gather one mini-batch.
        buffers, rows: of the device table: as many mini-batches are staged, each of at most so many rows.
    """

    def __init__(
        self, features: HostFeatures, cache: DeviceCache, runtime: Runtime, clock: StageClock, *, threads: int,
        buffers: int, rows: int,
    ) -> None:  # fmt: skip
        self._features = features
        self._cache = cache
        self._clock = clock
        self._threads = threads
        source = features.source
        self._staging: list[torch.Tensor] = []
        if runtime.accelerator.kind != "cpu":
            for _ in range(buffers):
                raw = runtime.accelerator.host_buffer(rows * source.row_bytes)
                self._staging.append(raw.view(torch_dtype(source.dtype)).view(rows, source.dim))

    def gathered(self, sampled: Iterator[SampledBatch], take: Callable[[], int]) -> Iterator[Gathered]:
        """Gathers on the thread that asks."""
        while True:
            buffer = take()
            structure = next(sampled, None)
            if structure is None:
                return
            with self._clock.stage("extract", structure.index):
                found = self._cache.lookup(structure.nodes)
                target = self._staging[buffer] if self._staging else self._cache.buffer(buffer)
                rows = target[: len(found.misses)]
                self._features.gather(structure.nodes[found.misses], rows.numpy(), self._threads)
            yield Gathered(structure, found, buffer, rows, in_place=not self._staging)

    def close(self) -> None:
        """Let go of the staging buffers."""
        self._staging.clear()


@dataclass
class _Copied:
    """A mini-batch that is on its way to the device, since `start` (monotonic seconds)."""

    batch: Batch
    event: Event | None
    start: float


class CacheLoader:
    """Runs epochs.

    Args:
        name: prefix of thread names.
        sample: one mini-batch; any thread calls it.
        features: where the cache is filled from; None where there is no cache.
        buffers: mini-batches between the start of their loading and the end of their training.
        buffer_rows: rows of the largest mini-batch that was planned for.
        workers: sampling threads, and
        waiting: sampled mini-batches that may wait.
        threads: that fill the cache.
        tier: of `Counters.hits` that what misses the cache counts for; empty: they are misses, read from disk.
        aggregated: the rows hold the first layer's aggregates.
    """

    def __init__(
        self, name: str, runtime: Runtime, clock: StageClock, sample: Sample, cache: DeviceCache | None,
        gatherer: Gatherer | None, features: HostFeatures | None, *, buffers: int, buffer_rows: int, workers: int,
        waiting: int, threads: int, tier: str, aggregated: bool = False,
    ) -> None:  # fmt: skip
        self._name = name
        self._runtime = runtime
        self._clock = clock
        self._sample = sample
        self._cache = cache
        self._gatherer = gatherer
        self._features = features
        self._buffers = buffers
        self._buffer_rows = buffer_rows
        self._workers = workers
        self._waiting = waiting
        self._threads = threads
        self._tier = tier
        self._aggregated = aggregated
        self._pipeline: Pipeline | None = None
        self._rows = self._loaded = 0

    def epoch(self, k: int, seeds: Sequence[Ids]) -> Iterator[Batch]:
        """The mini-batches of epoch `k` in order; what any thread raises is raised here."""
        self._rows = self._loaded = 0
        start = 0
        if self._cache is not None and not self._cache.settled and self._features is not None:
            # The first mini-batch alone shows how much of the device training takes (PaGraph, Section 4).
            yield from self._run(k, seeds[:1], 0)
            with self._clock.stage("data_prep"):
                self._cache.settle(self._features, self._threads)
            start = 1
        yield from self._run(k, seeds[start:], start)

    def _run(self, k: int, seeds: Sequence[Ids], start: int) -> Iterator[Batch]:
        with Pipeline(self._name) as pipe:
            self._pipeline = pipe

            def sample(number: int, nodes: Ids) -> SampledBatch:
                with self._clock.stage("sample", start + number):
                    return self._sample(k, start + number, nodes)

            sampled: Channel[SampledBatch] = pipe.channel(self._waiting, ordered=True)
            sampling = self._gatherer is None or not self._gatherer.samples
            pipe.stage("sample", self._workers, sample, seeds if sampling else (), sampled)
            if self._gatherer is None:
                for structure in pipe.results(sampled):
                    yield Batch(structure, None)
                return
            free: Channel[int] = pipe.channel(self._buffers)
            for number in range(self._buffers):
                free.put(number, number)
            self._gatherer.begin(k, seeds, start)
            gathered = self._gatherer.gathered(self._checked(sampled), lambda: free.get()[1])
            copied: Channel[_Copied] = pipe.channel(1)
            ready: Channel[Batch] = pipe.channel(1)
            pipe.stage("extract", 1, lambda _, item: self._copy(item, free), gathered, copied)
            pipe.stage("transfer", 1, lambda _, item: self._arrive(item), copied, ready)
            yield from pipe.results(ready)

    def _checked(self, sampled: Channel[SampledBatch]) -> Iterator[SampledBatch]:
        while True:
            try:
                _, structure = sampled.get()
            except Drained:
                return
            if structure.num_nodes > self._buffer_rows:
                raise BudgetError(
                    f"mini-batch {structure.index} of epoch {structure.epoch} has {structure.num_nodes} nodes, "
                    f"the plan holds {self._buffer_rows}",
                    "report this: the bound of the largest mini-batch is wrong",
                )
            yield structure

    def _copy(self, item: Gathered, free: Channel[int]) -> _Copied:
        self._rows += item.sampled.num_nodes
        self._loaded += len(item.found.misses)
        start = time.monotonic()
        table, rows, event = self._place(item)

        def give_back() -> None:
            try:
                free.put(0, item.buffer)
            except Stopped:
                pass  # the epoch was abandoned; the next one starts with all buffers

        batch = Batch(item.sampled, table, rows, first_layer_aggregated=self._aggregated, on_release=give_back)
        return _Copied(batch, event, start)

    def _place(self, item: Gathered) -> tuple[Table, torch.Tensor | None, Event | None]:
        """Bring the missing rows to the device: the batch's table, its alias list, and the copy under way."""
        assert self._cache is not None
        cache, alias = self._cache, item.found.alias
        if self._runtime.accelerator.kind == "cpu" and not cache.rows and not item.in_place:
            return item.rows, None, None
        buffer = cache.buffer(item.buffer)
        event = None
        if not item.in_place:
            event = self._runtime.accelerator.copy(buffer, item.rows, batch=item.sampled.index)
        if not cache.rows:
            return buffer, None, event
        alias[item.found.misses] = cache.first_row(item.buffer) + np.arange(len(item.found.misses))
        return cache.table, torch.from_numpy(alias), event

    def _arrive(self, copied: _Copied) -> Batch:
        if copied.event is not None:
            copied.event.wait()
            self._clock.add("transfer", copied.batch.sampled.index, copied.start, time.monotonic())
        return copied.batch

    def counters(self, row_bytes: int) -> Counters:
        """Counts of the epoch that ran last."""
        hits = {"device": self._rows - self._loaded}
        if self._tier:
            hits[self._tier] = self._loaded
        counters = Counters(
            rows=self._rows,
            hits=hits,
            misses=0 if self._tier else self._loaded,
            bytes_loaded=self._loaded * row_bytes,
        )
        if self._gatherer is not None:
            self._gatherer.counts(counters)
        return counters

    def close(self) -> None:
        """End the threads; the cache is the caller's."""
        if self._pipeline is not None:
            self._pipeline.close()
        if self._gatherer is not None:
            self._gatherer.close()
