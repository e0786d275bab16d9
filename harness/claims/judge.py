"""The verdict on a claim: the published value, our measurement in the declared setting, and their distance."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.claims.measured import Measured, NotRun
from harness.claims.published import Claim, Verdict, claims, find_claim, verdict_of
from harness.claims.query import queries
from harness.claims.records import DeclaredRuns, default_profile
from harness.compare.points import NotDrawn

if TYPE_CHECKING:
    from harness.compare.evidence import Evidence
    from harness.compare.plan import Plain


@dataclass(frozen=True)
class Judged:
    """One claim with its verdict.

    Attributes:
        paper_value: published value with its bound, as `at least 35`.
        profile, setting: bench profile, and the claim's selection of its runs.
        certain: whether both ends of the interval give the same verdict.
    """

    id: str
    paper: str
    claim: str
    condition: str
    verdict: Verdict
    paper_value: str
    unit: str
    tolerance: str
    read: str
    figure: str
    profile: str
    setting: str
    measured: float | None = None
    interval: list[float] | None = None
    interval_kind: str = ""
    certain: bool = True
    reason: str = ""
    found: Measured | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, without the parts that only `--explain` shows."""
        content = asdict(self)
        del content["found"]
        return content


def judge_all(evidence: Evidence, profile: Plain | None = None) -> list[Judged]:
    """Judge every published claim, in the file's order; the claims declare runs of `profile` (default: `quick`)."""
    declared = DeclaredRuns(evidence, profile or default_profile())
    return [_judge(claim, declared) for claim in claims().values()]


def judge_one(id_: str, evidence: Evidence, profile: Plain | None = None) -> Judged:
    """Judge one claim.

    Raises:
        InputError: no claim has this id.
    """
    return _judge(find_claim(id_), DeclaredRuns(evidence, profile or default_profile()))


def _judge(claim: Claim, declared: DeclaredRuns) -> Judged:
    told = ("id", "paper", "claim", "condition", "unit", "tolerance", "read", "figure")
    judged = Judged(
        **{name: getattr(claim, name) for name in told},
        verdict="not run",
        paper_value=claim.published,
        profile=declared.name,
        setting=declared.setting(claim),
        reason=claim.not_run,
    )
    if claim.not_run:
        return judged
    records = declared.records(claim)
    try:
        found = queries()[claim.id](records)
    except (NotRun, NotDrawn) as reason:
        hint = "" if records.valid else f"; {declared.how(claim)} makes the runs"
        return replace(judged, reason=f"{reason}{hint}")
    number = found.number
    verdict = verdict_of(claim, number.value)
    certain = all(verdict_of(claim, end) == verdict for end in (number.low, number.high))
    if claim.emulated and str(found.setting.get("device", "")).startswith("emulated:"):
        verdict, certain = "emulated", True
    return replace(
        judged,
        verdict=verdict,
        measured=number.value,
        interval=[number.low, number.high],
        interval_kind=number.kind,
        certain=certain,
        reason=_reason(claim, verdict, certain=certain),
        found=found,
    )


def _reason(claim: Claim, verdict: Verdict, *, certain: bool) -> str:
    if verdict == "emulated":
        return "the emulated device's coefficients decide it; on a real one it would be judged"
    kept = claim.published if claim.is_interval else f"{claim.tolerance} of it"
    words = {
        "reproduced": f"within {kept}",
        "direction only": f"not within {kept}, but within twice the tolerance ({claim.tolerance})",
        "not reproduced": f"on the wrong side, or beyond twice the tolerance ({claim.tolerance or 'none'})",
    }[verdict]
    return words if certain else f"{words}; the interval reaches another verdict"
