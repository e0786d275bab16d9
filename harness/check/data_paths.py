"""Data paths of systems in words, from a plan on a small graph; the lines of
`docs/systems.md` are made from them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.check.case import Case
from harness.check.stage import Stage
from systems.interface import System
from systems.registry import load, names

_HEADING = re.compile(
    r"^## `?([^\s`]+)`?\n\n(?:\*\*Path:\*\*[^\n]*(?:\n(?!\n)[^\n]*)*\n\n)?", re.M
)
_CASE = Case("data path", nodes=200, edges=2000, train=40, dim=4)


def parts_of(system: type[System]) -> list[str]:
    """Return the names of a system's parts with default options, in the order in which
    a mini-batch passes them."""
    with TemporaryDirectory() as folder:
        stage = Stage(Path(folder), _CASE, system)
        with stage.make() as made:
            made.plan()
            return [part.name for part in made.data_path()]


def line_of(parts: list[str]) -> str:
    """Return the parts as one line."""
    return " → ".join(parts)


def with_paths(page: str) -> str:
    """Return the page of the systems with a line below the heading of each system."""
    known = set(names())

    def heading(found: re.Match[str]) -> str:
        name = found[1]
        if name not in known:
            return found[0]
        line = line_of(parts_of(load(name)))
        return f"## `{name}`\n\n**Path:** {line}.\n\n"

    return _HEADING.sub(heading, page)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    text = place.read_text(encoding="utf-8")
    place.write_text(with_paths(text), encoding="utf-8")
