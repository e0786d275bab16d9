"""The one style of all figures: column width, colours, markers and order of the systems, and looks of other series.

Colours are colour-blind safe (Okabe-Ito); in greyscale systems differ by lightness, marker, line style and hatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

COLUMN_INCHES = 3.5
PAGE_INCHES = 7.16
DPI = 200

RC: Any = {
    "font.size": 8.0,
    "font.family": "sans-serif",
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.0,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "svg.hashsalt": "outcore",
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True)
class Look:
    """The appearance of one system in all figures."""

    color: str
    marker: str
    line: str
    hatch: str


# In drawing order; lightness alternates between neighbours.
LOOKS: dict[str, Look] = {
    "in-memory": Look("#555555", "d", ":", "...."),
    "pyg+": Look("#E69F00", "o", "-", ""),
    "dgl-ondisk": Look("#7F3B08", "v", "--", "xxxx"),
    "ali+pg": Look("#F0E442", "P", "-.", "\\\\\\\\"),
    "ginex": Look("#009E73", "s", "--", "////"),
    "ginex-pg": Look("#66C2A5", "X", ":", "++++"),
    "mariusgnn": Look("#CC79A7", "^", "-.", "oo"),
    "gnndrive": Look("#0B3C8C", "D", "-", "----"),
    "gnndrive (cpu)": Look("#8FB3E8", "d", "--", "...."),
    "diskgnn": Look("#D55E00", "*", "-", "||||"),
    "outcore": Look("#7B3294", "8", "-", "++"),
    "pagraph": Look("#56B4E9", "p", "--", "\\\\"),
    "pagraph+pp": Look("#A6D8F5", "h", ":", "//"),
    "dgl": Look("#8C8C8C", "<", "-.", "xx"),
    "dgl+cache": Look("#B0B0B0", ">", "--", ".."),
    "dgl+pp": Look("#CFCFCF", "1", ":", "oo"),
    "uva": Look("#3B0F70", "2", "-.", "**"),
    "data-tiering": Look("#000000", "H", "-", "OO"),
}
SPARE = Look("#999999", "x", ":", "")


def look(system: str) -> Look:
    """Return the look of a system, the spare look for an unknown one."""
    return LOOKS.get(system, SPARE)


def ordered(systems: list[str]) -> list[str]:
    """Return the distinct systems in drawing order, unknown ones last by name."""
    order = list(LOOKS)
    return sorted(set(systems), key=lambda name: (order.index(name) if name in order else len(order), name))


# Okabe-Ito, neighbours far apart in lightness; marker, line and hatch differ beside the colour.
SERIES = (
    Look("#0072B2", "o", "-", ""),
    Look("#E69F00", "s", "--", "////"),
    Look("#000000", "D", "-.", ""),
    Look("#56B4E9", "^", ":", "\\\\\\\\"),
    Look("#D55E00", "v", "-", "xxxx"),
    Look("#F0E442", "P", "--", "...."),
    Look("#009E73", "X", "-.", "||||"),
    Look("#CC79A7", "*", ":", "oo"),
)
# Parts of a stack, from dark to light and back, so that the border between two neighbours shows in greyscale.
PARTS = (
    ("#0B3C8C", ""),
    ("#E69F00", "////"),
    ("#D9D9D9", "...."),
    ("#009E73", "\\\\\\\\"),
    ("#F0E442", ""),
    ("#D55E00", "xxxx"),
    ("#A6D8F5", "--"),
    ("#555555", "||||"),
    ("#CC79A7", "oo"),
    ("#FFFFFF", "++++"),
)

Looks = Callable[[str], Look]


def named_looks(labels: Sequence[str]) -> Looks:
    """Return a look for each label by its position; from the ninth on, the markers distinguish the lines."""
    own = {label: SERIES[index % len(SERIES)] for index, label in enumerate(dict.fromkeys(labels))}
    for index, label in enumerate(own):
        if index >= len(SERIES):
            known = own[label]
            own[label] = Look(known.color, "p" if known.marker == "o" else "h", ":", known.hatch + "..")
    return lambda label: own.get(label) or look(label)


def looks_of(series: Sequence[str], looks: Looks | None) -> tuple[list[str], Looks]:
    """Return the series in drawing order and their looks: systems in their fixed order, other series as given."""
    found = list(dict.fromkeys(series))
    if looks is not None:
        return found, looks
    if all(name in LOOKS for name in found):
        return ordered(found), look
    return found, named_looks(found)


def part_fill(index: int) -> dict[str, Any]:
    """Return keywords of `bar` for the index-th part of a stack."""
    color, hatch = PARTS[index % len(PARTS)]
    return {"facecolor": color, "hatch": hatch, "edgecolor": "black", "linewidth": 0.5}
