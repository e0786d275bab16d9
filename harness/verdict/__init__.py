"""Whether a run's number counts: named rules over its record and evidence, and one verdict (methodology rule 24)."""

# Importing a module of rules is what registers them.
from harness.verdict import clock, compute, features, io, memory, provenance, quiet  # noqa: F401
from harness.verdict.registry import Finding, Rule, judge, judged_anew, rule, rules, spoilt

__all__ = ["Finding", "Rule", "judge", "judged_anew", "rule", "rules", "spoilt"]
