"""Sizes of DiskGNN's levels and buffers before any row is ranked, by
`systems/parts/sizes.py`; `fit.py` makes them exact.

Training needs no graph in memory, only the caches and the mini-batches under way;
preparation needs the graph and no caches. The plan is the larger of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from systems.diskgnn.layout import segment_bytes
from systems.diskgnn.options import NAME, DiskGnnOptions
from systems.diskgnn.ranking import AccessCounts
from systems.engine.io.reader import RowReader
from systems.engine.io.topology import indptr_item, map_item
from systems.engine.store.batch_store import BatchWriter
from systems.engine.store.packed_layout import slot_rows
from systems.engine.store.packed_writer import PackedWriter
from systems.interface import Plan
from systems.parts.part import Site
from systems.parts.sizes import Follower, Need, divide, fixed
from workloads.accelerator import NO_ROWS
from workloads.direct_files import PAGE, padded
from workloads.errors import BudgetError
from workloads.units import parse_bytes

FIX = "raise memory, or lower batch size, fan-out, queue, readers or io_depth"
DEVICE_TABLE = "device table"
HOST_TABLE = "host cache and buffers"
STAGED_TABLE = "host cache and staging buffers"
_UNBOUNDED_PACKING = 256 << 20
_UNBOUNDED_SHARE = 10  # of the table, in the host cache without a budget
_INDEX_BYTES = 64
_WORKING = 2 << 20
_AHEAD = 12
_GATHERED = 4 << 20


class DiskGnnSizes:
    """Bounds before any row is ranked.

    Attributes:
        drawn: sampled epochs that are prepared together.
        row: bytes of a feature row.
        limit: bytes that an episode may take on disk; None: no limit.
        on_device: whether the training device has memory of its own.
        graph_bytes: bytes of one mini-batch's graph and address lists in memory.
        graphs: chunks' graphs held at a time.
        padding: rows that a buffer needs beside those of its mini-batch, since packed
            rows arrive in whole pages.
        align: multiple of rows at which each buffer of a host table begins.
        ahead_rows: rows of mini-batches requested at a time to keep the disk busy.
        buffers, staging: most mini-batches' buffers in the table, and most staging
            buffers (0 on the processor).
        direct_rows: cached rows of the table that the user asks for; None: as many as
            fit.
        host_cache_rows: rows of the host cache beside a device's table that the user
            asks for; None: as many as fit.
        packing_bytes: bytes of host memory for packing.
        plan: all buffers.
        table_rows: rows of the table: cached rows and buffers.
        host_rows: host rows beside the table (host cache and staging buffers); 0 on the
            processor.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """

    direct_rows: int | None = 0
    host_cache_rows: int | None = 0
    buffers = 0
    staging = 0

    def __init__(self, site: Site, options: DiskGnnOptions, drawn: int) -> None:
        self.site = site
        self.options = options
        self.drawn = drawn
        self.workload = site.workload
        self.runtime = site.runtime
        self.bounds = site.bounds
        self.row = site.table.row_bytes
        self.sampling_only = site.sampling_only
        self.on_device = not site.on_host
        self.limit = options.limit_bytes(site.table.nbytes, site.budget.disk)
        self.padding = PAGE // self.row + 2
        self.align = 1 if self.on_device else slot_rows(self.row)
        self.ahead_rows = 0
        self._under_way = 1
        staged = 1
        if options.pipeline:
            self.ahead_rows = options.read_ahead_bytes // self.row
            self._under_way = options.queue + 2
            staged = options.queue + 1
        lists = 16 * self.bounds.max_nodes
        self.graph_bytes = padded(self.bounds.sampled_bytes + lists) + 2 * PAGE
        self.graphs = self._most_graphs(staged)
        self.packing_bytes = self._packing_bytes()
        needs = [*self._fixed(), *self._tables(staged), *self._preparation()]
        self._sizes = divide(NAME, needs, site.limits, FIX)
        self.plan = self._sizes.plan
        self.table_rows = self._rows(DEVICE_TABLE if self.on_device else HOST_TABLE)
        self.host_rows = self._rows(STAGED_TABLE)

    def _most_graphs(self, staged: int) -> int:
        """Return the usual number of graphs if a quarter of the budget holds them, the
        most if an eighth does."""
        usual = self._under_way
        if self.options.pipeline and self.on_device:
            usual += staged
        most = usual + (_AHEAD if self.ahead_rows else 0)
        host = self.site.budget.host
        if host is None:
            return most
        few = min(usual, host // 4 // self.graph_bytes)
        many = min(most, host // 8 // self.graph_bytes)
        return max(1, few, many)

    def _rows(self, name: str) -> int:
        return self._sizes.granted.get(name, 0) // self.row

    def _wanted(self, option: Literal["device_cache", "host_cache"]) -> int | None:
        """Return the rows of a cache that the user asks for; None: as many as fit."""
        asked: str = getattr(self.options, option)
        if asked == "auto":
            return None
        return 0 if asked == "off" else parse_bytes(asked, option) // self.row

    def chosen(self) -> dict[str, int | str]:
        """Return the bytes of packing and, unless the run only samples, of the tables
        that hold caches and mini-batches."""
        found: dict[str, int | str] = {"packing_memory": self.packing_bytes}
        if self.sampling_only:
            return found
        table = self.table_rows * self.row
        beside = self.host_rows * self.row
        host, device = (beside, table) if self.on_device else (table, 0)
        return {**found, "host_cache": host, "device_cache": device}

    def key(self) -> dict[str, Any]:
        """Return the fields that decide the levels of an episode, for its artefact's
        identity."""
        names = (
            "on_device table_rows direct_rows host_rows host_cache_rows buffers "
            "staging graphs ahead_rows"
        )
        return {name: getattr(self, name) for name in names.split()}

    def _fixed(self) -> Iterator[Need]:
        """List the buffers of mini-batches under way and of their index."""
        bounds = self.bounds
        index = _INDEX_BYTES * self.drawn * bounds.num_batches
        lists = 16 * (self._under_way + 1) * bounds.max_nodes
        yield Need("index of chunks", index)
        yield Need("sampled mini-batches", self.graphs * self.graph_bytes)
        yield Need("threads and address lists", _WORKING + lists)
        if self.sampling_only:
            return
        options = self.options
        limited = self.limit is not None and options.disk_cache == "auto"
        if options.packing == "off" or limited:
            one = RowReader.plan_bytes(
                row_bytes=self.row,
                depth=options.io_depth,
                granularity=options.io_granularity,
                num_ids=bounds.max_nodes,
            )
            yield Need("single-row readers", options.readers * one)
        if self.on_device:
            # The processor gathers rows of a table in two places through copies.
            gathered = min(_GATHERED, (self.site.budget.host or 0) // 8)
            yield Need("gathered rows", gathered)

    def _tables(self, staged: int) -> Iterator[Need]:
        """List the table and, beside a device's, the host cache with the staging
        buffers."""
        if self.sampling_only:
            return
        beside = self._wanted("host_cache")
        if not self.on_device:
            self.direct_rows = beside
            self.buffers = min(self._under_way, self.graphs)
            yield self._host_table(HOST_TABLE, self.buffers, beside)
            return
        self.host_cache_rows = beside
        self.buffers = self.options.queue if self.options.pipeline else 1
        self.staging = staged
        yield self._device_table()
        yield self._host_table(STAGED_TABLE, staged, beside)

    def _device_table(self) -> Need:
        keeps_rows = self.site.accelerator.keeps_rows
        asked = self.options.device_cache
        wanted = self._wanted("device_cache")
        if wanted and not keeps_rows:
            raise BudgetError(f"{NAME}: no room for a device_cache of {asked}", NO_ROWS)
        if wanted is None and not keeps_rows:
            wanted = 0
        self.direct_rows = wanted
        largest = self.bounds.max_nodes
        cached = self.site.table.num_rows if wanted is None else wanted
        least = ((wanted or 0) + largest) * self.row
        fix = "raise device memory, or lower batch size or fan-out"
        if wanted:
            fix = f"{fix}, or lower the device_cache of {asked}"
        return Need(
            DEVICE_TABLE,
            least,
            "device",
            best=(cached + self.buffers * largest) * self.row,
            step=self.row,
            share=_whole_pages(least, padded(least)),
            align=self.row,
            fix=fix,
        )

    def _host_table(self, name: str, buffers: int, wanted: int | None) -> Need:
        buffer = padded(self.bounds.max_nodes + self.padding, self.align)
        fix = FIX
        if wanted:
            fix = f"{FIX}, or lower the host_cache of {self.options.host_cache}"
        cached = wanted
        if cached is None:
            cached = self.site.table.num_rows
            if self.site.budget.host is None:
                cached //= _UNBOUNDED_SHARE
        least = (padded(wanted or 0, self.align) + buffer) * self.row
        return Need(
            name,
            least,
            best=(padded(cached, self.align) + buffers * buffer) * self.row,
            step=self.row,
            share=_whole_pages(least, least),
            align=PAGE,
            fix=fix,
        )

    def _preparation(self) -> Iterator[Need | Follower]:
        """List what preparation takes beyond the buffers of training, and its files."""
        largest_phase = max(plan.total("host") for plan in self._phases())
        yield Follower(
            "preparation beyond that",
            lambda sizes: max(0, largest_phase - sizes.plan.total("host")),
        )
        bounds = self.bounds
        chunk = bounds.max_nodes * self.row + self.graph_bytes + 2 * PAGE
        packed = self.drawn * bounds.num_batches * chunk + self.site.table.nbytes
        if self.limit is not None:
            packed = min(packed, self.limit)
        yield Need("packed features, caches and samples", packed, "disk")

    def _packing_bytes(self) -> int:
        asked = self.options.packing_memory
        host = self.site.budget.host
        if asked != "auto":
            wanted = parse_bytes(asked, "packing_memory")
        elif host is None:
            wanted = _UNBOUNDED_PACKING
        else:
            wanted = host - sum(need.bytes for need in self._packing())
        longest = self.bounds.max_nodes
        return max(
            wanted, PackedWriter.least_bytes(row_bytes=self.row, longest=longest)
        )

    def _phases(self) -> Iterator[Plan]:
        """Yield the plan of each phase of preparation; they do not overlap. Raises
        BudgetError where one does not fit."""
        phases = {
            "sampling": self._sampling(),
            "ranking": self._ranking(),
            "packing": [
                *self._packing(),
                Need("partition and chunk buffers", self.packing_bytes),
            ],
        }
        for phase, needs in phases.items():
            name = f"{NAME}, {phase} beforehand"
            yield divide(name, needs, self.site.budget, FIX).plan

    def _sampling(self) -> list[Need]:
        bounds = self.bounds
        samplers = self.options.samplers or self.runtime.cores
        one = bounds.scratch_bytes + bounds.sampled_bytes
        written = BatchWriter.bound_bytes(bounds.sampled_bytes, 8)
        waiting = (samplers + 1) * bounds.sampled_bytes + written
        seeds = (self.drawn + 2) * bounds.seed_bytes // 3
        return [
            *fixed([indptr_item(self.workload)]),
            Need("access counts", 4 * self.site.table.num_rows),
            Need("samplers", samplers * one),
            Need("sampled mini-batches", waiting),
            *fixed([map_item(self.workload)]),
            Need("seed nodes", seeds),
        ]

    def _ranking(self) -> list[Need]:
        nodes = self.site.table.num_rows
        host = self.site.budget.host
        ranked = nodes if host is None else min(nodes, host // self.row)
        counts = AccessCounts.plan_bytes(nodes, ranked)
        return [
            Need("access counts and ranks", counts + 4 * nodes),
            Need("one mini-batch", 4 * self.bounds.sampled_bytes),
        ]

    def _packing(self) -> list[Need]:
        """List the memory of packing beside its buffers."""
        bounds = self.bounds
        segment = segment_bytes(1, bounds.max_nodes)
        return [
            Need("slots and positions by node", 8 * self.site.table.num_rows),
            Need("one mini-batch", 6 * bounds.sampled_bytes + segment),
            Need("threads", _WORKING),
        ]


def _whole_pages(least: int, taken: int) -> Callable[[int], int]:
    """Return the share of a table that takes whole pages of its tier.

    Args:
        least: least bytes of the table.
        taken: bytes that they take of the tier.
    """

    def share(left: int) -> int:
        return (left + taken) // PAGE * PAGE - least

    return share
