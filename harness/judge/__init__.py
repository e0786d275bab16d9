"""Verdict on a run (methodology rule 24), by named rules over its record and
evidence."""

# Importing a module registers its rules.
from harness.judge import clock, compute, hidden, io, memory, noise  # noqa: F401
from harness.judge.registry import (
    Finding,
    Rule,
    judge,
    judged_anew,
    rule,
    rules,
    spoilt,
)

__all__ = ["Finding", "Rule", "judge", "judged_anew", "rule", "rules", "spoilt"]
