"""Sizes and counts as people write them: `768MiB`, `2GB`, `2M`, `1e6`, `0.25x`."""

from __future__ import annotations

import re

from workloads.errors import InputError

_BYTES = {"": 1, "B": 1}
for _place, _letter in enumerate("KMGT", 1):
    _BYTES[f"{_letter}B"] = 1000**_place
    _BYTES[f"{_letter}IB"] = 1024**_place
_COUNTS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+]?[0-9]+)?)\s*([A-Za-z]*)\s*$")


_MOST = 2**63 - 1
# A plain number below it is no memory of a run: its unit is missing.
_LEAST_PLAIN = 1 << 20


def _parse(
    text: str | int | float,
    what: str,
    units: dict[str, int],
    of: str,
    example: str,
    unit_example: str,
) -> int:
    match = _NUMBER.match(str(text))
    if not match:
        fault = f"{what} is {text!r}, which is not a size"
        fix = f"write it like {example}"
        raise InputError(fault, fix)
    number, unit = match.groups()
    if unit.upper() not in units:
        near = f"{unit}iB".upper() in units and unit.upper() in ("K", "M", "G", "T")
        if near:
            fix = f"did you mean {number}{unit.upper()}iB?"
        else:
            fix = f"write it like {unit_example}"
        fault = f"{what} is {text!r}, and {unit!r} is not a unit of {of}"
        raise InputError(fault, fix)
    value = float(number) * units[unit.upper()]
    if value > _MOST:
        fault = f"{what} is {text!r}, which is more than 2^63"
        fix = f"write it like {example}"
        raise InputError(fault, fix)
    if number.isdigit() and units[unit.upper()] == 1:
        return int(number)
    return round(value)


def parse_bytes(text: str | int, what: str = "size") -> int:
    """Parse bytes from `768MiB`, `2GB` or a plain number of bytes; raises InputError
    for another unit (a bare `M` or `G` is refused: MB and MiB differ), and for a part
    of a byte."""
    match = _NUMBER.match(str(text))
    if match and match[2].upper() in ("", "B") and 0 < float(match[1]) % 1 < 1:
        fault = f"{what} is {text!r}, and bytes are whole"
        fix = f"did you mean {match[1]}GiB?"
        raise InputError(fault, fix)
    return _parse(text, what, _BYTES, "bytes", "768MiB", "768MiB or 2GB")


def parse_memory_bytes(
    text: str | int, what: str = "memory", *, share: bool = False
) -> int:
    """Parse bytes of memory as `parse_bytes`; raises InputError for nothing, and for a
    number that lacks its unit.

    `share`: a share of the features, like `0.25x`, is valid in its place, and named as
    the fix.
    """
    written = str(text).strip()
    found = _NUMBER.match(written.removesuffix("%"))
    number = float(found[1]) if found and not found[2] else None
    if number is not None and share and written.endswith("%"):
        fault = f"{what} is {text!r}, which is not a size"
        fix = f"did you mean {number / 100:g}x?"
        raise InputError(fault, fix)
    odd = number is not None and (0 < number < _LEAST_PLAIN or 0 < number % 1 < 1)
    if number is not None and odd and not written.endswith("%"):
        shown = f"{number:g}"
        unit = "GiB" if number < 16 else "MiB"
        near = f"{shown}{unit}"
        if share and number < 16:
            near = f"{shown}x (a share of the features) or {near}"
        fault = f"{what} is {text!r}, which has no unit"
        raise InputError(fault, f"did you mean {near}?")
    size = parse_bytes(text, what)
    if size == 0:
        fault = f"{what} is {text!r}, which is nothing"
        raise InputError(fault, "write it like 768MiB")
    return size


def parse_count(text: str | int | float, what: str = "count") -> int:
    """Parse a count from `2M`, `40M`, `1e6` or a plain number; raises InputError for
    another unit."""
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
