"""Context of a run for metrics and verdict rules beyond its record's plain numbers, rebuilt from the record itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from harness.isolation.base import IoLimit
from systems.readings import DiskProfile

if TYPE_CHECKING:
    from harness.judge.trace import TraceFacts
    from harness.records.record import Record


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
    """Evidence by which a run is judged, beside its record.

    Attributes:
        profile, bare_profile: device profiles with and without the run's limits; None: not measured.
        limits: I/O limits that the host enforces.
        unsealed: reason why a record differs from its seal; empty where it does not.
        trace: trace of the run's workload, set only for a run that has just ended.
    """

    profile: DiskProfile | None = None
    bare_profile: DiskProfile | None = None
    limits: tuple[IoLimit, ...] = ()
    calibration: Calibration | None = None
    unsealed: str = ""
    trace: TraceFacts | None = None


def context_of(record: Record) -> RunContext:
    """Return the context of a record from its own evidence; records of older versions hold little of it."""
    kept = [record.disk.get(name) for name in ("limited", "bare")]
    limits = record.disk.get("limits") if record.readings.io_limited else None
    profile, bare_profile = (DiskProfile.from_plain(content) if content else None for content in kept)
    return RunContext(
        profile,
        bare_profile,
        limits=tuple(IoLimit(**limit) for limit in limits or ()),
        calibration=_CALIBRATION.validate_python(record.compute) if "floor_bytes" in record.compute else None,
    )
