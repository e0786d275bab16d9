"""What the orchestrator knows of a run beyond its record: the evidence that verdict rules and metrics judge by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.isolation.base import IoLimit, IoStats, MemoryStats
from systems.interface import DiskProfile, StageSpan

if TYPE_CHECKING:
    import pandas as pd

    from harness.calibrate import Cache
    from workloads.workload import Workload


@dataclass(frozen=True)
class EpochBoundary:
    """Counters read at both ends of an epoch while the worker stood still.

    `io_*` belong to the cap (None where the backend cannot tell), `disk_*` to the whole device
    (`/proc/diskstats`: read bytes, read requests; None where the device is unknown).
    """

    epoch: int
    start: float
    end: float
    io_before: IoStats | None
    io_after: IoStats | None
    disk_before: IoStats | None
    disk_after: IoStats | None
    memory_before: MemoryStats
    memory_after: MemoryStats
    # Seconds of all processors in user mode between the two.
    host_user_s: float | None = None


@dataclass(frozen=True)
class Eviction:
    """One eviction of the run's files: `when` is `before` the run or `after_prepare`. Bytes."""

    when: str
    files: int
    total_bytes: int
    resident_bytes: int

    @property
    def share(self) -> float:
        """Resident bytes over file bytes; under 0.01 is cold (methodology rule 2)."""
        return self.resident_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(frozen=True)
class Calibration:
    """What an empty run measured (methodology rules 4, 12, 20).

    Attributes:
        floor_bytes: memory of interpreter, imports, model and optimiser.
        training_bytes: what a run's digests of the largest batch and its step, if it trains, add at their peak.
        train_s: uncontended training seconds of each measured epoch's batches, by epoch.
        null_s: seconds of the same epochs with features already in memory, by epoch.
        max_nodes, max_edges: bounds over all batches of the run.
        how: how the times were found (`measured on 5 batches`, `modelled`).
    """

    floor_bytes: int
    training_bytes: int
    train_s: dict[int, float] = field(default_factory=dict)
    null_s: dict[int, float] = field(default_factory=dict)
    max_nodes: int = 0
    max_edges: int = 0
    how: str = ""


@dataclass
class RunContext:
    """Evidence of one run.

    Attributes:
        workload: dataset, seed plan and model, to replay the trace outside the cap.
        profile: the device under the run's limits; bare_profile: without them. None where it was not measured.
        limits: the I/O limits asked for; io_limited: whether the host keeps them.
        probe: the isolation probe's result (rule 6), None where there is nothing to prove.
        telemetry, stages, batches: tables as in the run folder (harness.results), None where there are none.
        evictions: what was cold before the run and after `prepare()`.
        isolation, isolation_caveats, proves_memory: the backend and what it cannot do here.
        faithful, deterministic_counters: from the system's SystemInfo.
        cache: keeps what is found of the workload's trace.
    """

    workload: Workload | None
    profile: DiskProfile | None
    bare_profile: DiskProfile | None
    limits: tuple[IoLimit, ...]
    io_limited: bool
    probe: Any | None
    calibration: Calibration | None
    telemetry: pd.DataFrame | None
    stages: pd.DataFrame | None
    batches: pd.DataFrame | None
    spans: list[StageSpan]
    boundaries: list[EpochBoundary]
    memory_end: MemoryStats
    evictions: list[Eviction]
    isolation: str
    isolation_caveats: list[str]
    proves_memory: bool
    environment: dict[str, Any]
    faithful: bool = True
    deterministic_counters: bool = True
    cache: Cache | None = None
