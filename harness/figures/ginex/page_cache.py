"""Ginex's Figure 4: the page cache under PyG+, as time by part and as the miss ratio
over a run's iterations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, first_setting, grid
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, drawn, figure, published
from harness.figures.draw.bars import draw_stacks
from harness.figures.draw.breakdown import run_table, seconds_by_part
from harness.figures.draw.panels import many_panels, name_axes
from harness.figures.draw.style import LOOKS
from harness.figures.ginex.parts import BASE, DEVICE, REST
from harness.figures.grids import dataset_of, systems_of
from harness.results.table import each
from harness.studies.base import StudyNeed
from workloads.arraytypes import JsonDict

# Iterations of the paper's moving average; at most a quarter of all.
WINDOW = 30
# Run settings that determine the requested pages.
WORKLOAD = [
    "model",
    "sampler",
    "fanout",
    "replace",
    "shuffle",
    "batch_size",
    "max_batches",
    "epochs",
    "seed",
]


def planned(profile: JsonDict) -> Plan:
    """Plan the profile's own run of pyg+: long enough for a steady miss ratio of the
    page cache."""
    return grid(first_setting(profile), systems_of(profile, [BASE]), {"": {}})


def studies(profile: JsonDict) -> list[StudyNeed]:
    """Return the study of the pages that the run's mini-batches request."""
    run = profile["run"]
    name, recipe = dataset_of(profile)
    params = {key: run[key] for key in WORKLOAD if key in run}
    return [StudyNeed("page-accesses", {"dataset": name, **params}, {name: recipe})]


def miss_ratio(
    stages: pd.DataFrame, telemetry: pd.DataFrame, pages: JsonDict, window: int
) -> pd.DataFrame:
    """Return the page cache's miss ratio at the end of each iteration, over the last
    `window` iterations.

    Args:
        stages: spans of `sample` and `extract` by epoch and batch, seconds.
        telemetry: `t` and `major_faults` in the interval that ends at t; each fault
            reads a page.
        pages: result of the study `page-accesses` for the same mini-batches.
        window: number of iterations; fewer at the begin.

    Returns:
        Columns `iteration`, `t` (s), `faults` and `accesses` (both since the first
        epoch began), `miss_percent`.

    Raises:
        NotDrawn: the telemetry has no faults, or spans and pages are of different
            mini-batches.
    """
    counts = telemetry[telemetry.t > 0].dropna(subset="major_faults").sort_values("t")
    if counts.empty:
        raise NotDrawn("major faults are not in the run's telemetry")
    wanted = pd.DataFrame(pages)
    spans = stages[stages.stage.isin(["sample", "extract"])].merge(
        wanted, on=["epoch", "batch"]
    )
    ends = spans.end[spans.stage == "extract"].sort_values()
    if len(ends) != len(wanted):
        raise NotDrawn(
            "the pages asked for are not known for every mini-batch of the run"
        )
    table = pd.DataFrame({"iteration": np.arange(len(ends)) + 1, "t": ends.to_numpy()})
    faults = counts.major_faults.cumsum()
    table["faults"] = np.interp(ends, [0, *counts.t], [0, *faults])
    table["accesses"] = _asked_until(ends, spans)
    counted = table[["faults", "accesses"]]
    within = counted.diff(window).fillna(counted)
    table["miss_percent"] = 100 * (within.faults / within.accesses)
    return table


def _asked_until(moments: pd.Series[float], spans: pd.DataFrame) -> Any:
    """Return the pages requested before each moment, each span's pages spread evenly
    over its time."""
    pages = spans.topology_pages.where(spans.stage == "sample", spans.feature_pages)
    seconds = (spans.end - spans.start).clip(lower=1e-9)
    rates = pages / seconds
    ends = spans.start + seconds
    changes = pd.Series([*rates, *-rates], index=[*spans.start, *ends]).sort_index(
        kind="stable"
    )
    times = changes.index.to_numpy()
    rate_before = changes.cumsum().shift(fill_value=0)
    asked = rate_before * np.diff(times, prepend=0)
    return np.interp(moments, times, asked.cumsum())


@figure("ginex-fig4", planned, studies=studies)
def fig4(evidence: Evidence) -> Drawing:
    """Draw the epoch by part (left) and the miss ratio (right); raise NotDrawn without
    epoch, pages or faults."""
    cells = evidence.cells("ginex-fig4", planned, least=1)
    (cell,) = each(cells.medians())
    if pd.isna(cell.value):
        raise NotDrawn(f"{BASE} did not finish an epoch")
    dataset = cell.record["config"]["dataset"]
    pages = _pages_of(evidence, cell.record["config"])
    window = min(WINDOW, max(1, len(pages["batch"]) // 4))
    ratios = miss_ratio(
        run_table(cell, "stages"), run_table(cell, "telemetry"), pages, window
    )
    parts = seconds_by_part(cells.medians(), {**DEVICE, REST: []})
    shares = parts.assign(
        bar=dataset["name"],
        value=parts.seconds,
        percent=100 * parts.seconds / parts.seconds.sum(),
    )

    canvas, (left, right) = many_panels(2, height=2.3)
    order = list(parts.part)
    draw_stacks(
        shares,
        parts=order,
        share=True,
        title="Time by part",
        ylabel="share of the epoch (%)",
        axes=left,
    )
    right.plot(
        ratios.iteration, ratios.miss_percent, color=LOOKS[BASE].color, label=BASE
    )
    paper = published("ginex-fig4").query("series == 'page-cache miss ratio'")
    for percent in paper.value:
        right.axhline(
            percent, color="#666666", label="paper, once settled (least and most)"
        )
    right.set_ylim(bottom=0)
    title = f"Major faults over pages requested, last {window} iterations"
    name_axes(right, title, "iteration", "page-cache miss ratio (%)")

    shown = shares[["bar", "part", "value", "percent", "run"]].assign(panel="time")
    data = pd.concat([shown, ratios.assign(panel="miss ratio", window=window)])
    idle = "data preparation: the device neither computes nor copies"
    counted = "misses: major faults at 10 Hz; pages requested: by the trace"
    waiting = shares.percent[shares.part == REST].sum()
    last = "iteration" if window == 1 else f"{window} iterations"
    missed = (
        f"in the last {last} {ratios.miss_percent.iloc[-1]:.0f} % of the pages "
        "requested miss the page cache"
    )
    finding = (
        f"The device neither computes nor copies for {waiting:.0f} % of {BASE}'s "
        f"epoch; {missed}"
    )
    return drawn(canvas, data, cells, idle, counted, order=order, finding=finding)


def _pages_of(evidence: Evidence, config: JsonDict) -> JsonDict:
    """Return the result of the study of exactly this run's mini-batches, else raise
    NotDrawn."""
    wanted = {key: config[key] for key in WORKLOAD}
    fingerprint = config["dataset"]["fingerprint"]
    for study in evidence.all_studies(
        "page-accesses", where=lambda params: wanted.items() <= params.items()
    ):
        if study.dataset is not None and study.dataset.fingerprint == fingerprint:
            return study.result
    raise NotDrawn("the study page-accesses was not made of the run's dataset")
