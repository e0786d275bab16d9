"""AGNES: mini-batches of a hyperbatch sampled and gathered block by block (Jang et al.,
KDD 2026, arXiv 2601.01473).

From the paper's description: graph and features lie in blocks of 1 MiB or more. Each
block that any mini-batch of the hyperbatch needs in a hop is read once and serves all
of them; so does each block of features when rows are gathered. Rows used at least as
often as the hyperbatch's average go to device memory, then to host memory; the others
are appended to a file for each mini-batch, which is read back when it trains. The next
hyperbatch is sampled while this one is gathered.

Ours, where the description leaves it open or the engine does it better: draws are those
of all systems, so mini-batches are equal; where the rows used often do not fit, the
most used ones come first, and where room is left others fill it (as in the authors'
public code; `tiers=average` leaves it empty); blocks are read with several in flight,
past the page cache; the write buffers of files and the hyperbatch shrink to the budget;
`indptr` is read in blocks, too; sampling may go on while the hyperbatch before trains,
or take place only then, which leaves memory for larger hyperbatches; the thread that
samples also places the rows, so that gathering is one pass over the table. Memory takes
five bytes a node of the graph, for its uses and its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from systems.agnes.planner import NAME, AgnesOptions, AgnesSizes
from systems.agnes.tiers import place
from systems.engine.io.memory import aligned_empty, give_back_free_memory
from systems.engine.io.row_reads import RowTable
from systems.engine.io.tally import Tally
from systems.engine.passes import preparer
from systems.engine.passes.distribute import ChunkWriter, KeptRows
from systems.engine.passes.loader import GroupLoader
from systems.engine.passes.preparer import NO_USES
from systems.engine.passes.sampling import Job
from systems.engine.passes.sizes import BOUNCE
from systems.engine.passes.system import GroupSystem
from systems.forecast import sequential
from systems.interface import Counters, Forecast, StageClock, SystemInfo, Trace
from workloads.errors import BudgetError


@dataclass
class Hyperbatch(preparer.Group):
    """A hyperbatch: a sampled group of mini-batches, then gathered.

    Attributes:
        kept, on_device: rows that its gathering brings to memory, and those of them in
            device memory.
        in_files: rows that it appends to files.
        writer: writer of its files, which holds the ids of their rows; None once it is
            gathered.
        ids, to: uint32 and int32 [kept], rows that come to memory, ascending, and their
            slots; empty once gathered.
    """

    kept: int = 0
    on_device: int = 0
    in_files: int = 0
    writer: ChunkWriter | None = None
    ids: npt.NDArray[np.uint32] = field(
        default_factory=lambda: np.empty(0, dtype=np.uint32)
    )
    to: npt.NDArray[np.int32] = field(
        default_factory=lambda: np.empty(0, dtype=np.int32)
    )


class Preparer(preparer.Preparer[Hyperbatch]):
    """Preparer of successive hyperbatches: a thread samples and places one while
    another gathers the one before.

    Raises:
        DataIOError: a file of the dataset cannot be opened.
    """

    sizes: AgnesSizes

    def __init__(self, sizes: AgnesSizes, clock: StageClock) -> None:
        super().__init__(sizes, clock, Hyperbatch, gap_bytes=sizes.graph_piece_bytes)
        self._writers: list[ChunkWriter] = []

    def prepare(self, job: Job) -> Hyperbatch:
        """Sample a hyperbatch, place its rows, and write the address lists of its
        mini-batches.

        Raises:
            BudgetError: the mini-batches are larger than planned.
            DataIOError: a disk is full or fails.
            InterruptedError: `stop` was called.
        """
        group = self.sample([job])
        group.graph_written = group.index.nbytes
        if not self.sizes.sampling_only:
            with self.clock.stage("inspect", job.first):
                self._place(group)
            group.used = NO_USES
            give_back_free_memory()
        return group

    def _place(self, group: Hyperbatch) -> None:
        sizes = self.sizes
        used = group.used
        try:
            tiers = place(
                used,
                num_nodes=sizes.num_nodes,
                slots=sizes.slots,
                device_slots=sizes.device_slots,
                window=sizes.window,
                least={"fill": 1, "average": 0, "off": group.job.count + 1}[
                    sizes.options.tiers
                ],
            )
        except ValueError as error:
            raise BudgetError(
                f"{NAME}: {error}", "raise memory or lower window"
            ) from None
        group.kept = len(tiers.kept)
        group.on_device = tiers.on_device
        group.in_files = int(tiers.missing.sum())
        group.ids = tiers.kept
        group.to = tiers.places[tiers.kept]
        group.rows = self._path("rows")
        table = RowTable.of(sizes.workload.dataset)
        group.writer = ChunkWriter(
            group.rows,
            table,
            misses=group.in_files,
            stop=self._stop,
            plan=sizes.pass_plan,
        )
        self._writers.append(group.writer)
        for ids, to, places in tiers.lists(used):
            group.writer.append(ids, {"slots": places, "to": to})
            if self._stopped:
                raise InterruptedError("placing was stopped")

    def gather(self, group: Hyperbatch, trainer: GroupLoader) -> None:
        """Bring a hyperbatch's rows to memory and to files; all mini-batches before it
        are released.

        Raises:
            DataIOError: a disk is full or fails.
            InterruptedError: `stop` was called.
        """
        slots = trainer.slots
        writer = group.writer
        first = group.job.first
        assert slots is not None
        assert writer is not None
        row = self.sizes.row
        room = aligned_empty(max(1, BOUNCE // row) * row).reshape(-1, row)

        def give(rows: npt.NDArray[np.uint8], at: int) -> None:
            slots.put(rows, group.to[at : at + len(rows)], first)

        with self.clock.stage("pack", first):
            group.chunks, group.pack = writer.distribute(
                KeptRows(group.ids, room, give)
            )
            slots.wait_for_copies(first)
        self._writers.remove(writer)
        group.writer = None
        group.ids = group.ids[:0].copy()
        group.to = group.to[:0].copy()

    def close(self) -> None:
        """Close the files and remove the prepared hyperbatches."""
        for writer in self._writers:
            writer.close()
        super().close()


class Agnes(GroupSystem[Hyperbatch]):
    """AGNES on the processor, and on devices, which hold the most used rows and read
    the others in host memory."""

    info = SystemInfo(
        name=NAME,
        paper="agnes",
        summary="hyperbatches sampled and gathered block by block, often used rows in "
        "memory, others in files",
        options=AgnesOptions,
        reads_by_device=True,
    )
    options: AgnesOptions

    @cached_property
    def _sizes(self) -> AgnesSizes:
        return AgnesSizes(self)

    def _make_preparer(self) -> Preparer:
        return Preparer(self._sizes, self.clock)

    @property
    def _looks_ahead(self) -> bool:
        return self._sizes.look_ahead != "off"

    @property
    def _brings_first(self) -> bool:
        return self._sizes.look_ahead == "training"

    def _prepare(self, preparer: Preparer, job: Job) -> Hyperbatch:
        return preparer.prepare(job)

    def _count(self, group: Hyperbatch, tally: Tally) -> None:
        tally.add(
            group.reads,
            groups=1,
            written=group.graph_written,
            graph_bytes_read=group.reads.bytes_read,
            graph_bytes_written=group.graph_written,
        )

    def _bring(self, preparer: Preparer, group: Hyperbatch, tally: Tally) -> None:
        assert self._trainer is not None
        if self._sizes.sampling_only:
            return
        self._trainer.wait_until_released()
        preparer.gather(group, self._trainer)
        tally.add(
            group.pack.reads,
            written=group.bytes_written - group.graph_written,
            kept=group.kept,
            kept_on_device=group.on_device,
            table_bytes_read=group.pack.reads.bytes_read,
            packed_bytes_written=group.pack.bytes_written,
        )

    def counters(self) -> Counters:
        """Return the last epoch's hits by tier, misses and reads, with the reads that
        sampled the next hyperbatch.

        A row in memory misses once in a hyperbatch, when it is gathered; a row in a
        file misses for each mini-batch.
        """
        tally = self._tally
        dataset = self.workload.dataset
        if tally is None:
            return Counters()
        rows, in_files, kept, on_device = (
            tally[name] for name in ("rows", "misses", "kept", "on_device")
        )
        misses = in_files + kept
        on_device = on_device - tally["kept_on_device"]
        drawn_bytes = tally["edges"] * (
            dataset.topology_bytes // max(1, dataset.num_edges)
        )
        # Mini-batches of a hyperbatch draw the same neighbours from one read.
        neighbours_bytes = min(drawn_bytes, tally["graph_bytes_read"])
        observed = (
            "graph_bytes_read",
            "table_bytes_read",
            "packed_bytes_written",
            "graph_bytes_written",
        )
        return tally.counters(
            self._sizes.pieces,
            rows=rows,
            hits={"device": on_device, "host": rows - misses - on_device},
            misses=misses,
            bytes_useful=misses * self._sizes.row + neighbours_bytes,
            bytes_written=tally["written"],
            observed={
                "file_rows": float(in_files),
                **tally.observed("groups", *observed),
            },
        )

    def forecast(self, trace: Trace, host_bytes: int) -> Forecast:
        """Forecast the blocks of graph and features that each hyperbatch reads, and the
        rows of files."""
        sizes = self._sizes
        row = trace.row_bytes
        scale = trace.scale
        block = self.options.block_bytes
        rows = sizes.slots
        device_rows = sizes.device_slots
        groups = -(-trace.num_batches // max(1, sizes.group))
        if self.options.tiers == "off":
            rows = device_rows = 0
        in_files = trace.missed(trace.hottest(rows)) if rows else trace.accesses
        blocks = sum(trace.pieces_by_hop(sizes.group, block)) + trace.row_pieces(
            sizes.group, block
        )
        blocks += (
            len(trace.workload.sampler.fanout)
            * 8.0
            * trace.workload.dataset.num_nodes
            / block
        )
        # Sampled mini-batches, address lists and files are written and read back.
        moved = 2 * trace.graph_bytes * trace.num_batches + scale * (
            8.0 * trace.accesses + 2.0 * in_files * row
        )
        reads = sequential(moved)
        reads[block] = reads.get(block, 0.0) + groups * blocks
        copied = float(trace.accesses)
        if device_rows:
            copied = min(
                copied,
                groups * device_rows / scale + trace.missed(trace.hottest(device_rows)),
            )
        return Forecast(
            {size: count / scale for size, count in reads.items()},
            f"{groups} hyperbatches, each by blocks of graph and features; "
            f"{trace.hit_rate(in_files)} of the accesses "
            "in memory",
            rows_copied=copied,
        )

    def notes(self) -> dict[str, str]:
        """Return the read mode, the chosen sizes, and the places of the last
        hyperbatch's rows."""
        if self._trainer is None:
            return {}
        sizes = self._sizes
        group = self._last
        wanted = min(self.options.hyperbatch or sizes.default_group, self._num_batches)
        fewer = (
            f", not {wanted}: the budget holds the structure of no more"
            if sizes.group < wanted
            else ""
        )
        found = {
            **super().notes(),
            "hyperbatch": f"{sizes.group}{fewer}",
            "look_ahead": sizes.look_ahead,
            "sampling": "block by block" if sizes.external else "online",
            "slots": str(sizes.slots),
        }
        if group is not None and group.chunks is not None:
            rows = (
                f"{group.on_device} on the device, {group.kept - group.on_device} in "
                "host memory"
            )
            found["last_hyperbatch"] = (
                f"{group.uses} uses; rows: {rows}, {group.in_files} in files"
            )
        return found
