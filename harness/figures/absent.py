"""Systems of a figure that no run measured, for its caption."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd


def not_run(medians: pd.DataFrame, systems: Sequence[str]) -> list[str]:
    """Return caption text of each of `systems` without a row, like `ginex not run`."""
    ran = set(medians.system)
    return [f"{system} not run" for system in systems if system not in ran]
