"""What one run's events and gates told the orchestrator, kept until the record is written."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import cold
from harness.context import EpochBoundary, Eviction
from harness.isolation.base import Cap, IoStats, MemoryStats
from harness.protocol import Batches, EpochDone, Event, Gate, Planned, Prepared, ProtocolError, Spans
from harness.record import PlannedBuffer
from systems.interface import StageSpan

if TYPE_CHECKING:
    from workloads.dataset import Dataset

_EPOCH_GATE = re.compile(r"epoch (\d+) (start|end)$")


def host_user_seconds() -> float:
    """Seconds that all processors have spent in user mode since boot, at whatever priority."""
    import psutil

    times = psutil.cpu_times()
    return float(times.user + getattr(times, "nice", 0.0))


@dataclass
class Evidence:
    """Collects; the worker stands still while it does.

    Attributes:
        dataset: whose files are evicted.
        disk_io: counters of the whole device.
        progress: told of every epoch.
        zero: monotonic seconds at which the first epoch began, None before.
        memory: the cap after the worker's end.
    """

    dataset: Dataset
    disk_io: Callable[[], IoStats | None]
    progress: Callable[[str], None]
    plan: list[PlannedBuffer] = field(default_factory=list)
    prepared: Prepared | None = None
    epochs: list[EpochDone] = field(default_factory=list)
    batches: list[tuple[Any, ...]] = field(default_factory=list)
    spans: list[tuple[int, StageSpan]] = field(default_factory=list)
    lanes: list[tuple[int, StageSpan]] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    boundaries: list[EpochBoundary] = field(default_factory=list)
    zero: float | None = None
    memory: MemoryStats = field(default_factory=MemoryStats)
    spawned: float = 0.0
    calibrate_s: float = 0.0
    _evict_s: list[float] = field(default_factory=list)
    _opened: dict[int, tuple[IoStats | None, IoStats | None, MemoryStats, float]] = field(default_factory=dict)

    def take(self, event: Event, cap: Cap) -> None:
        """Keep what the worker says; at gates, evict or read counters."""
        if isinstance(event, Planned):
            self.plan = event.items
        elif isinstance(event, Prepared):
            self.prepared = event
        elif isinstance(event, Batches):
            self.batches += [(event.epoch, *row) for row in event.rows]
        elif isinstance(event, Spans):
            target = self.lanes if event.kind == "lane" else self.spans
            target += [(event.epoch, StageSpan(*row)) for row in event.rows]
        elif isinstance(event, EpochDone):
            self.epochs.append(event)
            self.progress(f"epoch {event.epoch}: {event.end - event.start:.2f} s")
        elif isinstance(event, Gate):
            self._at_gate(event.at, cap)

    def evict(self, when: str, own: list[Path]) -> None:
        """Evict the dataset's files and the system's `own`, and keep what stayed."""
        began = time.monotonic()
        self.evictions.append(cold.evict_files([*cold.dataset_files(self.dataset), *own], when))
        self._evict_s.append(time.monotonic() - began)

    def _at_gate(self, at: str, cap: Cap) -> None:
        if at == "prepared":
            self.evict("after_prepare", [Path(file) for file in self.prepared.files] if self.prepared else [])
            return
        match = _EPOCH_GATE.match(at)
        epoch = int(match.group(1)) if match else -1
        if match and match.group(2) == "start":
            self._opened[epoch] = (cap.io(), self.disk_io(), cap.memory(), host_user_seconds())
            if self.zero is None:
                self.zero = time.monotonic()
        elif match and epoch in self._opened:
            io, disk, memory, user = self._opened[epoch]
            user = host_user_seconds() - user
            self.boundaries.append(
                EpochBoundary(epoch, 0.0, 0.0, io, cap.io(), disk, self.disk_io(), memory, cap.memory(), user)
            )
        else:
            raise ProtocolError(f"the worker stands at a gate that does not exist: {at!r}")

    def overhead(self) -> dict[str, float]:
        """Seconds of the harness's own: `Record.overhead`."""
        found = {"calibrate_s": self.calibrate_s, "evict_s": sum(self._evict_s)}
        if self.batches:
            # The eviction before the run is over when the worker starts; the one after `prepare()` is not.
            first = min(row[-1] for row in self.batches)
            found["first_batch_s"] = first - self.spawned - sum(self._evict_s[1:])
        return found

    def demand(self) -> MemoryStats:
        """The reading with the most anonymous, shared and kernel memory, at the ends of epochs and of the run."""
        readings = [boundary.memory_after for boundary in self.boundaries] + [self.memory]
        return max(readings, key=lambda stats: stats.anon + stats.shmem + stats.kernel)
