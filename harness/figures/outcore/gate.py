"""outcore-gate: share of comparisons that the regression gate calls regressed, over the injected slowdown."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, figure
from harness.figures.draw.captions import add_caption
from harness.figures.draw.looks import SERIES
from harness.figures.draw.marks import name_axes
from harness.figures.draw.panels import legend_above, one_panel
from harness.regress.studies import PROOF as STUDY


@figure("outcore-gate")
def gate(evidence: Evidence) -> Drawing:
    """Draw one line per number of pairs, grey bars at the promises; raise NotDrawn without a proof of the gate."""
    if not any(record.study == STUDY for record in evidence.studies):
        raise NotDrawn(
            "the gate was not proved on this machine: `python -m benchmarks.gate_proof collect`, then `judge --results`"
        )
    record = evidence.study(STUDY)
    params, promises = record.params, record.result["promises"]
    data = pd.DataFrame(record.result["curve"])
    canvas, axes = one_panel(height=2.6)
    counts = sorted(data["pairs"].unique())
    for look, count in zip(SERIES, counts, strict=False):
        mine = data[data["pairs"] == count].sort_values("slowed")
        label = f"{count:g} pairs" + (" (whole budget)" if count == counts[-1] and len(counts) > 1 else "")
        xs, ys = 100 * mine["slowed"], 100 * mine["regressed"]
        axes.plot(xs, ys, color=look.color, marker=look.marker, linestyle=look.line, label=label)
    bar = {"marker": "_", "markersize": 16, "markeredgewidth": 1.6, "color": "#777777", "linestyle": "none"}
    for promise in promises:
        if promise["slowed"] is not None:
            axes.plot([100 * promise["slowed"]], [100 * promise["bound"]], **bar)
    axes.set_ylim(-4, 104)
    name_axes(axes, "Power of the gate", "injected into extract (% of the epoch)", "called regressed (%)")
    legend_above(canvas, [axes])
    text = (
        f"{params['trials']} comparisons a point, resampled from {params['blocks']} blocks of real runs of "
        f"{', '.join(params['systems'])} on machine {params['host']}; grey bars: promised; "
        f"{sum(promise['kept'] for promise in promises)} of {len(promises)} promises kept"
    )
    add_caption(canvas, text)
    return Drawing(canvas, data, text)
