"""Conformance of a system to the promises of `systems/interface.py` (`outcore check SYSTEM`).

`case.py` defines the cases, `drive.py` runs them in a child process, `rules.py` judges the observations,
`runner.py` combines the three.
"""

from harness.check.rules import RULES, CheckResult
from harness.check.runner import check_system

__all__ = ["RULES", "CheckResult", "check_system"]
