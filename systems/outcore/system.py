"""Outcore: what fits stays in memory; the rest is sampled and extracted by passes, a
group ahead of training.

`prepare` chooses one of three ways (`choice.py`): passes over graph and table; groups
sampled from the graph in memory; or graph and rows in memory, where rows that miss are
read alone (`resident.py`). The first two prepare groups of mini-batches (`group.py`)
and train them as `agnes` does (`systems/engine/passes/groups.py`, `loader.py`).

It is no `PathSystem`: passes serve all mini-batches of a group before any of them
trains, and the way is chosen in preparation. Buffers are sized by
`systems/parts/sizes.py` as others are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

from systems.engine.io.memory import give_back_free_memory
from systems.engine.io.reader import RowReader
from systems.engine.io.row_reads import RowTable
from systems.engine.io.topology import DatasetFiles
from systems.engine.passes.groups import Groups, path_of_groups
from systems.engine.passes.loader import GroupLoader
from systems.forecast import PAGE, sequential
from systems.interface import (
    Batch,
    Counters,
    Facts,
    Forecast,
    Options,
    PartUse,
    Plan,
    PlanItem,
    System,
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
from systems.outcore.resident import Resident, ResidentSizes, path_of_resident
from workloads.errors import BudgetError

_GRAPH_BUFFERS = (
    "preparing a group",
    "indices in memory",
    "labels in memory",
    "graph and rows in memory",
)
_TIERS: tuple[Tier, ...] = ("host", "device", "disk")


class Outcore(System):
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

    _choice: Choice | None = None
    _groups: Groups[Group] | None = None
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

    def chosen(self) -> dict[str, int | str]:
        """Return the sizes of groups and slots, and the way of sampling; nothing where
        preparation chooses among several ways."""
        found = super().chosen()
        if self._choice is None and len(self._ways) > 1:
            return found
        return {**found, **self._sizes.chosen()}

    def prepare(self) -> None:
        """Choose a way, load what it keeps in memory and open the files; groups are
        prepared within the epochs."""
        self._choose()
        if self._resident is not None:
            return
        options = self.options
        sizes = self._sizes
        self._groups = Groups(
            sizes,
            self.clock,
            self._open_preparer,
            look_ahead=options.look_ahead and not options.replay,
            replay=options.replay,
            singles=self._single_reader(),
        )

    def _open_preparer(self, loader: GroupLoader | None) -> Preparer:
        graph = self._graph
        chosen = self._choice
        return Preparer(
            self._sizes,
            self.clock,
            None if graph is None else graph.sampler,
            NO_PINS if chosen is None or chosen.rows is None else chosen.rows,
            None if loader is None else loader.slots,
        )

    def _single_reader(self) -> RowReader | None:
        """Open a reader of single rows, unless all are distributed."""
        options = self.options
        if self.runtime.stages == "sample" or options.packing == "on":
            return None
        table = RowTable.of(self.workload.dataset)
        return RowReader(
            table.path,
            **table.place,
            depth=options.io_depth,
            granularity=options.io_granularity,
        )

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
        resident = self._resident
        self._resident = None
        if resident is not None:
            resident.close()
        self._choice = None
        self._graph = None
        vars(self).pop("_sizes", None)

    def epoch(self, k: int) -> Iterator[Batch]:
        """Return the mini-batches of epoch `k` in the seed plan's order; later groups
        are prepared meanwhile."""
        if self._resident is not None:
            self._check_files()
            return self._resident.epoch(k)
        if self._groups is None:
            raise RuntimeError("prepare() comes before epoch()")
        return self._groups.epoch(k)

    def counters(self) -> Counters:
        """Return the last epoch's hits, misses and reads, with the reads that prepared
        later groups meanwhile."""
        if self._resident is not None:
            return self._resident.counters()
        groups = self._groups
        if groups is None or groups.tally is None:
            return Counters()
        tally = groups.tally
        observed = ["groups"]
        if tally["groups"] and groups.last is not None:
            observed += groups.last.observed()
        missed = tally["misses"]
        # The first use of a row that went straight to its slot is a miss of the epoch
        # that uses it; its bytes are useful in the epoch that read it.
        single = self.options.packing == "off"
        return groups.counters(
            self.options.io_depth if single else self._sizes.pieces,
            misses=missed + tally["direct"],
            rows_read=missed + tally["direct_rows"],
            on_device=tally["on_device"] - tally["direct_on_device"],
            observed=tally.observed(*observed),
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
            f"{how}; keeps {trace.hit_rate(missed)} of the accesses (Belady over the "
            "epoch)",
            rows_copied=(1.0 - on_device) * trace.accesses + on_device * missed,
        )

    def notes(self) -> dict[str, str]:
        """Return the read mode, the chosen sizes and strategies, and the predicted and
        measured seconds."""
        resident = self._resident
        groups = self._groups
        chosen = self._choice
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
        if groups is None or groups.loader is None:
            return {}
        sizes = self._sizes
        group = groups.last
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
                f"{name} {count}" for name, count in sorted(groups.strategies.items())
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

    def data_path(self) -> list[PartUse]:
        """List the parts of the way that was chosen; of passes before the choice."""
        if isinstance(self._sizes, ResidentSizes):
            return path_of_resident(self.counters())
        return path_of_groups(
            self.counters(),
            group="groups",
            cache="rows in memory by Belady's rule",
            graph=_GRAPH_BUFFERS,
        )

    def facts(self) -> Facts:
        """Return the read mode and the reading stages."""
        way = self._resident or self._groups
        return Facts() if way is None else way.facts()

    def close(self) -> None:
        """End the threads, close the files, free graph and rows and remove the prepared
        groups."""
        if self._groups is not None:
            self._groups.close()
        self._release()
