"""Outcore: external-memory sampling and extraction, the next group prepared while this one trains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice

from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import RowTable
from systems.engine.io.tally import Tally
from systems.engine.passes.loader import GroupLoader
from systems.engine.passes.sampling import Job
from systems.engine.passes.system import GroupSystem
from systems.forecast import PAGE, sequential
from systems.interface import Batch, Counters, Forecast, Options, SystemInfo, Trace
from systems.outcore.cost import predict
from systems.outcore.group import Group, Preparer
from systems.outcore.planner import NAME, OutcoreOptions, OutcoreSizes


class Outcore(GroupSystem[Group]):
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
        self._kept, self._strategies = [], Counter[str]()
        if self.runtime.stages != "sample" and options.packing != "on":
            table = RowTable.of(self.workload.dataset)
            self._singles = RowReader(
                table.path, **table.place, depth=options.io_depth, granularity=options.io_granularity
            )
        super().prepare()

    def _make_trainer(self) -> GroupLoader | None:
        # A replay's slots take over preparation's memory.
        return None if self.options.replay else super()._make_trainer()

    def _make_preparer(self) -> Preparer:
        return Preparer(self._sizes, self.clock)

    def _later(self, job: Job) -> Iterator[Job]:
        """Return the groups after `job`, over the ends of epochs; a replay samples epoch 0 only."""
        if self.options.replay:
            return (one for one in self._jobs(job.epoch) if one > job)
        return super()._later(job)

    def _batches(self, k: int, tally: Tally) -> Iterator[Batch]:
        return self._replay(k, tally) if self.options.replay else super()._batches(k, tally)

    def _replay(self, k: int, tally: Tally) -> Iterator[Batch]:
        """Yield the mini-batches of epoch 0's groups; a plan from empty slots makes their chunks serve every epoch."""
        for job in self._jobs(0)[len(self._kept) :]:
            self._ask(job)
            self._kept.append(self._prepared())
            self._count(self._kept[-1], tally)
        if self._trainer is None:
            assert isinstance(self._preparer, Preparer)
            self._preparer.rest()
            self._trainer = GroupLoader(self._sizes, self.clock, self._singles)
        self._trainer.restart()
        for group in self._kept:
            for batch in self._trainer.run(group, tally):
                batch.sampled = replace(batch.sampled, epoch=k)
                yield batch

    @property
    def _looks_ahead(self) -> bool:
        return self.options.look_ahead and not self.options.replay

    def _prepare(self, preparer: Preparer, job: Job) -> Group:
        jobs = [job, *islice(self._later(job), len(self.workload.sampler.fanout))]
        return preparer.prepare(jobs, self._looks_ahead)

    def _prepared(self) -> Group:
        group = super()._prepared()
        self._strategies[group.strategy] += 1
        return group

    def _count(self, group: Group, tally: Tally) -> None:
        tally.add(group.reads, groups=1, written=group.bytes_written, **group.observed())
        tally.add(group.pack.reads)

    def _leave(self) -> None:
        super()._leave()
        self._kept = []
        if self.options.replay:
            # Preparing anew needs the slots' memory.
            self._close("_trainer")

    def counters(self) -> Counters:
        """Return the last epoch's hits, misses and reads, with the reads that prepared later groups meanwhile."""
        tally, dataset = self._tally, self.workload.dataset
        if tally is None:
            return Counters()
        rows, misses, on_device, groups = (tally[name] for name in ("rows", "misses", "on_device", "groups"))
        drawn_bytes = tally["edges"] * (dataset.topology_bytes // max(1, dataset.num_edges))
        # Mini-batches of a group draw the same neighbours from one read.
        neighbours_bytes = min(drawn_bytes, tally["graph_bytes_read"])
        return tally.counters(
            self.options.io_depth if self.options.packing == "off" else self._sizes.pieces,
            rows=rows,
            hits={"device": on_device, "host": rows - misses - on_device},
            misses=misses,  # distributed rows and rows read one by one
            bytes_useful=misses * self._sizes.row + neighbours_bytes,
            bytes_written=tally["written"],
            observed=tally.observed("groups", *(self._last.observed() if groups and self._last is not None else ())),
        )

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast Belady's misses over an epoch and the passes over graph and features, by the cost model."""
        sizes, disk = self._sizes, self.runtime.disk
        shared = self.options.shared_passes  # one pass serves hops of several groups
        dataset, row, scale = trace.workload.dataset, trace.row_bytes, trace.scale
        missed = trace.row_misses("belady", sizes.slots)
        groups = -(-trace.num_batches // max(1, sizes.group))
        passes_each = 1 if shared else len(trace.workload.sampler.fanout)
        pages, most = trace.pieces_by_hop(sizes.group), dataset.topology_bytes / PAGE + 1
        touched = most * (1.0 - math.prod(1.0 - hop / most for hop in pages)) if shared else sum(pages)
        scanned = touched * PAGE + passes_each * 8.0 * dataset.num_nodes
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
