"""Decisions of the gate: one per metric and one overall, as plain data for every output
format."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Decision = Literal["same", "improved", "regressed", "undecided"]
Kind = Literal["time", "memory", "count", "exact", "status"]
Value = float | int | str | None
WORST_FIRST: tuple[Decision, ...] = ("regressed", "undecided", "improved", "same")


@dataclass(frozen=True)
class Rules:
    """Parameters of the decisions.

    Attributes:
        min_effect: a time, size or noisy count that moved by less than this share is
            not a regression.
        alpha: probability, over all metrics together, that an unchanged metric is
            called regressed or improved.
        seed: seed of the order of runs.
        gate_times: False: only exact metrics and statuses decide; all others are shown.
    """

    min_effect: float = 0.03
    alpha: float = 0.02
    seed: int = 0
    gate_times: bool = True


@dataclass(frozen=True)
class MetricResult:
    """One metric of one cell, head against base.

    Attributes:
        cell: label of the cell, like `gnndrive +20MiB`.
        name: name of the metric, like `epoch`, `peak memory`, `io_requests`.
        base, head: median, count or digest of each side; None if the side lacks the
            metric.
        ratio: head over base; None for digests and if one side is missing or 0.
        interval: interval of the ratio, of kind `interval_kind` (`t95`, `range`);
            None for exact metrics.
        gates: whether the metric counts for the overall decision; False: it is only
            shown.
        note: short reason for the decision, if the numbers do not give it.
        stage: stage whose time changed most in the epoch's direction, for an epoch that
            regressed or improved.
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
        """Cell and name, like `gnndrive +20MiB / epoch`."""
        return f"{self.cell} / {self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "metric": self.metric,
            **asdict(self),
            "interval": None if self.interval is None else [*self.interval],
        }


@dataclass(frozen=True)
class Comparison:
    """Results of one comparison. `base`, `head` name the sides (commits, folders);
    `notes` concern all metrics."""

    metrics: list[MetricResult]
    base: str = ""
    head: str = ""
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def decision(self) -> Decision:
        """Worst decision of the gating metrics, by `WORST_FIRST`; *undecided* if there
        are none."""
        found = {metric.decision for metric in self.metrics if metric.gates}
        return next(
            (decision for decision in WORST_FIRST if decision in found), "undecided"
        )

    @property
    def exit_code(self) -> int:
        """Exit code: 1 for *regressed*, else 0."""
        return 1 if self.decision == "regressed" else 0

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON: decision, names of the sides, metrics, notes and
        the measurement's details."""
        return {
            "decision": self.decision,
            "base": self.base,
            "head": self.head,
            "metrics": [metric.to_json() for metric in self.metrics],
            "notes": self.notes,
            **self.details,
        }
