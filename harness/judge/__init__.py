"""Verdict on a run (methodology rule 24), by named rules over its record and evidence."""

# Importing a module registers its rules.
from harness.judge import (
    clock,  # noqa: F401
    compute,  # noqa: F401
    io,  # noqa: F401
    memory,  # noqa: F401
    provenance,  # noqa: F401
    quiet,  # noqa: F401
)
from harness.judge.registry import Finding, Rule, judge, judged_anew, rule, rules, spoilt

__all__ = ["Finding", "Rule", "judge", "judged_anew", "rule", "rules", "spoilt"]
