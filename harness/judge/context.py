"""Context of a run for metrics and verdict rules beyond its record's plain numbers, rebuilt from the record itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from harness.isolation.base import IoLimit
from systems.readings import DiskProfile, StageSpan

if TYPE_CHECKING:
    from harness.cache import Cache
    from harness.records.record import Record
    from workloads.workload import Workload


@dataclass(frozen=True)
class Calibration:
    """Measurements of an empty run (methodology rules 4, 12, 20).

    Attributes:
        floor_bytes: memory of interpreter, imports, model and optimiser.
        training_bytes: peak memory added by the largest mini-batch's digests and, if the run trains, by its step.
        train_s: uncontended training seconds of each epoch's mini-batches, by epoch.
        null_s: seconds of the same epochs with features already in memory, by epoch.
        max_nodes, max_edges: bounds over all mini-batches of the run.
        how: source of the times (`measured on 5 batches`, `modelled for each batch`).
    """

    floor_bytes: int
    training_bytes: int
    train_s: dict[int, float] = field(default_factory=dict)
    null_s: dict[int, float] = field(default_factory=dict)
    max_nodes: int = 0
    max_edges: int = 0
    how: str = ""


_CALIBRATION = TypeAdapter(Calibration)


@dataclass
class RunContext:
    """Evidence by which a run is judged.

    Attributes:
        profile, bare_profile: device profiles with and without the run's limits; None: not measured.
        limits, io_limited: requested I/O limits, and whether the host enforces them.
        probe: result of the isolation probe (rule 6); None where there is nothing to prove.
        isolation, proves_memory: isolation backend, and whether it enforces the memory cap on this host.
        isolation_caveats: caveats of the run's record, those of the backend among them.
        faithful: whether the system's mini-batches have to equal the workload's.
        unsealed: reason why a record differs from its seal; empty where it does not.
        workload, spans, cache: sources of derived numbers, set only for a run that has just ended.
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
    """Return the context of a record from its own evidence; records of older versions hold little of it."""
    evidence = record.readings
    kept = ((name, record.disk.get(name)) for name in ("limited", "bare"))
    profiles = {name: DiskProfile.from_plain(content) if content else None for name, content in kept}
    return RunContext(
        profile=profiles["limited"],
        bare_profile=profiles["bare"],
        limits=tuple(IoLimit(**limit) for limit in record.disk.get("limits") or ()),
        io_limited=evidence.io_limited,
        probe=record.environment.get("probe"),
        isolation=evidence.isolation,
        isolation_caveats=record.caveats,
        proves_memory=evidence.proves_memory,
        calibration=_CALIBRATION.validate_python(record.compute) if "floor_bytes" in record.compute else None,
        faithful=evidence.faithful,
    )
