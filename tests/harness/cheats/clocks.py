"""Cheats with time and counts: a slowed clock, work between the gates, unreported
preparation, false counters."""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from harness.worker.epoch_report import EpochLog
from systems.interface import Batch, Counters
from tests.harness.cheats.act import Act, Cheating, Ids, cheat, on_device
from workloads.sampling.batch import SampledBatch


@cheat("clock_agrees_with_the_gates")
class SlowerClock(Act):
    """Makes its process's clock run at half speed."""

    def prepare(self) -> None:
        """Slow the clock down."""
        real = time.monotonic
        began = time.monotonic()
        time.monotonic = lambda: began + (real() - began) / 2  # type: ignore[assignment]

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read slowly, so that there is something to time."""
        time.sleep(0.06)
        return super().rows(epoch, index, nodes)


@cheat("nothing_was_done_between_epochs")
class WorksBetweenGates(Act):
    """Samples the next epoch while the harness asks for counters."""

    def between(self) -> None:
        """Work for a second."""
        time.sleep(1.0)


@cheat("preparation_took_what_it_says")
class PreparesUnseen(Act):
    """Prepares while the harness asks for the names of its files."""

    def files(self) -> list[Path]:
        """Return no files, after 1.5 seconds."""
        time.sleep(1.5)
        return []


@cheat("rows_crossed_the_bus")
class FillsDeviceMemory(Act):
    """Writes rows into the emulated device's memory without a transfer."""

    settings: ClassVar[dict[str, Any]] = {"device": "emulated:a10g"}

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Fill device memory without crossing the bus."""
        accelerator = self.system.runtime.accelerator
        table = accelerator.allocate(*rows.shape, torch.float32)
        table = accelerator.seen_by_device(table)
        assert isinstance(table, torch.Tensor)
        table.numpy()[:] = rows
        return Batch(sampled, table, on_release=lambda: accelerator.free(table))


@cheat("")
class WritesToDeviceMemory(Act):
    """Writes rows to the emulated device's memory as if it were the host's."""

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Write the rows where a GPU's memory would be."""
        table = self.system.runtime.accelerator.allocate(*rows.shape, torch.float32)
        table.numpy()[:] = rows
        return Batch(sampled, table)


@cheat("device_reads_cover_own_count")
class CountsTooMuch(Act):
    """Reports reads that were not made."""

    def counters(self, counters: Counters) -> Counters:
        """Report ten times as many bytes."""
        counters = super().counters(counters)
        return replace(counters, bytes_read=10 * counters.bytes_read)


@cheat("device_reads_cover_own_count")
class TellsOfMoreRequests(Act):
    """Reports far more requests than it sent, so that its engine looks more
    efficient."""

    def counters(self, counters: Counters) -> Counters:
        """Report twenty times as many requests."""
        counters = super().counters(counters)
        return replace(
            counters,
            requests_by_size={
                size: 20 * n for size, n in counters.requests_by_size.items()
            },
        )


@cheat("device_reads_cover_own_count")
class CountsLargerRequests(Act):
    """Reports its requests as a fifth larger, so that its engine looks more
    efficient."""

    def counters(self, counters: Counters) -> Counters:
        """Report larger requests."""
        return replace(
            counters,
            requests_by_size={
                6 * size // 5: n for size, n in counters.requests_by_size.items()
            },
        )


@cheat("counters_add_up")
class CallsItsMissesHits(Act):
    """Reports nine hits for every row, so that its hit rate looks high."""

    def counters(self, counters: Counters) -> Counters:
        """Report hits that were none."""
        return replace(super().counters(counters), hits={"host": 9 * counters.rows})


@cheat("counters_add_up")
class CallsEveryByteUseful(Act):
    """Reads every row three times and calls all bytes useful, so that its read
    amplification is 1."""

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read twice in vain, and count the rows once."""
        misses = self.system._counters.misses
        for _ in range(2):
            self.system.read(nodes)
        self.system._counters.misses = misses
        return super().rows(epoch, index, nodes)

    def counters(self, counters: Counters) -> Counters:
        """Report as many useful bytes as were read."""
        return replace(super().counters(counters), bytes_useful=counters.bytes_read)


@cheat("training_took_its_time")
class FasterDevice(Act):
    """Makes the emulated device's training steps ten times as fast."""

    settings: ClassVar[dict[str, Any]] = {"device": "emulated:a10g"}

    def prepare(self) -> None:
        """Change the device."""
        accelerator = self.system.runtime.accelerator
        compute = accelerator.compute  # type: ignore[attr-defined]
        accelerator.compute = lambda seconds, **more: compute(seconds / 10, **more)  # type: ignore[attr-defined]

    def batch(self, sampled: SampledBatch, rows: npt.NDArray[Any]) -> Batch:
        """Copy the rows to the device."""
        return on_device(self, sampled, rows)


class _BehindTheGate(Act):
    """Base of cheats whose thread works while the harness reads counters and files at a
    closed gate."""

    def between(self) -> None:
        """Begin the thread, which works once the next gate is reached."""
        self._thread = threading.Thread(target=self._later)
        self._thread.start()

    def _later(self) -> None:
        time.sleep(0.2)
        self.work()

    def work(self) -> None:
        """Work for the next epoch."""
        raise NotImplementedError

    def close(self) -> None:
        """Wait for the thread."""
        if hasattr(self, "_thread"):
            self._thread.join()


@cheat("nothing_was_read_between_epochs")
class ReadsBehindTheGate(_BehindTheGate):
    """Reads rows of the next epoch while the gate before it is closed."""

    def prepare(self) -> None:
        """Open the table once more."""
        self._reader = self.system.open_table()

    def work(self) -> None:
        """Read rows."""
        nodes = np.arange(0, self.system.workload.dataset.num_nodes, 16)
        self._reader.read(
            nodes, np.empty((len(nodes), self.system.workload.dataset.dim), np.float32)
        )

    def close(self) -> None:
        """Close the table."""
        super().close()
        if hasattr(self, "_reader"):
            self._reader.close()


@cheat("nothing_was_done_between_epochs")
class ComputesBehindTheGate(_BehindTheGate):
    """Computes for the next epoch while the gate before it is closed."""

    def work(self) -> None:
        """Compute for four seconds on two threads, without the interpreter's lock."""
        until = time.monotonic() + 4.0

        def compute() -> None:
            while time.monotonic() < until:
                hashlib.pbkdf2_hmac("sha256", b"", b"", 50_000)

        with ThreadPoolExecutor(2) as threads:
            wait([threads.submit(compute) for _ in range(2)])


class _AfterThePreparation(_BehindTheGate):
    """Base of cheats whose thread works between the end of the preparation and the
    first epoch."""

    def files(self) -> list[Path]:
        """Begin the thread, and return no files."""
        _BehindTheGate.between(self)
        return []

    def between(self) -> None:
        """Leave the gates between epochs alone."""


@cheat("nothing_was_read_between_epochs")
class ReadsAfterThePreparation(_AfterThePreparation, ReadsBehindTheGate):
    """Fills its cache before the first epoch, once its preparation is over."""


@cheat("nothing_was_done_between_epochs")
class ComputesAfterThePreparation(_AfterThePreparation, ComputesBehindTheGate):
    """Ranks nodes before the first epoch, once its preparation is over."""


@cheat("")
class SamplesAheadAtGates(Act):
    """Samples a few mini-batches of the next, short epoch while the harness asks for
    counters."""

    settings: ClassVar[dict[str, Any]] = {"max_batches": 4}

    def between(self) -> None:
        """Compute for 0.15 seconds, which alone makes no run invalid."""
        until = time.thread_time() + 0.15
        while time.thread_time() < until:
            sum(range(20_000))


@cheat("memory_as_asked")
class HoldsMoreThanPlanned(Act):
    """Takes all memory that the cap allows."""

    def prepare(self) -> None:
        """Allocate memory that is not in the plan."""
        self._held = np.ones(26 << 20, dtype=np.uint8)


@cheat("")
class SpendsTimeOnChecks(Act):
    """Reports digests although none were requested; their seconds would be left out of
    the epoch."""

    def prepare(self) -> None:
        """Start every epoch's log with one second of digests."""
        super().prepare()
        began = EpochLog.__init__

        def log(self: EpochLog, **arguments: Any) -> None:
            began(self, **arguments)
            self.checking_s = 1.0

        EpochLog.__init__ = log  # type: ignore[method-assign]

    def rows(self, epoch: int, index: int, nodes: Ids) -> npt.NDArray[Any]:
        """Read slowly, so that an epoch lasts longer than that second."""
        time.sleep(0.05)
        return super().rows(epoch, index, nodes)


@cheat("")
class PreparesInPlan(Act):
    """Prepares before `prepare()`, while the harness asks for the plan."""

    def __init__(self, system: Cheating) -> None:
        super().__init__(system)
        time.sleep(1.5)


@cheat("")
class KeepsWhatItPrepared(Act):
    """Leaves its prepared file to the next run without reporting it."""

    def prepare(self) -> None:
        """Skip the work where an earlier run did it."""
        kept = self.system.runtime.artefacts / "mine.bin"
        if not kept.exists():
            time.sleep(1.5)
            kept.touch()


@cheat("")
class KeepsWhatItPreparedAtHome(Act):
    """Leaves its prepared files to the next run in the user's cache and in the folder
    of temporary files."""

    def prepare(self) -> None:
        """Skip the work where an earlier run did it."""
        for folder in (Path.home() / ".cache", Path(tempfile.gettempdir())):
            kept = folder / "prepared-by-a-cheat.bin"
            if not kept.exists():
                time.sleep(1.5)
                kept.parent.mkdir(exist_ok=True)
                kept.touch()


@cheat("preparation_took_what_it_says")
class PreparesOnBothSides(Act):
    """Is slow before the plan, so that work after the preparation might hide in those
    seconds."""

    def __init__(self, system: Cheating) -> None:
        super().__init__(system)
        time.sleep(1.5)

    def files(self) -> list[Path]:
        """Return no files, after 1.5 seconds."""
        time.sleep(1.5)
        return []
