"""Base of systems that prepare groups of mini-batches: the next group is prepared in a
thread while one trains."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, Generic

from systems.engine.io.reader import RowReader
from systems.engine.io.tally import Tally
from systems.engine.io.topology import DatasetFiles
from systems.engine.loading.sized import SizedSystem
from systems.engine.passes.loader import GroupLoader
from systems.engine.passes.preparer import G, Preparer
from systems.engine.passes.sampling import Job
from systems.interface import Batch, Facts
from workloads.sampling.make import make_seed_plan

_NICENESS = 10


class GroupSystem(SizedSystem, Generic[G]):
    """System that prepares groups of mini-batches within the epochs, written around the
    page cache.

    An epoch ends when the preparation begun in it has ended, so every epoch includes
    one preparation.
    """

    _num_batches = 0
    _trainer: GroupLoader | None = None
    _preparer: Preparer[G] | None = None
    _pool: ThreadPoolExecutor | None = None
    _next: Future[G] | None = None
    _follows: int | None = (
        None  # the epoch that the prepared groups and the slots are for
    )
    _tally: Tally | None = None
    _singles: RowReader | None = None
    _last: G | None = None  # the group prepared last

    @abstractmethod
    def _make_preparer(self) -> Preparer[G]:
        """Open the files that preparation reads."""

    @abstractmethod
    def _prepare(self, preparer: Any, job: Job) -> G:
        """Prepare a group, in the preparation thread."""

    @property
    @abstractmethod
    def _looks_ahead(self) -> bool:
        """Whether the next group is prepared while one trains."""

    @property
    def _brings_first(self) -> bool:
        """Whether a group is brought before the next one is asked for, so that memory
        holds one of both at a time."""
        return False

    @abstractmethod
    def _count(self, group: G, tally: Tally) -> None:
        """Count the reads and writes of a group that was prepared in this epoch."""

    def _bring(self, preparer: Any, group: G, tally: Tally) -> None:
        """Bring a prepared group's rows into place once the group before has trained;
        the default does nothing."""

    def prepare(self) -> None:
        """Open the files and allocate the slots; mini-batches are prepared within the
        epochs."""
        self._files = DatasetFiles(self.workload, ["indices", "labels", "features"])
        self._files.check()
        self._last = None
        self._num_batches = make_seed_plan(self.workload).num_batches
        self._trainer = self._make_trainer()

    def _make_trainer(self) -> GroupLoader | None:
        """Allocate the slots; None: later."""
        return GroupLoader(self._sizes, self.clock, self._singles)

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k` in the seed plan's order; later groups
        are prepared meanwhile."""
        if not self._num_batches:
            raise RuntimeError("prepare() comes before epoch()")
        return self._run(k)

    def _jobs(self, k: int) -> list[Job]:
        size = self._sizes.group
        return [
            Job(k, i, min(size, self._num_batches - i))
            for i in range(0, self._num_batches, size)
        ]

    def _later(self, job: Job) -> Iterator[Job]:
        """Return the groups after `job`, over the ends of epochs."""
        return (
            one for epoch in count(job.epoch) for one in self._jobs(epoch) if one > job
        )

    def _run(self, k: int) -> Iterator[Batch]:
        self._files.check()
        self._tally = tally = Tally()
        try:
            yield from self._batches(k, tally)
        except BaseException:
            self._leave()
            raise

    def _batches(self, k: int, tally: Tally) -> Iterator[Batch]:
        if self._follows != k:
            self._leave()
        ready = self._next is not None
        for number, job in enumerate(self._jobs(k)):
            if self._next is None:
                self._ask(job)
            group = self._prepared()
            if number or not ready:  # else the epoch before counted it
                self._count(group, tally)
            if self._looks_ahead and not self._brings_first:
                self._ask(next(self._later(job)))
            assert self._preparer is not None
            assert self._trainer is not None
            self._bring(self._preparer, group, tally)
            if self._looks_ahead and self._brings_first:
                self._ask(next(self._later(job)))
            yield from self._trainer.run(group, tally)
            if self._preparer is not None:
                self._preparer.release(group)
        if self._next is not None:
            # Preparation that began in this epoch counts for it.
            with self.clock.stage("wait"):
                self._count(self._next.result(), tally)
        self._follows = k + 1

    def _ask(self, job: Job) -> None:
        """Submit a group to the preparation thread, which has low priority."""
        if self._preparer is None:
            self._preparer = self._make_preparer()
            self._pool = ThreadPoolExecutor(
                1, f"{self.info.name}-prepare", initializer=_behind
            )
        assert self._pool is not None
        self._next = self._pool.submit(self._prepare, self._preparer, job)

    def _prepared(self) -> G:
        assert self._next is not None
        with self.clock.stage("wait"):
            group = self._last = self._next.result()
        self._next = None
        return group

    def _leave(self) -> None:
        """Drop prepared groups and the slots' contents: the next epoch begins anew."""
        self._follows = None
        preparer = self._preparer
        self._preparer = None
        if preparer is not None:
            preparer.stop()
        asked = self._next
        self._next = None
        pool = self._pool
        self._pool = None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        if asked is not None:
            with suppress(BaseException):
                asked.result()
        if preparer is not None:
            preparer.close()
        if self._trainer is not None:
            self._trainer.restart()

    def facts(self) -> Facts:
        """Return the read mode and the reading stages."""
        if self._trainer is None:
            return Facts()
        reading = ("sample", "pack", "load_graph", "extract")
        return Facts(
            io=self._trainer.mode,
            reads_in=reading,
            samples_reused=not self.is_faithful(self.options),
        )

    def close(self) -> None:
        """End the threads, close the files, free the slots and remove the prepared
        groups."""
        self._leave()
        self._close("_trainer", "_singles")


def _behind() -> None:
    """Lower the thread's priority, so that preparation yields to training; threads that
    it starts inherit this."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
