"""Results of the claims' queries: numbers with intervals and their sources, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.records.record import Spread, spread


class NotRun(Exception):
    """The records cannot answer a claim; the text gives the reason."""


@dataclass(frozen=True)
class Number:
    """One measured number with its interval; `kind` is `bootstrap95`, `range` or `exact`."""

    value: float
    low: float
    high: float
    kind: str = "exact"

    @classmethod
    def exact(cls, value: float) -> Number:
        """Return a number that does not vary, such as a counter."""
        return cls(value, value, value)


@dataclass(frozen=True)
class Measured:
    """The answer of a query: one number.

    Attributes:
        setting: configuration that the runs share (`RunConfig` as plain data).
        detail: lines for `--explain`: stages, counters, the computation.
        differs: differences from the paper's setting beyond scale, device and cap.
    """

    number: Number
    runs: list[str] = field(default_factory=list)
    studies: list[str] = field(default_factory=list)
    setting: Mapping[str, Any] = field(default_factory=dict)
    detail: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)


def ratio(above: Sequence[float], below: Sequence[float]) -> Number:
    """Return the ratio of the medians with its interval."""
    return _number(spread(above, below))


def median(samples: Sequence[float]) -> Number:
    """Return the median of samples with its interval."""
    return _number(spread(samples))


def _number(seen: Spread) -> Number:
    low, high = sorted(seen.interval)
    return Number(seen.median, low, high, seen.interval_kind)


def saved(faster: Number) -> Number:
    """Convert a ratio old / new to the per cent that the new one saves."""
    value, low, high = (100 * (1 - 1 / ratio) for ratio in (faster.value, faster.low, faster.high))
    return Number(value, low, high, faster.kind)


def added(faster: Number) -> Number:
    """Convert a ratio old / new to the per cent that the new one takes longer."""
    less = saved(faster)
    return Number(-less.value, -less.high, -less.low, less.kind)


def quotient(above: Number, below: Number) -> Number:
    """Divide one number by another; the interval covers every quotient of the two intervals."""
    return Number(above.value / below.value, above.low / below.high, above.high / below.low, above.kind)


def summarise(numbers: Sequence[Number], kind: Literal["mean", "most", "least"]) -> Number:
    """Reduce numbers to their mean, greatest or least; the interval of a mean is the range of their values."""
    ranked = sorted(numbers, key=lambda number: number.value)
    if kind == "mean":
        value = sum(number.value for number in numbers) / len(numbers)
        return Number(value, ranked[0].value, ranked[-1].value, "range")
    return ranked[-1 if kind == "most" else 0]
