"""Figures of the regression gate: outcore-gate (its power) and outcore-trend (epoch time over the commits)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure, specs
from harness.figures.draw import style
from harness.figures.draw.panels import name_axes, one_panel
from harness.figures.draw.style import SERIES
from harness.regress.studies import PROOF, TREND

SPEC = specs(__file__)


@figure("outcore-gate")
def gate(evidence: Evidence) -> Drawing:
    """Draw one line per number of pairs, grey bars at the promises; raise NotDrawn without a proof of the gate."""
    if not any(record.study == PROOF for record in evidence.studies):
        raise NotDrawn(SPEC["gate"]["missing"])
    record = evidence.study(PROOF)
    params, promises, spec = record.params, record.result["promises"], SPEC["gate"]
    data = pd.DataFrame(record.result["curve"])
    canvas, axes = one_panel(height=2.6)
    counts = sorted(data["pairs"].unique())
    for look, count in zip(SERIES, counts, strict=False):
        mine = data[data["pairs"] == count].sort_values("slowed")
        label = f"{count:g} pairs" + (" (whole budget)" if count == counts[-1] and len(counts) > 1 else "")
        xs, ys = 100 * mine["slowed"], 100 * mine["regressed"]
        axes.plot(xs, ys, label=label, **look.stroke)
    for promise in promises:
        if promise["slowed"] is not None:
            axes.plot([100 * promise["slowed"]], [100 * promise["bound"]], **spec["promise"])
    axes.set_ylim(-4, 104)
    name_axes(axes, *spec["axes"])
    told = {"named": ", ".join(params["systems"]), "promised": len(promises)}
    told["kept"] = sum(promise["kept"] for promise in promises)
    return drawn(canvas, data, spec["caption"].format(**params, **told))


# Most lines of a panel: the cells with most steps, then with the largest ratio.
MOST_LINES = 10
MOST_LABELS = 6


@figure("outcore-trend")
def trend(evidence: Evidence) -> Drawing:
    """Draw one line per cell over its first entry, one vertical line per step; raise NotDrawn without epoch times."""
    if not any(record.study == TREND for record in evidence.studies):
        raise NotDrawn(SPEC["trend"]["missing"])
    record = evidence.study(TREND)
    epochs = [series for series in record.result["series"] if series["name"] == "epoch" and series["points"]]
    if not epochs:
        raise NotDrawn("the history holds no epoch time (outcore-trend)")
    data = pd.DataFrame([row for series in epochs for row in _rows(series)])
    canvas, axes = one_panel(wide=True, height=2.9)
    place = {commit: index for index, commit in enumerate(dict.fromkeys(data["commit"]))}
    shown = sorted(epochs, key=_movement, reverse=True)[:MOST_LINES]
    _label_steps(axes, [label for series in shown for label in _line(axes, series, place)])
    axes.axhline(1.0, color="#888888", linewidth=0.6)
    name_axes(axes, *SPEC["trend"]["axes"])
    last, commits = len(place) - 1, list(place)
    ticks = sorted({round(k * last / min(6, max(1, last))) for k in range(7)} & set(place.values()))
    axes.set_xticks(ticks, [commits[tick][:7] for tick in ticks])
    params, more = record.params, len(epochs) - len(shown)
    steps = sum(len(series["steps"]) for series in epochs)
    text = SPEC["trend"]["caption"].format(params["host"], len(place), steps, 100 * params["min_effect"])
    return drawn(canvas, data, text + (f"; {more} cells that moved least are not drawn" if more else ""))


def _rows(series: Plain) -> list[dict[str, Any]]:
    first = series["points"][0]["value"]
    steps = {step["index"]: {"step": step["ratio"], "commits": step["commits"]} for step in series["steps"]}
    rows = []
    for index, point in enumerate(series["points"]):
        row = {"cell": series["cell"], "commit": point["commit"], "seconds": point["value"], "runs": point["runs"]}
        step = steps.get(index, {"step": None, "commits": None})
        rows.append({**row, "relative": point["value"] / first, **step})
    return rows


def _movement(series: Plain) -> tuple[int, float]:
    values = [point["value"] for point in series["points"]]
    return len(series["steps"]), max(values) / min(values)


def _line(axes: Any, series: Plain, place: dict[str, int]) -> list[tuple[float, str, str]]:
    """Draw one series; return (x, text, colour) of its steps."""
    look = style.look(series["system"])
    first = series["points"][0]["value"]
    xs = [place[point["commit"]] for point in series["points"]]
    ys = [point["value"] / first for point in series["points"]]
    border = {"markeredgecolor": "black", "markeredgewidth": 0.3, "markevery": max(1, len(xs) // 30)}
    axes.plot(xs, ys, linewidth=0.9, markersize=3.5, label=series["cell"], **look.stroke, **border)
    labels = []
    for step in series["steps"]:
        x = place[step["at"]] - 0.5
        axes.axvline(x, color=look.color, linestyle="--", linewidth=0.9)
        labels.append((x, f"{series['cell']} {100 * (step['ratio'] - 1):+.0f} %\n{step['commits']}", look.color))
    return labels


def _label_steps(axes: Any, labels: list[tuple[float, str, str]]) -> None:
    """Label the steps above the lines, one below the other, so that neighbours do not overlap."""
    shown = sorted(labels)[:MOST_LABELS]
    if not shown:
        return
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + (high - low) * 0.16 * len(shown))
    left, right = axes.get_xlim()
    for number, (x, text, color) in enumerate(shown):
        beyond = x > left + 0.6 * (right - left)
        look = {"va": "top", "fontsize": 5.5, "color": color, "ha": "right" if beyond else "left"}
        shift: Any = {"xytext": (-3 if beyond else 3, -1.0 - 15.0 * number), "textcoords": "offset points"}
        axes.annotate(text, (x, 1.0), xycoords=("data", "axes fraction"), **shift, **look)
