"""The verdict on a claim: what the paper has, what we measured, and whether the one follows from the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from harness.claims.measured import Measured, NotRun
from harness.claims.pairs import Records
from harness.claims.published import Claim, claims, find_claim
from harness.claims.query import queries
from harness.figures.query import NotDrawn

if TYPE_CHECKING:
    from harness.figures.evidence import Evidence

Verdict = Literal["reproduced", "direction only", "not reproduced", "not run"]


@dataclass(frozen=True)
class Judged:
    """One claim with its verdict.

    Attributes:
        measured: one number, or one for each of the paper's; None where nothing was measured.
        interval: of `measured`; a list of them where there are several.
        certain: whether both ends of every interval would give the same verdict.
        figure: the figure whose runs answer it.
    """

    id: str
    paper: str
    claim: str
    condition: str
    verdict: Verdict
    paper_value: str
    unit: str
    tolerance: str
    figure: str
    measured: float | list[float] | None = None
    interval: list[Any] | None = None
    interval_kind: str = ""
    certain: bool = True
    reason: str = ""
    found: Measured | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Plain data, without what only `--explain` shows."""
        content = asdict(self)
        del content["found"]
        return content


def judge_all(evidence: Evidence) -> list[Judged]:
    """Every published claim, in the file's order."""
    records = Records(evidence)
    return [_judge(claim, records) for claim in claims().values()]


def judge_one(id_: str, evidence: Evidence) -> Judged:
    """One claim.

    Raises:
        InputError: there is none of that id.
    """
    return _judge(find_claim(id_), Records(evidence))


def _judge(claim: Claim, records: Records) -> Judged:
    query = queries().get(claim.id)
    figure = query.figure if query else ""
    try:
        if query is None:
            raise NotRun("no query answers it")
        found = query.run(records)
    except (NotRun, NotDrawn) as reason:
        hint = f"; `make bench FIGURES={figure}` makes the runs" if figure and not records.valid else ""
        return _judged(claim, figure, "not run", reason=f"{reason}{hint}")
    verdict = verdict_of(claim, [number.value for number in found.numbers], found.holds)
    ends = [
        verdict_of(claim, [getattr(number, end) for number in found.numbers], found.holds) for end in ("low", "high")
    ]
    return _judged(claim, figure, verdict, found, certain=all(end == verdict for end in ends))


def _judged(
    claim: Claim,
    figure: str,
    verdict: Verdict,
    found: Measured | None = None,
    *,
    certain: bool = True,
    reason: str = "",
) -> Judged:
    numbers = found.numbers if found else ()
    kinds = sorted({number.kind for number in numbers})
    values = [number.value for number in numbers]
    intervals = [[number.low, number.high] for number in numbers]
    if found is not None and not reason:
        reason = _reason(claim, verdict, values, found.holds, certain=certain)
    return Judged(
        claim.id, claim.paper, claim.claim, claim.condition, verdict, claim.value, claim.unit, claim.tolerance, figure,
        measured=None if not values else values[0] if len(values) == 1 else values,
        interval=None if not values else intervals[0] if len(values) == 1 else intervals,
        interval_kind=" and ".join(kinds), certain=certain, reason=reason, found=found,
    )  # fmt: skip


def verdict_of(claim: Claim, values: Sequence[float], holds: bool | None = None) -> Verdict:
    """Reproduced: the direction is the paper's and every number is within the row's tolerance.

    Args:
        claim: the row.
        values: one for each of the paper's numbers (one for a range).
        holds: for claims of direction alone.
    """
    if not claim.numbers or claim.tolerance == "direction":
        return "reproduced" if holds else "not reproduced"
    if not direction(claim, values):
        return "not reproduced"
    return "reproduced" if within(claim, values) else "direction only"


def direction(claim: Claim, values: Sequence[float]) -> bool:
    """Whether the numbers point where the paper's do.

    Values of several systems: in the same order. Ratios: on the same side of 1 (a published 1 has no side). Shares:
    on the same side of a half. Reductions and differences: of the same sign (a published 0 has none). A number beyond a
    bound, on its open side, points where the bound does; a single magnitude has no direction but its tolerance.
    """
    numbers = claim.numbers
    if claim.tolerance.startswith("ratios"):
        return within(claim, values) if len(numbers) < 2 else _order(values) == _order(numbers)
    if claim.bound and all(_beyond(claim.bound, seen, published) for seen, published in _matched(claim, values)):
        return True
    if claim.unit.startswith("x"):
        if "features" in claim.unit or (claim.bound and claim.numbers[0] == 1.0):
            return True
        return all(published == 1.0 or (seen > 1.0) == (published > 1.0) for seen, published in _matched(claim, values))
    if claim.unit.startswith("%") and _is_share(claim.metric):
        return all((seen >= 50.0) == (published >= 50.0) for seen, published in _matched(claim, values))
    return all(published == 0.0 or (seen > 0.0) == (published > 0.0) for seen, published in _matched(claim, values))


def within(claim: Claim, values: Sequence[float]) -> bool:
    """Whether every number lies within the tolerance of the paper's, a bound being open on its side."""
    if claim.tolerance.startswith("ratios"):
        factor = claim.factor or 1.0
        published = claim.numbers
        if len(published) == 1:
            return _near(values[0], published[0], factor)
        return all(
            _near(values[i + 1] / values[i], published[i + 1] / published[i], factor)
            for i in range(len(published) - 1)
            if values[i] and published[i]
        )
    if claim.is_range:
        low, high = sorted(claim.numbers)
        slack = claim.points or 0.0
        return low - slack <= values[0] <= high + slack
    return all(_fits(claim, seen, published) for seen, published in _matched(claim, values))


def _fits(claim: Claim, seen: float, published: float) -> bool:
    if claim.points is not None:
        low, high = published - claim.points, published + claim.points
    else:
        factor = claim.factor or 1.0
        low, high = published / factor, published * factor
    return (claim.bound == "or less" or seen >= low) and (claim.bound == "or more" or seen <= high)


def _beyond(bound: str, seen: float, published: float) -> bool:
    return seen >= published if bound == "or more" else seen <= published


def _near(seen: float, published: float, factor: float) -> bool:
    return published / factor <= seen <= published * factor


def _matched(claim: Claim, values: Sequence[float]) -> list[tuple[float, float]]:
    if claim.is_range:
        return [(values[0], sum(claim.numbers) / 2)]
    if len(values) == 1 and len(claim.numbers) > 1:
        # One dataset of ours for several of the paper's: it is held against the nearest of them.
        return [(values[0], min(claim.numbers, key=lambda number: abs(number - values[0])))]
    return list(zip(values, claim.numbers, strict=True))


def _order(values: Sequence[float]) -> list[int]:
    return sorted(range(len(values)), key=lambda index: values[index])


def _is_share(metric: str) -> bool:
    return metric in ("stage_share", "access_share", "hit_ratio", "miss_ratio")


def _reason(claim: Claim, verdict: Verdict, values: Sequence[float], holds: bool | None, *, certain: bool) -> str:
    if not values:
        return "it is so here" if holds else "it is not so here"
    words = {
        "reproduced": f"within the tolerance ({claim.tolerance})",
        "direction only": f"the direction is the paper's, the size is not ({claim.tolerance})",
        "not reproduced": (
            "outside the tolerance"
            if claim.tolerance.startswith("ratios") and len(values) == 1
            else "the direction is not the paper's"
        ),
        "not run": "",
    }[verdict]
    return words if certain else f"{words}; the interval reaches another verdict"
