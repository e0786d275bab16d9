"""Systems that each break one promise, for the tests of `outcore check`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch

from systems.engine.io.row_reads import RowTable
from systems.gnndrive.system import GnnDrive
from systems.in_memory import InMemory
from systems.interface import Batch, Counters, MemoryBudget, Plan, PlanItem
from systems.parts.kinds.host_rows import HostRows
from systems.parts.part import Site
from systems.parts.path import Path as DataPath
from systems.pyg_plus import PygPlus
from workloads.training import Trainer


class WrongRows(InMemory):
    """In-memory system with a wrong last row at dimension 127 only, a fault seen in
    practice."""

    def path(self) -> DataPath:
        return replace(super().path(), rows=WrongLastRow())


class WrongLastRow(HostRows):
    def gather(self, ids: Any, out: Any) -> None:
        super().gather(ids, out)
        if out.shape[1] == 127:
            out[-1] = 0


class OtherSample(InMemory):
    """In-memory system that samples with another seed."""

    def prepare(self) -> None:
        self.workload = replace(self.workload, seed=1)
        self.planned().site.workload = self.workload
        super().prepare()


class LostBatch(InMemory):
    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            if batch.sampled.index == 3:
                batch.release()
                continue
            yield batch


class RepeatedBatch(InMemory):
    """In-memory system that yields one mini-batch twice and another never, so that the
    count is right."""

    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            if batch.sampled.index == 1:
                batch = replace(batch, sampled=replace(batch.sampled, index=0))
            yield batch


class LeakedThread(InMemory):
    def prepare(self) -> None:
        super().prepare()
        threading.Thread(
            target=time.sleep, args=(20,), daemon=True, name="left-behind"
        ).start()


class LeakedFile(InMemory):
    kept: list[Any] = []  # noqa: RUF012

    def prepare(self) -> None:
        super().prepare()
        self.kept.append(self.workload.dataset.file("features").open("rb"))


class LeakedMap(InMemory):
    kept: list[Any] = []  # noqa: RUF012

    def prepare(self) -> None:
        super().prepare()
        self.kept.append(self.workload.dataset.memmap("features"))


class MissesWithoutRequests(InMemory):
    """Reads rows by itself and counts no request."""

    def counters(self) -> Counters:
        rows = super().counters().rows
        return Counters(rows=rows, misses=rows)


class CountersOff(InMemory):
    def counters(self) -> Counters:
        counters = super().counters()
        return Counters(rows=counters.rows, hits={"host": counters.rows - 1})


class RowsForgotten(InMemory):
    """In-memory system whose counters are consistent but count no rows."""

    def counters(self) -> Counters:
        return Counters()


class UselessBytes(InMemory):
    def counters(self) -> Counters:
        counters = super().counters()
        return Counters(
            rows=counters.rows, hits=counters.hits, bytes_read=10, bytes_useful=20
        )


class OverwritesRows(InMemory):
    """In-memory system that overwrites a table before its release."""

    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            assert isinstance(batch.table, torch.Tensor)
            # Overwrites in the check's pause between its two reads; a timer might fire
            # before the first read.
            with mock.patch("time.sleep", lambda _, table=batch.table: table.fill_(9)):
                yield batch


class PlansTooMuch(InMemory):
    """In-memory system that never checks its plan against the budget."""

    def _joined(self, path: DataPath) -> Site:
        site = super()._joined(path)
        site.budget = MemoryBudget(None)
        return site

    def plan(self) -> Plan:
        return Plan((PlanItem("a cache", 1 << 20),))


class OutOfOrder(GnnDrive):
    """GNNDrive that ignores `keep_order`."""

    @property
    def _in_order(self) -> bool:
        return False

    def epoch(self, k: int) -> Iterator[Batch]:
        batches = list(self._copied(super().epoch(k)))
        yield from reversed(batches)

    def _copied(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            assert isinstance(batch.table, torch.Tensor)
            assert batch.rows is not None
            table = batch.table[batch.rows].clone()
            batch.release()
            yield Batch(batch.sampled, table)


class IgnoresTruncation(InMemory):
    """In-memory system that fills the missing end of a truncated file with zeros."""

    def path(self) -> DataPath:
        return replace(super().path(), rows=PaddedRows())

    def prepare(self) -> None:
        with mock.patch.object(RowTable, "check", lambda table: None):
            super().prepare()


class PaddedRows(HostRows):
    def open(self) -> None:
        table = self.site.table
        whole = np.zeros(table.num_rows * table.dim, dtype=table.dtype)
        try:
            there = np.fromfile(table.path, dtype=table.dtype, offset=table.data_offset)
        except OSError:
            there = whole[:0]
        count = min(len(there), len(whole))
        whole[:count] = there[:count]
        self._array = whole.reshape(table.num_rows, table.dim)


class VagueAboutTruncation(PygPlus):
    """PyG+ whose error does not name the damaged file."""

    def prepare(self) -> None:
        try:
            super().prepare()
        except Exception:
            raise OSError("I/O error") from None


class SlowToClose(InMemory):
    def close(self) -> None:
        if self._is_open:
            time.sleep(5.5)
        super().close()


class ClosesOnce(InMemory):
    """Fails when it is closed again."""

    def close(self) -> None:
        if not self._is_open:
            raise AttributeError("'NoneType' object has no attribute 'close'")
        super().close()


class ReusesAnything(InMemory):
    """In-memory system that claims to reuse artefacts of another seed."""

    def prepare(self) -> None:
        super().prepare()
        mark = self.runtime.artefacts / "prepared"
        self.reused = mark.exists()
        mark.write_text("done")

    def notes(self) -> dict[str, str]:
        return {"prepared": "reused"} if self.reused else {}


class Raises(InMemory):
    def prepare(self) -> None:
        raise ZeroDivisionError("prepare is not ready")


class Hangs(InMemory):
    def epoch(self, k: int) -> Iterator[Batch]:
        if self.workload.dataset.dim == 1:
            time.sleep(3600)
        return super().epoch(k)


class Crashes(InMemory):
    def epoch(self, k: int) -> Iterator[Batch]:
        if self.workload.dataset.dim == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().epoch(k)


class WritesToTheDevice(InMemory):
    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            if self.runtime.accelerator.kind == "emulated" and isinstance(
                batch.table, torch.Tensor
            ):
                batch.table[0] = 0.0
            yield batch


class DeafToSigterm(InMemory):
    def prepare(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().prepare()


class Unfaithful(InMemory):
    """In-memory system that samples with another seed and declares itself
    unfaithful."""

    info = replace(InMemory.info, name="unfaithful", faithful=False)

    def prepare(self) -> None:
        self.workload = replace(self.workload, seed=1)
        self.planned().site.workload = self.workload
        super().prepare()


class UnfaithfulRows(Unfaithful):
    """Unfaithful system whose rows belong to other nodes, which even an unfaithful
    system may not do."""

    def path(self) -> DataPath:
        return replace(super().path(), rows=ReversedRows())


class ReversedRows(HostRows):
    def gather(self, ids: Any, out: Any) -> None:
        super().gather(ids[::-1].copy(), out)


class UnfaithfulEdges(Unfaithful):
    """Unfaithful system with edges that are not in the graph."""

    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            blocks = tuple(
                replace(block, indices=block.indices[::-1].copy())
                for block in batch.sampled.blocks
            )
            yield replace(batch, sampled=replace(batch.sampled, blocks=blocks))


class WrongLoss(InMemory):
    """In-memory system that trains on zeros."""

    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            assert isinstance(batch.table, torch.Tensor)
            table = batch.table
            step = Trainer.step

            def zeros(
                self: Trainer,
                *given: Any,
                table: torch.Tensor = table,
                step: Any = step,
            ) -> Any:
                whole = table.clone()
                table.zero_()
                try:
                    return step(self, *given)
                finally:
                    table.copy_(whole)

            with mock.patch.object(Trainer, "step", zeros):
                yield batch


class HoldsTooMuch(PygPlus):
    """PyG+ that holds a quarter of the feature table beyond its plan."""

    def prepare(self) -> None:
        super().prepare()
        self.held = np.ones(self.workload.dataset.feature_bytes // 4, dtype=np.uint8)


class PreparesEpochsOnce(InMemory):
    """Leave a file for every epoch of the training in what is prepared once, so that
    their work stands in no epoch."""

    def prepare(self) -> None:
        super().prepare()
        for epoch in range(self.runtime.epochs):
            (self.runtime.scratch / f"epoch-{epoch}").write_bytes(bytes(100_000))


class PreparesEpochs(InMemory):
    """Leave the same files where they belong."""

    def prepare_epochs(self, first: int) -> int:
        (self.runtime.scratch / f"epoch-{first}").write_bytes(bytes(100_000))
        return 1
