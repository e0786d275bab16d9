"""Looks of all figures and pages: one colour, marker, line and hatch for each system,
and looks of other series.

Fonts, sizes and widths stand in `outcore.mplstyle`, looks in `looks.csv`. Each colour
has a contrast of at least 3:1 against white and against `DARK`, the ground of a dark
page, so that one table serves both.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

#: The style file, for `matplotlib.rc_context(fname=SHEET)`.
SHEET = Path(__file__).with_name("outcore.mplstyle")
COLUMN_INCHES = 3.5
PAGE_INCHES = 7.16
#: Least size of text in points: 9 px where the report shows a column's figure on a
#: screen of 400 px.
LEAST_POINTS = 7.0
#: Colour of text that is less than a label of an axis, and the ground of a dark page.
SOFT = "#333333"
DARK = "#111111"


@dataclass(frozen=True)
class Look:
    """The appearance of one system in all figures: matplotlib's colour, marker, line
    style and hatch.

    Attributes:
        symbol: Plotly's name of the marker.
    """

    color: str
    marker: Any
    symbol: str
    line: str
    hatch: str

    @property
    def stroke(self) -> dict[str, Any]:
        """Keywords of `plot` for a line."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.line}

    @property
    def fill(self) -> dict[str, Any]:
        """Keywords of `bar` for a bar."""
        return {
            "facecolor": self.color,
            "hatch": self.hatch,
            "edgecolor": "black",
            "linewidth": 0.5,
        }


def _read_looks() -> list[tuple[str, Look]]:
    """Return name of the system and look of each row of `looks.csv`; a marker of
    numbers is a tuple of matplotlib's."""
    with (
        Path(__file__).with_name("looks.csv").open(encoding="utf-8", newline="") as file
    ):
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        name = row.pop("system")
        marker = row.pop("marker")
        numbers = tuple(map(int, marker.split())) if " " in marker else marker
        found.append((name, Look(marker=numbers, **row)))
    return found


_ROWS = _read_looks()
#: Looks of the systems, in drawing order.
LOOKS = {name: look for name, look in _ROWS if name}
#: Looks of other series and of parts of a stack, none a system's colour; neighbours
#: differ in lightness.
SERIES = [look for name, look in _ROWS if not name]
# Systems with the markers of the series that use a colour again.
_AGAIN = ["data-tiering", "outcore", "gnndrive (cpu)", "in-memory", "uva"]
#: Stages of an epoch whose colour is the same on all pages.
STAGES = (
    "sample extract transfer train wait inspect switch cache_update load_graph "
    "assemble data_prep pack"
).split()
STAGE_COLORS = {stage: look.color for stage, look in zip(STAGES, SERIES, strict=True)}
Looks = Callable[[str], Look]


def ordered(systems: Sequence[str]) -> list[str]:
    """Return the distinct systems in drawing order, unknown ones last by name."""
    order = list(LOOKS)
    return sorted(
        set(systems),
        key=lambda name: (order.index(name) if name in order else len(order), name),
    )


def series_look(index: int) -> Look:
    """Return the look of the index-th series or part; one that uses a colour again has
    another marker and hatch."""
    again, place = divmod(index, len(SERIES))
    known = SERIES[place]
    if not again:
        return known
    other = LOOKS[_AGAIN[(again - 1) % len(_AGAIN)]]
    return replace(
        known, marker=other.marker, symbol=other.symbol, hatch=known.hatch + "." * again
    )


def named_looks(labels: Sequence[str]) -> Looks:
    """Return the looks of labels by their position."""
    own = {
        label: series_look(index) for index, label in enumerate(dict.fromkeys(labels))
    }
    return lambda label: own[label]


def system_looks(systems: Sequence[str]) -> Looks:
    """Return the looks of systems: an unknown one has the look of a series, by its
    place among the unknown names."""
    unknown = sorted(set(systems) - set(LOOKS))
    own = LOOKS | {name: series_look(index) for index, name in enumerate(unknown)}
    return lambda system: own[system]


def looks_of(series: Sequence[str], looks: Looks | None) -> tuple[list[str], Looks]:
    """Return the series in drawing order and their looks.

    Systems of the table stand in its order; other series, and systems beside some that
    it lacks, stand as given.
    """
    found = list(dict.fromkeys(series))
    if looks is not None:
        return found, looks
    if not any(name in LOOKS for name in found):
        return found, named_looks(found)
    known = all(name in LOOKS for name in found)
    return ordered(found) if known else found, system_looks(found)


def part_fill(index: int) -> dict[str, Any]:
    """Return keywords of `bar` for the index-th part of a stack."""
    return series_look(index).fill
