"""Sizes and counts as people write them: `768MiB`, `2GB`, `2M`, `1e6`, `0.25x`."""

from __future__ import annotations

import re

from workloads.errors import InputError

_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_COUNTS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+]?[0-9]+)?)\s*([A-Za-z]*)\s*$")


def _split(text: str | int | float, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER.match(str(text))
    if not match:
        raise InputError(f"{what} is {text!r}, which is not a size", f"write it like {example}")
    return float(match.group(1)), match.group(2)


def parse_bytes(text: str | int, what: str = "size") -> int:
    """Parse bytes from `768MiB`, `2GB` or a plain number of bytes.

    Raises:
        InputError: the unit is unknown (a bare `M` or `G` is refused: MB and MiB differ).
    """
    number, unit = _split(text, what, "768MiB")
    factor = 1 if unit == "" else _BYTES.get(unit.upper())
    if factor is None:
        raise InputError(f"{what} is {text!r}, and {unit!r} is not a unit of bytes", "write it like 768MiB or 2GB")
    return round(number * factor)


def parse_count(text: str | int | float, what: str = "count") -> int:
    """Parse a count from `2M`, `40M`, `1e6` or a plain number.

    Raises:
        InputError: the unit is unknown.
    """
    number, unit = _split(text, what, "2M or 1e6")
    factor = _COUNTS.get(unit.upper())
    if factor is None:
        raise InputError(f"{what} is {text!r}, and {unit!r} is not a unit of counts", "write it like 2M or 1e6")
    return round(number * factor)


def format_bytes(value: float) -> str:
    """Format `1536` as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_count(value: float) -> str:
    """Format `2000000` as `2.0M`."""
    for factor, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.1f}{unit}"
    return f"{value:.0f}"


def row_bytes(dim: int, dtype: str) -> int:
    """Return the bytes of a feature row: `dim` columns of `float32` or `float16`."""
    return dim * {"float32": 4, "float16": 2}[dtype]
