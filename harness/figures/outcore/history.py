"""Figures of the regression gate: outcore-gate (its power) and outcore-trend (epoch time over the commits)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure
from harness.figures.draw import style
from harness.figures.draw.panels import name_axes, one_panel
from harness.records.study import StudyRecord
from harness.regress.studies import PROOF, TREND
from harness.results.table import each

# Most lines of a panel: the cells with the largest ratio of their slowest epoch to their fastest.
MOST_LINES = 10
NO_PROOF = "the gate was not proved on this machine: `python -m benchmarks.gate_proof collect`, then `judge --results`"
NO_HISTORY = (
    "no history was looked at yet: `outcore bench --figures outcore-trend` looks at runs made from commits, "
    "`outcore regress trend` at the baselines that `outcore regress record` keeps"
)


@figure("outcore-gate")
def gate(evidence: Evidence) -> Drawing:
    """Draw one line per number of pairs, grey bars at the promises; raise NotDrawn without a proof of the gate."""
    record = _study(evidence, PROOF, NO_PROOF)
    data = pd.DataFrame(record.result["curve"])
    canvas, axes = one_panel(height=2.6)
    lines = data.sort_values("slowed").groupby("pairs")
    for look, (pairs, line) in zip(style.SERIES, lines, strict=False):
        axes.plot(100 * line["slowed"], 100 * line["regressed"], label=f"{pairs:g} pairs", **look.stroke)
    promises = pd.DataFrame(record.result["promises"])
    known = promises.dropna(subset="slowed")
    bar = {"marker": "_", "markersize": 16, "markeredgewidth": 1.6, "color": "#777777", "linestyle": "none"}
    axes.plot(100 * known["slowed"], 100 * known["bound"], **bar)
    axes.set_ylim(-4, 104)
    name_axes(axes, "Power of the gate", "added to every epoch (%)", "called regressed (%)")
    params = record.params
    blocks = f"{params['blocks']} blocks of real runs of {', '.join(params['systems'])} on machine {params['host']}"
    kept = f"{promises['kept'].sum()} of {len(promises)} promises kept"
    note = f"{params['trials']} comparisons a point, resampled from {blocks}; grey bars: promised; {kept}"
    return drawn(canvas, data, note)


@figure("outcore-trend")
def trend(evidence: Evidence) -> Drawing:
    """Draw one line per cell over its first entry, one vertical line per step; raise NotDrawn without epoch times."""
    record = _study(evidence, TREND, NO_HISTORY)
    histories = [_points(series) for series in record.result["series"] if series["name"] == "epoch"]
    if not any(map(len, histories)):
        raise NotDrawn("the history holds no epoch time (outcore-trend)")
    data = pd.concat(histories, ignore_index=True)
    places, commits = data["commit"].factorize()
    by_cell = data.assign(place=places).groupby("cell", sort=False)
    ratios = by_cell["seconds"].max() / by_cell["seconds"].min()
    most = ratios.nlargest(MOST_LINES)
    canvas, axes = one_panel(wide=True, height=2.9)
    for cell in most.index:
        _draw_cell(axes, cell, by_cell.get_group(cell))
    axes.axhline(1.0, color="#888888", linewidth=0.6)
    names = [str(commit)[:7] for commit in commits]
    every = max(1, len(names) // 6)
    axes.set_xticks(range(0, len(names), every), names[::every])
    name_axes(axes, "Epoch time over the history", "commit, oldest first", "epoch time / first entry's")
    params = record.params
    steps = f"{data['step'].count()} steps of {100 * params['min_effect']:g} % or more by PELT"
    note = (
        f"machine {params['host']}, {len(commits)} commits; a point is the median of a session's runs; {steps}, dashed"
    )
    note += f"; drawn: of {len(ratios)} cells the {len(most)} that moved most"
    return drawn(canvas, data.drop(columns="system"), note)


def _study(evidence: Evidence, name: str, missing: str) -> StudyRecord:
    """Return the newest record of a study; raise NotDrawn with the text `missing` without one."""
    if not any(record.study == name for record in evidence.studies):
        raise NotDrawn(missing)
    return evidence.study(name)


def _points(series: Plain) -> pd.DataFrame:
    """Return the points of a cell's history, over its first, with ratio and commits of each step."""
    points = pd.DataFrame(series["points"], columns=["commit", "value", "runs"])
    points = points.rename(columns={"value": "seconds"})
    steps = pd.DataFrame(series["steps"], columns=["index", "ratio", "commits"]).set_index("index")
    points.insert(0, "cell", series["cell"])
    points["relative"] = points["seconds"] / points["seconds"].iloc[:1].sum()
    points["step"] = steps["ratio"]
    points["commits"] = steps["commits"]
    return points.assign(system=series["system"])


def _draw_cell(axes: Any, cell: str, points: pd.DataFrame) -> None:
    """Draw the epochs of a cell, and a vertical line before each step."""
    look = style.look(points["system"].iloc[0])
    axes.plot(points["place"], points["relative"], linewidth=0.9, markersize=3.5, label=cell, **look.stroke)
    for step in each(points[points["step"].notna()]):
        text = f"{cell} {100 * (step.step - 1):+.0f} %, {step.commits}"
        axes.axvline(step.place - 0.5, color=look.color, linestyle="--", linewidth=0.9, label=text)
