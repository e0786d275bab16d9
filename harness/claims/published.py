"""The published claims with their sources (`harness/published/claims.csv`); every
column is checked when read."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, get_args

import harness
from harness.settings import RunSettings, unknown_name
from workloads.errors import InputError

FILE = Path(harness.__file__).parent / "published" / "claims.csv"
Verdict = Literal[
    "reproduced", "direction only", "not reproduced", "emulated", "not run"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
#: Key of `setting` beside those of a run's settings: the feature dimension of the
#: dataset.
DIM = "dim"
_NUMBER = r"\d+(?:\.\d+)?"


@dataclass(frozen=True)
class Claim:
    """One row of the file: one published quantity.

    Attributes:
        where: section, table or figure of the paper.
        value: a number, or `85–90` for a published range.
        bound: `at least` or `at most`, or `above` or `below` where equality does not
            satisfy the bound; else empty.
        tolerance: `factor 2` or `10 points`; empty where only the side of the value
            counts.
        neutral: value without a direction, 1 for ratios and 0 for differences; empty
            where there is none.
        read: source of the value: printed `text`, `computed` from printed numbers, a
            `plot`, or `words` ("similar").
        computed: computation of a value that is not printed.
        near: words of the paper beside the value.
        figure: id of the catalogue's figure that shows the claim.
        runs: `figure` or `bench`: source of the runs that answer the claim.
        setting: subset of these runs, as `model=sage dim=128`; other settings are the
            profile's.
        condition: the paper's own setting.
        differs: difference of our runs from it, beyond scale, device and cap; empty:
            none.
        emulated: `device` where an emulated device's coefficients decide the number.
        not_run: reason why no run of ours can answer the claim; else empty.
    """

    id: str
    paper: str
    where: str
    claim: str
    value: str
    unit: str
    bound: str
    tolerance: str
    neutral: str
    read: str
    computed: str
    near: str
    figure: str
    runs: str
    setting: str
    condition: str
    differs: str
    emulated: str
    not_run: str

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Least and greatest number that agrees with the paper; infinite on the open
        side of a bound."""
        low, _, high = self.value.partition("–")
        first = float(low)
        last = float(high or low)
        if self.bound in ("at least", "above"):
            return first, math.inf
        return (
            (-math.inf, last) if self.bound in ("at most", "below") else (first, last)
        )

    @property
    def is_interval(self) -> bool:
        """Whether the paper gives a bound or a range, to which no tolerance is
        added."""
        return bool(self.bound) or "–" in self.value

    @cached_property
    def middle(self) -> float | None:
        """The value without a direction; None where there is none."""
        return float(self.neutral) if self.neutral else None

    @cached_property
    def factor(self) -> float | None:
        """Factor of a tolerance such as `factor 2`; None for another tolerance."""
        return self._tolerated(rf"factor ({_NUMBER})")

    @cached_property
    def points(self) -> float | None:
        """Points of a tolerance such as `10 points`; None for another tolerance."""
        return self._tolerated(rf"({_NUMBER}) points")

    def _tolerated(self, form: str) -> float | None:
        found = re.fullmatch(form, self.tolerance)
        return float(found[1]) if found else None

    @property
    def chosen(self) -> dict[str, str]:
        """Settings by key."""
        return dict(part.split("=", 1) for part in self.setting.split())

    @property
    def published(self) -> str:
        """Value with its bound, as text."""
        return f"{self.bound} {self.value}".strip()


def distance(claim: Claim, seen: float) -> float:
    """Return the distance of `seen` from the published value in tolerances; 0 within a
    bound or a range."""
    low, high = claim.ends
    is_strict = claim.bound in ("above", "below")
    if low < seen < high or (seen in (low, high) and not is_strict):
        return 0.0
    nearest = low if seen <= low else high
    if claim.factor is not None:
        if seen <= 0 or nearest <= 0:
            return math.inf
        # Of the smallest numbers the quotient is 0, and a difference of logarithms
        # still a number.
        return abs(math.log(seen) - math.log(nearest)) / math.log(claim.factor)
    return abs(seen - nearest) / claim.points if claim.points else math.inf


def verdict_of(claim: Claim, seen: float) -> Verdict:
    """Return the verdict on one number.

    Reproduced: within the tolerance of the published value, or within the published
    bound or range itself. Direction only: within twice the tolerance. Not reproduced:
    further off, or on the wrong side of the neutral value.
    """
    off = distance(claim, seen)
    if not direction(claim, seen) or off > 2 + 1e-9:
        return "not reproduced"
    return (
        "reproduced"
        if off <= (0.0 if claim.is_interval else 1 + 1e-9)
        else "direction only"
    )


def direction(claim: Claim, seen: float) -> bool:
    """Return whether the number is on the published value's side of the neutral value;
    True without a neutral one."""
    low, high = claim.ends
    if claim.middle is None or low <= claim.middle <= high:
        return True
    return seen > claim.middle if low > claim.middle else seen < claim.middle


_ALLOWED = {
    "bound": ("", "at least", "at most", "above", "below"),
    "read": ("text", "computed", "plot", "words"),
    "runs": ("figure", "bench"),
    "emulated": ("", "device"),
}


def check(claim: Claim) -> None:
    """Refuse an unreadable row, and a claim that every number or no number would
    reproduce.

    Raises:
        InputError: a column's value is invalid, or the claim cannot fail or cannot
            hold.
    """

    def wrong(what: str, fix: str) -> InputError:
        return InputError(f"claim {claim.id}: {what}", fix)

    for name, values in _ALLOWED.items():
        if getattr(claim, name) not in values:
            raise wrong(
                f"{name} is {getattr(claim, name)!r}",
                f"one of {', '.join(map(repr, values))}",
            )
    for name, read in (("value", "ends"), ("neutral", "middle"), ("setting", "chosen")):
        try:
            getattr(claim, read)
        except ValueError as error:
            fix = "see harness.claims.published.Claim"
            raise wrong(
                f"{name} {getattr(claim, name)!r} cannot be read: {error}", fix
            ) from None
    for key in claim.chosen:
        if key != DIM and key not in RunSettings.model_fields:
            raise unknown_name(
                "setting",
                f"claim {claim.id}: setting {key}",
                key,
                [DIM, *RunSettings.model_fields],
            )
    if not claim.tolerance and claim.bound not in ("above", "below"):
        raise wrong(
            "it has no tolerance",
            "`factor 2` or `10 points`, or a bound `above` or `below`",
        )
    if claim.tolerance and (claim.factor or 0) <= 1 and not claim.points:
        raise wrong(f"tolerance {claim.tolerance!r}", "`factor 2` or `10 points`")
    if claim.read == "computed" and not claim.computed:
        raise wrong(
            "it is computed, and not stated how",
            "name the printed numbers in `computed`, as `205 / 76.3`",
        )
    for verdict in ("reproduced", "not reproduced"):
        if all(verdict_of(claim, number) != verdict for number in possible(claim.unit)):
            raise wrong(
                f"no possible number is {verdict!r}",
                "narrow its tolerance, or correct its value",
            )


def possible(unit: str) -> list[float]:
    """Return numbers of all sizes that are possible in a unit: a share ends at 100
    %."""
    if unit == "%":
        return [float(number) for number in range(101)]
    if unit == "points":
        return [number / 20 for number in range(-2000, 2001)]
    return [10 ** (number / 50) for number in range(-250, 251)]


@cache
def claims() -> dict[str, Claim]:
    """Read every claim by id, in the file's order.

    Raises:
        InputError: the file holds a claim that cannot be judged.
    """
    with FILE.open(newline="", encoding="utf-8") as stream:
        rows = [Claim(**row) for row in csv.DictReader(stream)]
    for row in rows:
        check(row)
    return {row.id: row for row in rows}


def find_claim(id_: str) -> Claim:
    """Return one claim.

    Raises:
        InputError: no claim has this id; names the nearest.
    """
    known = claims()
    if id_ not in known:
        raise unknown_name("claim", f"claim {id_!r}", id_, list(known))
    return known[id_]
