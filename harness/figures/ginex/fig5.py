"""Ginex Fig. 5: miss ratio over cache size of PaGraph's static cache and the optimal one; other policies in grey."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.points import NotDrawn
from harness.figures.base import (
    Drawing,
    Figure,
    Plain,
    add_caption,
    gallery,
    no_runs,
    plain_log,
    register,
    study_caption,
)
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.looks import SERIES
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.ginex.tab2 import FRACTAL_SHARE, expansions, fractal_name
from harness.records.study import StudyRecord
from harness.studies.base import StudyNeed
from harness.studies.miss_ratios import read_ratios

#: The paper's two policies and their labels.
MAIN = {"degree": "PaGraph (static, by out-degree)", "belady": "optimal (Belady)"}
LOOKS = {MAIN["degree"]: SERIES[1], MAIN["belady"]: SERIES[0]}
OTHERS = {
    "lru": ("-", "#999999"),
    "fifo": (":", "#999999"),
    "lfu": ("--", "#999999"),
    "clock": ("-.", "#999999"),
    "sieve": ((0, (1, 1)), "#555555"),
    "s3-fifo": ((0, (5, 1, 1, 1, 1, 1)), "#555555"),
}
# Mini-batches of the trace: enough to request rows several times, as in one of the paper's superbatches.
BATCHES = 400
_MOST_PANELS = 2


def studies(profile: Plain) -> list[StudyNeed]:
    """Return studies of the mini-batches' trace, on the profile's graph and on one expanded as in the paper."""
    run = gallery(profile)["run"]
    found = []
    for name, recipe in list(expansions(profile).items())[:_MOST_PANELS]:
        # A mini-batch must touch an equal share of a smaller graph.
        share = FRACTAL_SHARE if name == fractal_name(run["dataset"]) else 1.0
        size = max(1, round(share * int(run["batch_size"])))
        params = {"dataset": name, "fanout": run["fanout"], "batch_size": size, "max_batches": BATCHES}
        found.append(StudyNeed("miss-ratios", params, {name: recipe}))
    return found


def draw(evidence: Evidence) -> Drawing:
    """Draw one panel per dataset."""
    records = _newest_by_dataset(evidence)
    canvas, panels = many_panels(len(records), wide=len(records) > 1, height=2.5, sharey=True)
    tables = []
    for axes, record in zip(panels, records, strict=True):
        table = _table(record)
        tables.append(table)
        name = record.dataset.name if record.dataset is not None else ""
        _panel(axes, table, name)
    for axes in panels[1:]:
        axes.set_ylabel("")
    legend_above(canvas, panels, list(MAIN.values()))
    repeats = ", ".join(f"{record.result['accesses'] / max(1, record.result['unique_rows']):.1f}" for record in records)
    extra = (
        "rows read from disk over row accesses: every cache begins empty or has its initial rows counted, so that all "
        f"are held to the same; a row of the trace is asked for {repeats} times"
    )
    text = " ".join(study_caption(record, extra if record is records[-1] else "") for record in records)
    add_caption(canvas, text)
    return Drawing(canvas, pd.concat(tables, ignore_index=True), text)


def _newest_by_dataset(evidence: Evidence) -> list[StudyRecord]:
    found: dict[str, StudyRecord] = {}
    for record in evidence.all_studies("miss-ratios"):
        policies = {entry["policy"] for entry in record.result["policies"]}
        if record.dataset is not None and set(MAIN) <= policies:
            known = found.get(record.dataset.name)
            # The longest trace of a dataset is the most accurate.
            if known is None or record.result["accesses"] >= known.result["accesses"]:
                found[record.dataset.name] = record
    if not found:
        raise NotDrawn("the study miss-ratios was not made with the policies belady and degree")
    return sorted(found.values(), key=lambda record: -record.result["accesses"])[:_MOST_PANELS]


def _table(record: StudyRecord) -> pd.DataFrame:
    result = record.result
    rows: list[dict[str, Any]] = []
    for entry in result["policies"]:
        ratios = read_ratios(result, entry["policy"])
        for share, size, ratio, misses, fills in zip(
            result["shares"], result["sizes"], ratios, entry["misses"], entry["fills"], strict=True
        ):
            rows.append(
                {
                    "dataset": record.dataset.name if record.dataset else "",
                    "series": MAIN.get(entry["policy"], entry["policy"]),
                    "policy": entry["policy"],
                    "x": 100 * share,
                    "y": 100 * ratio,
                    "rows": size,
                    "misses": misses,
                    "fills": fills,
                    "accesses": result["accesses"],
                }
            )
    return pd.DataFrame(rows)


def _panel(axes: Any, table: pd.DataFrame, name: str) -> None:
    for policy, (line, color) in OTHERS.items():
        mine = table[table["policy"] == policy]
        if len(mine):
            axes.plot(mine["x"], mine["y"], color=color, linestyle=line, linewidth=0.8, label=policy, zorder=1)
    draw_curves(
        table[table["policy"].isin(list(MAIN))],
        title=name,
        xlabel="cache size (% of the feature table)",
        ylabel="miss ratio (%)",
        looks=lambda label: LOOKS[label],
        axes=axes,
    )
    axes.set_xscale("log")
    plain_log(axes.xaxis)
    axes.set_ylim(0, 103)


register(Figure("ginex-fig5", no_runs, draw, studies=studies))
