"""Sentences on what a figure shows, from the values that it draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from harness.figures.draw.captions import row_texts

if TYPE_CHECKING:
    import pandas as pd


def span(values: pd.Series[float], digits: int = 2) -> str:
    """Return the least and the largest value as text, like `2.1 to 3.4`; one number
    where both are the same."""
    ends = [plain(value, digits) for value in (values.min(), values.max())]
    return " to ".join(dict.fromkeys(ends))


def plain(value: float, digits: int = 2) -> str:
    """Return a number with so many significant digits, without an exponent."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:g}"


def wide(
    rows: pd.DataFrame, values: str = "value", index: Any = "x", columns: str = "system"
) -> pd.DataFrame:
    """Return a column of numbers with a row for each x and a column for each system,
    nan where none was measured."""
    return rows.pivot(index=index, columns=columns, values=values).astype(float)


def ratios(table: pd.DataFrame, one: Any, other: Any) -> pd.DataFrame:
    """Return how many `times` a column of numbers exceeds another, in each row that has
    both."""
    both = table.reindex(columns=[one, other]).astype(float)
    times: pd.Series[float] = both[one] / both[other]
    return times.dropna().reset_index(name="times")


def spans(times: pd.DataFrame, text: str, joint: str = ", ", before: str = "") -> str:
    """Return `text` on each column that has a value, joined: its `{name}` and the
    `{span}` of its values."""
    known = times.dropna(axis="columns", how="all")
    if known.empty:
        return ""
    rows = known.agg(span).rename_axis("name").reset_index(name="span")
    return row_texts(rows, text, joint, before)


def first_and_last(rows: pd.DataFrame, first: str, last: str) -> str:
    """Return a text on the first row and one on the last, as of `row_texts`; empty with
    fewer than two rows."""
    if len(rows) < 2:
        return ""
    return f"{row_texts(rows.head(1), first)}, {row_texts(rows.tail(1), last)}"


def compared(
    times: pd.DataFrame,
    names: Sequence[str],
    base: str,
    at: Callable[[Any], str] = "with {}".format,
) -> str:
    """Return the sentence on how many times as fast as `base` each system is, and where
    it is slower.

    Args:
        times: speed over that of `base`, a row for each x and a column for each system,
            nan where not measured.
        names: systems in the order of the sentence.
        at: function from an x to its text, like `at 768`.

    Returns:
        Text like `ginex is 0.76 to 2.2 times as fast as pyg+ (slower at 768), ali+pg
        1.4 to 2.4`; empty where no system has a value.
    """
    every = times.reindex(columns=list(names)).astype(float)
    known = every.dropna(axis="columns", how="all")
    parts: list[str] = []
    for name, own in known.items():
        measured = own.dropna()
        speed = (
            span(measured) if parts else f"is {span(measured)} times as fast as {base}"
        )
        parts.append(f"{name} {speed}{_slower(measured, at)}")
    return ", ".join(parts)


def _slower(times: pd.Series[float], at: Callable[[Any], str]) -> str:
    """Return where a speed over another is below 1, in brackets; empty where it never
    is."""
    slower = times[times.round(2) < 1]
    if slower.empty:
        return ""
    if len(slower) == len(times):
        return " (slower)"
    return f" (slower {', '.join(map(at, slower.index))})"


def over_others(seconds: pd.DataFrame, ours: str, others: Sequence[str]) -> str:
    """Return the sentence on how many times as fast as each of the others a system is;
    empty where no row has both.

    Args:
        seconds: epoch times, a row for each x and a column for each system, nan where
            not measured.
    """
    times = seconds.reindex(columns=[ours, *others]).astype(float)
    over = times[list(others)].div(times[ours], axis=0)
    text = spans(over, "{span} times as {name}", before=f"{ours} is ")
    return text.replace(" times as ", " times as fast as ", 1)
