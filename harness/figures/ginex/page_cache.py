"""Ginex Fig. 4: epoch time of pyg+ by part, and miss ratio of the page cache over its iterations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, Plan, first_setting, grid
from harness.compare.points import NotDrawn
from harness.figures.base import Drawing, drawn, figure, ids, paper_rows
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.marks import name_axes
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.stacks import draw_stacks
from harness.figures.grids import systems_of
from harness.records.study import StudyRecord
from harness.results import store as results
from harness.studies.base import StudyNeed
from workloads.errors import OutcoreError

SYSTEM = "pyg+"
PARTS = ["compute", "transfer", "data preparation"]
ORDER = (("compute", ("train", "lane:compute")), ("transfer", ("transfer", "lane:copy")))
# Iterations of the paper's moving average; at most a quarter of all.
WINDOW = 30
# Run settings that determine the requested pages.
WORKLOAD = ("model", "sampler", "fanout", "replace", "shuffle", "batch_size", "max_batches", "epochs", "seed")


def planned(profile: Plain) -> Plan:
    """Plan the profile's own run of pyg+: long enough for a steady miss ratio of the page cache."""
    return grid(first_setting(profile), systems_of(profile, [SYSTEM]), {"": {}})


def studies(profile: Plain) -> list[StudyNeed]:
    """Return the study of the pages that the run's mini-batches request."""
    run = profile["run"]
    params = {key: run[key] for key in WORKLOAD if key in run}
    name = run["dataset"]
    return [StudyNeed("page-accesses", {"dataset": name, **params}, {name: profile["datasets"][name]})]


def miss_ratio(
    stages: pd.DataFrame, telemetry: pd.DataFrame, pages: Mapping[str, list[int]], window: int
) -> pd.DataFrame:
    """Return the page cache's miss ratio at the end of each iteration, over the last `window` iterations.

    Args:
        stages: spans of `sample` and `extract` by epoch and batch, seconds.
        telemetry: `t` and `major_faults` in the interval that ends at t; each fault reads a page.
        pages: result of the study `page-accesses` for the same mini-batches.
        window: number of iterations; fewer at the begin.

    Returns:
        Columns `iteration`, `t` (s), `faults` and `accesses` (both since the first epoch began), `miss_percent`.

    Raises:
        NotDrawn: the telemetry has no faults, or spans and pages are of different mini-batches.
    """
    counts = telemetry[(telemetry["t"] > 0) & telemetry["major_faults"].notna()].sort_values("t")
    if counts.empty:
        raise NotDrawn("major faults are not in the run's telemetry")
    wanted = pd.DataFrame(dict(pages))
    spans = stages[stages["stage"].isin(["sample", "extract"])].merge(wanted, on=["epoch", "batch"], how="inner")
    gathered = spans[spans["stage"] == "extract"].sort_values("end")
    if len(gathered) != len(wanted):
        raise NotDrawn("the pages asked for are not known for every mini-batch of the run")
    asked = np.where(spans["stage"] == "sample", spans["topology_pages"], spans["feature_pages"]).astype(np.float64)
    ends = gathered["end"].to_numpy(dtype=np.float64)
    accesses = _asked_until(ends, spans["start"].to_numpy(float), spans["end"].to_numpy(float), asked)
    seen = np.concatenate([[0.0], np.cumsum(counts["major_faults"].to_numpy(dtype=np.float64))])
    faults = np.interp(ends, np.concatenate([[0.0], counts["t"].to_numpy(dtype=np.float64)]), seen)
    first = np.maximum(0, np.arange(1, len(ends) + 1) - window)
    before = [np.concatenate([[0.0], column]) for column in (faults, accesses)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (faults - before[0][first]) / (accesses - before[1][first])
    return pd.DataFrame(
        {
            "iteration": np.arange(1, len(ends) + 1),
            "t": ends,
            "faults": faults,
            "accesses": accesses,
            "miss_percent": 100 * ratio,
        }
    )


def _asked_until(
    moments: npt.NDArray[np.float64],
    starts: npt.NDArray[np.float64],
    ends: npt.NDArray[np.float64],
    amounts: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the amount requested before each moment, each span's amount spread evenly over its time."""
    rates = amounts / np.maximum(ends - starts, 1e-9)
    times = np.concatenate([starts, np.maximum(ends, starts + 1e-9)])
    order = np.argsort(times, kind="stable")
    rate = np.cumsum(np.concatenate([rates, -rates])[order])
    at = times[order]
    total = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(at))])
    return np.asarray(np.interp(moments, at, total), dtype=np.float64)


@figure("ginex-fig4", planned, studies=studies)
def fig4(evidence: Evidence) -> Drawing:
    """Draw the epoch by part (left) and the miss ratio (right); raise NotDrawn without epoch, pages or faults."""
    group = evidence.points(planned, least=1)
    if not group.done:
        raise NotDrawn(f"{SYSTEM} did not finish an epoch")
    point = group.done[0]
    config = point.record["config"]
    pages = _pages_of(evidence, config)
    canvas, (left, right) = many_panels(2, height=2.3)
    left.get_gridspec().set_width_ratios([1.0, 3.0])
    found = run_breakdown(point, ORDER, PARTS[-1])
    shares = pd.DataFrame({"bar": config["dataset"]["name"], "part": list(found), "value": list(found.values())})
    shares = shares.assign(percent=100 * shares["value"] / sum(found.values()), run=point.record["run_id"])
    draw_stacks(shares, title="Time by part", ylabel="share of the epoch (%)", parts=PARTS, share=True, axes=left)
    window = min(WINDOW, max(1, len(pages.result["batch"]) // 4))
    try:
        stages, telemetry = results.stages(Path(point.path)), results.telemetry(Path(point.path))
    except OutcoreError as error:
        raise NotDrawn(str(error)) from error
    table = miss_ratio(stages, telemetry, pages.result, window)
    steady = [row["value"] for row in paper_rows("ginex-fig4", "page-cache miss ratio")]
    if steady:
        label = f"paper, once settled: {min(steady):g}–{max(steady):g} %"
        right.axhspan(min(steady), max(steady), color="#d9d9d9", label=label)
    right.plot(table["iteration"], table["miss_percent"], color="#0B3C8C", label=SYSTEM)
    for epoch in point.record["epochs"][1:]:
        right.axvline(int((table["t"] < epoch["start_s"]).sum()) + 0.5, color="#888888", linewidth=0.5)
    right.set_ylim(0, max(100.0, 1.05 * float(table["miss_percent"].max())))
    right.set_xlim(0, len(table))
    title = f"Major faults over pages asked for, last {window} iterations"
    name_axes(right, title, "iteration (grey lines: epochs)", "page-cache miss ratio (%)")
    legend_above(canvas, [left, right], PARTS)
    data = pd.concat([shares.assign(panel="time"), table.assign(panel="miss ratio", window=window)], ignore_index=True)
    notes = [
        "data preparation: the device neither computes nor copies",
        "misses are the cap's major faults by 10 Hz telemetry, "
        "pages asked for are those of rows and neighbour lists by the trace",
    ]
    return drawn(canvas, data, group, *notes, points=[point], runs=ids([point]))


def _pages_of(evidence: Evidence, config: Mapping[str, Any]) -> StudyRecord:
    """Return the study of exactly this run's mini-batches, else raise NotDrawn."""
    fingerprint = config["dataset"]["fingerprint"]
    found = [
        record
        for record in evidence.all_studies("page-accesses")
        if record.dataset is not None
        and record.dataset.fingerprint == fingerprint
        and all(record.params[key] == config[key] for key in WORKLOAD)
    ]
    if not found:
        raise NotDrawn("the study page-accesses was not made of the run's mini-batches")
    return found[-1]
