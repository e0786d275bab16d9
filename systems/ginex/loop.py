"""The main loop of a superbatch: load, read misses, gather, update the cache, transfer
(Section 3.1, Main Loop).

Misses are known beforehand, so reads run ahead: the misses of several mini-batches are
read while one is gathered and another trained, and the disk's queue never runs empty
between two mini-batches. One thread gathers rows and updates the cache, in order. The
cache has all of its memory in the main loop; only rows that stay keep theirs meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from systems.engine.cache.changeset import Changeset, copy_rows
from systems.engine.io.arrays import torch_dtype
from systems.engine.io.memory import aligned_empty, madvise
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import ReaderPool
from systems.engine.io.tally import Tally
from systems.engine.pipeline import Channel, Pipeline, TableRing
from systems.ginex.buffers import LOADED
from systems.ginex.sizes import GinexSizes
from systems.ginex.superbatch import Piece, Policy, Superbatch
from systems.interface import Batch, StageClock
from workloads.accelerator import Accelerator
from workloads.direct_files import padded
from workloads.sampling.batch import SampledBatch
from workloads.sampling.bounds import check_size
from workloads.workload import Workload

Table = torch.Tensor


class FeatureCache:
    """Cache of `capacity` feature rows, `rows` [capacity, dim]; pages are allocated as
    rows are filled in."""

    def __init__(self, workload: Workload, capacity: int, kept: int) -> None:
        dataset = workload.dataset
        self._memory = aligned_empty(capacity * workload.dataset.row_bytes)
        self._kept_bytes = kept * workload.dataset.row_bytes
        table = torch.from_numpy(self._memory).view(torch_dtype(dataset.feature_dtype))
        self.rows = table.view(capacity, dataset.dim)

    def shrink(self) -> None:
        """Give the kernel all memory but that of the rows that stay."""
        madvise(self._memory[padded(self._kept_bytes) :], "dontneed")


@dataclass
class _Loaded:
    """A mini-batch on its way, its changeset, and its rows once it has a buffer."""

    sampled: SampledBatch
    change: Changeset
    rows: Table | None = None


@dataclass(eq=False)
class MainLoop:
    """Main loop of all superbatches; holds the cache, the batch inputs and the device's
    tables.

    Attributes:
        name: name of the system, for errors.
        threads: threads that copy rows between cache and batch inputs.
    """

    name: str
    sizes: GinexSizes
    accelerator: Accelerator
    clock: StageClock
    readers: ReaderPool[RowReader]
    cache: FeatureCache
    policy: Policy
    threads: int

    def __post_init__(self) -> None:
        sizes = self.sizes
        cached = self.cache.rows
        dim = cached.shape[1]
        dtype = cached.dtype
        memory = self.accelerator.host_buffer(sizes.input_rows * dim * dtype.itemsize)
        self._inputs = memory.view(dtype).view(sizes.input_rows, dim)
        self._device = [
            self.accelerator.allocate(sizes.table_rows, dim, dtype)
            for _ in range(sizes.tables)
        ]

    def fill(self, pipe: Pipeline, superbatch: Superbatch, tally: Tally) -> None:
        """Read a superbatch's initial rows into the feature cache in file order,
        several pieces at once."""
        done: Channel[int] = pipe.channel(1 << 30)

        def work(_: int, piece: Callable[[], Piece]) -> int:
            nodes, slots = piece()
            with self.readers.borrow() as reader:
                tally.add(
                    reader.read(nodes, self.cache.rows, slots.astype(np.int64)),
                    initial_rows=len(nodes),
                )
            return len(nodes)

        pipe.stage(
            "switch", len(self.readers), work, self.policy.pieces(superbatch), done
        )
        filled = sum(pipe.results(done))
        planned = superbatch.planned
        tally.add(kept_rows=planned.kept)
        if filled != planned.filled:
            raise RuntimeError(
                f"{self.name}: {filled} rows were read into the cache, "
                f"{planned.filled} were planned"
            )

    def run(
        self, pipe: Pipeline, superbatch: Superbatch, count: int, tally: Tally
    ) -> Iterator[Batch]:
        """Yield the superbatch's next `count` mini-batches in order; an exception of
        any thread is raised here.

        Nothing beyond them is read, so that an epoch that ends within a superbatch
        counts its own reads only.
        """
        loaded: Channel[_Loaded] = pipe.channel(LOADED, ordered=True)
        read: Channel[_Loaded] = pipe.channel(max(1, len(self.readers)), ordered=True)
        ready: Channel[Batch] = pipe.channel(1)
        inputs = TableRing(self._inputs)
        pipe.on_stop(inputs.stop)
        turnstile = pipe.turnstile()
        before = tally["misses"]
        first = superbatch.done

        def load(_: int, i: int) -> _Loaded:
            with self.clock.stage("extract", superbatch.place(i)[1]):
                sampled = superbatch.batch(i)
                return _Loaded(sampled, self.policy.changeset(superbatch, i, sampled))

        def fetch(i: int, batch: _Loaded) -> _Loaded:
            # In order, so that a later mini-batch never holds the memory that the next
            # one to train waits for.
            turnstile.enter(i)
            check_size(batch.sampled, self.sizes.table_rows)
            batch.rows = table = inputs.take_piece(batch.sampled.num_nodes)
            turnstile.leave()
            with self.clock.stage("extract", batch.sampled.index):
                missing = np.flatnonzero(batch.change.slots < 0)
                if len(missing):
                    with self.readers.borrow() as reader:
                        stats = reader.read(
                            batch.sampled.nodes[missing], table, missing
                        )
                    tally.add(stats, misses=stats.rows)
            return batch

        def gather(i: int, batch: _Loaded) -> Batch:
            self._gather(batch, tally)
            table = batch.rows
            assert table is not None
            return Batch(
                batch.sampled, table, on_release=lambda: inputs.give_back_piece(table)
            )

        pipe.stage("load", 1, load, range(first, first + count), loaded)
        pipe.stage("read", len(self.readers), fetch, loaded, read)
        if self._device:
            gathered: Channel[Batch] = pipe.channel(1)
            pipe.stage("gather", 1, gather, read, gathered)
            tables = pipe.filled(self._device)
            pipe.stage(
                "transfer",
                1,
                lambda _, batch: self._copied(batch, tables),
                gathered,
                ready,
            )
        else:
            pipe.stage("gather", 1, gather, read, ready)
        yield from pipe.results(ready)
        superbatch.done += count
        superbatch.misses += tally["misses"] - before
        if (
            superbatch.done == len(superbatch)
            and superbatch.misses != superbatch.planned.misses
        ):
            raise RuntimeError(
                f"{self.name}: the superbatch from mini-batch {superbatch.start} on "
                f"read {superbatch.misses} missing rows, {superbatch.planned.misses} "
                "were planned"
            )

    def _gather(self, batch: _Loaded, tally: Tally) -> None:
        """Copy cached rows into the batch input, then copy from it the rows that enter
        the cache (Figure 11)."""
        change = batch.change
        sampled = batch.sampled
        rows = batch.rows
        cache = self.cache.rows
        assert rows is not None
        hits = np.flatnonzero(change.slots >= 0).astype(np.int32)
        with self.clock.stage("extract", sampled.index):
            copy_rows(cache, change.slots[hits], rows, hits, self.threads)
        if len(change.in_slots):
            with self.clock.stage("cache_update", sampled.index):
                copy_rows(
                    rows, change.in_positions, cache, change.in_slots, self.threads
                )
        tally.add(
            rows=sampled.num_nodes, hits=len(hits), cache_updates=len(change.in_slots)
        )

    def _copied(self, batch: Batch, free: Channel[torch.Tensor]) -> Batch:
        """Copy a mini-batch's rows to the next free table of the device, and release
        those on the host."""
        _, table = free.get()
        index = batch.sampled.index
        assert isinstance(batch.table, torch.Tensor)
        rows = batch.table[: batch.sampled.num_nodes]
        with self.clock.stage("transfer", index):
            self.accelerator.copy(table, rows, batch=index).wait()
        batch.release()
        return Batch(batch.sampled, table, on_release=lambda: free.give_back(table))

    def close(self) -> None:
        """Free the tables once all pipelines have ended."""
        for table in self._device:
            self.accelerator.free(table)
        self._device.clear()
        self.accelerator.free_host(self._inputs)
        self._inputs = torch.empty(0, 1)
