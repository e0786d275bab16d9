"""What metrics and verdict rules know of a run beyond plain numbers of its record, rebuilt from the record itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.isolation.base import IoLimit
from systems.readings import DiskProfile, StageSpan

if TYPE_CHECKING:
    from harness.calibrate import Cache
    from harness.record import Record
    from workloads.workload import Workload


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
    """What a run is judged by.

    Attributes:
        profile: the device under the run's limits; bare_profile: without them. None where it was not measured.
        limits: the I/O limits asked for; io_limited: whether the host keeps them.
        probe: the isolation probe's result (rule 6), None where there is nothing to prove.
        isolation, isolation_caveats, proves_memory: the backend and what it cannot do here.
        faithful: whether its mini-batches are the workload's.
        unsealed: why a record that was read is not what was written; empty where it is.
        workload, spans, cache: of a run that ended just now, to derive its numbers; a record read later has none.
    """

    profile: DiskProfile | None
    bare_profile: DiskProfile | None
    limits: tuple[IoLimit, ...]
    io_limited: bool
    probe: dict[str, Any] | None
    isolation: str
    isolation_caveats: list[str]
    proves_memory: bool
    calibration: Calibration | None = None
    faithful: bool = True
    unsealed: str = ""
    workload: Workload | None = None
    spans: list[StageSpan] = field(default_factory=list)
    cache: Cache | None = None


def context_of(record: Record) -> RunContext:
    """What a record is judged by, from its own evidence; a record of an older version has little of it."""
    from harness.record import Evidence

    evidence = record.evidence or Evidence(isolation=record.config.isolation)
    known = set(Calibration.__dataclass_fields__)
    compute = {key: value for key, value in record.compute.items() if key in known}
    for times in ("train_s", "null_s"):
        compute[times] = {int(epoch): seconds for epoch, seconds in compute.get(times, {}).items()}
    return RunContext(
        profile=_profile(record.disk.get("limited")),
        bare_profile=_profile(record.disk.get("bare")),
        limits=tuple(IoLimit(**limit) for limit in record.disk.get("limits") or ()),
        io_limited=evidence.io_limited,
        probe=record.environment.get("probe"),
        isolation=evidence.isolation,
        isolation_caveats=record.caveats,
        proves_memory=evidence.proves_memory,
        calibration=Calibration(**compute) if "floor_bytes" in compute else None,
        faithful=evidence.faithful,
    )


def _profile(content: dict[str, Any] | None) -> DiskProfile | None:
    from harness.build import disk_profile

    return disk_profile(content) if content else None
