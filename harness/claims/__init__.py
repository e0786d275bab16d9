"""Claims: the numbers that the papers publish, each judged against our own records."""

from harness.claims.judge import Judged, judge_all, judge_one

__all__ = ["Judged", "judge_all", "judge_one"]
