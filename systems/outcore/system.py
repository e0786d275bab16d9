"""Outcore: what fits stays in memory; the rest is sampled and extracted by passes, a
group ahead of training.

`prepare` chooses one of three ways (`choice.py`): passes over graph and table; groups
sampled from the graph in memory; or graph and rows in memory, where rows that miss are
read alone (`resident.py`). The first two are this file's groups.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice

from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import RowTable
from systems.engine.io.tally import Tally
from systems.engine.io.topology import DatasetFiles
from systems.engine.passes.loader import GroupLoader
from systems.engine.passes.sampling import Job
from systems.engine.passes.system import GroupSystem
from systems.forecast import PAGE, sequential
from systems.interface import (
    Batch,
    Counters,
    Facts,
    Forecast,
    Options,
    Plan,
    PlanItem,
    SystemInfo,
    Tier,
    Trace,
)
from systems.outcore.choice import Choice, choose, way_of
from systems.outcore.cost import predict
from systems.outcore.graph import Graph
from systems.outcore.group import Group, Preparer
from systems.outcore.pins import NO_PINS
from systems.outcore.planner import (
    NAME,
    GraphInMemorySizes,
    OutcoreOptions,
    OutcoreSizes,
)
from systems.outcore.resident import Resident, ResidentSizes
from workloads.errors import BudgetError

_TIERS: tuple[Tier, ...] = ("host", "device", "disk")


class Outcore(GroupSystem[Group]):
    """Outcore on the processor, where training reads the slots in host memory, and on
    devices with their own memory.

    Groups are prepared within the epochs and written around the page cache, so `files`
    has nothing to evict.
    """

    info = SystemInfo(
        name=NAME,
        summary="epochs sampled and extracted by sequential passes, rows kept by "
        "Belady's rule, the next one ahead",
        options=OutcoreOptions,
        reads_by_device=True,
    )
    options: OutcoreOptions

    _kept: list[Group]  # those of a replay
    _choice: Choice | None = None
    _graph: Graph | None = None  # the graph in memory, of two ways
    _resident: Resident | None = None

    @classmethod
    def is_faithful(cls, options: Options) -> bool:
        """Return False where all epochs replay the first one's samples instead of the
        workload's mini-batches."""
        assert isinstance(options, OutcoreOptions)
        return not options.replay

    @cached_property
    def _sizes(self) -> OutcoreSizes:
        return self._ways[0] if self._choice is None else self._choice.sizes

    @cached_property
    def _ways(self) -> tuple[OutcoreSizes, ...]:
        """Sizes of the ways that come into question; passes alone where an option sets
        a part of them."""
        passes = OutcoreSizes(self)
        if self.budget.host is None or self.options.sets_passes:
            return (passes,)
        try:
            resident = ResidentSizes(self)
            return (
                (resident,)
                if resident.reads_nothing
                else (passes, GraphInMemorySizes(self), resident)
            )
        except BudgetError:
            return (passes,)

    def plan(self) -> Plan:
        """Return all buffers; where the way is chosen in preparation, one item holds
        what the largest takes beyond."""
        plans = [sizes.plan for sizes in self._ways]
        if len(plans) == 1:
            return self._sizes.plan
        items = list(plans[0].items)
        for tier in _TIERS:
            most = max(plan.total(tier) for plan in plans)
            more = most - plans[0].total(tier)
            if more:
                items.append(PlanItem("graph and rows in memory", more, tier))
        return Plan(tuple(items))

    def prepare(self) -> None:
        """Choose a way, load what it keeps in memory and open the files; groups are
        prepared within the epochs."""
        options = self.options
        self._kept = []
        self._strategies = Counter[str]()
        self._choose()
        if self._resident is not None:
            return
        if self.runtime.stages != "sample" and options.packing != "on":
            table = RowTable.of(self.workload.dataset)
            self._singles = RowReader(
                table.path,
                **table.place,
                depth=options.io_depth,
                granularity=options.io_granularity,
            )
        super().prepare()

    def _choose(self) -> None:
        """Choose a way, and load its graph and rows."""
        self._release()
        if not any(sizes.graph_in_memory for sizes in self._ways):
            return
        self._check_files()
        self._graph = Graph.load(self.workload)
        chosen = self._choice = choose(self._ways, self._graph)
        give_back_free_memory()
        self._sizes = chosen.sizes
        if isinstance(chosen.sizes, ResidentSizes):
            self._resident = Resident(
                chosen.sizes, self.clock, self._graph, chosen.rows
            )
        elif not chosen.sizes.graph_in_memory:
            self._graph = None

    def _check_files(self) -> None:
        DatasetFiles(self.workload, ["indices", "labels", "features"]).check()

    def _release(self) -> None:
        """Free graph and rows, and forget the choice."""
        self._close("_resident")
        self._choice = self._graph = None
        vars(self).pop("_sizes", None)

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k` in the seed plan's order; later groups
        are prepared meanwhile."""
        if self._resident is None:
            return super().epoch(k)
        self._check_files()
        return self._resident.epoch(k)

    def _make_trainer(self) -> GroupLoader | None:
        # A replay's slots take over preparation's memory.
        return None if self.options.replay else super()._make_trainer()

    def _make_preparer(self) -> Preparer:
        graph = self._graph
        chosen = self._choice
        trainer = self._trainer
        return Preparer(
            self._sizes,
            self.clock,
            None if graph is None else graph.sampler,
            NO_PINS if chosen is None or chosen.rows is None else chosen.rows,
            None if trainer is None else trainer.slots,
        )

    def _later(self, job: Job) -> Iterator[Job]:
        """Return the groups after `job`, over the ends of epochs; a replay samples
        epoch 0 only."""
        if self.options.replay:
            return (one for one in self._jobs(job.epoch) if one > job)
        return super()._later(job)

    def _batches(self, k: int, tally: Tally) -> Iterator[Batch]:
        return (
            self._replay(k, tally)
            if self.options.replay
            else super()._batches(k, tally)
        )

    def _replay(self, k: int, tally: Tally) -> Iterator[Batch]:
        """Yield the mini-batches of epoch 0's groups; a plan from empty slots makes
        their chunks serve every epoch."""
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
        if self._tally is not None:
            self._tally.add(
                direct=group.direct, direct_on_device=group.direct_on_device
            )
        return group

    def _count(self, group: Group, tally: Tally) -> None:
        tally.add(
            group.reads, groups=1, written=group.bytes_written, **group.observed()
        )
        tally.add(group.pack.reads)

    def _leave(self) -> None:
        super()._leave()
        self._kept = []
        if self.options.replay:
            # Preparing anew needs the slots' memory.
            self._close("_trainer")

    def counters(self) -> Counters:
        """Return the last epoch's hits, misses and reads, with the reads that prepared
        later groups meanwhile."""
        if self._resident is not None:
            return self._resident.counters()
        tally = self._tally
        dataset = self.workload.dataset
        if tally is None:
            return Counters()
        rows, missed, groups = (tally[name] for name in ("rows", "misses", "groups"))
        # The first use of a row that went straight to its slot is a miss of the epoch
        # that uses it; its bytes are useful in the epoch that read it.
        misses = missed + tally["direct"]
        on_device = tally["on_device"] - tally["direct_on_device"]
        rows_read = missed + tally["direct_rows"]
        drawn_bytes = tally["edges"] * (
            dataset.topology_bytes // max(1, dataset.num_edges)
        )
        # Mini-batches of a group draw the same neighbours from one read.
        neighbours_bytes = min(drawn_bytes, tally["graph_bytes_read"])
        return tally.counters(
            self.options.io_depth
            if self.options.packing == "off"
            else self._sizes.pieces,
            rows=rows,
            hits={"device": on_device, "host": rows - misses - on_device},
            misses=misses,
            bytes_useful=rows_read * self._sizes.row + neighbours_bytes,
            bytes_written=tally["written"],
            observed=tally.observed(
                "groups",
                *(self._last.observed() if groups and self._last is not None else ()),
            ),
        )

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast Belady's misses over an epoch and the passes over graph and
        features, by the cost model."""
        last = self._ways[-1]
        if isinstance(last, ResidentSizes) and last.reads_nothing:
            return trace.resident()
        sizes = self._sizes
        disk = self.runtime.disk
        shared = self.options.shared_passes  # one pass serves hops of several groups
        dataset = trace.workload.dataset
        row = trace.row_bytes
        scale = trace.scale
        missed = trace.row_misses("belady", sizes.slots)
        groups = -(-trace.num_batches // max(1, sizes.group))
        passes_each = 1 if shared else len(trace.workload.sampler.fanout)
        pages = trace.pieces_by_hop(sizes.group)
        most = dataset.topology_bytes / PAGE + 1
        touched = (
            most * (1.0 - math.prod(1.0 - hop / most for hop in pages))
            if shared
            else sum(pages)
        )
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
            reads = trace.read_of(
                missed * scale, disk.logical_block_bytes
            ) | sequential(passes)
            how = "reads what it misses row by row"
        else:
            table = (
                found.table_pass.reads()
                if found is not None
                else sequential(dataset.feature_bytes)
            )
            reads = sequential(passes + 2 * missed * scale * row)
            for size, count in table.items():
                reads[size] = reads.get(size, 0.0) + groups * count
            how = "passes over graph and features"
        # A row is stored in any free slot: the device's slots cross the bus when
        # filled, the host's at every use.
        on_device = sizes.device_slots / max(1, sizes.slots)
        return Forecast(
            {size: count / scale for size, count in reads.items()},
            f"{how}; keeps {trace.hit_rate(missed)} of the accesses (Belady over "
            "the epoch)",
            rows_copied=(1.0 - on_device) * trace.accesses + on_device * missed,
        )

    def notes(self) -> dict[str, str]:
        """Return the read mode, the chosen sizes and strategies, and the predicted and
        measured seconds."""
        resident = self._resident
        chosen = self._choice
        if self._trainer is None and resident is None:
            return {}
        how: dict[str, str] = {}
        if chosen is not None:
            how["way"] = way_of(chosen.sizes)
            costs = [
                f"{name} {seconds:.3f}" for name, seconds in chosen.seconds.items()
            ]
            how["ways_s"] = ", ".join(costs) or "not compared"
            if chosen.rows is not None and resident is None:
                how["pinned_rows"] = str(len(chosen.rows))
        if resident is not None:
            return {**resident.facts().notes(), **how, **resident.notes()}
        sizes = self._sizes
        group = self._last
        found = {
            **super().notes(),
            **how,
            "samples": "the first epoch's in all epochs: not faithful"
            if self.options.replay
            else "each epoch its own",
            "sampling": "out of core"
            if sizes.external
            else "in memory"
            if sizes.graph_in_memory
            else "online",
            "group": str(sizes.group),
            "window": str(sizes.window),
            "slots": str(sizes.slots),
        }
        if group is None:
            return found
        found |= {
            "strategy": ", ".join(
                f"{name} {count}" for name, count in sorted(self._strategies.items())
            ),
            "last_group": f"{group.uses} uses, {group.hits} hits, {group.carried} "
            "of them from "
            "the group before",
            "prepared_s": f"{group.prepared_s:.3f}",
            "passes": str(group.pack.passes),
        }
        if group.prediction is not None:
            seconds = {
                name: value
                for name, value in vars(group.prediction).items()
                if isinstance(value, float)
            }
            found["predicted_s"] = ", ".join(
                f"{name} {value:.3f}" for name, value in seconds.items()
            )
            found["gap"] = f"{group.gap_bytes} bytes"
        return found

    def facts(self) -> Facts:
        """Return the read mode and the reading stages."""
        return super().facts() if self._resident is None else self._resident.facts()

    def close(self) -> None:
        """End the threads, close the files, free graph and rows and remove the prepared
        groups."""
        super().close()
        self._release()
