"""Sentences on what a figure shows, from the values that it draws."""

from __future__ import annotations

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
