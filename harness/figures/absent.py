"""Missing values of a figure, each named with its system."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.figures.draw.panels import MARK


def failures(medians: pd.DataFrame, systems: Sequence[str]) -> list[str]:
    """Return caption text of each row without a value, like `ginex OOM`, and of each of `systems` without a row."""
    failed = medians[medians.value.isna()]
    ended = failed.system + " " + failed.status.str.upper()
    ran = set(medians.system)
    absent = [f"{system} not run" for system in systems if system not in ran]
    return [*ended, *absent]


def named(bars: pd.DataFrame, column: str = "value") -> pd.DataFrame:
    """Return rows of `draw_bars` whose label of a missing value begins with the series, like `ginex OOM`.

    A status that names a system itself, like `pyg+: oom`, stays. A ratio of a measured system without its base is n/a.
    """
    words = bars.status.replace({**MARK, "ok": "n/a"})
    short = ~bars.status.astype(str).str.contains(": ")
    texts = bars.series.astype(str) + " " + words
    return bars.assign(status=texts.where(bars[column].isna() & short, bars.status))
