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

from systems.gnndrive.system import GnnDrive
from systems.in_memory import InMemory
from systems.interface import Batch, Counters, Plan, PlanItem
from systems.pyg_plus import PygPlus
from workloads.training import Trainer


class WrongRows(InMemory):
    """Right at every dimension but one, as has been seen in the field."""

    def _gather(self, nodes: Any, out: Any) -> None:
        super()._gather(nodes, out)
        if out.shape[1] == 127:
            out[-1] = 0


class OtherSample(InMemory):
    """Draws with another seed."""

    def prepare(self) -> None:
        self.workload = replace(self.workload, seed=1)
        super().prepare()


class LostBatch(InMemory):
    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            if batch.sampled.index == 3:
                batch.release()
                continue
            yield batch


class RepeatedBatch(InMemory):
    """One batch twice, another never: the count is right."""

    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            if batch.sampled.index == 1:
                batch = replace(batch, sampled=replace(batch.sampled, index=0))
            yield batch


class LeakedThread(InMemory):
    def prepare(self) -> None:
        super().prepare()
        threading.Thread(target=time.sleep, args=(20,), daemon=True, name="left-behind").start()


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
        return Counters(rows=self._rows, misses=self._rows)


class CountersOff(InMemory):
    def counters(self) -> Counters:
        counters = super().counters()
        return Counters(rows=counters.rows, hits={"host": counters.rows - 1})


class RowsForgotten(InMemory):
    """Consistent in itself, but not what was asked for."""

    def counters(self) -> Counters:
        return Counters()


class UselessBytes(InMemory):
    def counters(self) -> Counters:
        counters = super().counters()
        return Counters(rows=counters.rows, hits=counters.hits, bytes_read=10, bytes_useful=20)


class OverwritesRows(InMemory):
    """Fills a table again before it was released."""

    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            assert isinstance(batch.table, torch.Tensor)
            # In the check's own pause between its two looks: a timer would sometimes be before the first.
            with mock.patch("time.sleep", lambda _, table=batch.table: table.fill_(9)):
                yield batch


class PlansTooMuch(InMemory):
    """Holds its plan against nothing."""

    def plan(self) -> Plan:
        return self.fit(lambda: Plan((PlanItem("a cache", 1 << 20),)))


class OutOfOrder(GnnDrive):
    """Takes no notice of `keep_order`."""

    @property
    def _in_order(self) -> bool:
        return False

    def epoch(self, k: int) -> Iterator[Batch]:
        batches = list(self._copied(super().epoch(k)))
        yield from reversed(batches)

    def _copied(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            assert isinstance(batch.table, torch.Tensor) and batch.rows is not None
            table = batch.table[batch.rows].clone()
            batch.release()
            yield Batch(batch.sampled, table)


class IgnoresTruncation(InMemory):
    """Reads what there is and goes on with zeros."""

    def prepare(self) -> None:
        dataset = self.workload.dataset
        whole = np.zeros((dataset.num_nodes, dataset.dim), dtype=dataset.feature_dtype)
        try:
            there = np.fromfile(dataset.file("features"), dtype=dataset.feature_dtype, offset=4096)
        except OSError:
            there = np.zeros(0, dtype=dataset.feature_dtype)
        count = min(len(there), whole.size)
        whole.reshape(-1)[:count] = there[:count]
        load = type(dataset).load
        try:
            type(dataset).load = lambda self, part: whole if part == "features" else load(self, part)  # type: ignore[method-assign, assignment]
            check = _no_check()
            super().prepare()
            check()
        finally:
            type(dataset).load = load  # type: ignore[method-assign]


def _no_check() -> Any:
    from systems.engine.io.topology import DatasetFiles

    check = DatasetFiles.check
    DatasetFiles.check = lambda self: None  # type: ignore[method-assign]

    def undo() -> None:
        DatasetFiles.check = check  # type: ignore[method-assign]

    return undo


class VagueAboutTruncation(PygPlus):
    """Tells that something is wrong, but not where."""

    def prepare(self) -> None:
        try:
            super().prepare()
        except Exception:
            raise OSError("I/O error") from None


class SlowToClose(InMemory):
    def close(self) -> None:
        if self._draw is not None:
            time.sleep(5.5)
        super().close()


class ClosesOnce(InMemory):
    """Fails when it is closed again."""

    def close(self) -> None:
        if self._draw is None:
            raise AttributeError("'NoneType' object has no attribute 'close'")
        super().close()


class ReusesAnything(InMemory):
    """Takes artefacts of another seed for its own."""

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


class DeafToSigterm(InMemory):
    def prepare(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().prepare()


class Unfaithful(InMemory):
    """Samples otherwise by design, and says so."""

    info = replace(InMemory.info, name="unfaithful", faithful=False)

    def prepare(self) -> None:
        self.workload = replace(self.workload, seed=1)
        super().prepare()

    def epoch(self, k: int) -> Iterator[Batch]:
        # The seed nodes are the workload's; here the other seed only shuffles them otherwise.
        return super().epoch(k)


class UnfaithfulRows(Unfaithful):
    """Its mini-batches are its own affair, but not what rows they come with."""

    def _gather(self, nodes: Any, out: Any) -> None:
        super()._gather(nodes[::-1].copy(), out)


class UnfaithfulEdges(Unfaithful):
    """Makes neighbours up."""

    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            blocks = tuple(replace(block, indices=block.indices[::-1].copy()) for block in batch.sampled.blocks)
            yield replace(batch, sampled=replace(batch.sampled, blocks=blocks))


class WrongLoss(InMemory):
    """Has every row in its place but while the training step runs."""

    def epoch(self, k: int) -> Iterator[Batch]:
        for batch in super().epoch(k):
            assert isinstance(batch.table, torch.Tensor)
            table, step = batch.table, Trainer.step

            def zeros(self: Trainer, *given: Any, table: torch.Tensor = table, step: Any = step) -> Any:
                whole = table.clone()
                table.zero_()
                try:
                    return step(self, *given)
                finally:
                    table.copy_(whole)

            with mock.patch.object(Trainer, "step", zeros):
                yield batch


class HoldsTooMuch(PygPlus):
    """Holds a quarter of the feature table that its plan says nothing of."""

    def prepare(self) -> None:
        super().prepare()
        self.held = np.ones(self.workload.dataset.feature_bytes // 4, dtype=np.uint8)
