"""What a query of our records found for a claim: numbers with intervals, what they came from, or why there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.record import Spread, spread, spread_of_ratio


class NotRun(Exception):
    """The records hold nothing to judge a claim by; the text says why."""


@dataclass(frozen=True)
class Number:
    """One measured number with its interval; `kind` is `bootstrap95`, `range` or `exact`."""

    value: float
    low: float
    high: float
    kind: str = "exact"

    @classmethod
    def exact(cls, value: float) -> Number:
        """A counter: it does not vary."""
        return cls(value, value, value)


@dataclass(frozen=True)
class Measured:
    """The answer of a query.

    Attributes:
        numbers: one, or one for each number of the paper's value.
        holds: for claims of direction alone, whether it is so here.
        runs, studies: what it came from.
        setting: what the runs share: `RunConfig` as plain data.
        detail: lines for `--explain`: stages, counters, how the number was had.
        differs: in what the setting is not the paper's, beyond scale, device and cap.
    """

    numbers: tuple[Number, ...] = ()
    holds: bool | None = None
    runs: list[str] = field(default_factory=list)
    studies: list[str] = field(default_factory=list)
    setting: Mapping[str, Any] = field(default_factory=dict)
    detail: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)


def ratio(above: Sequence[float], below: Sequence[float]) -> Number:
    """Ratio of the medians with its interval."""
    return _number(spread_of_ratio(list(above), list(below)))


def median(samples: Sequence[float], scale: float = 1.0) -> Number:
    """Median of samples, times `scale`, with its interval."""
    return _number(spread([scale * sample for sample in samples]))


def _number(seen: Spread) -> Number:
    low, high = sorted(seen.interval)
    return Number(seen.median, low, high, seen.interval_kind)


def saved(number: Number) -> Number:
    """From a ratio new / old to the per cent that are saved."""
    return Number(100 * (1 - number.value), 100 * (1 - number.high), 100 * (1 - number.low), number.kind)
