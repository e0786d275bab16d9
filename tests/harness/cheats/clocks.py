"""Time that no clock sees: another clock, work between the gates, preparation beside the preparation, false counts."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from harness.worker.epoch_report import EpochLog
from systems.interface import Batch, Counters
from tests.harness.cheats.act import Act, Cheating, Ids, cheat
from workloads.sampling.batch import SampledBatch


@cheat("clock_agrees_with_the_gates")
class SlowerClock(Act):
    """Seconds of its process last twice as long."""

    def prepare(self) -> None:
        """Slow the clock down, and have something to time."""
        real, began = time.monotonic, time.monotonic()
        time.monotonic = lambda: began + (real() - began) / 2  # type: ignore[assignment]

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Slowly."""
        time.sleep(0.06)
        return self.system.read(nodes)


@cheat("nothing_was_done_between_epochs")
class WorksBetweenGates(Act):
    """Samples the next epoch while the harness asks for counters."""

    def between(self) -> None:
        """Take some time."""
        time.sleep(1.0)


@cheat("preparation_took_what_it_says")
class PreparesUnseen(Act):
    """Prepares while the harness asks for the names of its files."""

    def files(self) -> list[Path]:
        """None, after a while."""
        time.sleep(1.5)
        return []


@cheat("rows_crossed_the_bus")
class FillsDeviceMemory(Act):
    """Writes rows into the emulated device's memory as if it were its own."""

    settings: ClassVar[dict[str, Any]] = {"device": "emulated:a10g"}

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """No copy that the bus is charged for."""
        accelerator = self.system.runtime.accelerator
        table = accelerator.allocate(*rows.shape, torch.float32)
        table.numpy()[:] = rows
        return Batch(sampled, table, on_release=lambda: accelerator.free(table))


@cheat("device_reads_cover_own_count")
class CountsTooMuch(Act):
    """Tells of reads that were not made."""

    def counters(self, counters: Counters) -> Counters:
        """Ten times as many bytes."""
        return replace(counters, bytes_read=10 * counters.bytes_read)


@cheat("no_faster_than_the_device")
class TellsOfMoreRequests(Act):
    """Seems to drive the disk far beyond what it can."""

    def counters(self, counters: Counters) -> Counters:
        """Twenty times as many requests."""
        return replace(counters, requests_by_size={size: 20 * n for size, n in counters.requests_by_size.items()})


@cheat("memory_as_asked")
class HoldsMoreThanPlanned(Act):
    """Takes whatever the cap lets it."""

    def prepare(self) -> None:
        """Fill memory that no plan names."""
        self._held = np.ones(26 << 20, dtype=np.uint8)


@cheat("")
class SpendsTimeOnChecks(Act):
    """Tells of digests that nobody asked for, whose seconds would be off the clock."""

    def prepare(self) -> None:
        """Have every epoch's log begin with a second of them."""
        began = EpochLog.__init__

        def log(self: EpochLog, **arguments: Any) -> None:
            began(self, **arguments)
            self.checking_s = 1.0

        EpochLog.__init__ = log  # type: ignore[method-assign]

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Slowly, so that the second is there."""
        time.sleep(0.05)
        return self.system.read(nodes)


@cheat("")
class PreparesInPlan(Act):
    """Prepares before `prepare()`, while it is asked for its plan."""

    def __init__(self, system: Cheating) -> None:
        super().__init__(system)
        time.sleep(1.5)


@cheat("")
class KeepsWhatItPrepared(Act):
    """Leaves its work to the next run, and says nothing of it."""

    def prepare(self) -> None:
        """Be done at once where an earlier run was here."""
        kept = self.system.runtime.artefacts / "mine.bin"
        if not kept.exists():
            time.sleep(1.5)
            kept.touch()


@cheat("preparation_took_what_it_says")
class PreparesOnBothSides(Act):
    """Is slow before the plan, so that what it does behind the preparation might hide in those seconds."""

    def __init__(self, system: Cheating) -> None:
        super().__init__(system)
        time.sleep(1.5)

    def files(self) -> list[Path]:
        """None, after a while."""
        time.sleep(1.5)
        return []
