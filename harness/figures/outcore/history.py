"""Figures of the regression gate: outcore-gate (its power) and outcore-trend (epoch
time over the commits)."""

from __future__ import annotations

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure
from harness.figures.draw.captions import row_texts
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import one_panel
from harness.records.study import StudyRecord
from harness.regress.studies import PROOF, TREND
from harness.results.table import each
from workloads.arraytypes import JsonDict

# Most lines of a panel: the cells with the largest ratio of their slowest epoch to
# their fastest.
MOST_LINES = 10
# Fewer commits show no trend.
LEAST_COMMITS = 3
NO_PROOF = (
    "the gate was not proved on this machine: `python -m benchmarks.gate_proof "
    "collect`, then `judge --results`"
)
NO_HISTORY = (
    "no history was looked at yet: `outcore bench --figures outcore-trend` looks at "
    "runs made from commits, `outcore regress trend` at the baselines that `outcore "
    "regress record` keeps"
)


@figure("outcore-gate")
def gate(evidence: Evidence) -> Drawing:
    """Draw one line per number of pairs, grey bars at the promises; raise NotDrawn
    without a proof of the gate."""
    record = _study(evidence, PROOF, NO_PROOF)
    data = pd.DataFrame(record.result["curve"])
    pairs = data.pairs.map("{:g} pairs".format)
    rows = data.assign(series=pairs, x=100 * data.slowed, y=100 * data.regressed)
    title = "Power of the regression test"
    ylabel = "reported as slower (%)"
    canvas, axes = draw_curves(
        rows, title=title, xlabel="added to every epoch (%)", ylabel=ylabel
    )
    promises = pd.DataFrame(record.result["promises"])
    known = 100 * promises[["slowed", "bound"]].dropna()
    axes.scatter(known.slowed, known.bound, s=250, marker="_", color="#777777")
    axes.set_ylim(-4, 104)
    params = record.params
    blocks = (
        f"{params['blocks']} blocks of real runs of {', '.join(params['systems'])} on "
        f"machine {params['host']}"
    )
    kept = f"{promises.kept.sum()} of {len(promises)} promised rates are reached"
    note = (
        f"{params['trials']} comparisons a point, resampled from {blocks}; grey bars: "
        "promised rates."
    )
    slowed = rows[rows.slowed > 0].sort_values(["pairs", "slowed"])
    best = slowed.tail(1)
    alarms = rows[(rows.slowed == 0) & (rows.pairs == best.pairs.max())]
    text = "With {pairs:g} pairs of runs, {y:.0f} % of slowdowns by {x:g} % are found"
    found = row_texts(best, text)
    false = row_texts(alarms, "{y:.0f} % of unchanged code is reported as slower")
    finding = "; ".join(filter(None, [found, false, kept]))
    return drawn(canvas, data, note, finding=finding)


@figure("outcore-trend")
def trend(evidence: Evidence) -> Drawing:
    """Draw one line per cell over its first entry, one vertical line per step.

    Raises:
        NotDrawn: there are no epoch times, or those of fewer than `LEAST_COMMITS`
            commits.
    """
    record = _study(evidence, TREND, NO_HISTORY)
    epochs = [
        series
        for series in record.result["series"]
        if series["name"] == "epoch" and series["points"]
    ]
    if not epochs:
        raise NotDrawn("the history holds no epoch time (outcore-trend)")
    data = pd.concat(map(_points, epochs), ignore_index=True)
    places, commits = data.commit.factorize()
    if len(commits) < LEAST_COMMITS:
        raise NotDrawn(
            f"the history holds {len(commits)} of at least {LEAST_COMMITS} commits "
            "(outcore-trend)"
        )
    by_cell = data.groupby("cell", sort=False).seconds
    ratios = by_cell.max() / by_cell.min()
    most = ratios.nlargest(MOST_LINES)
    rows = data.assign(series=data.cell, x=places, y=data.relative)
    shown = rows[rows.cell.isin(most.index)]
    canvas, axes = one_panel(wide=True, height=2.9)
    title = "Epoch time over the history"
    ylabel = "epoch time / first entry's"
    draw_curves(
        shown, title=title, xlabel="commit, oldest first", ylabel=ylabel, axes=axes
    )
    for step in each(shown.dropna(subset="step")):
        percent = 100 * (step.step - 1)
        label = f"{step.cell} {percent:+.0f} %, {step.commits}"
        axes.axvline(
            step.x - 0.5, color="#555555", linestyle="--", linewidth=0.9, label=label
        )
    axes.axhline(1.0, color="#888888", linewidth=0.6)
    names = [str(commit)[:7] for commit in commits]
    every = max(1, len(names) // 6)
    axes.set_xticks(range(0, len(names), every), names[::every])
    params = record.params
    steps = (
        f"{data.step.count()} steps of {100 * params['min_effect']:g} % or more by PELT"
    )
    note = (
        f"machine {params['host']}, {len(commits)} commits; a point is the median of a "
        f"session's runs; {steps}, dashed"
    )
    note += f"; drawn: of {len(ratios)} cells the {len(most)} that moved most"
    return drawn(canvas, data, note, finding=_largest_step(data, len(commits)))


def _largest_step(data: pd.DataFrame, commits: int) -> str:
    """Return the sentence on the cell with the largest step; without a step, that no
    cell has one."""
    steps = data.dropna(subset="step")
    if steps.empty:
        return f"No epoch time changed over {commits} commits"
    size = steps.step.astype(float).sub(1.0).abs()
    largest = steps.loc[[size.idxmax()]].assign(change=steps.step - 1.0)
    return row_texts(
        largest, "Largest change: {cell} {change:+.0%} per epoch, at {commits}"
    )


def _study(evidence: Evidence, name: str, missing: str) -> StudyRecord:
    """Return the newest record of a study; raise NotDrawn with the text `missing`
    without one."""
    if not any(record.study == name for record in evidence.studies):
        raise NotDrawn(missing)
    return evidence.study(name)


def _points(series: JsonDict) -> pd.DataFrame:
    """Return the points of a cell's history, over its first, with ratio and commits of
    each step."""
    points = pd.DataFrame(series["points"], columns=["commit", "value", "runs"])
    points = points.rename(columns={"value": "seconds"})
    steps = pd.DataFrame(
        series["steps"], columns=["index", "ratio", "commits"]
    ).set_index("index")
    points.insert(0, "cell", series["cell"])
    points["relative"] = points.seconds / points.seconds.iloc[0]
    points["step"] = steps.ratio
    points["commits"] = steps.commits
    return points
