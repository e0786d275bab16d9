"""PaGraph Fig. 13: hit ratio of the device cache over the cached share, by ranking of the rows."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    add_caption,
    left_out,
    no_runs,
    published,
    register,
    study_caption,
    values,
)
from harness.figures.draw.curves import draw_curves
from harness.figures.pagraph.grid import study
from harness.studies.base import StudyNeed

# A study costs the same for any number of shares: none is left out at any size.
SHARES = [0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the study of one epoch of the paper's workload with caches of every share."""
    return [study(profile, "device-cache-hits", shares=sorted({*SHARES, *values(profile, "cached_shares", [])}))]


def draw(evidence: Evidence) -> Drawing:
    """Draw a curve for each ranking and for the optimal static cache."""
    record = evidence.study("device-cache-hits")
    table = published("pagraph-fig13")
    rows = []
    for name, ratios in record.result["hit_ratio"].items():
        for share, ratio in zip(record.result["shares"], ratios, strict=True):
            x = 100.0 * share
            known = table.loc[(table["series"] == name) & (table["x"].astype(float) == round(x, 6)), "value"]
            rows.append(
                {"series": name, "x": x, "y": 100.0 * ratio, "paper": float(known.iloc[0]) if len(known) else None}
            )
    data = pd.DataFrame(rows)
    canvas, axes = draw_curves(data, title="Hit ratio of the device cache", xlabel="cached rows (%)", ylabel="hits (%)")
    axes.set_ylim(0, 102)
    extra = "optimal: the rows read most often in this very trace; paper (livejournal): over 50 % at 20 % cached"
    reduced = left_out(record.result["shares"], SHARES, "cached shares")
    text = study_caption(record, f"{extra}; {reduced}" if reduced else extra)
    add_caption(canvas, text)
    return Drawing(canvas, data, text)


register(Figure("pagraph-fig13", no_runs, draw, studies=studies))
