"""Loading of a prepared group for training: graphs and rows are read ahead in order,
rows are copied to their slots.

Training reads the slots as its table: a device holds as many of them as it can and
reads the others in host memory (zero-copy), so that a row is copied once after it was
read from disk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from systems import _native
from systems.engine.cache.changeset import copy_rows
from systems.engine.io.arrays import as_rows, torch_dtype
from systems.engine.io.memory import aligned_empty
from systems.engine.io.reader import ReadStats, RowReader
from systems.engine.io.tally import Tally
from systems.engine.passes.chunks import Addresses, Chunks, Rows
from systems.engine.passes.group import Group
from systems.engine.passes.sizes import BOUNCE, LISTS_AHEAD, PassSizes
from systems.engine.pipeline import Channel, Pipeline, Stopped
from systems.engine.store.batch_store import BatchReader
from systems.interface import Batch, StageClock
from workloads.accelerator import Event
from workloads.feature_table import SplitTable, Table
from workloads.sampling.batch import SampledBatch

Ints = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int64]


class Slots:
    """Table of slots for feature rows; the planner assigns them without regard to the
    memory in which they lie.

    Attributes:
        first: number of slots in device memory, the first ones; the first slot in host
            memory.
        table: table that training reads; row `r` is slot `r`.
    """

    table: Table

    def __init__(self, sizes: PassSizes, clock: StageClock) -> None:
        self.first = sizes.device_slots
        self._row = sizes.row
        self._threads = sizes.options.copy_threads
        accelerator = sizes.runtime.accelerator
        dataset = sizes.workload.dataset
        self._clock = clock
        self._accelerator = accelerator
        dim = dataset.dim
        dtype = torch_dtype(dataset.feature_dtype)
        self._device: torch.Tensor | None = None
        self._bounce: deque[torch.Tensor] = deque()
        self._under_way: deque[Event | None] = deque([None, None])
        if accelerator.kind == "cpu":
            self._host = self.table = accelerator.allocate(sizes.slots, dim, dtype)
            return

        def on_host(rows: int) -> torch.Tensor:
            flat = accelerator.host_buffer(-(-rows * self._row // 4096) * 4096)
            return flat[: rows * self._row].view(dtype).view(rows, dim)

        self._host = on_host(sizes.slots - self.first)
        self._device = accelerator.allocate(self.first, dim, dtype)
        self.table = SplitTable(self._device, self._host)
        if self.first:
            self._bounce.extend(on_host(max(1, BOUNCE // self._row)) for _ in range(2))

    def put(self, rows: Rows, to: Ints, batch: int) -> None:
        """Copy `rows` (uint8 [n, row_bytes]) to slots `to`; the caller may overwrite
        `rows` afterwards."""
        if not self._bounce:
            if len(to):
                copy_rows(
                    rows,
                    np.arange(len(to), dtype=np.int32),
                    as_rows(self._host),
                    to,
                    self._threads,
                )
            return
        host = as_rows(self._host)
        done = 0
        while done < len(to):
            done, staged = _native.split_rows(
                rows, to, done, self.first, host, as_rows(self._next())
            )
            if len(staged):
                self._send(staged, batch)

    def read(self, reader: RowReader, ids: Ids, to: Ints, batch: int) -> ReadStats:
        """Read row `ids[i]` of the feature table into slot `to[i]`."""
        if not self._bounce:
            return reader.read(ids, self._host, to.astype(np.int64))
        stats = ReadStats()
        there = to < self.first
        which, at = _chosen(~there, to - self.first)
        if len(which):
            stats.add(reader.read(ids[which], self._host, at.astype(np.int64)))
        which, at = _chosen(there, to)
        step = self._bounce[0].shape[0]
        for first in range(0, len(which), step):
            part = which[first : first + step]
            stats.add(reader.read(ids[part], self._next()[: len(part)]))
            self._send(at[first : first + step].astype(np.int64), batch)
        return stats

    def _next(self) -> torch.Tensor:
        """Return the bounce buffer whose turn it is, once its last copy to the device
        is complete."""
        last = self._under_way[0]
        self._under_way[0] = None
        if last is not None:
            last.wait()
        return self._bounce[0]

    def _send(self, at: Ids, batch: int) -> None:
        """Copy the bounce buffer's rows to device slots `at` and switch to the other
        buffer."""
        assert self._device is not None
        rows = torch.from_numpy(at)
        self._under_way[0] = self._accelerator.copy(
            self._device, self._bounce[0][: len(at)], rows, batch=batch
        )
        self._bounce.rotate()
        self._under_way.rotate()

    def wait_for_copies(self, batch: int) -> None:
        """Wait until all copies to the device are complete."""
        if all(event is None for event in self._under_way):
            return
        with self._clock.stage("transfer", batch):
            for turn, event in enumerate(self._under_way):
                if event is not None:
                    event.wait()
                    self._under_way[turn] = None

    def on_device(self, addresses: Addresses) -> int:
        """Count the mini-batch's hits that lie in device memory."""
        if not self.first:
            return 0
        return int(
            np.count_nonzero(addresses.slots < self.first)
            - np.count_nonzero(addresses.to < self.first)
        )

    def close(self) -> None:
        """Free the table, and unpin the host memory that a device reads."""
        self._accelerator.free(self._host if self._device is None else self._device)
        for pinned in (self._host, *self._bounce):
            self._accelerator.free_host(pinned)
        self._bounce.clear()


def _chosen(mask: npt.NDArray[np.bool_], values: Ints) -> tuple[Ints, Ints]:
    """Return the positions where `mask` holds, and the values there."""
    which = np.flatnonzero(mask).astype(np.int32)
    return which, values[which]


class _Window:
    """Record of the mini-batches released, in any order; a slot is overwritten once all
    up to some number are."""

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

    def wait(self, number: int, pipe: Pipeline | None = None) -> None:
        """Wait until all mini-batches up to `number` are released. Raises Stopped: the
        pipeline ends."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._below > number or (pipe is not None and pipe.stopping)
            )
            if pipe is not None and pipe.stopping:
                raise Stopped

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


@dataclass(eq=False)
class GroupLoader:
    """Loader of one group after the other, which holds the slots and yields the
    mini-batches.

    Attributes:
        singles: reader of single rows; None where no group needs it.
        slots: slots of the rows; None where runs only sample.
    """

    sizes: PassSizes
    clock: StageClock
    singles: RowReader | None
    mode: str = "not yet"

    def __post_init__(self) -> None:
        sizes = self.sizes
        self.restart()
        self._pinned = False  # whether pinned rows are in their slots
        self._pieces = aligned_empty(
            sizes.piece_bytes * sizes.pieces if sizes.slots else 0
        )
        self.slots = Slots(sizes, self.clock) if sizes.slots else None

    def restart(self) -> None:
        """Forget the mini-batches yielded before an epoch was left."""
        self._window = _Window()
        self._number = 0

    def wait_until_released(self) -> None:
        """Wait until all mini-batches yielded so far are released."""
        self._window.wait(self._number - 1)

    def run(self, group: Group, tally: Tally) -> Iterator[Batch]:
        """Yield the group's mini-batches in order; an exception of any thread is raised
        here."""
        self._number += group.job.count
        reader = BatchReader(group.samples, group.index)
        slots = self.slots

        def load(i: int, _: int) -> SampledBatch:
            with self.clock.stage("load_graph", i):
                sampled = reader.read(i)
            one = ReadStats()
            one.count(reader.index.read_bytes(i))
            tally.add(one, edges=sampled.edge_reads)
            return sampled

        with ExitStack() as opened:
            opened.enter_context(closing(reader))
            if slots is not None and group.chunks is not None:
                held = int(group.pinned > 0 and self._pinned)
                chunks = Chunks(
                    group.chunks,
                    self._pieces,
                    self.sizes.piece_bytes,
                    LISTS_AHEAD,
                    held,
                )
                opened.enter_context(closing(chunks))
                self.mode = chunks.mode
            pipe = opened.enter_context(Pipeline(self.sizes.name))
            pipe.on_stop(self._window.wake)
            graphs: Channel[SampledBatch] = pipe.channel(
                self.sizes.options.queue, ordered=True
            )
            pipe.stage("graphs", 1, load, range(len(reader)), graphs)
            if slots is None:
                for sampled in pipe.results(graphs):
                    yield Batch(sampled, None)
            else:
                yield from self._extract(group, slots, chunks, pipe, graphs, tally)
                tally.add(chunks.reads)

    def _extract(
        self,
        group: Group,
        slots: Slots,
        chunks: Chunks,
        pipe: Pipeline,
        graphs: Channel[SampledBatch],
        tally: Tally,
    ) -> Iterator[Batch]:
        """Read the rows that miss into their slots, once the mini-batches that used
        these slots are released."""
        first = self._number - group.job.count

        def bring(addresses: Addresses, index: int) -> None:
            with self.clock.stage("extract", index):
                if group.strategy == "distribute":
                    chunks.fill(
                        lambda rows, to: slots.put(rows, to, index), addresses.to
                    )
                else:
                    assert self.singles is not None
                    tally.add(
                        slots.read(self.singles, addresses.ids, addresses.to, index)
                    )

        def fill(i: int, sampled: SampledBatch) -> Batch:
            index = sampled.index
            number = first + i
            with self.clock.stage("extract", index):
                addresses = chunks.addresses()
            self._window.wait(number - self.sizes.window, pipe)
            if len(addresses.to):
                bring(addresses, index)
            slots.wait_for_copies(index)
            # Reads ahead kept the device busy before this thread took their rows.
            if chunks.spans:
                begin = min(span[0] for span in chunks.spans)
                end = max(span[1] for span in chunks.spans)
                self.clock.add("extract", index, begin, max(begin, end))
                chunks.spans.clear()
            tally.add(
                rows=sampled.num_nodes,
                misses=len(addresses.to),
                on_device=slots.on_device(addresses),
            )
            rows = torch.from_numpy(addresses.slots.astype(np.int64))
            return Batch(
                sampled,
                slots.table,
                rows,
                on_release=lambda: self._window.release(number),
            )

        if group.pinned and not self._pinned:
            bring(chunks.addresses(), 0)
            slots.wait_for_copies(0)
            self._pinned = True
        ready: Channel[Batch] = pipe.channel(1)
        pipe.stage("extract", 1, fill, graphs, ready)
        yield from pipe.results(ready)

    def close(self) -> None:
        """Free the slots."""
        slots = self.slots
        self.slots = None
        if slots is not None:
            slots.close()
