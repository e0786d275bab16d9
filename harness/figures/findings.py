"""Sentences on what a figure shows, from the values that it draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def span(values: pd.Series[float], digits: int = 2) -> str:
    """Return the least and the largest value as text, like `2.1 to 3.4`; one number where both are the same."""
    ends = [plain(value, digits) for value in (values.min(), values.max())]
    return " to ".join(dict.fromkeys(ends))


def plain(value: float, digits: int = 2) -> str:
    """Return a number with so many significant digits, without an exponent."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:g}"
