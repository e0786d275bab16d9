"""Preparation of a hyperbatch: sample its mini-batches, place their rows in tiers, and
gather the rows in one pass over the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from systems.agnes.planner import NAME, AgnesSizes
from systems.agnes.tiers import place
from systems.engine.io.memory import aligned_empty, give_back_free_memory
from systems.engine.io.row_reads import RowTable
from systems.engine.io.tally import Tally
from systems.engine.passes import preparer
from systems.engine.passes.distribute import ChunkWriter, KeptRows
from systems.engine.passes.group import NO_USES, Group
from systems.engine.passes.loader import GroupLoader
from systems.engine.passes.sampling import Job
from systems.engine.passes.sizes import BOUNCE
from systems.interface import StageClock
from workloads.errors import BudgetError


@dataclass
class Hyperbatch(Group):
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

    def count(self, tally: Tally) -> None:
        """Count the reads and writes of sampling; those of gathering are counted when
        it is done."""
        tally.add(
            self.reads,
            groups=1,
            written=self.graph_written,
            graph_bytes_read=self.reads.bytes_read,
            graph_bytes_written=self.graph_written,
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

    def prepare(self, jobs: Sequence[Job], ahead: bool) -> Hyperbatch:
        """Sample the first of these hyperbatches, place its rows, and write the address
        lists of its mini-batches.

        Raises:
            BudgetError: the mini-batches are larger than planned.
            DataIOError: a disk is full or fails.
            InterruptedError: `stop` was called.
        """
        group = self.sample(jobs[:1])
        group.graph_written = group.index.nbytes
        if not self.sizes.sampling_only:
            with self.clock.stage("inspect", group.job.first):
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

    def load(self, group: Hyperbatch, loader: GroupLoader, tally: Tally) -> None:
        """Gather a hyperbatch's rows once all mini-batches before it are released."""
        if self.sizes.sampling_only:
            return
        loader.wait_until_released()
        self.gather(group, loader)
        reads = group.pack.reads
        tally.add(
            reads,
            written=group.bytes_written - group.graph_written,
            kept=group.kept,
            kept_on_device=group.on_device,
            table_bytes_read=reads.bytes_read,
            packed_bytes_written=group.pack.bytes_written,
        )

    def gather(self, group: Hyperbatch, loader: GroupLoader) -> None:
        """Bring a hyperbatch's rows to memory and to files; all mini-batches before it
        are released.

        Raises:
            DataIOError: a disk is full or fails.
            InterruptedError: `stop` was called.
        """
        slots = loader.slots
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
