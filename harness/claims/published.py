"""The published claims as facts with their source (`results/published/claims.csv`), their values as numbers."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.settings import unknown_name
from workloads.errors import InputError

FILE = Path(__file__).resolve().parent.parent.parent / "results" / "published" / "claims.csv"
DIRECTIONS = ("<", ">", ">=", "<=")


@dataclass(frozen=True)
class Claim:
    """One row.

    Attributes:
        value: as printed: `16.9`, `1.23 / 1.47` (least and most, or one for each system named), `85–90`, or `<`.
        tolerance: `factor 2`, `10 points`, `direction`, `ratios within factor 2`.
    """

    id: str
    paper: str
    where: str
    claim: str
    metric: str
    better: str
    baseline: str
    condition: str
    value: str
    unit: str
    tolerance: str

    @property
    def numbers(self) -> tuple[float, ...]:
        """The published numbers; none for a claim of direction alone; both ends of a range."""
        if self.value in DIRECTIONS:
            return ()
        return tuple(float(part) for part in re.split(r"\s*[/–]\s*", self.value))

    @property
    def is_range(self) -> bool:
        """Whether the two numbers are the ends of one value."""
        return "–" in self.value

    @property
    def bound(self) -> str:
        """`or more`, `or less`, or nothing; a claim that ends in `over` or `at least` states a lower bound, too."""
        found = re.search(r"or (more|less)$", self.unit)
        if found is None and self.claim.endswith((" over", " at least")):
            return "or more"
        return found.group(0) if found else ""

    @property
    def factor(self) -> float | None:
        """The factor of `factor 2` and `ratios within factor 2`."""
        found = re.search(r"factor (\d+(?:\.\d+)?)$", self.tolerance)
        return float(found.group(1)) if found else None

    @property
    def points(self) -> float | None:
        """The points of `10 points`."""
        found = re.match(r"(\d+(?:\.\d+)?) points$", self.tolerance)
        return float(found.group(1)) if found else None


@cache
def claims(file: Path = FILE) -> dict[str, Claim]:
    """Every claim by id, in the file's order.

    Raises:
        InputError: the file cannot be read or lacks a column.
    """
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            rows = [Claim(**row) for row in csv.DictReader(stream)]
    except (OSError, TypeError) as error:
        raise InputError(f"the published claims {file} cannot be read: {error}", "restore the file") from error
    return {row.id: row for row in rows}


def find_claim(id_: str) -> Claim:
    """One claim.

    Raises:
        InputError: there is none of that id; names the nearest.
    """
    known = claims()
    if id_ not in known:
        raise unknown_name("claim", f"claim {id_!r}", id_, list(known))
    return known[id_]
