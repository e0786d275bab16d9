"""Lists, numbers and sentences as text of figures and captions."""

from __future__ import annotations

from collections.abc import Sequence

from harness.figures.draw.style import LOOKS


def in_words(names: Sequence[str]) -> str:
    """Return names like `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def sentences(*parts: str) -> str:
    """Return the parts that are not empty as sentences; the first letter is large
    unless the name of a system opens the part."""
    known = [part.strip().removesuffix(".") for part in parts if part.strip()]
    return " ".join(f"{_opened(part)}." for part in known)


def _opened(part: str) -> str:
    first = part.split(maxsplit=1)[0].strip(":,")
    return part if first in LOOKS else f"{part[0].upper()}{part[1:]}"
