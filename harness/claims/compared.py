"""Claims that compare the runs of two sides: a row of `comparisons.csv` for each, and
the numbers of such a row."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.claims.comparison import (
    Runs,
    Side,
    accuracy_gap,
    added,
    of,
    one_setting,
    over_settings,
    ratio,
    saved,
    settings,
    share,
    tested,
    time_to_accuracy,
)
from harness.claims.measured import Measured

FILE = Path(__file__).with_name("comparisons.csv")
MEASURES: dict[str, Callable[..., Measured]] = {
    "ratio": ratio,
    "saved": saved,
    "added": added,
    "share": share,
    "accuracy": accuracy_gap,
    "time to accuracy": time_to_accuracy,
}


@dataclass(frozen=True)
class Comparison:
    """One row of the file, without its claim.

    Attributes:
        measure: `ratio` of the baseline's quantity to the better side's; the per cent
            of it that the better side is `saved`, or takes `added`; the `share` of an
            epoch that the quantity takes; `accuracy` in points more; `time to
            accuracy`, as a ratio.
        better, baseline: each a system and values of its runs, like `diskgnn
            packing=batched`.
        quantity: columns of the table of epochs, which are added up; empty: the seconds
            of an epoch.
        over: the setting: empty where there is only one; the one of `least memory`; or
            the `mean` or `most` of all.
        free: settings in which the sides may differ, beside system and options.
    """

    measure: str
    better: str
    baseline: str
    quantity: str
    over: str
    free: str


def comparisons() -> dict[str, Comparison]:
    """Read the rows of the file by claim."""
    with FILE.open(newline="", encoding="utf-8") as stream:
        return {row.pop("claim"): Comparison(**row) for row in csv.DictReader(stream)}


def compared(runs: Runs, comparison: Comparison) -> Measured:
    """Return the number of a comparison. Raises NotRun."""
    sides = [_side(text) for text in (comparison.better, comparison.baseline) if text]
    columns = comparison.quantity.split()
    free = comparison.free.split()
    measure = MEASURES[comparison.measure]
    if measure in (accuracy_gap, time_to_accuracy):
        runs = tested(runs)
    if not comparison.over:
        return measure(one_setting(runs, *sides, free=free), *columns)
    found = settings(runs, *sides, free=free)
    if comparison.over == "least memory":
        least = min(found, key=lambda setting: setting.budget_share)
        return measure(least, *columns)
    return over_settings(found, most=comparison.over == "most")


def _side(text: str) -> Side:
    """Return the side that a text like `diskgnn packing=batched` names."""
    system, *values = text.split()
    where = dict(value.split("=") for value in values)
    return of(system, **{name: _value(value) for name, value in where.items()})


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
