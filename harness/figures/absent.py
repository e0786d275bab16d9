"""Missing values of a figure in its caption, each named with its system."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd


def failures(medians: pd.DataFrame, systems: Sequence[str]) -> list[str]:
    """Return caption text of each row without a value, like `ginex OOM`, and of each of
    `systems` without a row."""
    failed = medians[medians.value.isna()]
    ended = failed.system + " " + failed.status.str.upper()
    ran = set(medians.system)
    absent = [f"{system} not run" for system in systems if system not in ran]
    return [*ended, *absent]
