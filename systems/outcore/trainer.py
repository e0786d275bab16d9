"""Training a prepared group: graphs and rows read ahead in order, rows put into their slots, mini-batches handed over.

On the processor the table that training reads is the slots themselves. A device of its own has tables of one
mini-batch each, filled from the slots.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from systems.engine.arrays import as_rows
from systems.engine.batch_store import BatchReader
from systems.engine.gather import gather
from systems.engine.gather_loader import torch_dtype
from systems.engine.memory import aligned_empty
from systems.engine.pipeline import Channel, Pipeline, Stopped
from systems.engine.reader import RowReader
from systems.engine.topology import row_bytes
from systems.interface import Batch, Runtime, StageClock
from systems.outcore.chunks import Addresses, Chunks
from systems.outcore.group import Group
from systems.outcore.options import OutcoreOptions
from systems.outcore.planner import BOUNCE, LISTS_AHEAD, NAME, Sizes
from systems.outcore.tally import Tally
from workloads.accelerator import Event
from workloads.sampling.batch import SampledBatch
from workloads.workload import Workload


@dataclass
class _Work:
    number: int  # since training began, over groups and epochs
    sampled: SampledBatch
    addresses: Addresses | None = None


class _Window:
    """Mini-batches are released in any order; a slot may be overwritten when all up to some number were."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._released: set[int] = set()
        self._below = 0  # all before this one were released

    def release(self, number: int) -> None:
        with self._changed:
            self._released.add(number)
            while self._below in self._released:
                self._released.remove(self._below)
                self._below += 1
            self._changed.notify_all()

    def wait(self, number: int, pipe: Pipeline) -> None:
        """Until all mini-batches up to `number` were released. Raises Stopped: the pipeline ends."""
        with self._changed:
            while self._below <= number and not pipe.stopping:
                self._changed.wait()
            if pipe.stopping:
                raise Stopped

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Trainer:
    """Holds the slots and hands out the mini-batches of one group after the other.

    Args:
        singles: reads rows one by one; None where no group may want that.
    """

    def __init__(
        self, workload: Workload, runtime: Runtime, options: OutcoreOptions, sizes: Sizes, clock: StageClock,
        singles: RowReader | None,
    ) -> None:  # fmt: skip
        self._workload, self._runtime, self._options = workload, runtime, options
        self._sizes, self._clock, self._singles = sizes, clock, singles
        self._row = row_bytes(workload)
        self._window = _Window()
        self._number = 0
        self.mode = "not yet"
        dataset, accelerator = workload.dataset, runtime.accelerator
        dtype = torch_dtype(dataset.feature_dtype)
        self._on_device = accelerator.kind != "cpu"
        self._device: list[torch.Tensor] = []
        self._bounce: deque[torch.Tensor] = deque()
        self._under_way: deque[Event | None] = deque([None, None])
        self._pieces = aligned_empty(sizes.piece_bytes * sizes.pieces if sizes.slots else 0)
        self._slots: torch.Tensor | None = None
        if not sizes.slots:
            return
        if self._on_device:
            flat = accelerator.host_buffer(-(-sizes.slots * self._row // 4096) * 4096)
            self._slots = flat[: sizes.slots * self._row].view(dtype).view(sizes.slots, dataset.dim)
            tables = sizes.tables
            self._device = [accelerator.allocate(tables.rows, dataset.dim, dtype) for _ in range(tables.device)]
            rows = max(1, BOUNCE // self._row)
            for _ in range(2):
                flat = accelerator.host_buffer(-(-rows * self._row // 4096) * 4096)
                self._bounce.append(flat[: rows * self._row].view(dtype).view(rows, dataset.dim))
        else:
            self._slots = accelerator.allocate(sizes.slots, dataset.dim, dtype)

    def restart(self) -> None:
        """Forget mini-batches that were handed out before an epoch was left."""
        self._window, self._number = _Window(), 0

    def run(self, group: Group, tally: Tally) -> Iterator[Batch]:
        """The group's mini-batches in order; what any thread raises is raised here."""
        start, self._number = self._number, self._number + group.job.count
        reader = BatchReader(group.folder / "samples", index=group.index)
        chunks: Chunks | None = None
        try:
            if self._slots is not None and group.chunks is not None:
                chunks = Chunks(group.chunks, self._pieces, self._sizes.piece_bytes, LISTS_AHEAD)
                self.mode = chunks.mode
            with Pipeline(NAME) as pipe:
                pipe.on_stop(self._window.wake)
                graphs: Channel[_Work] = pipe.channel(self._options.queue, ordered=True)
                pipe.stage("graphs", 1, lambda i, _: self._load(reader, start, i, tally), range(len(reader)), graphs)
                if chunks is None:
                    for work in pipe.results(graphs):
                        yield Batch(work.sampled, None)
                    return
                ready: Channel[Batch] = pipe.channel(1)
                found = chunks

                def fill(_: int, work: _Work) -> _Work:
                    return self._fill(pipe, group, found, work, tally)

                if self._on_device:
                    filled: Channel[_Work] = pipe.channel(1, ordered=True)
                    free: Channel[torch.Tensor] = pipe.channel(len(self._device))
                    for number, table in enumerate(self._device):
                        free.put(number, table)
                    pipe.stage("extract", 1, fill, graphs, filled)
                    pipe.stage("transfer", 1, lambda _, work: self._transfer(work, free), filled, ready)
                else:
                    pipe.stage(
                        "extract",
                        1,
                        lambda i, work: self._in_place(fill(i, work)),
                        graphs,
                        ready,
                    )
                yield from pipe.results(ready)
                tally.read(chunks.reads)
        finally:
            reader.close()
            if chunks is not None:
                chunks.close()

    def _load(self, reader: BatchReader, start: int, i: int, tally: Tally) -> _Work:
        with self._clock.stage("load_graph", i):
            sampled = reader.read(i)
        tally.sampled(sampled, reader.nbytes_of(i))
        return _Work(start + i, sampled)

    def _fill(self, pipe: Pipeline, group: Group, chunks: Chunks, work: _Work, tally: Tally) -> _Work:
        """Rows that miss go to their slots, once those who used these slots are over."""
        assert self._slots is not None
        index = work.sampled.index
        with self._clock.stage("extract", index):
            addresses = work.addresses = chunks.addresses()
        self._window.wait(work.number - self._sizes.window, pipe)
        if len(addresses.to):
            with self._clock.stage("extract", index):
                if group.strategy == "distribute":
                    chunks.fill(as_rows(self._slots), addresses.to, self._options.copy_threads)
                else:
                    assert self._singles is not None
                    tally.read(self._singles.read(addresses.ids, self._slots, addresses.to.astype(np.int64)))
        # Reads that ran ahead kept the device busy before anybody looked.
        if chunks.spans:
            begin, end = min(span[0] for span in chunks.spans), max(span[1] for span in chunks.spans)
            self._clock.add("extract", index, begin, max(begin, end))
            chunks.spans.clear()
        tally.extracted(work.sampled.num_nodes, len(addresses.to))
        return work

    def _in_place(self, work: _Work) -> Batch:
        assert work.addresses is not None
        rows = torch.from_numpy(work.addresses.slots.astype(np.int64))
        return Batch(work.sampled, self._slots, rows, on_release=lambda: self._window.release(work.number))

    def _transfer(self, work: _Work, free: Channel[torch.Tensor]) -> Batch:
        """Slots to a table of the device, by way of two small buffers that take turns."""
        assert work.addresses is not None and self._slots is not None
        _, table = free.get()
        slots, accelerator, index = work.addresses.slots, self._runtime.accelerator, work.sampled.index
        with self._clock.stage("transfer", index):
            step = self._bounce[0].shape[0]
            for first in range(0, len(slots), step):
                part = slots[first : first + step].astype(np.int64)
                bounce, last = self._bounce[0], self._under_way[0]
                if last is not None:
                    last.wait()
                gather(self._slots, part, bounce[: len(part)], self._options.copy_threads)
                self._under_way[0] = accelerator.copy(
                    table[first : first + len(part)], bounce[: len(part)], batch=index
                )
                self._bounce.rotate()
                self._under_way.rotate()
            self._window.release(work.number)
            for event in self._under_way:
                if event is not None:
                    event.wait()
        return Batch(work.sampled, table, on_release=lambda: _give_back(free, table))

    def close(self) -> None:
        """Free the tables."""
        for table in self._device:
            self._runtime.accelerator.free(table)
        self._device.clear()
        slots, self._slots = self._slots, None
        if slots is not None and not self._on_device:
            self._runtime.accelerator.free(slots)
        self._bounce.clear()


def _give_back(free: Channel[torch.Tensor], table: torch.Tensor) -> None:
    try:
        free.put(0, table)
    except Stopped:
        pass  # the epoch was left; the next group starts with all tables
