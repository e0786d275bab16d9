"""The one style of all figures: column width, colours, markers and order of the systems, and looks of other series.

Colours are colour-blind safe (Okabe-Ito); in greyscale systems differ by lightness, marker, line style and hatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.parsing import parse_yaml

COLUMN_INCHES = 3.5
PAGE_INCHES = 7.16
_SPEC = parse_yaml(Path(__file__).with_suffix(".yaml").read_bytes())
RC: Any = _SPEC["rc"]


@dataclass(frozen=True)
class Look:
    """The appearance of one system in all figures."""

    color: str
    marker: str
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


#: Looks of the systems, in drawing order, and of an unknown one.
LOOKS: dict[str, Look] = {system: Look(*own) for system, own in _SPEC["systems"].items()}
SPARE = Look(*_SPEC["spare"])
#: Looks of other series, and (colour, hatch) of the parts of a stack.
SERIES = tuple(Look(*own) for own in _SPEC["series"])
PARTS: tuple[tuple[str, str], ...] = tuple((color, hatch) for color, hatch in _SPEC["parts"])
Looks = Callable[[str], Look]


def look(system: str) -> Look:
    """Return the look of a system, the spare look for an unknown one."""
    return LOOKS.get(system, SPARE)


def ordered(systems: list[str]) -> list[str]:
    """Return the distinct systems in drawing order, unknown ones last by name."""
    order = list(LOOKS)
    return sorted(set(systems), key=lambda name: (order.index(name) if name in order else len(order), name))


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
    return Look(color, "", "", hatch).fill
