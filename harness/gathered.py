"""What one run's events and gates told the orchestrator, kept until the record is written."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import cold
from harness.guard import Guard
from harness.isolation.base import Cap, IoStats, MemoryStats
from harness.protocol import Batches, Checks, EpochDone, Event, Gate, Planned, Prepared, ProtocolError, Spans
from harness.record import EvictionReading, GateReading, PlannedBuffer
from harness.spots import NONCE_BYTES, Spot
from systems.interface import StageSpan

if TYPE_CHECKING:
    from workloads.accelerators.pool import DevicePool
    from workloads.dataset import Dataset

_EPOCH_GATE = re.compile(r"epoch (\d+) (start|end)$")


def host_user_seconds() -> float:
    """Seconds that all processors have spent in user mode since boot, at whatever priority."""
    import psutil

    times = psutil.cpu_times()
    return float(times.user + getattr(times, "nice", 0.0))


@dataclass
class Gathered:
    """Collects; the worker stands still while it does.

    Attributes:
        dataset: whose files are evicted.
        folders: where the system keeps what it writes; all in them is evicted and looked at, whatever it lists.
        disk_io: counters of the whole device.
        progress: told of every epoch.
        zero: monotonic seconds at which the first epoch began, None before.
        memory: the cap after the worker's end.
        nonces: the number drawn for each epoch's spot checks.
        guard: watches the cap; None before there is one.
        planned: monotonic seconds at which the plan arrived.
        forgetful: memory of devices that keep no rows, written over before each epoch.
    """

    dataset: Dataset
    folders: list[Path]
    disk_io: Callable[[], IoStats | None]
    progress: Callable[[str], None]
    plan: list[PlannedBuffer] = field(default_factory=list)
    prepared: Prepared | None = None
    epochs: list[EpochDone] = field(default_factory=list)
    batches: list[tuple[Any, ...]] = field(default_factory=list)
    spans: list[tuple[int, StageSpan]] = field(default_factory=list)
    lanes: list[tuple[int, StageSpan]] = field(default_factory=list)
    spots: list[Spot] = field(default_factory=list)
    nonces: dict[int, bytes] = field(default_factory=dict)
    evictions: list[EvictionReading] = field(default_factory=list)
    gates: list[GateReading] = field(default_factory=list)
    held: list[MemoryStats] = field(default_factory=list)
    zero: float | None = None
    memory: MemoryStats = field(default_factory=MemoryStats)
    guard: Guard | None = None
    spawned: float = 0.0
    planned: float | None = None
    calibrate_s: float = 0.0
    challenge: bool = False
    forgetful: list[DevicePool] = field(default_factory=list)
    _evict_s: list[float] = field(default_factory=list)

    def take(self, event: Event, cap: Cap) -> bytes:
        """Keep what the worker says; at gates, evict or read counters. What is returned goes to it with `go`."""
        if isinstance(event, Planned):
            self.plan, self.planned = event.items, time.monotonic()
        elif isinstance(event, Prepared):
            self.prepared = event
        elif isinstance(event, Batches):
            self.batches += [(event.epoch, *row) for row in event.rows]
        elif isinstance(event, Spans):
            target = self.lanes if event.kind == "lane" else self.spans
            target += [(event.epoch, StageSpan(*row)) for row in event.rows]
        elif isinstance(event, Checks):
            self.spots += [
                Spot(event.epoch, batch, tuple(nodes), digest, tuple(map(tuple, values)))
                for batch, nodes, digest, values in event.rows
            ]
        elif isinstance(event, EpochDone):
            self.epochs.append(event)
            self.progress(f"epoch {event.epoch}: {event.end - event.start - event.checking_s:.2f} s")
        elif isinstance(event, Gate):
            return self._at_gate(event.at, cap, time.monotonic())
        return b""

    def evict(self, when: str, own: list[Path]) -> None:
        """Evict the dataset's files and the system's `own`, and keep what stayed."""
        began = time.monotonic()
        self.evictions.append(cold.evict_files([*cold.dataset_files(self.dataset), *self.folders, *own], when))
        self._evict_s.append(time.monotonic() - began)

    def _at_gate(self, at: str, cap: Cap, reached: float) -> bytes:
        match = _EPOCH_GATE.match(at)
        if at != "prepared" and not match:
            raise ProtocolError(f"the worker stands at a gate that does not exist: {at!r}")
        own = [Path(file) for file in self.prepared.files] if self.prepared else []
        if at == "prepared":
            self.evict("after_prepare", [*own, *cold.open_files(cap.pids())])
        io, disk, memory = cap.io(), self.disk_io(), cap.memory()
        outside = self.guard.look(memory.limit) if self.guard else []
        looked_at = [*cold.dataset_files(self.dataset), *self.folders, *own, *cold.open_files(cap.pids())]
        self.held.append(memory)
        starts = match is not None and match.group(2) == "start"
        reading = GateReading(
            at=at,
            reached_s=reached,
            opened_s=0.0,
            io_bytes=io.read_bytes if io else None,
            io_requests=io.read_requests if io else None,
            io_written_bytes=io.write_bytes if io else None,
            disk_bytes=disk.read_bytes if disk else None,
            disk_requests=disk.read_requests if disk else None,
            page_cache_bytes=memory.page_cache,
            resident_bytes=cold.resident(looked_at),
            swap_bytes=memory.swap,
            limit_bytes=memory.limit,
            outside=outside,
            host_user_s=host_user_seconds(),
        )
        self.gates.append(reading)
        behind = b""
        if starts and match:
            for pool in self.forgetful:
                pool.overwrite()
            if self.challenge:
                behind = self.nonces[int(match.group(1))] = os.urandom(NONCE_BYTES)
            if self.zero is None:
                self.zero = time.monotonic()
        reading.opened_s = time.monotonic()
        return behind

    def preparing_s(self) -> float | None:
        """Seconds from the plan to the gate behind the preparation; None where the run did not come so far."""
        reached = self.gate("prepared")
        return reached.reached_s - self.planned if reached and self.planned is not None else None

    def gate(self, at: str) -> GateReading | None:
        """What was read at a gate; None where the run did not come so far."""
        return next((gate for gate in self.gates if gate.at == at), None)

    def overhead(self) -> dict[str, float]:
        """Seconds of the harness's own: `Record.overhead`."""
        found = {"calibrate_s": self.calibrate_s, "evict_s": sum(self._evict_s)}
        # The eviction after the preparation happens at a gate.
        found["gates_s"] = sum(gate.opened_s - gate.reached_s for gate in self.gates) - sum(self._evict_s[1:])
        if self.batches:
            # The eviction before the run is over when the worker starts; the one after `prepare()` is not.
            first = min(row[-1] for row in self.batches)
            found["first_batch_s"] = first - self.spawned - sum(self._evict_s[1:])
        return found

    def demand(self) -> MemoryStats:
        """The reading with the most anonymous, shared and kernel memory, at gates and at the run's end."""
        return max([*self.held, self.memory], key=lambda stats: stats.anon + stats.shmem + stats.kernel)
