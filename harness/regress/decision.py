"""What the gate says: one decision a metric, one for all of them, as plain data for every output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Decision = Literal["same", "improved", "regressed", "undecided"]
Kind = Literal["time", "memory", "count", "exact", "status"]
Value = float | int | str | None


@dataclass(frozen=True)
class Rules:
    """How decisions are made.

    Attributes:
        min_effect: a time, size or noisy count that moved by less than this share is not a regression.
        alpha: chance, over all metrics together, that one of them is called regressed or improved where nothing moved.
        seed: of the resampling.
        gate_times: False: only exact metrics and statuses decide; times are shown.
    """

    min_effect: float = 0.03
    alpha: float = 0.02
    seed: int = 0
    gate_times: bool = True


@dataclass(frozen=True)
class MetricResult:
    """One metric of one cell, head against base.

    Attributes:
        cell: the run it belongs to, like `gnndrive +20MiB`.
        name: like `epoch`, `peak memory`, `io_requests`.
        base, head: median, count or digest; None where that side lacks it.
        ratio: head over base, None for digests and where one side is missing or 0.
        interval: of the ratio; `interval_kind` says which (`bootstrap95`, `range`); None for what is exact.
        gates: False for what is shown and decides nothing.
        note: in a few words why, where the numbers do not say it.
        stage: the stage whose time grew most, of an epoch that did not stay the same.
    """

    cell: str
    name: str
    kind: Kind
    unit: str
    base: Value
    head: Value
    decision: Decision
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    interval_kind: str = ""
    p: float | None = None
    samples: int = 0
    gates: bool = True
    note: str = ""
    stage: str = ""

    @property
    def metric(self) -> str:
        """`gnndrive +20MiB / epoch`."""
        return f"{self.cell} / {self.name}"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "metric": self.metric,
            "cell": self.cell,
            "name": self.name,
            "kind": self.kind,
            "unit": self.unit,
            "base": self.base,
            "head": self.head,
            "ratio": self.ratio,
            "interval": None if self.interval is None else list(self.interval),
            "interval_kind": self.interval_kind,
            "p": self.p,
            "samples": self.samples,
            "decision": self.decision,
            "gates": self.gates,
            "note": self.note,
            "stage": self.stage,
        }


@dataclass(frozen=True)
class Comparison:
    """Everything one comparison found. `base`, `head` name the sides (commits, folders); `notes` concern all."""

    metrics: list[MetricResult]
    base: str = ""
    head: str = ""
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def decision(self) -> Decision:
        """Of everything that gates: the worst of regressed, undecided, improved, same."""
        return overall([metric for metric in self.metrics if metric.gates])

    @property
    def exit_code(self) -> int:
        """1 for *regressed* alone."""
        return 1 if self.decision == "regressed" else 0

    def to_json(self) -> dict[str, Any]:
        """Plain data: `decision`, `metrics`, `base`, `head`, `notes`, and how it was measured."""
        return {
            "decision": self.decision,
            "base": self.base,
            "head": self.head,
            "metrics": [metric.to_json() for metric in self.metrics],
            "notes": self.notes,
            **self.details,
        }


def overall(metrics: Sequence[MetricResult]) -> Decision:
    """One decision for all: nothing to decide on is undecided."""
    found = {metric.decision for metric in metrics}
    for decision in ("regressed", "undecided", "improved", "same"):
        if decision in found:
            return decision
    return "undecided"
