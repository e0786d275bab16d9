"""Tables and lines on a terminal: no cell is ever cut, prose is folded at words."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.common import Options

if TYPE_CHECKING:
    from rich.console import Console

# Spaces between two columns, and the width of prose in a table that is wider than the
# terminal.
_GAP = 2
_PROSE = 40


@dataclass(frozen=True, kw_only=True)
class Wide(Options):
    """Option of a verb whose table leaves columns out."""

    wide: Annotated[
        bool, typer.Option("--wide", help="every column, however wide the table gets")
    ] = False


def console() -> Console:
    """Return a console on standard output, as wide as `COLUMNS` says; without it, 160
    columns where that is no terminal."""
    from rich.console import Console

    found = Console()
    return (
        found
        if found.is_terminal or os.environ.get("COLUMNS", "").isdigit()
        else Console(width=160)
    )


def printable(text: object) -> str:
    """Return text from a record, with control characters replaced."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(text))


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Any]],
    title: str | None = None,
    *,
    prose: Collection[str] = (),
    hidden: Collection[str] = (),
    styles: Sequence[str] = (),
) -> None:
    """Print a table as wide as the terminal, or wider where whole numbers and names
    need it.

    Texts are no markup: only a Rich `Text` is coloured.

    Args:
        prose: heads of the columns whose cells are folded at words; other cells stand
            on one line.
        hidden: heads of the columns that are left out.
        styles: style of each row.
    """
    from rich.table import Table
    from rich.text import Text

    kept = [index for index, head in enumerate(heads) if head not in hidden]
    shown = [
        [value if isinstance(value, Text) else Text(printable(value)) for value in row]
        for row in rows
    ]
    out = console()
    table = Table(box=None, pad_edge=False, show_header=any(heads))
    columns = [
        (heads[index], [row[index].plain for row in shown], heads[index] in prose)
        for index in kept
    ]
    widths = _widths(columns, out.width)
    for (head, *_), width in zip(columns, widths, strict=True):
        table.add_column(Text(head), width=width, overflow="fold")
    for row, style in itertools.zip_longest(shown, styles):
        table.add_row(*(row[index] for index in kept), style=style)
    if title is not None:
        out.print(Text(printable(title), "bold"), soft_wrap=True)
    out.width = max(out.width, sum(widths) + _GAP * len(widths))
    out.print(table)


def _widths(columns: Sequence[tuple[str, Sequence[str], bool]], room: int) -> list[int]:
    """Return the width of each column (head, cells, whether they are prose).

    Each is as wide as its longest cell, of prose and heads their longest word; columns
    that wrap share the room left. Where there is none, only prose is folded.
    """
    from rich.cells import cell_len

    least = []
    wanted = []
    for head, cells, prose in columns:
        words = [
            word for text in (head, *(cells if prose else ())) for word in text.split()
        ]
        least.append(max(map(cell_len, [*words, *(() if prose else cells)]), default=1))
        wanted.append(max(map(cell_len, [head, *cells])))
    left = room - sum(least) - _GAP * (len(columns) - 1)
    if left < 0:
        sides = zip(columns, least, wanted, strict=True)
        return [
            max(low, min(high, _PROSE)) if prose else high
            for (_, _, prose), low, high in sides
        ]
    narrow = sorted(range(len(columns)), key=lambda index: wanted[index] - least[index])
    for place, index in enumerate(narrow):
        more = min(wanted[index] - least[index], left // (len(narrow) - place))
        least[index] += more
        left -= more
    return least


def print_prose(text: str) -> None:
    """Print paragraphs, which empty lines divide, wrapped at the console's width."""
    out = console()
    for paragraph in text.split("\n\n"):
        out.print(" ".join(paragraph.split()), markup=False, highlight=False)
        out.print()


def print_lines(*lines: Any) -> None:
    """Print lines of plain text, which are neither wrapped nor coloured."""
    out = console()
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
