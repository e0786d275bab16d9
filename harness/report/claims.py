"""The scoreboard: the papers' claims and our records' verdicts on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.claims.explain import interval_text, number_text
from harness.claims.judge import Judged, judge_all
from harness.claims.published import VERDICTS
from workloads.errors import OutcoreError

if TYPE_CHECKING:
    from harness.compare.evidence import Evidence


@dataclass(frozen=True)
class Scoreboard:
    """All judged claims; `missing` is the reason where there are none."""

    claims: Sequence[Judged]
    missing: str = ""

    def counts(self) -> list[tuple[str, int]]:
        """Count the claims for each verdict, best first; unknown verdicts come last."""
        found = Counter[str](claim.verdict for claim in self.claims)
        return [(verdict, found.pop(verdict, 0)) for verdict in VERDICTS] + sorted(found.items())

    def by_paper(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Count the claims of each paper for each verdict, in the order of the claims."""
        papers = dict.fromkeys(claim.paper for claim in self.claims)
        return [(p, Scoreboard([c for c in self.claims if c.paper == p]).counts()) for p in papers]

    def of_figure(self, ids: tuple[str, ...], figure: str) -> list[Judged]:
        """Return the claims of a figure."""
        return [claim for claim in self.claims if claim.id in ids or (claim.figure == figure and figure)]


def judge(evidence: Evidence) -> Scoreboard:
    """Judge every published claim; where that fails, return the reason as `missing`."""
    try:
        found = judge_all(evidence)
    except OutcoreError as error:
        return Scoreboard([], f"The claims could not be judged: {error}.")
    return Scoreboard(found, "" if found else "There is no published claim to judge.")


def published_text(judged: Judged) -> str:
    """Return the published value with its unit."""
    return f"{judged.paper_value} {judged.unit}".strip()


def measured_text(judged: Judged) -> str:
    """Return the measured number with unit and interval; a dash where nothing was measured."""
    if judged.measured is None:
        return "–"
    return f"{number_text(judged.measured)} {judged.unit}".strip() + interval_text(judged)
