"""Whether a run's number counts: named rules over its record and evidence, and one verdict (methodology rule 24)."""

from harness.verdict.registry import Finding, Rule, judge, rule, rules

__all__ = ["Finding", "Rule", "judge", "rule", "rules"]
