"""Sizes and counts as people write them: `768MiB`, `2GB`, `2M`, `1e6`, `0.25x`."""

from __future__ import annotations

import re

from workloads.errors import InputError

_BYTES = {"": 1, "B": 1} | {
    f"{letter}{end}": base**place for place, letter in enumerate("KMGT", 1) for end, base in (("B", 1000), ("IB", 1024))
}
_COUNTS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+]?[0-9]+)?)\s*([A-Za-z]*)\s*$")


def _parse(text: str | int | float, what: str, units: dict[str, int], of: str, example: str, unit_example: str) -> int:
    match = _NUMBER.match(str(text))
    if not match:
        raise InputError(f"{what} is {text!r}, which is not a size", f"write it like {example}")
    number, unit = match.groups()
    if unit.upper() not in units:
        raise InputError(f"{what} is {text!r}, and {unit!r} is not a unit of {of}", f"write it like {unit_example}")
    return round(float(number) * units[unit.upper()])


def parse_bytes(text: str | int, what: str = "size") -> int:
    """Parse bytes from `768MiB`, `2GB` or a plain number of bytes; raises InputError for another unit (a bare `M` or
    `G` is refused: MB and MiB differ)."""
    return _parse(text, what, _BYTES, "bytes", "768MiB", "768MiB or 2GB")


def parse_count(text: str | int | float, what: str = "count") -> int:
    """Parse a count from `2M`, `40M`, `1e6` or a plain number; raises InputError for another unit."""
    return _parse(text, what, _COUNTS, "counts", "2M or 1e6", "2M or 1e6")


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
