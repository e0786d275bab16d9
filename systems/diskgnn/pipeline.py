"""Training pipeline (Section 5.3): graphs and features are loaded, assembled and
trained at the same time.

Chunks of later mini-batches are read while earlier ones are assembled and trained: the
next chunk is requested as soon as a staging buffer is free, so the disk's queue runs
empty only when there is no memory to read into.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from typing import Self

import numpy as np

from systems.diskgnn.buffers import DeviceMemory, HostMemory, Rows, Staging
from systems.diskgnn.episode import DEVICE, DISK, HOST, Ready
from systems.diskgnn.layout import Addresses, read_graph
from systems.diskgnn.ranking import Ids
from systems.diskgnn.sizes import DiskGnnSizes
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import ReaderPool, RowTable
from systems.engine.io.tally import Tally
from systems.engine.pipeline import Channel, Pipeline
from systems.engine.store.packed_store import (
    PackedBatch,
    PackedReader,
    PendingBatch,
    row_pieces,
)
from systems.interface import Batch, Counters, StageClock
from workloads.direct_files import padded
from workloads.sampling.batch import SampledBatch

# Two mini-batches are checked and copied at a time: with one, the disk would wait for
# its staging buffer.
_ASSEMBLERS = 2
Turn = Callable[[], AbstractContextManager[None]]
_NOTHING = Addresses(np.empty(0, np.int32), np.empty(0, np.int32))


@dataclass
class _Work:
    """A mini-batch on its way."""

    index: int
    chunk: int
    graph: int
    graph_read: PendingBatch
    asked_at: float
    staging: Staging | None = None
    features_read: PendingBatch | None = None
    features_asked_at: float = 0.0
    sampled: SampledBatch | None = None
    addresses: Addresses = _NOTHING


@dataclass(eq=False)
class EpisodeLoader:
    """Training pipeline over the files of one episode and the memory they are read
    into.

    Attributes:
        memory: table and staging buffers; None where only graphs are wanted.
        singles: readers of single rows, one for each thread that reads them; none where
            all rows are packed.
        opened: reader, memory and readers of single rows, closed by `close`.
    """

    sizes: DiskGnnSizes
    ready: Ready
    clock: StageClock
    reader: PackedReader
    memory: HostMemory | None
    singles: ReaderPool[RowReader] | None
    opened: ExitStack

    @classmethod
    def open(cls, sizes: DiskGnnSizes, ready: Ready, clock: StageClock) -> Self:
        """Open an episode's files, allocate its memory and load its caches.

        Raises:
            DataIOError: a file of the episode is damaged.
        """
        options = sizes.options
        with ExitStack() as opened:
            reader = PackedReader(
                ready.path,
                request_bytes=options.request_bytes,
                depth=options.request_depth,
            )
            opened.callback(reader.close)
            memory: HostMemory | None = None
            singles: ReaderPool[RowReader] | None = None
            if not sizes.sampling_only:
                shared = options.packing == "off" or ready.facts["shared_rows"]
                readers = options.readers if shared else 0
                kind = DeviceMemory if sizes.on_device else HostMemory
                memory = kind(sizes, ready.fit, singles=readers > 0)
                opened.callback(memory.close)
                _load_caches(memory, ready)
                singles = ReaderPool(lambda: _single_reader(sizes, ready), readers)
                opened.callback(singles.close)
            return cls(sizes, ready, clock, reader, memory, singles, opened.pop_all())

    def __post_init__(self) -> None:
        self._threads = max(_ASSEMBLERS, len(self.singles or ()))
        graph_bytes = self.reader.structure_bytes
        room = int(graph_bytes.max()) if len(graph_bytes) else 0
        # Adjacent memory for the chunks' graphs, so that huge pages cover it.
        count = self.sizes.graphs
        graphs = aligned_empty(count * padded(room)).reshape(count, -1)
        self._graphs = [memory[:room] for memory in graphs]
        self._lock = threading.Lock()
        self._outstanding: dict[int, PendingBatch] = {}
        self._pipeline: Pipeline | None = None
        self._tally: Tally | None = None

    @property
    def mode(self) -> str:
        """Read mode of the packed files."""
        return self.reader.mode

    def counters(self) -> Counters:
        """Return the last epoch's hits on each level, misses and reads.

        Rows of a disk cache are hits of that tier although they are read from disk:
        they count as useful bytes like the rows of packed chunks, and so do the graphs,
        which are read with them.
        """
        tally = self._tally
        options = self.sizes.options
        if tally is None:
            return Counters()
        packed = tally["packed"]
        single = tally["single"]
        direct = tally["direct"]
        hits = {"host": direct}
        if self.sizes.on_device:
            hits = {"device": direct, "host": tally["host"]}
        misses = packed
        if options.packing == "off":
            misses += single
        else:
            hits["disk_cache"] = single
        depth = options.request_depth + len(self.singles or ()) * options.io_depth
        row_bytes = (packed + single) * self.sizes.row
        return tally.counters(
            depth,
            self.reader.counters(),
            rows=tally["rows"],
            hits=hits,
            misses=misses,
            bytes_useful=row_bytes + tally["graph_bytes"],
        )

    def _chunks(self, drawn: int) -> list[int]:
        """List the chunks of a sampled epoch's mini-batches."""
        batches = range(self.ready.num_batches)
        return [self.ready.chunk(drawn, batch) for batch in batches]

    def epoch(self, k: int, drawn: int) -> Iterator[Batch]:
        """Yield the mini-batches of epoch `k`, with the samples of epoch `drawn`, in
        the seed plan's order."""
        tally = self._tally = Tally()
        self.reader.reset_counters()
        chunks = self._chunks(drawn)
        try:
            with Pipeline("diskgnn") as pipe:
                self._pipeline = pipe
                free = pipe.filled(range(len(self._graphs)))
                if self.memory is not None:
                    self.memory.begin(pipe)
                if self.sizes.options.pipeline:
                    yield from self._run(pipe, free, chunks, k, tally)
                else:
                    for index, chunk in enumerate(chunks):
                        work = self._load_graph(self._ask(index, chunk, free), k, tally)
                        yield self._assemble(work, tally, free)
        finally:
            self._drain()

    def _run(
        self,
        pipe: Pipeline,
        free: Channel[int],
        chunks: Sequence[int],
        k: int,
        tally: Tally,
    ) -> Iterator[Batch]:
        asked: Channel[_Work] = pipe.channel(len(self._graphs), ordered=True)
        graphs: Channel[_Work] = pipe.channel(self.sizes.options.queue, ordered=True)
        pipe.stage(
            "ask", 1, lambda index, chunk: self._ask(index, chunk, free), chunks, asked
        )
        pipe.stage(
            "load_graph",
            1,
            lambda _, work: self._load_graph(work, k, tally),
            asked,
            graphs,
        )
        # The thread that checks a mini-batch's rows copies them too: its caches hold
        # them, and no thread has to wake.
        complete: Channel[Batch] = pipe.channel(self.sizes.options.queue, ordered=True)
        turns = pipe.turnstile()

        def assemble(number: int, work: _Work) -> Batch:
            return self._assemble(work, tally, free, lambda: turns.turn(number))

        pipe.stage("assemble", self._threads, assemble, graphs, complete)
        yield from pipe.results(complete)

    def _ask(self, index: int, chunk: int, free: Channel[int]) -> _Work:
        """Start the reads of a chunk as soon as there is memory for its graph and its
        features."""
        _, graph = free.get()
        work = _Work(
            index,
            chunk,
            graph,
            self._start(chunk, None, self._graphs[graph]),
            time.monotonic(),
        )
        if self.memory is not None:
            packed = int(self.reader.num_rows[chunk])
            work.staging = self.memory.take_staging(packed)
            if packed:
                work.features_asked_at = time.monotonic()
                room = work.staging.memory[: int(self.reader.feature_bytes[chunk])]
                work.features_read = self._start(chunk, room, None)
        return work

    def _load_graph(self, work: _Work, k: int, tally: Tally) -> _Work:
        read = self._finish(work.graph_read)
        arrays = read.arrays
        work.sampled = read_graph(arrays, k)
        if self.memory is not None:
            work.addresses = Addresses(arrays["place"], arrays["single"])
        self.clock.add("load_graph", work.index, work.asked_at, read.arrived_s)
        place = work.addresses.place
        levels = self.ready.fit.levels
        direct = int(np.count_nonzero(place < levels.direct))
        tally.add(
            rows=len(place),
            direct=direct,
            host=int(np.count_nonzero(place < levels.cached)) - direct,
            packed=int(self.reader.num_rows[work.chunk]),
            single=len(work.addresses.single),
            graph_bytes=work.sampled.nbytes,
        )
        return work

    def _extract(self, work: _Work, staging: Staging, tally: Tally) -> None:
        """Read the single rows, then wait for the packed rows, which are under way."""
        start = end = work.features_asked_at or time.monotonic()
        wanted: Ids = work.addresses.single.astype(np.int64)
        if len(wanted):
            assert self.singles is not None
            with self.singles.borrow() as reader:
                room = staging.single(
                    int(self.reader.num_rows[work.chunk]), len(wanted)
                )
                tally.add(reader.read(wanted, room))
            end = time.monotonic()
        if work.features_read is not None:
            # Count until the bytes arrived, not until this wait ended: an early read
            # waits for no device.
            end = max(end, self._finish(work.features_read).arrived_s)
        if len(wanted) or work.features_read is not None:
            self.clock.add("extract", work.index, start, end)

    def _assemble(
        self, work: _Work, tally: Tally, free: Channel[int], turn: Turn = nullcontext
    ) -> Batch:
        """Extract the rows and copy them into the table, whose buffers are taken in
        turn, since they are freed so."""
        memory = self.memory
        staging = work.staging
        sampled = work.sampled
        assert sampled is not None
        if memory is None or staging is None:
            return Batch(sampled, None, on_release=lambda: free.give_back(work.graph))
        self._extract(work, staging, tally)
        packed = int(self.reader.num_rows[work.chunk])
        with turn():
            room = memory.take(packed + len(work.addresses.single))
        with self.clock.stage("assemble", work.index):
            found = memory.assemble(staging, room, work.addresses, packed, work.index)
        if found.events:
            with self.clock.stage("transfer", work.index):
                for event in found.events:
                    event.wait()
        memory.copied(staging)

        def release() -> None:
            memory.give_back(found)
            free.give_back(work.graph)

        return Batch(sampled, memory.table, found.rows, on_release=release)

    def _start(
        self, chunk: int, features: Rows | None, structure: Rows | None
    ) -> PendingBatch:
        pending = self.reader.start(chunk, features, structure)
        with self._lock:
            self._outstanding[id(pending)] = pending
        return pending

    def _finish(self, pending: PendingBatch) -> PackedBatch:
        try:
            return pending.result()
        finally:
            with self._lock:
                self._outstanding.pop(id(pending), None)

    def _drain(self) -> None:
        """Wait for the reads of an epoch left early: the next epoch uses their
        memory."""
        while True:
            with self._lock:
                if not self._outstanding:
                    return
                _, pending = self._outstanding.popitem()
            with suppress(Exception):  # these bytes are not used
                pending.result()

    def close(self) -> None:
        """End the threads, wait for the reads in flight, close the files and free the
        memory."""
        if self._pipeline is not None:
            self._pipeline.close()
        self._drain()
        self.opened.close()


def _load_caches(memory: HostMemory, ready: Ready) -> None:
    levels = ready.fit.levels
    for name, count in ((DEVICE, levels.direct), (HOST, levels.host)):
        if count:
            memory.load(name, row_pieces(ready.path, name))


def _single_reader(sizes: DiskGnnSizes, ready: Ready) -> RowReader:
    """Open a reader of the rows that are read one by one: of the feature table, or of
    the disk caches."""
    options = sizes.options
    table = RowTable.of(sizes.workload.dataset)
    if options.packing != "off":
        shared = ready.facts["shared_rows"]
        table = RowTable(ready.path / f"{DISK}.rows", 0, shared, sizes.row)
    return RowReader(
        table.path,
        **table.place,
        depth=options.io_depth,
        granularity=options.io_granularity,
    )
