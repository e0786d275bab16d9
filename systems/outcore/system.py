"""Outcore: external-memory sampling and extraction, the next group prepared while this one trains."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import ClassVar

from systems import _native
from systems.engine.io.reader import RowReader
from systems.engine.io.tally import Tally
from systems.engine.io.topology import DatasetFiles, row_bytes
from systems.engine.loading.sized import SizedSystem
from systems.interface import Batch, Counters, Facts, Forecast, Options, SystemInfo, Trace
from systems.outcore.forecast import forecast
from systems.outcore.group import Group, Job, Preparer
from systems.outcore.options import OutcoreOptions
from systems.outcore.planner import NAME, OutcoreSizes
from systems.outcore.trainer import GroupLoader
from workloads.sampling.make import make_seed_plan

_NICENESS = 10


class Outcore(SizedSystem):
    """Outcore on the processor, where training reads the slots in host memory, and on devices with their own memory."""

    info: ClassVar[SystemInfo] = SystemInfo(
        name=NAME,
        summary="epochs sampled and extracted by sequential passes, rows kept by Belady's rule, the next one ahead",
        options=OutcoreOptions,
        reads_by_device=True,
    )
    options: OutcoreOptions

    _ready: bool = False
    _trainer: GroupLoader | None = None
    _preparer: Preparer | None = None
    _pool: ThreadPoolExecutor | None = None
    _next: tuple[Job, Future[Group]] | None = None
    _follows: Job | None = None
    _tally: Tally | None = None
    _singles: RowReader | None = None
    _last: Group | None = None  # the group prepared last
    _kept: tuple[Group, ...] = ()

    @classmethod
    def is_faithful(cls, options: Options) -> bool:
        """Return False where all epochs replay the first one's samples instead of the workload's mini-batches."""
        assert isinstance(options, OutcoreOptions)
        return not options.replay

    @cached_property
    def _sizes(self) -> OutcoreSizes:
        return OutcoreSizes(self)

    def prepare(self) -> None:
        """Open the files and allocate the slots; mini-batches are prepared within the epochs."""
        dataset, options = self.workload.dataset, self.options
        self._files = DatasetFiles(self.workload, ["indices", "labels", "features"])
        self._files.check()
        self._last, self._strategies = None, Counter[str]()
        self._block = _native.block_bytes(str(dataset.file("features")))
        self._num_batches = make_seed_plan(self.workload).num_batches
        if self.runtime.stages != "sample" and options.packing != "on":
            self._singles = RowReader(
                dataset.file("features"),
                data_offset=dataset.data_offset("features"),
                num_rows=dataset.num_nodes,
                row_bytes=row_bytes(self.workload),
                depth=options.io_depth,
                granularity=options.io_granularity,
            )
        self._ready = True
        if not options.replay:  # a replay's slots take over preparation's memory
            self._trainer = GroupLoader(self._sizes, self.clock, self._singles)

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k` in the seed plan's order; later groups are prepared meanwhile."""
        if not self._ready:
            raise RuntimeError("prepare() comes before epoch()")
        return self._run(k)

    def _jobs(self, k: int) -> list[Job]:
        size = self._sizes.group
        return [Job(k, i, min(size, self._num_batches - i)) for i in range(0, self._num_batches, size)]

    def _later(self, job: Job) -> Iterator[Job]:
        """Yield the groups after `job`, over the ends of epochs; a replay samples epoch 0 only."""
        jobs, epoch = [one for one in self._jobs(job.epoch) if one.first > job.first], job.epoch
        yield from jobs
        while not self.options.replay:
            epoch += 1
            yield from self._jobs(epoch)

    def _run(self, k: int) -> Iterator[Batch]:
        self._files.check()
        self._tally = tally = Tally()
        try:
            if self.options.replay:
                yield from self._replay(k, tally)
            else:
                assert self._trainer is not None
                yield from self._fresh(k, self._trainer, tally)
        except BaseException:
            self._leave()
            raise

    def _fresh(self, k: int, trainer: GroupLoader, tally: Tally) -> Iterator[Batch]:
        jobs = self._jobs(k)
        if self._follows != jobs[0]:
            self._leave()
        ready = self._next is not None
        for number, job in enumerate(jobs):
            if self._next is None:
                self._ask(job)
            group = self._prepared()
            if number or not ready:  # else the epoch before counted it
                _count(group, tally)
            if self.options.look_ahead:
                self._ask(next(self._later(job)))
            yield from self._train(group, trainer, tally)
            if self._preparer is not None:
                self._preparer.release(group)
        if self._next is not None:
            # Preparation that began in this epoch counts for it.
            with self.clock.stage("wait"):
                _count(self._next[1].result(), tally)
        self._follows = self._jobs(k + 1)[0]

    def _replay(self, k: int, tally: Tally) -> Iterator[Batch]:
        """Yield the mini-batches of epoch 0's groups; a plan from empty slots makes their chunks serve every epoch."""
        groups: list[Group] = list(self._kept)
        for job in self._jobs(0)[len(groups) :]:
            self._ask(job)
            groups.append(self._prepared())
            _count(groups[-1], tally)
            self._kept = tuple(groups)
        if self._trainer is None:
            assert self._preparer is not None
            self._preparer.rest()
            self._trainer = GroupLoader(self._sizes, self.clock, self._singles)
        self._trainer.restart()
        for group in groups:
            for batch in self._train(group, self._trainer, tally):
                batch.sampled = replace(batch.sampled, epoch=k)
                yield batch

    def _train(self, group: Group, trainer: GroupLoader, tally: Tally) -> Iterator[Batch]:
        start = time.monotonic()
        yield from trainer.run(group, tally)
        group.seconds["train"] = time.monotonic() - start

    def _ask(self, job: Job) -> None:
        """Submit a group to the preparation thread, which has low priority."""
        if self._preparer is None:
            self._preparer = Preparer(self._sizes, self.clock, self._block)
            self._pool = ThreadPoolExecutor(1, f"{NAME}-prepare", initializer=_behind)
        assert self._pool is not None
        upcoming, then = None, list[Job]()
        if self.options.look_ahead and not self.options.replay:
            upcoming = next(self._later(job))
            then = self._after(upcoming)
        self._next = (job, self._pool.submit(self._preparer.prepare, job, self._after(job), upcoming, then))

    def _after(self, job: Job) -> list[Job]:
        """Return the jobs that share passes over the graph with `job`: as many as there are hops before the last."""
        hops = len(self.workload.sampler.fanout) if self.options.shared_passes else 1
        return list(islice(self._later(job), hops - 1))

    def _prepared(self) -> Group:
        assert self._next is not None
        with self.clock.stage("wait"):
            group = self._next[1].result()
        self._next = None
        self._last = group
        self._strategies[group.strategy] += 1
        return group

    def _leave(self) -> None:
        """Drop prepared groups and the slots' contents: the next epoch begins anew."""
        self._follows = None
        preparer, self._preparer = self._preparer, None
        if preparer is not None:
            preparer.stop()
        asked, self._next = self._next, None
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        if asked is not None:
            with suppress(BaseException):
                asked[1].result()
        if preparer is not None:
            preparer.close()
        self._kept = ()
        if self.options.replay:
            # Preparing anew needs the slots' memory.
            self._close("_trainer")
        elif self._trainer is not None:
            self._trainer.restart()

    def counters(self) -> Counters:
        """Return the last epoch's hits, misses and reads, with the reads that prepared later groups meanwhile."""
        tally, dataset = self._tally, self.workload.dataset
        if tally is None:
            return Counters()
        rows, misses, on_device, groups = (tally[name] for name in ("rows", "misses", "on_device", "groups"))
        index_bytes = dataset.topology_bytes // max(1, dataset.num_edges)
        return tally.counters(
            self.options.io_depth if self.options.packing == "off" else self._sizes.pieces,
            rows=rows,
            hits={"device": on_device, "host": rows - misses - on_device},
            misses=misses,  # distributed rows and rows read one by one
            bytes_useful=misses * row_bytes(self.workload) + tally["edges"] * index_bytes,
            bytes_written=tally["written"],
            observed=tally.observed("groups", *(self._last.observed() if groups and self._last is not None else ())),
        )

    def files(self) -> list[Path]:
        """Return no files: groups are prepared within the epochs and written around the page cache."""
        return []

    def facts(self) -> Facts:
        """Return the read mode and the reading stages."""
        if self._trainer is None:
            return Facts()
        return Facts(io=self._trainer.mode, reads_in=("sample", "pack", "load_graph", "extract"))

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast Belady's misses over an epoch and the passes over graph and features, by the cost model."""
        return forecast(trace, self._sizes)

    def notes(self) -> dict[str, str]:
        """Return the read mode, the chosen sizes and strategies, and the predicted and measured seconds."""
        if self._trainer is None:
            return {}
        sizes, group = self._sizes, self._last
        found = {
            **super().notes(),
            "samples": "the first epoch's in all epochs: not faithful" if self.options.replay else "each epoch its own",
            "sampling": "out of core" if sizes.external else "online",
            "group": str(sizes.group),
            "window": str(sizes.window),
            "slots": str(sizes.slots),
        }
        if group is None:
            return found
        found |= {
            "strategy": ", ".join(f"{name} {count}" for name, count in sorted(self._strategies.items())),
            "last_group": f"{group.uses} uses, {group.hits} hits, {group.carried} of them from the group before",
            "prepared_s": f"{group.seconds.get('prepare', 0.0):.3f}",
            "passes": str(group.pack.passes),
        }
        if group.prediction is not None:
            seconds = {name: value for name, value in vars(group.prediction).items() if isinstance(value, float)}
            found["predicted_s"] = ", ".join(f"{name} {value:.3f}" for name, value in seconds.items())
            found["gap"] = f"{group.gap_bytes} bytes"
        return found

    def close(self) -> None:
        """End the threads, close the files, free the slots and remove the prepared groups."""
        self._leave()
        self._close("_trainer", "_singles")


def _count(group: Group, tally: Tally) -> None:
    """Count the reads and writes of a group that was prepared in this epoch."""
    written = group.pack.bytes_written + group.graph_written
    if group.chunks is not None:
        written += int(group.chunks.lists[:, 1].sum())
    tally.add(group.reads, groups=1, written=written, **group.observed())
    tally.add(group.pack.reads)


def _behind() -> None:
    """Lower the thread's priority, so that preparation yields to training; threads that it starts inherit this."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
