"""Looks of all figures and pages: one colour, marker, line and hatch for each system, and looks of other series.

Fonts, sizes and widths stand in `outcore.mplstyle`. Each colour has a contrast of at least 3:1 against white and
against `DARK`, the ground of a dark page, so that one table serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

#: The style file, for `matplotlib.rc_context(fname=SHEET)`.
SHEET = Path(__file__).with_name("outcore.mplstyle")
COLUMN_INCHES = 3.5
PAGE_INCHES = 7.16
#: Least size of text in points: 9 px where the report shows a column's figure on a screen of 400 px.
LEAST_POINTS = 7.0
#: Colour of text that is less than a label of an axis, and the ground of a dark page.
SOFT = "#333333"
DARK = "#111111"

#: Plotly's names for the markers of the looks.
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "d": "diamond-tall",
    "^": "triangle-up",
    "v": "triangle-down",
    "<": "triangle-left",
    ">": "triangle-right",
    "P": "cross",
    "X": "x",
    "*": "star",
    "p": "pentagon",
    "h": "hexagon",
    "H": "hexagon2",
    "8": "octagon",
    (3, 1, 0): "star-triangle-up",
    (3, 1, 180): "star-triangle-down",
    (4, 1, 0): "star-diamond",
    (4, 1, 45): "star-square",
    (6, 1, 0): "hexagram",
}


@dataclass(frozen=True)
class Look:
    """The appearance of one system in all figures: matplotlib's colour, marker, line style and hatch."""

    color: str
    marker: Any
    line: str
    hatch: str

    @property
    def stroke(self) -> dict[str, Any]:
        """Keywords of `plot` for a line."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.line}

    @property
    def fill(self) -> dict[str, Any]:
        """Keywords of `bar` for a bar."""
        return {"facecolor": self.color, "hatch": self.hatch, "edgecolor": "black", "linewidth": 0.5}

    @property
    def symbol(self) -> str:
        """Plotly's name of the marker."""
        return SYMBOLS[self.marker]


#: Looks of the systems, in drawing order.
LOOKS = {
    "in-memory": Look("#807E8B", (4, 1, 0), ":", "...."),
    "pyg+": Look("#C98216", "o", "-", ""),
    "dgl-ondisk": Look("#A5563C", "v", "--", "xxxx"),
    "ali+pg": Look("#79890B", "P", "-.", "\\\\\\\\"),
    "ginex": Look("#067A5A", "s", "--", "////"),
    "ginex-pg": Look("#00A393", "X", ":", "++++"),
    "mariusgnn": Look("#B13B92", "^", "-.", "ooo"),
    "gnndrive": Look("#3B69BB", "D", "-", "----"),
    "gnndrive (cpu)": Look("#708CF4", "d", "--", "--.."),
    "diskgnn": Look("#EC4101", "*", "-", "||||"),
    "agnes": Look("#FD2590", (4, 1, 45), "--", "oo.."),
    "outcore": Look("#C400F7", "8", "-", "++"),
    "pagraph": Look("#017FAC", "p", "--", "\\\\"),
    "pagraph+pp": Look("#0588F8", "h", ":", "//"),
    "dgl": Look("#64886C", "<", "-.", "xx"),
    "dgl+cache": Look("#8B616C", ">", "--", ".."),
    "dgl+pp": Look("#917557", (3, 1, 0), ":", "oo"),
    "uva": Look("#7F55CD", (6, 1, 0), "-.", "**"),
    "data-tiering": Look("#B48976", "H", "-", "OO"),
}
#: Looks of other series and of parts of a stack, none a system's colour; neighbours differ in lightness.
SERIES = (
    Look("#005CFD", "o", "-", ""),
    Look("#E87045", "s", "--", "////"),
    Look("#73619F", "D", "-.", "...."),
    Look("#6F96C4", "^", ":", "\\\\\\\\"),
    Look("#6E6E11", "v", "-", "xxxx"),
    Look("#F250D0", "P", "--", ""),
    Look("#1C9E06", "X", "-.", "||||"),
    Look("#929765", "*", ":", "oo"),
    Look("#A102FC", "p", "-", "--"),
    Look("#BE75A0", "<", "--", "++++"),
    Look("#D10271", ">", "-.", "**"),
    Look("#A275FE", "h", ":", "//"),
)
# Markers of the series that use a colour again.
_AGAIN = ("H", "8", "d", (4, 1, 0), (6, 1, 0))
#: Stages of an epoch whose colour is the same on all pages.
STAGES = (
    "sample",
    "extract",
    "transfer",
    "train",
    "wait",
    "inspect",
    "switch",
    "cache_update",
    "load_graph",
    "assemble",
    "data_prep",
    "pack",
)
STAGE_COLORS = {stage: look.color for stage, look in zip(STAGES, SERIES, strict=True)}
Looks = Callable[[str], Look]


def ordered(systems: Sequence[str]) -> list[str]:
    """Return the distinct systems in drawing order, unknown ones last by name."""
    order = list(LOOKS)
    return sorted(set(systems), key=lambda name: (order.index(name) if name in order else len(order), name))


def series_look(index: int) -> Look:
    """Return the look of the index-th series or part; one that uses a colour again has another marker and hatch."""
    again, place = divmod(index, len(SERIES))
    known = SERIES[place]
    if not again:
        return known
    marker = _AGAIN[(again - 1) % len(_AGAIN)]
    return replace(known, marker=marker, hatch=known.hatch + "." * again)


def named_looks(labels: Sequence[str]) -> Looks:
    """Return the looks of labels by their position."""
    own = {label: series_look(index) for index, label in enumerate(dict.fromkeys(labels))}
    return lambda label: own[label]


def system_looks(systems: Sequence[str]) -> Looks:
    """Return the looks of systems: an unknown one has the look of a series, by its place among the unknown names."""
    unknown = sorted(set(systems) - set(LOOKS))
    own = LOOKS | {name: series_look(index) for index, name in enumerate(unknown)}
    return lambda system: own[system]


def looks_of(series: Sequence[str], looks: Looks | None) -> tuple[list[str], Looks]:
    """Return the series in drawing order and their looks.

    Systems of the table stand in its order; other series, and systems beside some that it lacks, stand as given.
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
