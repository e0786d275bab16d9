"""The registry of verdict rules, and the verdict that follows from what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.context import RunContext
from harness.record import Record, RuleOutcome, Verdict

Severity = Literal["INVALID", "CAVEATS"]


@dataclass(frozen=True)
class Finding:
    """What a rule found: whether it held, and one phrase with the numbers."""

    ok: bool
    detail: str = ""


Check = Callable[[Record, RunContext], Finding | None]


@dataclass(frozen=True)
class Rule:
    """One rule: its number in the methodology, its name, what breaking it means, and the check.

    A check returns None where it does not apply to the run. Its docstring says why the rule is there and how it looks.
    """

    number: str
    name: str
    severity: Severity
    check: Check

    @property
    def why(self) -> str:
        """The check's docstring."""
        return (self.check.__doc__ or "").strip()


_RULES: list[Rule] = []
# Rules that a run breaks because of what else went on at that moment: the same run may keep them the next time.
OF_THE_MOMENT = frozenset({"started_cold", "no_faster_than_the_device", "disk_was_not_shared"})


def rule(number: str, name: str, severity: Severity = "INVALID") -> Callable[[Check], Check]:
    """Register a check as rule `number` of the methodology."""

    def register(check: Check) -> Check:
        _RULES.append(Rule(number, name, severity, check))
        return check

    return register


def rules() -> list[Rule]:
    """Every rule, in the methodology's order."""
    return sorted(_RULES, key=lambda entry: (int("".join(filter(str.isdigit, entry.number))), entry.name))


def spoilt(record: Record) -> bool:
    """Whether a finished run is INVALID for nothing but its moment, so that making it again may give a number."""
    broken = {outcome.name for outcome in record.verdict_rules if not outcome.ok}
    invalid = {entry.name for entry in _RULES if entry.severity == "INVALID"}
    return record.status == "ok" and record.verdict == "INVALID" and broken & invalid <= OF_THE_MOMENT


def judge(record: Record, context: RunContext) -> tuple[Verdict, list[RuleOutcome]]:
    """The verdict and what each rule that applies said.

    `INVALID` where a rule that invalidates is broken or the run failed, `CAVEATS` where another one is, else `VALID`.
    """
    outcomes: list[RuleOutcome] = []
    verdict: Verdict = "VALID"
    for entry in rules():
        finding = entry.check(record, context)
        if finding is None:
            continue
        outcomes.append(RuleOutcome(rule=entry.number, name=entry.name, ok=finding.ok, detail=finding.detail))
        if not finding.ok:
            if entry.severity == "INVALID":
                verdict = "INVALID"
            elif verdict == "VALID":
                verdict = "CAVEATS"
    return verdict, outcomes
