"""Claims: what the papers publish as numbers, held against our own records, one verdict each."""

from harness.claims.judge import Judged, judge_all, judge_one

__all__ = ["Judged", "judge_all", "judge_one"]
