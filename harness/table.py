"""Tables on the terminal: the console, and the text of their cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console(*, markup: bool = True) -> Console:
    """Return a console on standard output, 160 columns wide if that is no terminal; `markup` colours text, too."""
    from rich.console import Console

    found = Console(highlight=markup, markup=markup)
    return found if found.is_terminal else Console(highlight=markup, markup=markup, width=160)


def cell(text: object) -> str:
    """Escape text from a record for a table: square brackets are no markup, control characters are replaced."""
    from rich.markup import escape

    return escape("".join(letter if letter.isprintable() else "�" for letter in str(text)))


def number(value: float | None, form: str = ".2f") -> str:
    """Format a number; a dash if it is unknown."""
    return "–" if value is None else format(value, form)


def size(value: int | None) -> str:
    """Format bytes with a unit; a dash if they are unknown."""
    from workloads.units import format_bytes

    return "–" if value is None else format_bytes(value)
