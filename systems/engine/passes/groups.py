"""Epochs of groups of mini-batches: the next group is prepared in a thread while one
trains."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Generic

from systems.engine.io.reader import RowReader
from systems.engine.io.tally import Tally
from systems.engine.io.topology import DatasetFiles
from systems.engine.passes.group import G
from systems.engine.passes.loader import GroupLoader
from systems.engine.passes.preparer import Preparer
from systems.engine.passes.sampling import Job
from systems.engine.passes.sizes import PassSizes
from systems.interface import Batch, Counters, Facts, PartUse, StageClock
from systems.parts.uses import cache_use, reads_use
from workloads.sampling.make import make_seed_plan

_NICENESS = 10
# Names of buffers (`PassSizes`, and the sizes of each system).
_SAMPLING = ("indptr", "passes over the graph", "sampling a hyperbatch", "seed nodes")
_GATHERING = ("packed rows in flight", "address lists", "gathering a hyperbatch")
_CHUNKS = ("reader of single rows", "chunks and graphs of the groups under way")
_SLOTS = ("slots for rows", "what slots hold", "slots on the device", "staging")
_TRAINING = ("mini-batches read back", "threads")


@dataclass(eq=False)
class Groups(Generic[G]):
    """Groups of mini-batches, prepared within the epochs and written around the page
    cache.

    An epoch ends when the preparation begun in it has ended, so every epoch includes
    one preparation.

    Attributes:
        open_preparer: opens the files that preparation reads; gets the loader, or None
            where a replay allocates it later.
        look_ahead: whether the next group is prepared while one trains.
        loads_first: whether a group is loaded before the next one is prepared, so that
            memory holds one of both at a time.
        replay: whether all epochs train on the first one's groups, prepared once.
        singles: reader of single rows, closed by `close`; None where no group needs it.
        loader: loader of prepared groups, which holds the slots; None before `open` and
            after `close`.
        num_batches: mini-batches of an epoch.
        tally: counts of the last epoch; None before the first.
        last: the group prepared last.
        strategies: number of prepared groups by strategy.

    Raises:
        DataIOError: a file of the dataset is missing or shorter than expected.
    """

    sizes: PassSizes
    clock: StageClock
    open_preparer: Callable[[GroupLoader | None], Preparer[G]]
    look_ahead: bool
    loads_first: bool = False
    replay: bool = False
    singles: RowReader | None = None

    def __post_init__(self) -> None:
        workload = self.sizes.workload
        self._files = DatasetFiles(workload, ["indices", "labels", "features"])
        self._files.check()
        self.num_batches = make_seed_plan(workload).num_batches
        self._preparer: Preparer[G] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._next: Future[G] | None = None
        self._ready_for: int | None = None  # epoch of the next group and of the slots
        self._kept: list[G] = []  # groups of a replay
        self.tally: Tally | None = None
        self.last: G | None = None
        self.strategies = Counter[str]()
        self.loader: GroupLoader | None = None
        if not self.replay:
            self._open_loader()

    def _open_loader(self) -> GroupLoader:
        """Allocate the slots."""
        self.loader = GroupLoader(self.sizes, self.clock, self.singles)
        return self.loader

    def epoch(self, k: int) -> Iterator[Batch]:
        """Yield the mini-batches of epoch `k` in the seed plan's order; later groups
        are prepared meanwhile."""
        self._files.check()
        tally = self.tally = Tally()
        batches = self._replay if self.replay else self._batches
        try:
            yield from batches(k, tally)
        except BaseException:
            self._reset()
            raise

    def _batches(self, k: int, tally: Tally) -> Iterator[Batch]:
        if self._ready_for != k:
            self._reset()
        counted = self._next is not None  # by the epoch before
        for job in self._jobs(k):
            if self._next is None:
                self._request(job)
            group = self._receive()
            if not counted:
                group.count(tally)
            counted = False
            if self.look_ahead and not self.loads_first:
                self._request(next(self._later(job)))
            assert self._preparer is not None
            assert self.loader is not None
            self._preparer.load(group, self.loader, tally)
            if self.look_ahead and self.loads_first:
                self._request(next(self._later(job)))
            yield from self.loader.run(group, tally)
            if self._preparer is not None:
                self._preparer.release(group)
        if self._next is not None:
            # Preparation that began in this epoch counts for it.
            with self.clock.stage("wait"):
                self._next.result().count(tally)
        self._ready_for = k + 1

    def _replay(self, k: int, tally: Tally) -> Iterator[Batch]:
        """Yield the mini-batches of epoch 0's groups; a plan from empty slots makes
        their chunks serve every epoch."""
        for job in self._jobs(0)[len(self._kept) :]:
            self._request(job)
            group = self._receive()
            self._kept.append(group)
            group.count(tally)
        loader = self.loader
        if loader is None:
            # The slots take over preparation's memory.
            assert self._preparer is not None
            self._preparer.rest()
            loader = self._open_loader()
        loader.restart()
        for group in self._kept:
            for batch in loader.run(group, tally):
                batch.sampled = replace(batch.sampled, epoch=k)
                yield batch

    def _jobs(self, k: int) -> list[Job]:
        size = self.sizes.group
        batches = self.num_batches
        firsts = range(0, batches, size)
        return [Job(k, first, min(size, batches - first)) for first in firsts]

    def _later(self, job: Job) -> Iterator[Job]:
        """Return the groups after `job`, over the ends of epochs; a replay has those of
        its epoch only."""
        epochs = [job.epoch] if self.replay else count(job.epoch)
        return (one for epoch in epochs for one in self._jobs(epoch) if one > job)

    def _request(self, job: Job) -> None:
        """Submit a group to the preparation thread, which has low priority."""
        if self._preparer is None:
            self._preparer = self.open_preparer(self.loader)
            self._pool = ThreadPoolExecutor(
                1, f"{self.sizes.name}-prepare", initializer=_lower_priority
            )
        assert self._pool is not None
        self._next = self._pool.submit(self._prepare, self._preparer, job)

    def _prepare(self, preparer: Preparer[G], job: Job) -> G:
        hops = len(self.sizes.workload.sampler.fanout)
        jobs = [job, *islice(self._later(job), hops)]
        return preparer.prepare(jobs, self.look_ahead)

    def _receive(self) -> G:
        """Wait for the group requested last."""
        assert self._next is not None
        with self.clock.stage("wait"):
            group = self.last = self._next.result()
        self._next = None
        self.strategies[group.strategy] += 1
        return group

    def _reset(self) -> None:
        """Drop prepared groups and the slots' contents: the next epoch begins anew."""
        self._ready_for = None
        self._kept = []
        preparer = self._preparer
        self._preparer = None
        if preparer is not None:
            preparer.stop()
        requested = self._next
        self._next = None
        pool = self._pool
        self._pool = None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        if requested is not None:
            with suppress(BaseException):
                requested.result()
        if preparer is not None:
            preparer.close()
        if self.replay:
            # Preparing anew needs the slots' memory.
            self._close_loader()
        elif self.loader is not None:
            self.loader.restart()

    def counters(
        self,
        queue_depth: int,
        *,
        misses: int,
        rows_read: int,
        on_device: int,
        observed: Mapping[str, float],
    ) -> Counters:
        """Return the last epoch's counts.

        Args:
            queue_depth: reads kept in flight.
            misses: uses of rows that were not in memory.
            rows_read: rows that were read because mini-batches use them.
            on_device: hits in device memory.
            observed: further counts.
        """
        tally = self.tally
        assert tally is not None
        dataset = self.sizes.workload.dataset
        rows = tally["rows"]
        edge_bytes = dataset.topology_bytes // max(1, dataset.num_edges)
        # Mini-batches of a group draw the same neighbours from one read.
        drawn_bytes = min(tally["edges"] * edge_bytes, tally["graph_bytes_read"])
        return tally.counters(
            queue_depth,
            rows=rows,
            hits={"device": on_device, "host": rows - misses - on_device},
            misses=misses,
            bytes_useful=rows_read * self.sizes.row + drawn_bytes,
            bytes_written=tally["written"],
            observed=dict(observed),
        )

    def facts(self) -> Facts:
        """Return the read mode and the reading stages."""
        if self.loader is None:
            return Facts()
        reading = ("sample", "pack", "load_graph", "extract")
        return Facts(io=self.loader.mode, reads_in=reading, samples_reused=self.replay)

    def _close_loader(self) -> None:
        loader = self.loader
        self.loader = None
        if loader is not None:
            loader.close()

    def close(self) -> None:
        """End the threads, close the files, free the slots and remove the prepared
        groups."""
        self._reset()
        self._close_loader()
        singles = self.singles
        self.singles = None
        if singles is not None:
            singles.close()


def path_of_groups(
    counters: Counters, *, group: str, cache: str, graph: tuple[str, ...] = ()
) -> list[PartUse]:
    """Return the parts of a system of groups with their counts.

    Args:
        group: name of a group of mini-batches.
        cache: name of the rows in memory.
        graph: further buffers of sampling.
    """
    sampled = f"{group} sampled by passes over the graph"
    return [
        PartUse(name=sampled, buffers=(*_SAMPLING, *graph)),
        cache_use(cache, _SLOTS, counters),
        reads_use("passes over the table", (*_GATHERING, *_CHUNKS), counters),
        PartUse(name="mini-batches read back", buffers=_TRAINING),
    ]


def _lower_priority() -> None:
    """Lower the thread's priority, so that preparation yields to training; threads that
    it starts inherit this."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
