"""GNNDrive's four stages (Section 4.1): samplers, extractors, the trainer (the
harness's loop) and a releaser.

Sampling reads `indices` through the page cache. Extraction reads features with direct
I/O into a feature buffer shared by all mini-batches: a buffered row is not read again,
and an extractor waits for a row that another one is reading.

It is no `PathSystem`: the loop of a path keeps mini-batches in order, gives each memory
of its own and reads its misses before it copies them, while GNNDrive trains in the
order in which extraction finishes, keeps rows in slots that mini-batches of all ranks
share and wait for, and copies rows to the device while others are read. Buffers are
sized by `systems/parts/sizes.py` as others are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from systems.engine.io.arrays import torch_dtype
from systems.engine.io.memory import madvise
from systems.engine.io.row_reads import ReaderPool, feature_reader
from systems.engine.io.tally import Tally
from systems.engine.io.topology import (
    SAMPLING_BUFFERS,
    DatasetFiles,
    loaded,
    mapped_sampler,
)
from systems.engine.pipeline import Channel, Pipeline, Stopped
from systems.gnndrive.buffers import (
    Acquired,
    BufferClosed,
    FeatureBuffer,
    SharedStaging,
)
from systems.gnndrive.extractor import (
    CachedExtractor,
    Extractor,
    HostExtractor,
    SharedStagedExtractor,
    StagedExtractor,
)
from systems.gnndrive.options import GnnDriveOptions
from systems.gnndrive.sizes import GnnDriveSizes, Staging, size_buffers
from systems.interface import (
    Batch,
    Counters,
    Facts,
    Forecast,
    PartUse,
    Plan,
    System,
    SystemInfo,
    Trace,
)
from systems.parts.sizes import PAGE_CACHE
from systems.parts.uses import cache_use, reads_use
from workloads.ranks import PeerLost, RankGroup
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_seed_plan
from workloads.sampling.neighbor import NeighborSampler

_GRAPH = ("indptr", "page tables of maps", PAGE_CACHE)
_READS = ("reader buffers", "staging buffer", "staging table")
Slots = npt.NDArray[np.int64]
Shared = TypeVar("Shared", FeatureBuffer, SharedStaging)


class GnnDrive(System):
    """GNNDrive, CPU and GPU variants."""

    info = SystemInfo(
        name="gnndrive",
        paper="gnndrive",
        summary="asynchronous direct-I/O extraction into a shared feature buffer",
        options=GnnDriveOptions,
        # Hits depend on the time at which mini-batches are released; rows and hits +
        # misses do not.
        deterministic_counters=False,
        data_parallel=True,
    )
    options: GnnDriveOptions

    _sampler: NeighborSampler | None = None
    _table: torch.Tensor | None = None
    _buffer: FeatureBuffer | None = None
    _extractors: ReaderPool[Extractor] | None = None
    _pipeline: Pipeline | None = None
    _tally: Tally | None = None
    _staging: SharedStaging | None = None
    _evicted_before = 0
    _staged_before = (0, 0)
    _mode = "not prepared"

    @cached_property
    def _sizes(self) -> GnnDriveSizes:
        return self.fit(lambda: size_buffers(self, self.options))

    @property
    def _on_device(self) -> bool:
        """Whether the training device has memory of its own."""
        return self.runtime.accelerator.kind != "cpu"

    def plan(self) -> Plan:
        """Plan every buffer."""
        return self._sizes.plan

    def chosen(self) -> dict[str, int | str]:
        """Return the automatic numbers, and the bytes of the feature buffer."""
        feature_buffer = self._sizes.slots * self.workload.dataset.row_bytes
        return {**super().chosen(), "feature_buffer": feature_buffer}

    @property
    def _in_order(self) -> bool:
        # Ranks take each step together; out of order, they would mix their steps.
        return (
            self.options.keep_order
            or self.runtime.keep_order
            or self.runtime.group is not None
        )

    def prepare(self) -> None:
        """Load `indptr`, map `indices`, allocate the feature buffer and open the
        readers."""
        sizes = self._sizes
        self._topology = DatasetFiles(self.workload, ["indices", "labels"])
        self._topology.check()
        group = self.runtime.group
        # Loaded once for all processes; a process alone loads its own.
        indptr = (
            None if group is None else loaded(self.workload.dataset, "indptr", group)
        )
        self._sampler = mapped_sampler(
            self.workload, indptr=indptr, threads=self.options.list_threads
        )
        if self.runtime.stages == "sample":
            return
        dataset = self.workload.dataset
        accelerator = self.runtime.accelerator
        dtype = torch_dtype(dataset.feature_dtype)
        if sizes.sharing == 1 or group is None:
            self._table = accelerator.allocate(sizes.slots, dataset.dim, dtype)
            self._buffer = FeatureBuffer(sizes.slots)
        else:
            self._table, self._buffer = _shared_buffer(
                group, sizes.slots, dataset.dim, dtype
            )
        if sizes.staging.portion and group is not None:
            self._staging = self._shared_staging(group, sizes.staging)
        self._extractors = ReaderPool(self._make_extractor, self.options.extractors)
        self._mode = self._extractors.mode

    def _make_extractor(self) -> Extractor:
        options = self.options
        accelerator = self.runtime.accelerator
        assert self._table is not None
        if not options.direct:
            features = self.workload.dataset.memmap("features")
            madvise(features, "random")
            files = DatasetFiles(self.workload, ["features"])
            staging = self._staging or accelerator.host_buffer(
                self._sizes.staging.extractor_bytes
            )
            return CachedExtractor(features, files, self._table, staging, accelerator)
        reader = feature_reader(self.workload, options)
        if not self._on_device:
            return HostExtractor(reader, self._table)
        if self._staging is not None:
            return SharedStagedExtractor(
                reader,
                self._table,
                self._staging,
                accelerator,
                share_rows=options.share_staged_rows,
            )
        return StagedExtractor(
            reader,
            self._table,
            accelerator.host_buffer(self._sizes.staging.extractor_bytes),
            accelerator,
        )

    def _shared_staging(self, group: RankGroup, sizes: Staging) -> SharedStaging:
        """Allocate the staging buffer of all processes, pinned in each where its device
        copies from pinned memory."""
        portion = sizes.portion
        rows = sizes.segment_rows
        row = self.workload.dataset.row_bytes
        buffer = torch.from_numpy(group.shared(group.world * portion * rows * row))
        self.runtime.accelerator.pin(buffer)
        memory = group.shared(SharedStaging.plan_bytes(group.world, portion, rows))
        attach = partial(SharedStaging, group.rank, group.world, portion, rows, row)
        borrow = self.options.borrow_staging
        return _on_all(
            group,
            lambda create: attach(
                rows=buffer, memory=memory, create=create, borrow=borrow
            ),
        )

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k`, as their extraction finishes or in the
        seed plan's order."""
        if self._sampler is None:
            raise RuntimeError("prepare() comes before epoch()")
        self._tally = Tally()
        if self._buffer is not None:
            self._evicted_before = self._buffer.counts["evictions"]
        if self._staging is not None:
            self._staged_before = (self._staging.borrowed, self._staging.found)
        return self._run(k, self._sampler, self._tally)

    def _run(self, k: int, sampler: NeighborSampler, tally: Tally) -> Iterator[Batch]:
        options = self.options
        seeds = make_seed_plan(self.workload).batches(k)
        with Pipeline(self.info.name) as pipe:
            self._pipeline = pipe

            def sample(index: int, nodes: npt.NDArray[np.int64]) -> SampledBatch:
                self._topology.check()
                with self.clock.stage("sample", index):
                    return sampler.sample(k, index, nodes)

            extracting: Channel[SampledBatch] = pipe.channel(
                options.extracting_queue, ordered=self._in_order
            )
            pipe.stage("sample", options.samplers, sample, seeds, extracting)
            if self._buffer is None:
                for structure in pipe.results(extracting):
                    yield Batch(structure, None)
                return
            yield from self._extract_all(
                pipe, extracting, self._fresh_buffer(pipe), tally
            )

    def _fresh_buffer(self, pipe: Pipeline) -> FeatureBuffer:
        """Return the feature buffer, kept over epochs if its tier keeps rows; an epoch
        that stops early closes it."""
        buffer = self._buffer
        assert buffer is not None
        if not self.runtime.accelerator.keeps_rows:
            slots = buffer.num_slots
            self._buffer = None
            del buffer
            buffer = self._buffer = FeatureBuffer(slots)
            self._evicted_before = 0

        def replace() -> None:
            # Closing wakes the waiting threads. They all end and their mini-batches are
            # not used again, so an empty mapping is right, and much simpler than
            # undoing the loads under way.
            buffer.close()
            if self._staging is not None:
                self._staging.close()
            if self.runtime.group is not None:
                # a rank that stops early ends the run, and this wakes the others
                return
            self._buffer = FeatureBuffer(buffer.num_slots)
            self._evicted_before = 0

        pipe.on_stop(replace)
        return buffer

    def _extract_all(
        self,
        pipe: Pipeline,
        extracting: Channel[SampledBatch],
        buffer: FeatureBuffer,
        tally: Tally,
    ) -> Iterator[Batch]:
        options = self.options
        turnstile = pipe.turnstile() if self._in_order else None
        releasing: Channel[Slots] = pipe.channel(
            options.extractors + options.training_queue + 1
        )
        # A token for each mini-batch that this process may hold in a shared feature
        # buffer.
        held = self._mini_batches_held(options.extractors + options.training_queue + 1)
        places: Channel[None] | None = (
            pipe.filled([None] * held) if self._sizes.sharing > 1 else None
        )
        training: Channel[Batch] = pipe.channel(
            options.training_queue, ordered=self._in_order
        )

        def extract(number: int, sampled: SampledBatch) -> Batch:
            with _ended_with_peers(self.runtime.group):
                began = time.monotonic()
                if turnstile is not None:
                    # In order: a later mini-batch must not take the slots that the next
                    # one to train waits for.
                    turnstile.enter(number)
                if places is not None:
                    places.get()
                got = buffer.acquire(sampled.nodes)
                if turnstile is not None:
                    turnstile.leave()
                self._load(sampled, got, began, buffer, tally)
            rows = torch.from_numpy(got.alias)
            return Batch(
                sampled,
                self._table,
                rows,
                on_release=lambda: give_back(number, got.alias),
            )

        def give_back(number: int, slots: Slots) -> None:
            """Queue a trained mini-batch's slots for the releaser, or release them once
            the pipeline has stopped."""
            try:
                releasing.put(number, slots)
            except Stopped:
                buffer.release_slots(slots)

        def release(number: int, slots: Slots) -> None:
            buffer.release_slots(slots)
            if places is not None:
                places.put(number, None)

        pipe.stage("extract", options.extractors, extract, extracting, training)
        pipe.stage("release", 1, release, releasing)
        yield from pipe.results(training)
        releasing.close()
        pipe.finish()

    def _mini_batches_held(self, under_way: int) -> int:
        """Return the most mini-batches that a process may hold in a shared feature
        buffer.

        Ranks train in step, so a rank that filled the buffer with later mini-batches
        would starve the rank that it waits for. With its own share of the slots each
        rank always finds free slots.

        Args:
            under_way: most mini-batches that its queues and extractors can hold.
        """
        sizes = self._sizes
        if sizes.slots >= self.workload.dataset.num_nodes:
            return under_way  # every row has a slot of its own
        rows = sizes.sharing * max(1, sizes.max_nodes)
        return max(1, sizes.slots // rows)

    def _load(
        self,
        sampled: SampledBatch,
        got: Acquired,
        began: float,
        buffer: FeatureBuffer,
        tally: Tally,
    ) -> None:
        """Load the rows of a mini-batch that has its slots, by Algorithm 1 of the
        paper."""
        assert self._extractors is not None
        start = time.monotonic()
        waiting = len(got.waiting)
        tally.add(
            rows=sampled.num_nodes, misses=len(got.load), slot_wait_s=start - began
        )
        tally.add(wait_list_rows=waiting, wait_list_batches=waiting > 0)
        if len(got.load):
            # An error here stops the pipeline, which closes the feature buffer: no
            # thread waits for these rows then.
            with self._extractors.borrow() as extractor:
                stats, read_at = extractor.load(
                    sampled.nodes[got.load], got.load_slots, sampled.index
                )
            tally.add(stats)
            self.clock.add("extract", sampled.index, start, read_at)
            if self._on_device:
                self.clock.add("transfer", sampled.index, read_at, time.monotonic())
            # Only after the bytes are in the table: a thread that finds the row valid
            # reads it.
            buffer.publish(got.load_slots)
        if waiting:
            from_s = time.monotonic()
            buffer.wait(got)
            tally.add(row_wait_s=time.monotonic() - from_s)

    def counters(self) -> Counters:
        """Return the last epoch's rows, hits in the feature buffer, and reads."""
        tally = self._tally
        if tally is None:
            return Counters()
        evictions = 0
        if self._buffer is not None and (
            self._sizes.sharing == 1 or self.runtime.rank == 0
        ):
            evictions = self._buffer.counts["evictions"] - self._evicted_before
        waits = tally.observed(
            "wait_list_rows", "wait_list_batches", "slot_wait_s", "row_wait_s"
        )
        counters = tally.counters(
            self.options.io_depth * self.options.extractors,
            rows=tally["rows"],
            hits={
                "device" if self._on_device else "host": tally["rows"] - tally["misses"]
            },
            misses=tally["misses"],
            observed={**waits, "evictions": float(evictions)},
        )
        if self._staging is not None:
            # Rows found in the shared staging buffer are hits in host memory, since
            # they were not read.
            borrowed = self._staging.borrowed
            found = self._staging.found - self._staged_before[1]
            counters.hits["host"] = counters.hits.get("host", 0) + found
            counters.misses -= found
            counters.observed["staging_borrowed_segments"] = float(
                borrowed - self._staged_before[0]
            )
            counters.observed["staging_found_rows"] = float(found)
        return counters

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast the misses of a least-recently-used feature buffer; rows of
        mini-batches in progress are hits."""
        missed = trace.row_misses("lru", self._sizes.slots)
        cache = self.unplanned_bytes() + self.plan().bytes_of(PAGE_CACHE)
        why = f"finds {trace.hit_rate(missed)} of the rows in its feature buffer"
        return trace.with_sampling(
            trace.read_of(missed, self.runtime.disk.logical_block_bytes),
            cache,
            why,
            missed,
        )

    def data_path(self) -> list[PartUse]:
        """List graph, sampler, feature buffer and reads."""
        counters = self.counters()
        graph = PartUse(name="graph behind a memory map", buffers=_GRAPH)
        sampler = PartUse(name="neighbour sampler", buffers=SAMPLING_BUFFERS)
        buffer = "feature buffer of the mini-batches in flight"
        return [
            graph,
            sampler,
            cache_use(buffer, ("mapping table", "feature buffer"), counters),
            reads_use("direct reads", _READS, counters),
        ]

    def facts(self) -> Facts:
        """Return the read mode."""
        return Facts(io=self._mode)

    def notes(self) -> dict[str, str]:
        """Return the read mode, the feature buffer's size and the order of
        mini-batches."""
        sizes = self._sizes
        batches = sizes.slots / sizes.max_nodes if sizes.max_nodes else 0.0
        return {
            **super().notes(),
            "feature_buffer": f"{sizes.slots} slots, {batches:.1f} largest "
            "mini-batches",
            "variant": "GPU (staging buffer)"
            if self._on_device
            else "CPU (reads into the feature buffer)",
            "ranks": f"{self.runtime.world}, "
            f"{'one feature buffer' if sizes.sharing > 1 else 'a feature buffer each'}"
            + (", one staging buffer" if sizes.staging.portion else ""),
            "order": "seed plan" if self._in_order else "as extraction finishes",
        }

    def close(self) -> None:
        """End the threads, close the files and free the feature buffer."""
        pipeline = self._pipeline
        self._pipeline = None
        if pipeline is not None:
            pipeline.close()
        buffer = self._buffer
        self._buffer = None
        if buffer is not None:
            buffer.close()
        staging = self._staging
        self._staging = None
        if staging is not None:
            staging.close()
        extractors = self._extractors
        self._extractors = None
        if extractors is not None:
            extractors.close()
        if staging is not None:
            self.runtime.accelerator.free_host(staging.rows)
        if self._table is not None:
            self.runtime.accelerator.free(self._table)
            self._table = None
        self._sampler = None


def _shared_buffer(
    group: RankGroup, slots: int, dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, FeatureBuffer]:
    """Allocate table and bookkeeping in memory shared by all processes: a row that one
    reads serves the others too."""
    table = (
        torch.from_numpy(group.shared(slots * dim * dtype.itemsize))
        .view(dtype)
        .view(slots, dim)
    )
    memory = group.shared(FeatureBuffer.plan_bytes(slots))
    return table, _on_all(
        group, lambda create: FeatureBuffer(slots, memory=memory, create=create)
    )


def _on_all(group: RankGroup, attach: Callable[[bool], Shared]) -> Shared:
    """Create a shared structure on the first rank (`attach(True)`), then attach to it
    on the others."""
    created = attach(True) if group.rank == 0 else None
    group.barrier()
    return created or attach(False)


@contextmanager
def _ended_with_peers(group: RankGroup | None) -> Iterator[None]:
    """Raise PeerLost where a shared buffer is closed under the body: another process
    failed and reports the cause."""
    try:
        yield
    except BufferClosed as error:
        if group is None:
            raise
        raise PeerLost(
            "another process of this run ended", "see its error in worker.log"
        ) from error
