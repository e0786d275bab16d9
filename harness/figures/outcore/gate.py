"""outcore-gate: share of comparisons that the regression gate calls regressed, over the injected slowdown."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, Figure, Plain, add_caption, no_runs, register
from harness.figures.draw.looks import SERIES
from harness.figures.draw.panels import legend_above, one_panel
from harness.regress.studies import PROOF as STUDY


def draw(evidence: Evidence) -> Drawing:
    """Draw one line per number of pairs, grey bars at the promises; raise NotDrawn without a proof of the gate."""
    if not any(record.study == STUDY for record in evidence.studies):
        raise NotDrawn(
            "the gate was not proved on this machine: `python -m benchmarks.gate_proof collect`, then `judge --results`"
        )
    record = evidence.study(STUDY)
    data = pd.DataFrame(record.result["curve"])
    canvas, axes = one_panel(height=2.6)
    counts = sorted(data["pairs"].unique())
    for look, count in zip(SERIES, counts, strict=False):
        mine = data[data["pairs"] == count].sort_values("slowed")
        label = f"{count:g} pairs" + (" (whole budget)" if count == counts[-1] and len(counts) > 1 else "")
        axes.plot(
            100 * mine["slowed"],
            100 * mine["regressed"],
            color=look.color,
            marker=look.marker,
            linestyle=look.line,
            label=label,
        )
    _bounds(axes, record.result["promises"])
    axes.set_ylim(-4, 104)
    axes.set_xlabel("injected into extract (% of the epoch)")
    axes.set_ylabel("called regressed (%)")
    axes.set_title("Power of the gate", loc="left")
    legend_above(canvas, [axes])
    text = _caption(record.params, record.result["promises"])
    add_caption(canvas, text)
    return Drawing(canvas, data, text)


def _bounds(axes: Any, promises: list[Plain]) -> None:
    for promise in promises:
        if promise["slowed"] is not None:
            axes.plot(
                [100 * promise["slowed"]],
                [100 * promise["bound"]],
                marker="_",
                markersize=16,
                markeredgewidth=1.6,
                color="#777777",
                linestyle="none",
            )


def _caption(params: Plain, promises: list[Plain]) -> str:
    kept = sum(promise["kept"] for promise in promises)
    return (
        f"{params['trials']} comparisons a point, resampled from {params['blocks']} blocks of real runs of "
        f"{', '.join(params['systems'])} on machine {params['host']}; grey bars: promised; {kept} of {len(promises)} "
        "promises kept"
    )


register(Figure("outcore-gate", no_runs, draw))
