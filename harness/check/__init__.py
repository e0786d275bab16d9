"""Conformance: whether a system keeps the promises of `systems/interface.py` (`outcore check SYSTEM`).

`case.py` says what is tried, `drive.py` and `faults.py` try it in a process of their own, `rules.py` judges what they
saw, `runner.py` puts the three together.
"""

from harness.check.rules import RULES, CheckResult
from harness.check.runner import check_system

__all__ = ["RULES", "CheckResult", "check_system"]
