"""Sentences on systems over an axis: the fastest at each value, systems without a
difference, and systems without a value.

Every function takes rows of `Cells.medians`: `system`, `x`, `value` (less is better),
`low`, `high` (interval) and `status` (reason for a missing value).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from harness.figures.draw.words import in_words
from harness.figures.findings import span
from harness.results.table import each

#: Least factor between two values that a sentence reports as a difference.
LEAST_TIMES = 1.05
# Values in a row of an axis that are written as a range.
LEAST_RANGE = 3
#: What a status means for one system and for several.
VERBS = {
    "oom": ("runs out of memory", "run out of memory"),
    "timeout": ("exceeds the time limit", "exceed the time limit"),
    "failed": ("fails", "fail"),
    "unsupported": ("cannot run", "cannot run"),
    "not run": ("was not run", "were not run"),
    "not measured": ("has no measured epoch", "have no measured epoch"),
}


@dataclass(frozen=True)
class Places:
    """Values of an axis in words.

    Attributes:
        every: all values in the order of the axis.
        text: function from a value to its text.
        word: preposition before the values.
        ranged: whether neighbouring values are written as a range.
    """

    every: Sequence[Any]
    text: Callable[[Any], str] = str
    word: str = "at"
    ranged: bool = True

    def __call__(self, xs: Iterable[Any]) -> str:
        """Return ` at 64 and 256` after a space; empty for all values of the axis."""
        numbers = sorted({list(self.every).index(x) for x in xs})
        if not numbers or len(numbers) == len(self.every):
            return ""
        return f" {self.named(numbers)}"

    def named(self, numbers: Sequence[int]) -> str:
        """Return the values at these positions of the axis, like `at 64 to 256`."""
        texts: list[str] = []
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
            names = [self.text(self.every[number]) for _, number in run]
            if self.ranged and len(names) >= LEAST_RANGE:
                names = [f"{names[0]} to {names[-1]}"]
            texts += names
        return f"{self.word} {in_words(texts)}"


def places_of(rows: pd.DataFrame) -> Places:
    """Return the values of the axis of rows as they are: numbers after `at`, names
    after `with`."""
    xs = list(dict.fromkeys(rows.x))
    word = "with" if any(isinstance(x, str) for x in xs) else "at"
    return Places(xs, word=word)


@dataclass(frozen=True)
class PanelPlaces(Places):
    """Values `(panel, x)` of panels with one axis in words, like `at 64 with GCN`; an x
    of all its panels stands alone."""

    def named(self, numbers: Sequence[int]) -> str:
        """Return the values at these positions, by x."""
        held: dict[Any, list[str]] = {}
        for number in numbers:
            panel, x = self.every[number]
            held.setdefault(x, []).append(str(panel))
        parts = []
        for x, panels in held.items():
            every = sum(other == x for _, other in self.every)
            those = f" with {in_words(panels)}" if len(panels) < every else ""
            parts.append(f"{self.word} {self.text(x)}{those}")
        return in_words(parts)


def by_panel(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of several panels with `(panel, x)` as their value of the axis."""
    import pandas as pd  # a second that no `--help` needs

    pairs = [(row.panel, row.x) for row in each(rows)]
    return rows.assign(x=pd.Series(pairs, rows.index, dtype=object))


def alike(one: Any, other: Any) -> bool:
    """Return whether two rows differ by nothing that a sentence may report: their
    intervals overlap, or the values differ by less than `LEAST_TIMES`."""
    apart = max(one.value, other.value) < LEAST_TIMES * min(one.value, other.value)
    overlap = one.low <= other.high and other.low <= one.high
    return bool(apart or overlap)


def first_of(rows: pd.DataFrame) -> list[str]:
    """Return the systems with the least value of rows, and those that do not differ
    from the first; none without a value."""
    best, *others = [*each(rows.dropna(subset="value").sort_values("value"))] or [None]
    if best is None:
        return []
    return [best.system, *(row.system for row in others if alike(best, row))]


def fastest(rows: pd.DataFrame, places: Places, before: str = "Fastest: ") -> str:
    """Return the sentence on the first system over the axis, with ties.

    Args:
        rows: as above; a value of the axis with one planned system is left out.
        before: begin of the sentence.

    Returns:
        Text like `Fastest: a at 64 (alone), a and b alike at 128 and 256`;
        empty where no value of the axis has two systems.
    """
    found: list[tuple[str, Any]] = []
    for x, here in rows.groupby("x", sort=False):
        names = first_of(here)
        alone = here.value.count() == 1
        if not names or here.system.nunique() < 2:
            continue
        ties = " alike" if len(names) > 1 else ""
        ends = " (alone)" if alone else ""
        found.append((f"{in_words(names)}{ties}{{}}{ends}", x))
    if not found or rows.groupby("x").value.count().max() < 2:
        return ""
    parts = []
    for text, run in groupby(found, lambda pair: pair[0]):
        parts.append(text.format(places(x for _, x in run) or " throughout"))
    return before + ", ".join(parts)


def changes(rows: pd.DataFrame) -> bool:
    """Return whether different systems come first over the values of the axis that
    several systems have."""
    known = rows.dropna(subset="value").groupby("x", sort=False)
    firsts = {tuple(first_of(here)) for _, here in known if len(here) > 1}
    return len(firsts) > 1


def speeds(rows: pd.DataFrame, base: str) -> pd.DataFrame:
    """Return the value of `base` over each other system's at each value of the axis.

    Returns:
        Columns `system`, `x`, `value` (times as fast), `low` and `high` (widest
        interval); none where either has no value.
    """
    every = rows.dropna(subset="value")
    own = every[every.system == base][["x", "value", "low", "high"]]
    pairs = every[every.system != base].merge(own, on="x", suffixes=("", "_base"))
    found = pairs[["system", "x"]].copy()
    found["value"] = pairs.value_base / pairs.value
    found["low"] = pairs.low_base / pairs.high
    found["high"] = pairs.high_base / pairs.low
    return found.astype({"value": float, "low": float, "high": float})


def over_base(
    rows: pd.DataFrame, names: Sequence[str], base: str, places: Places
) -> str:
    """Return the sentence on how many times as fast as `base` each system is, with the
    values of the axis where it is slower or does not differ.

    Args:
        names: systems in the order of the sentence.

    Returns:
        Text like `ginex is 0.76 to 2.2 times as fast as pyg+ (slower at 768), ali+pg
        1.4 to 2.4`; empty where no system has a value.
    """
    found = speeds(rows, base)
    parts: list[str] = []
    for name in names:
        own = found[found.system == name]
        if own.empty:
            continue
        times, where = _speed(own, places)
        end = f" times as fast as {base}"
        parts.append(
            f"{name} {times}{where}" if parts else f"{name} is {times}{end}{where}"
        )
    return ", ".join(parts)


def over_each(
    rows: pd.DataFrame, ours: str, others: Sequence[str], places: Places
) -> str:
    """Return the sentence on how many times as fast as each of the others a system is;
    empty where none shares a value of the axis with it."""
    parts: list[str] = []
    for name in others:
        own = speeds(rows, name).query("system == @ours")
        if own.empty:
            continue
        times, where = _speed(own, places)
        as_fast = "times as" if parts else "times as fast as"
        parts.append(f"{times} {as_fast} {name}{where}")
    return f"{ours} is {', '.join(parts)}" if parts else ""


def _speed(own: pd.DataFrame, places: Places) -> tuple[str, str]:
    """Return the span of a system's speeds, and in brackets where it is slower or does
    not differ."""
    even = (own.low <= 1) & (own.high >= 1)
    close = own.value.between(1 / LEAST_TIMES, LEAST_TIMES)
    same = even | close
    slower = own.x[~same & (own.value < 1)]
    parts = []
    if len(slower):
        parts.append(f"slower{_where(slower, own, places)}")
    if same.any():
        parts.append(f"no difference{_where(own.x[same], own, places)}")
    return span(own.value), f" ({', '.join(parts)})" if parts else ""


def _where(xs: pd.Series[Any], own: pd.DataFrame, places: Places) -> str:
    """Return the values of the axis, unless they are all at which a system was
    compared."""
    return "" if len(xs) == len(own) else places(xs)


def missing(rows: pd.DataFrame, places: Places) -> str:
    """Return the clause on systems without a value, like `ali+pg and ginex run out of
    memory at 100`; empty where all have one."""
    failed = rows[rows.value.isna()]
    ended: dict[tuple[str, str], list[str]] = {}
    for (system, status), own in failed.groupby(["system", "status"], sort=False):
        where = places(own.x)
        ended.setdefault((str(status), where), []).append(str(system))
    parts = []
    for (status, where), systems in ended.items():
        one, several = VERBS.get(status, (f"is {status}", f"are {status}"))
        verb = one if len(systems) == 1 else several
        parts.append(f"{in_words(systems)} {verb}{where}")
    return ", ".join(parts)
