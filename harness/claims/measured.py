"""Measured numbers of claims, with intervals and sources, or the reason why there is
none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from harness.records.record import spread
from harness.records.study import StudyRecord

#: Records of the studies that a claim asks for, in order.
Studies = Sequence[StudyRecord]


class NotRun(Exception):
    """The records cannot answer a claim; the text gives the reason."""


@dataclass(frozen=True, order=True)
class Number:
    """One measured number with its interval; `kind` is `bootstrap95`, `range` or
    `exact`."""

    value: float
    low: float
    high: float
    kind: str = "exact"

    @classmethod
    def exact(cls, value: float) -> Number:
        """Return a number that does not vary, such as a counter."""
        number = float(value)
        return cls(number, number, number)

    @classmethod
    def median(cls, *sides: Sequence[float]) -> Number:
        """Return the median of samples, or the ratio of the medians of two sides, with
        its interval."""
        seen = spread(*sides)
        low, high = sorted(seen.interval)
        return cls(seen.median, low, high, seen.interval_kind)

    def over(self, below: Number) -> Number:
        """Divide by another number; the interval covers every quotient of the two
        intervals."""
        return Number(
            self.value / below.value,
            self.low / below.high,
            self.high / below.low,
            self.kind,
        )

    def minus(self, other: Number) -> Number:
        """Subtract another number; the interval covers every difference of the two
        intervals."""
        return Number(
            self.value - other.value,
            self.low - other.high,
            self.high - other.low,
            self.kind,
        )

    @property
    def saved(self) -> Number:
        """A ratio old / new as the per cent that the new one saves."""
        value, low, high = (
            100 * (1 - 1 / ratio) for ratio in (self.value, self.low, self.high)
        )
        return Number(value, low, high, self.kind)

    @property
    def added(self) -> Number:
        """A ratio old / new as the per cent that the new one takes longer."""
        less = self.saved
        return Number(-less.value, -less.high, -less.low, less.kind)


@dataclass(frozen=True)
class Measured:
    """The answer to a claim: one number.

    Attributes:
        setting: configuration that the runs share (`RunConfig` as plain data).
        detail: lines for `--explain`: stages, counters, the computation.
    """

    number: Number
    runs: list[str] = field(default_factory=list)
    studies: list[str] = field(default_factory=list)
    setting: Mapping[str, Any] = field(default_factory=dict)
    detail: list[str] = field(default_factory=list)


def studied(studies: Studies, number: Number | float, *detail: str) -> Measured:
    """Return a number from studies, which it names; a bare number is exact."""
    names = [f"{study.study} {study.key}" for study in studies]
    known = number if isinstance(number, Number) else Number.exact(number)
    return Measured(known, studies=names, detail=list(detail))


def lines_of(table: pd.DataFrame, template: str) -> list[str]:
    """Return a line for each row of a table: the template, like `{name}: {seconds:.3g}
    s`, with the row's values."""
    return [template.format_map(row) for row in table.to_dict("records")]
