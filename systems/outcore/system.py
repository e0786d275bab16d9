"""Outcore: external-memory sampling and extraction, the next group prepared while this one trains."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import count, islice

import numpy as np

from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import RowTable
from systems.engine.io.tally import Tally
from systems.engine.io.topology import DatasetFiles
from systems.engine.loading.sized import SizedSystem
from systems.forecast import PAGE, sequential
from systems.interface import Batch, Counters, Facts, Forecast, Options, SystemInfo, Trace
from systems.outcore.cost import predict
from systems.outcore.group import Group, Preparer
from systems.outcore.planner import NAME, OutcoreOptions, OutcoreSizes
from systems.outcore.sampling import Job
from systems.outcore.trainer import GroupLoader
from workloads.sampling.make import make_seed_plan

_NICENESS = 10


class Outcore(SizedSystem):
    """Outcore on the processor, where training reads the slots in host memory, and on devices with their own memory.

    Groups are prepared within the epochs and written around the page cache, so `files` has nothing to evict.
    """

    info = SystemInfo(
        name=NAME,
        summary="epochs sampled and extracted by sequential passes, rows kept by Belady's rule, the next one ahead",
        options=OutcoreOptions,
        reads_by_device=True,
    )
    options: OutcoreOptions

    _num_batches = 0
    _trainer: GroupLoader | None = None
    _preparer: Preparer | None = None
    _pool: ThreadPoolExecutor | None = None
    _next: Future[Group] | None = None
    _follows: int | None = None  # the epoch that the prepared groups and the slots are for
    _tally: Tally | None = None
    _singles: RowReader | None = None
    _last: Group | None = None  # the group prepared last
    _kept: list[Group]  # those of a replay

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
        options = self.options
        self._files = DatasetFiles(self.workload, ["indices", "labels", "features"])
        self._files.check()
        self._last, self._kept, self._strategies = None, [], Counter[str]()
        self._num_batches = make_seed_plan(self.workload).num_batches
        if self.runtime.stages != "sample" and options.packing != "on":
            table = RowTable.of(self.workload.dataset)
            self._singles = RowReader(
                table.path, **table.place, depth=options.io_depth, granularity=options.io_granularity
            )
        if not options.replay:  # a replay's slots take over preparation's memory
            self._trainer = GroupLoader(self._sizes, self.clock, self._singles)

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k` in the seed plan's order; later groups are prepared meanwhile."""
        if not self._num_batches:
            raise RuntimeError("prepare() comes before epoch()")
        return self._run(k)

    def _jobs(self, k: int) -> list[Job]:
        size = self._sizes.group
        return [Job(k, i, min(size, self._num_batches - i)) for i in range(0, self._num_batches, size)]

    def _later(self, job: Job) -> Iterator[Job]:
        """Return the groups after `job`, over the ends of epochs; a replay samples epoch 0 only."""
        epochs: Iterable[int] = [job.epoch] if self.options.replay else count(job.epoch)
        return (one for epoch in epochs for one in self._jobs(epoch) if one > job)

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
        if self._follows != k:
            self._leave()
        ready = self._next is not None
        for number, job in enumerate(self._jobs(k)):
            if self._next is None:
                self._ask(job)
            group = self._prepared()
            if number or not ready:  # else the epoch before counted it
                _count(group, tally)
            if self.options.look_ahead:
                self._ask(next(self._later(job)))
            yield from trainer.run(group, tally)
            if self._preparer is not None:
                self._preparer.release(group)
        if self._next is not None:
            # Preparation that began in this epoch counts for it.
            with self.clock.stage("wait"):
                _count(self._next.result(), tally)
        self._follows = k + 1

    def _replay(self, k: int, tally: Tally) -> Iterator[Batch]:
        """Yield the mini-batches of epoch 0's groups; a plan from empty slots makes their chunks serve every epoch."""
        for job in self._jobs(0)[len(self._kept) :]:
            self._ask(job)
            self._kept.append(self._prepared())
            _count(self._kept[-1], tally)
        if self._trainer is None:
            assert self._preparer is not None
            self._preparer.rest()
            self._trainer = GroupLoader(self._sizes, self.clock, self._singles)
        self._trainer.restart()
        for group in self._kept:
            for batch in self._trainer.run(group, tally):
                batch.sampled = replace(batch.sampled, epoch=k)
                yield batch

    def _ask(self, job: Job) -> None:
        """Submit a group to the preparation thread, which has low priority."""
        if self._preparer is None:
            self._preparer = Preparer(self._sizes, self.clock)
            self._pool = ThreadPoolExecutor(1, f"{NAME}-prepare", initializer=_behind)
        assert self._pool is not None
        jobs = [job, *islice(self._later(job), len(self.workload.sampler.fanout))]
        ahead = self.options.look_ahead and not self.options.replay
        self._next = self._pool.submit(self._preparer.prepare, jobs, ahead)

    def _prepared(self) -> Group:
        assert self._next is not None
        with self.clock.stage("wait"):
            group = self._last = self._next.result()
        self._next = None
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
                asked.result()
        if preparer is not None:
            preparer.close()
        self._kept = []
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
            bytes_useful=misses * self._sizes.row + tally["edges"] * index_bytes,
            bytes_written=tally["written"],
            observed=tally.observed("groups", *(self._last.observed() if groups and self._last is not None else ())),
        )

    def facts(self) -> Facts:
        """Return the read mode and the reading stages."""
        if self._trainer is None:
            return Facts()
        return Facts(io=self._trainer.mode, reads_in=("sample", "pack", "load_graph", "extract"))

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast Belady's misses over an epoch and the passes over graph and features, by the cost model."""
        sizes, disk = self._sizes, self.runtime.disk
        shared = self.options.shared_passes  # one pass serves hops of several groups
        dataset, row, scale = trace.workload.dataset, trace.row_bytes, trace.scale
        missed = trace.row_misses("belady", sizes.slots)
        groups = -(-trace.num_batches // max(1, sizes.group))
        passes_each = 1 if shared else len(trace.workload.sampler.fanout)
        scanned = _pages_of_groups(trace, sizes.group, once=shared) * PAGE + passes_each * 8.0 * dataset.num_nodes
        passes = 2 * trace.graph_bytes * trace.num_batches + groups * scanned
        # Each group has a pass of its own over the table.
        found = predict(
            disk,
            uses=round(trace.rows / groups),
            misses=round(missed * scale / groups),
            row_bytes=row,
            table_bytes=dataset.feature_bytes,
            beside=sequential(passes / groups),
        )
        if found is not None and found.single < found.distribute:
            reads = trace.read_of(missed * scale, disk.logical_block_bytes) | sequential(passes)
            how = "reads what it misses row by row"
        else:
            table = found.table_pass.reads() if found is not None else sequential(dataset.feature_bytes)
            reads = sequential(passes + 2 * missed * scale * row)
            for size, count in table.items():
                reads[size] = reads.get(size, 0.0) + groups * count
            how = "passes over graph and features"
        # A row is stored in any free slot: the device's slots cross the bus when filled, the host's at every use.
        on_device = sizes.device_slots / max(1, sizes.slots)
        return Forecast(
            {size: count / scale for size, count in reads.items()},
            f"{how}; keeps {trace.hit_rate(missed)} of the accesses (Belady over the epoch)",
            rows_copied=(1.0 - on_device) * trace.accesses + on_device * missed,
        )

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
            "prepared_s": f"{group.prepared_s:.3f}",
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


def _pages_of_groups(trace: Trace, group: int, *, once: bool) -> float:
    """Estimate the pages of `indices` that one group's passes read; `once`: one pass serves hops of several groups."""
    total, left, sampled = 0.0, 1.0, trace.sampled
    most = trace.workload.dataset.topology_bytes / PAGE + 1
    for hop in range(len(trace.hop_pages[0])):
        seen = len(np.unique(np.concatenate([pages[hop] for pages in trace.hop_pages[sampled:]]))) / most
        # A mini-batch leaves a share of the pages untouched; n mini-batches leave the n-th power of that share.
        untouched = max(0.0, 1.0 - seen) ** (min(group, trace.num_batches) / sampled)
        total += most * (1.0 - untouched)
        left *= untouched
    return most * (1.0 - left) if once else total
