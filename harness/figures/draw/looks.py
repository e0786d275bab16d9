"""Looks for series that are not systems: policies, rankings, variants, stages; distinct in greyscale, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.figures.draw.style import LOOKS, Look, look, ordered

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
