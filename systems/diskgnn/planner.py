"""Options of DiskGNN, and sizes of its levels and buffers: bounds beforehand, exact
once rows are ranked (`fit`).

Training needs no graph in memory, only the caches and the mini-batches under way;
preparation needs the graph and no caches. The plan is the larger of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field, field_validator

from systems.diskgnn.layout import Levels, segment_bytes
from systems.diskgnn.ranking import AccessCounts, MissCurve
from systems.engine.io.reader import RowReader
from systems.engine.io.topology import device_limit, indptr_item, map_item
from systems.engine.loading.sized import Sizes
from systems.engine.store.batch_store import BatchWriter
from systems.engine.store.packed_layout import slot_rows
from systems.engine.store.packed_writer import PackedWriter
from systems.interface import Options, Plan, PlanItem, System, auto, size
from workloads.accelerator import NO_ROWS
from workloads.direct_files import PAGE, padded
from workloads.errors import BudgetError, InputError
from workloads.units import parse_bytes

NAME = "diskgnn"
_UNBOUNDED_PACKING = 256 << 20
_UNBOUNDED_SHARE = 10
_INDEX_BYTES = 64
_WORKING = 2 << 20
_AHEAD = 12
_GATHERED = 4 << 20
FIX = "raise memory, or lower batch size, fan-out, queue, readers or io_depth"


class DiskGnnOptions(Options):
    """Options of `diskgnn`.

    The ablation of the paper's Fig. 18 from the bottom: `device_cache=off
    host_cache=off packing=off disk_cache=off` is the naive system that reads each row
    by itself; then one after the other is left at its default.
    """

    device_cache: str = size(
        "auto",
        "off",
        description="hottest rows on the device: `auto` (what is left of it), "
        "`off`, size",
    )
    host_cache: str = size(
        "auto",
        "off",
        description="next rows in host memory: `auto` (what is left of the budget, "
        "a tenth "
        "of the table "
        "without one), `off`, or a size",
    )
    packing: Literal["batched", "individual", "off"] = Field(
        "batched",
        description="how the other rows are packed by mini-batch (Section 5.2); "
        "off: read "
        "from the table",
    )
    disk_cache: Literal["auto", "off"] = Field(
        "auto",
        description="rows shared by the mini-batches of a segment once packing alone "
        "exceeds disk_limit",
    )
    disk_limit: str = Field(
        "none",
        description="bytes of all that is packed: `none`, `3x` the feature table, "
        "or a size",
    )
    search: Literal["heuristic", "brute-force"] = Field(
        "heuristic",
        description="segment length and threshold: threshold 2 and the least feasible "
        "length, or try all",
    )
    search_points: int = Field(
        16, ge=1, le=1024, description="segment lengths that brute-force tries"
    )
    segment: int = Field(
        0, ge=0, description="mini-batches that share a disk cache; 0: searched"
    )
    threshold: int = Field(
        2,
        ge=2,
        description="times a segment asks for a row until its disk cache holds it",
    )
    hashes: int = Field(
        2,
        ge=0,
        le=16,
        description="MinHash functions that order a disk cache; 0: by node id",
    )
    resample_every: int = Field(
        1,
        ge=0,
        description="epochs that replay one epoch's samples: 1 draws each epoch "
        "its own, as "
        "the workload has "
        "it; 0 draws once for the whole run, as the paper's code does; but for 1 "
        "the run is not faithful",
    )
    episode: int = Field(
        0,
        ge=0,
        description="sampled epochs prepared together (Section 5.2); 0: all of the "
        "run, or "
        "one where it is "
        "not known how many come",
    )
    pipeline: bool = Field(
        True,
        description="stages of successive mini-batches at the same time (Section 5.3)",
    )
    queue: int = Field(
        2,
        ge=1,
        le=64,
        description="mini-batches that wait between two workers, fewer in little "
        "memory",
    )
    readers: int = auto(
        2, most=64, description="threads that read single rows, a mini-batch each"
    )
    samplers: int = auto(most=256, description="threads that sample beforehand")
    io_depth: int = Field(
        128, ge=1, le=4096, description="single-row reads in flight for each reader"
    )
    io_granularity: Literal["logical", "4096"] = Field(
        "logical",
        description="smallest read: the device's logical block, or 4096 as in the "
        "paper",
    )
    request_bytes: int = Field(
        1 << 20, ge=4096, le=1 << 24, description="a read of a packed chunk"
    )
    request_depth: int = Field(
        16, ge=1, le=256, description="reads of packed chunks in flight"
    )
    read_ahead_bytes: int = Field(
        8 << 20,
        ge=0,
        description="rows of small mini-batches asked for beyond the queues, to "
        "keep the "
        "disk busy",
    )
    packing_memory: str = size(
        "auto",
        description="memory for packing: `auto` (the budget, 256MiB without), or "
        "a size",
    )

    @field_validator("disk_limit")
    @classmethod
    def _limit(cls, value: str) -> str:
        try:
            if value != "none" and not value.endswith("x"):
                parse_bytes(value)
            elif value != "none" and not float(value[:-1]) > 0:
                raise ValueError(f"no share of the feature table is {value}")
        except (InputError, ValueError) as error:
            raise ValueError(
                f"{error}; or write none, or a share of the feature table like 3x"
            ) from None
        return value

    def limit_bytes(self, feature_bytes: int, budget: int | None) -> int | None:
        """Return the bytes that an episode may take on disk, the lower of option and
        disk budget; None: no limit."""
        own: int | None = None
        if self.disk_limit.endswith("x"):
            own = int(float(self.disk_limit[:-1]) * feature_bytes)
        elif self.disk_limit != "none":
            own = parse_bytes(self.disk_limit, "disk_limit")
        limits = [limit for limit in (own, budget) if limit is not None]
        return min(limits, default=None)


class DiskGnnSizes(Sizes):
    """Bounds before any row is ranked.

    Args:
        drawn: sampled epochs that are prepared together.

    Attributes:
        table_rows: rows of the table: cached rows and buffers.
        direct_rows: cached rows of the table that the user asks for; None: as many as
            fit.
        host_rows: host rows beside the table (host cache and staging buffers); 0 on the
            processor.
        host_cache_rows: rows of the host cache that the user asks for; None: as many as
            fit.
        buffers, staging: most mini-batches' buffers in the table, and most staging
            buffers (0 on the processor).
        ahead_rows: rows of mini-batches requested at a time to keep the disk busy.
        graphs: chunks' graphs held at a time.
        padding: rows that a buffer needs beside those of its mini-batch, since packed
            rows arrive in whole pages.
        align: multiple of rows at which each buffer of a host table begins.
        graph_bytes: bytes of one graph in memory.
        packing_bytes: bytes of host memory for packing.

    Raises:
        BudgetError: a buffer does not fit; names it.
    """

    options: DiskGnnOptions

    def __init__(self, system: System, drawn: int) -> None:
        super().__init__(system)
        workload = self.workload
        budget = self.budget
        options = self.options
        self.drawn = drawn
        self.limit = options.limit_bytes(workload.dataset.feature_bytes, budget.disk)
        self.graph_bytes = (
            padded(self.bounds.sampled_bytes + 16 * self.bounds.max_nodes) + 2 * PAGE
        )
        self.padding = PAGE // self.row + 2
        self.largest = self.bounds.max_nodes + self.padding
        self.align = 1 if self.on_device else slot_rows(self.row)
        self.ahead_rows = (
            options.read_ahead_bytes // self.row if options.pipeline else 0
        )
        self.table_rows = self.host_rows = self.buffers = self.staging = 0
        self.direct_rows: int | None = 0
        self.host_cache_rows: int | None = 0
        self.plan = self._plan()

    def chosen(self) -> dict[str, int | str]:
        """Return the bytes of the tables that hold caches and mini-batches, and of
        packing."""
        found: dict[str, int | str] = {"packing_memory": self.packing_bytes}
        if not self.sampling_only:
            host, device = (
                (self.host_rows, self.table_rows)
                if self.on_device
                else (self.table_rows, 0)
            )
            found |= {"host_cache": host * self.row, "device_cache": device * self.row}
        return found

    def key(self) -> dict[str, Any]:
        """Return the fields that decide the levels of an episode, for its artefact's
        identity."""
        names = (
            "on_device table_rows direct_rows host_rows host_cache_rows buffers "
            "staging graphs ahead_rows"
        )
        return {name: getattr(self, name) for name in names.split()}

    def _plan(self) -> Plan:
        options = self.options
        bounds = self.bounds
        row = self.row
        host = self.budget.host
        wanted = options.queue + 2 if options.pipeline else 1
        staging = (
            (options.queue + 1 if options.pipeline else 1) if self.on_device else 0
        )
        usual = wanted + (staging if options.pipeline else 0)
        self.graphs = most = usual + (_AHEAD if self.ahead_rows else 0)
        if host is not None:
            # The usual number if a quarter of the budget holds them, the most if an
            # eighth does.
            self.graphs = max(
                1,
                min(usual, host // 4 // self.graph_bytes),
                min(most, host // 8 // self.graph_bytes),
            )
        items = [
            PlanItem("index of chunks", _INDEX_BYTES * self.drawn * bounds.num_batches),
            PlanItem("sampled mini-batches", self.graphs * self.graph_bytes),
            PlanItem(
                "threads and address lists",
                _WORKING + 16 * (wanted + 1) * bounds.max_nodes,
            ),
        ]
        single = options.packing == "off" or (
            self.limit is not None and options.disk_cache == "auto"
        )
        if single and not self.sampling_only:
            one = RowReader.plan_bytes(
                row_bytes=row,
                depth=options.io_depth,
                granularity=options.io_granularity,
                num_ids=bounds.max_nodes,
            )
            items.append(PlanItem("single-row readers", options.readers * one))
        preparing, self.packing_bytes = self._preparing()
        if self.on_device and not self.sampling_only:
            self.buffers = max(1, options.queue if options.pipeline else 1)
            self.staging = staging
            self.table_rows, self.direct_rows = self._device_rows(self.buffers)
            items += [
                PlanItem("device table", self.table_rows * row, "device"),
                # The processor gathers rows of a table in two places through copies.
                PlanItem("gathered rows", min(_GATHERED, (host or 0) // 8)),
            ]
            self.host_rows, self.host_cache_rows = self._host_rows(items, staging)
            items.append(
                PlanItem("host cache and staging buffers", padded(self.host_rows * row))
            )
        elif not self.sampling_only:
            self.buffers = min(wanted, self.graphs)
            self.table_rows, self.direct_rows = self._host_rows(items, self.buffers)
            items.append(
                PlanItem("host cache and buffers", padded(self.table_rows * row))
            )
        beyond = max(0, preparing - Plan(tuple(items)).total("host"))
        disk = (
            self.drawn
            * bounds.num_batches
            * (bounds.max_nodes * row + self.graph_bytes + 2 * PAGE)
        )
        disk += self.workload.dataset.feature_bytes
        disk = disk if self.limit is None else min(disk, self.limit)
        items.append(PlanItem("preparation beyond that", beyond))
        items.append(PlanItem("packed features, caches and samples", disk, "disk"))
        return self.require(items, FIX)

    def _device_rows(self, buffers: int) -> tuple[int, int | None]:
        """Return the rows of the device table, and the cached rows that the user asks
        for."""
        accelerator = self.runtime.accelerator
        asked = self.options.device_cache
        largest = self.bounds.max_nodes
        limit = device_limit(self.runtime, self.budget) or 0
        budget = replace(self.budget, device=limit)
        fitting = limit // PAGE * PAGE // self.row
        if fitting < largest:
            item = PlanItem(
                f"device table ({largest} rows of the largest mini-batch)",
                largest * self.row,
                "device",
            )
            raise Plan().no_room(
                NAME,
                budget,
                item,
                "raise device memory or lower the batch size or fan-out",
            )
        if asked == "auto" and accelerator.keeps_rows:
            return min(fitting, self.num_nodes + buffers * largest), None
        wanted = (
            0
            if asked in ("auto", "off")
            else parse_bytes(asked, "device_cache") // self.row
        )
        if wanted and not accelerator.keeps_rows:
            raise BudgetError(f"{NAME}: no room for a device_cache of {asked}", NO_ROWS)
        if wanted + largest > fitting:
            beside = Plan(
                (PlanItem(f"device_cache of {asked}", wanted * self.row, "device"),)
            )
            item = PlanItem(
                f"a mini-batch of {largest} rows", largest * self.row, "device"
            )
            raise beside.no_room(
                NAME, budget, item, "lower device_cache or raise device memory"
            )
        return min(fitting, wanted + buffers * largest), wanted

    def _host_rows(self, items: list[PlanItem], buffers: int) -> tuple[int, int | None]:
        """Return the rows of host cache and buffers together, and the cached rows that
        the user asks for."""
        budget = self.budget.host
        row = self.row
        align = self.align
        asked = self.options.host_cache
        buffer = padded(self.largest, align)
        left: int | None = None
        if budget is not None:
            need = PlanItem("buffer of the largest mini-batch", padded(buffer * row))
            self.require([*items, need], FIX)
            left = (budget - Plan(tuple(items)).total("host")) // PAGE * PAGE // row
        wanted: int | None = None
        cached = self.num_nodes // _UNBOUNDED_SHARE if left is None else self.num_nodes
        if asked != "auto":
            cached = wanted = (
                0 if asked == "off" else parse_bytes(asked, "host_cache") // row
            )
            if left is not None and padded(wanted, align) + buffer > left:
                beside = Plan(
                    (
                        *items,
                        PlanItem(
                            "buffer of the largest mini-batch", padded(buffer * row)
                        ),
                    )
                )
                item = PlanItem(f"host_cache of {asked}", wanted * row)
                raise beside.no_room(
                    NAME, self.budget, item, "lower host_cache or raise memory"
                )
        rows = padded(cached, align) + buffers * buffer
        return (rows if left is None else min(left, rows)), wanted

    def _preparing(self) -> tuple[int, int]:
        """Return the bytes of host memory of preparation's largest phase, and of
        packing; phases do not overlap."""
        options = self.options
        bounds = self.bounds
        nodes = self.num_nodes
        row = self.row
        host = self.budget.host
        samplers = options.samplers or self.runtime.cores
        waiting = (samplers + 1) * bounds.sampled_bytes + BatchWriter.bound_bytes(
            bounds.sampled_bytes, 8
        )
        ranked = nodes if host is None else min(nodes, host // row)
        batch = PlanItem(
            "one mini-batch",
            6 * bounds.sampled_bytes + segment_bytes(1, bounds.max_nodes),
        )
        per_node = PlanItem("slots and positions by node", 8 * nodes)
        memory = (
            _UNBOUNDED_PACKING
            if host is None
            else host - per_node.bytes - batch.bytes - _WORKING
        )
        if options.packing_memory != "auto":
            memory = parse_bytes(options.packing_memory, "packing_memory")
        memory = max(
            memory, PackedWriter.least_bytes(row_bytes=row, longest=bounds.max_nodes)
        )
        phases = {
            "sampling": (
                indptr_item(self.workload),
                PlanItem("access counts", 4 * nodes),
                PlanItem(
                    "samplers", samplers * (bounds.scratch_bytes + bounds.sampled_bytes)
                ),
                PlanItem("sampled mini-batches", waiting),
                map_item(self.workload),
                PlanItem("seed nodes", (self.drawn + 2) * bounds.seed_bytes // 3),
            ),
            "ranking": (
                PlanItem(
                    "access counts and ranks",
                    AccessCounts.plan_bytes(nodes, ranked) + 4 * nodes,
                ),
                PlanItem("one mini-batch", 4 * bounds.sampled_bytes),
            ),
            "packing": (
                per_node,
                batch,
                PlanItem("threads", _WORKING),
                PlanItem("partition and chunk buffers", memory),
            ),
        }
        for phase, items in phases.items():
            Plan(items).require(f"{NAME}, {phase} beforehand", self.budget, FIX)
        return max(Plan(items).total("host") for items in phases.values()), memory


@dataclass(frozen=True)
class Fit:
    """Exact sizes of an episode.

    Attributes:
        levels: rows held in memory.
        buffers, buffer_rows: mini-batches' buffers in the table, and rows of each.
        staging, staging_rows: staging buffers, and rows of each.
    """

    levels: Levels
    buffers: int
    buffer_rows: int
    staging: int
    staging_rows: int


def fit(sizes: DiskGnnSizes, curve: MissCurve) -> Fit:
    """Compute exact sizes: the most cached rows that leave space for the buffers of the
    neediest mini-batch.

    More buffers are taken only where they leave half of the rows to the cache.

    Raises:
        BudgetError: not even one mini-batch fits (an epoch larger than all that the
            bounds come from).
    """
    if not sizes.on_device:
        rows = sizes.table_rows
        padding = sizes.padding
        wanted = sizes.direct_rows
        direct, buffers = _best(
            sizes, curve, rows, wanted, sizes.buffers, sizes.graphs, 0, host=True
        )
        return Fit(
            Levels(direct, 0),
            buffers,
            padded(max(1, curve.at(direct) + padding), sizes.align),
            0,
            0,
        )
    found = _fit_beside(sizes, curve, 0)
    # Rows in the host cache need no space in the device's buffers, and the space saved
    # caches more rows: iterate.
    for _ in range(4):
        better = _fit_beside(sizes, curve, found.levels.host)
        if better.levels.host < found.levels.host:
            break  # its device buffers rely on the larger host cache of the last round
        found = better
    return found


def _fit_beside(sizes: DiskGnnSizes, curve: MissCurve, held: int) -> Fit:
    """Compute exact sizes on a device and beside it, where the host caches at least
    `held` rows in the end."""
    direct, buffers = _best(
        sizes,
        curve,
        sizes.table_rows,
        sizes.direct_rows,
        sizes.buffers,
        sizes.graphs,
        held,
        host=False,
    )
    rows = sizes.host_rows
    wanted = sizes.host_cache_rows
    most = sizes.graphs - buffers
    host, staging = _best(
        sizes, curve, rows, wanted, sizes.staging, most, direct, host=True
    )
    left = curve.at(direct + host)
    return Fit(
        Levels(direct, host),
        buffers,
        max(1, left),
        staging,
        max(1, left + sizes.padding),
    )


def _best(
    sizes: DiskGnnSizes,
    curve: MissCurve,
    rows: int,
    wanted: int | None,
    usual: int,
    most: int,
    offset: int,
    host: bool,
) -> tuple[int, int]:
    """Return the number of cached rows and of buffers in `rows` rows of the host's
    memory or the device's.

    Half of the rows may go to the usual number of buffers. Where mini-batches are
    small, more of them are requested at a time to keep the disk busy: up to
    `ahead_rows` rows in all, within a sixth of the rows.
    """
    padding, ahead_rows, align = (
        (sizes.padding, sizes.ahead_rows, sizes.align) if host else (0, 0, 1)
    )
    for buffers in range(max(usual, most), 0, -1):
        found = curve.largest_cache(rows, buffers, padding, align, offset)
        # A buffer has a row even where no mini-batch needs one.
        found = min(found, rows - buffers * padded(max(1, padding), align))
        if found < 0:
            continue
        cached = found if wanted is None else min(found, wanted)
        taken = buffers * padded(max(1, curve.at(offset + cached) + padding), align)
        if padded(cached, align) + taken > rows and buffers > 1:
            # a smaller cache than fits misses more, so its buffers need more rows
            continue
        if buffers > usual and (taken > rows // 6 or taken > max(1, ahead_rows)):
            continue
        if buffers == 1 or 2 * taken <= rows or cached == wanted:
            return cached, buffers
    largest = int(curve.misses[0])
    what = "staging buffers" if host and sizes.on_device else "table"
    raise BudgetError(
        f"{NAME}: {what} of {rows} rows cannot hold the largest mini-batch "
        f"({largest} rows)",
        FIX,
    )
