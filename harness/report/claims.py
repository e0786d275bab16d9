"""The scoreboard: the papers' claims and our records' verdicts on them."""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workloads.errors import OutcoreError

if TYPE_CHECKING:
    from harness.compare.evidence import Evidence

VERDICTS = ("reproduced", "direction only", "not reproduced", "emulated", "not run")


@dataclass(frozen=True)
class Claim:
    """One claim of `harness.claims.judge_all` as text for a reader; empty where there is nothing."""

    id: str
    paper: str
    claim: str
    condition: str
    verdict: str
    published: str
    measured: str
    reason: str
    figure: str


@dataclass(frozen=True)
class Scoreboard:
    """All claims; `missing` is the reason where there are none."""

    claims: list[Claim]
    missing: str = ""

    def counts(self) -> list[tuple[str, int]]:
        """Count the claims for each verdict, best first; unknown verdicts come last."""
        found = Counter(claim.verdict for claim in self.claims)
        return [(verdict, found.pop(verdict, 0)) for verdict in VERDICTS] + sorted(found.items())

    def by_paper(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Count the claims of each paper for each verdict, in the order of the claims."""
        papers = dict.fromkeys(claim.paper for claim in self.claims)
        return [(p, Scoreboard([c for c in self.claims if c.paper == p]).counts()) for p in papers]

    def of_figure(self, ids: tuple[str, ...], figure: str) -> list[Claim]:
        """Return the claims of a figure."""
        return [claim for claim in self.claims if claim.id in ids or (claim.figure == figure and figure)]


def judge(evidence: Evidence) -> Scoreboard:
    """Judge every published claim; where that fails, return the reason as `missing`."""
    if importlib.util.find_spec("harness.claims") is None:
        return Scoreboard([], "This version judges no claims yet.")
    judge_all = getattr(importlib.import_module("harness.claims"), "judge_all", None)
    if judge_all is None:
        return Scoreboard([], "This version judges no claims yet.")
    try:
        found = [claim_of(entry) for entry in judge_all(evidence)]
    except OutcoreError as error:
        return Scoreboard([], f"The claims could not be judged: {error}.")
    return Scoreboard(found, "" if found else "There is no published claim to judge.")


def claim_of(entry: Any) -> Claim:
    """Convert an object or a mapping with the keys of `outcore claims --json`, each of which may be missing."""

    def get(name: str) -> Any:
        return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)

    unit = str(get("unit") or "")
    return Claim(
        id=str(get("id") or ""),
        paper=str(get("paper") or ""),
        claim=str(get("claim") or ""),
        condition=str(get("condition") or ""),
        verdict=str(get("verdict") or "not run"),
        published=_value(get("paper_value"), unit),
        measured=_measured(get("measured"), get("interval"), str(get("interval_kind") or ""), unit),
        reason=str(get("reason") or ""),
        figure=str(get("figure") or ""),
    )


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _value(value: Any, unit: str) -> str:
    if value is None or value != value or value == "":
        return ""
    return f"{_number(value)} {unit}".strip()


def _measured(value: Any, interval: Any, kind: str, unit: str) -> str:
    return _value(value, unit) + (_interval(interval, kind) if value is not None else "")


def _interval(value: Any, kind: str) -> str:
    if not isinstance(value, list | tuple) or len(value) != 2 or None in value or value[0] == value[1]:
        return ""
    named = {"bootstrap95": "95 %", "range": "range"}.get(kind, kind)
    return f" [{_number(value[0])}–{_number(value[1])}{f', {named}' if named else ''}]"
