"""Loading of a prepared group for training: graphs and rows are read ahead in order, rows are copied to their slots.

Training reads the slots as its table: a device holds as many of them as it can and reads the others in host memory
(zero-copy), so that a row is copied once after it was read from disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import ReadStats, RowReader
from systems.engine.io.tally import Tally
from systems.engine.loading.gather_loader import torch_dtype
from systems.engine.loading.pipeline import Channel, Pipeline, Stopped
from systems.engine.store.batch_store import BatchReader
from systems.interface import Batch, StageClock
from systems.outcore.chunks import Addresses, Chunks
from systems.outcore.group import Group
from systems.outcore.planner import LISTS_AHEAD, NAME, OutcoreSizes
from systems.outcore.slots import Slots
from workloads.sampling.batch import SampledBatch


@dataclass
class _Work:
    number: int  # counted since training began, over groups and epochs
    sampled: SampledBatch


class _Window:
    """Record of the mini-batches released, in any order; a slot is overwritten once all up to some number are."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._released: set[int] = set()
        self._below = 0  # all mini-batches before it were released

    def release(self, number: int) -> None:
        with self._changed:
            self._released.add(number)
            while self._below in self._released:
                self._released.remove(self._below)
                self._below += 1
            self._changed.notify_all()

    def wait(self, number: int, pipe: Pipeline) -> None:
        """Wait until all mini-batches up to `number` are released. Raises Stopped: the pipeline ends."""
        with self._changed:
            while self._below <= number and not pipe.stopping:
                self._changed.wait()
            if pipe.stopping:
                raise Stopped

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


@dataclass(eq=False)
class GroupLoader:
    """Loader of one group after the other, which holds the slots and yields the mini-batches.

    Attributes:
        singles: reader of single rows; None where no group needs it.
    """

    sizes: OutcoreSizes
    clock: StageClock
    singles: RowReader | None
    mode: str = "not yet"

    def __post_init__(self) -> None:
        sizes, dataset = self.sizes, self.sizes.workload.dataset
        self._window, self._number = _Window(), 0
        self._pinned = False  # whether pinned rows are in their slots
        self._pieces = aligned_empty(sizes.piece_bytes * sizes.pieces if sizes.slots else 0)
        self._slots: Slots | None = None
        if sizes.slots:
            dtype, threads = torch_dtype(dataset.feature_dtype), self.sizes.options.copy_threads
            accelerator, on_device = self.sizes.runtime.accelerator, sizes.device_slots
            self._slots = Slots(accelerator, sizes.slots, on_device, dataset.dim, dtype, threads, self.clock)

    def restart(self) -> None:
        """Forget the mini-batches yielded before an epoch was left."""
        self._window, self._number = _Window(), 0

    def run(self, group: Group, tally: Tally) -> Iterator[Batch]:
        """Yield the group's mini-batches in order; an exception of any thread is raised here."""
        start, self._number = self._number, self._number + group.job.count
        reader = BatchReader(group.samples, group.index)
        chunks: Chunks | None = None
        try:
            if self._slots is not None and group.chunks is not None:
                held = int(group.pinned > 0 and self._pinned)
                chunks = Chunks(group.chunks, self._pieces, self.sizes.piece_bytes, LISTS_AHEAD, held)
                self.mode = chunks.mode
                if group.pinned and not self._pinned:
                    self._bring(group, chunks, self._slots, chunks.addresses(), 0, tally)
                    self._slots.wait_for_copies(0)
                    self._pinned = True
            with Pipeline(NAME) as pipe:
                pipe.on_stop(self._window.wake)
                graphs: Channel[_Work] = pipe.channel(self.sizes.options.queue, ordered=True)
                pipe.stage("graphs", 1, lambda i, _: self._load(reader, start, i, tally), range(len(reader)), graphs)
                if chunks is None:
                    for work in pipe.results(graphs):
                        yield Batch(work.sampled, None)
                    return
                ready: Channel[Batch] = pipe.channel(1)
                found, slots = chunks, self._slots
                assert slots is not None
                pipe.stage(
                    "extract", 1, lambda _, work: self._fill(pipe, group, found, slots, work, tally), graphs, ready
                )
                yield from pipe.results(ready)
                tally.add(chunks.reads)
        finally:
            reader.close()
            if chunks is not None:
                chunks.close()

    def _load(self, reader: BatchReader, start: int, i: int, tally: Tally) -> _Work:
        with self.clock.stage("load_graph", i):
            sampled = reader.read(i)
        one = ReadStats()
        one.count(reader.index.read_bytes(i))
        tally.add(one, edges=sampled.edge_reads)
        return _Work(start + i, sampled)

    def _fill(self, pipe: Pipeline, group: Group, chunks: Chunks, slots: Slots, work: _Work, tally: Tally) -> Batch:
        """Read the rows that miss into their slots, once the mini-batches that used these slots are released."""
        index = work.sampled.index
        with self.clock.stage("extract", index):
            addresses = chunks.addresses()
        self._window.wait(work.number - self.sizes.window, pipe)
        if len(addresses.to):
            self._bring(group, chunks, slots, addresses, index, tally)
        slots.wait_for_copies(index)
        # Reads ahead kept the device busy before this thread took their rows.
        if chunks.spans:
            begin, end = min(span[0] for span in chunks.spans), max(span[1] for span in chunks.spans)
            self.clock.add("extract", index, begin, max(begin, end))
            chunks.spans.clear()
        on_device = slots.on_device(addresses)
        tally.add(rows=work.sampled.num_nodes, misses=len(addresses.to), on_device=on_device)
        rows = torch.from_numpy(addresses.slots.astype(np.int64))
        return Batch(work.sampled, slots.table, rows, on_release=lambda: self._window.release(work.number))

    def _bring(
        self, group: Group, chunks: Chunks, slots: Slots, addresses: Addresses, index: int, tally: Tally
    ) -> None:
        """Read the rows of an address list into their slots."""
        with self.clock.stage("extract", index):
            if group.strategy == "distribute":
                chunks.fill(lambda rows, to: slots.put(rows, to, index), addresses.to)
            else:
                assert self.singles is not None
                tally.add(slots.read(self.singles, addresses.ids, addresses.to, index))

    def close(self) -> None:
        """Free the slots."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.close()
