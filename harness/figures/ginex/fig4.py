"""Ginex Fig. 4: epoch time of pyg+ by part, and miss ratio of the page cache over its iterations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, first_setting, grid
from harness.compare.points import NotDrawn, Point
from harness.figures.base import Drawing, Figure, Plain, add_caption, caption, published, register
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.panels import legend_above, many_panels
from harness.figures.draw.stacks import draw_stacks
from harness.figures.ginex.grid import systems_of
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


def draw(evidence: Evidence) -> Drawing:
    """Draw the epoch by part (left) and the miss ratio (right); raise NotDrawn without epoch, pages or faults."""
    group = evidence.points(planned, least=1)
    point = next((point for point in group.points if point.value is not None), None)
    if point is None:
        raise NotDrawn(f"{SYSTEM} did not finish an epoch")
    pages = _pages_of(evidence, point.record["config"])
    canvas, (left, right) = many_panels(2, height=2.3)
    left.get_gridspec().set_width_ratios([1.0, 3.0])
    shares = _shares(point)
    draw_stacks(shares, title="Time by part", ylabel="share of the epoch (%)", parts=PARTS, share=True, axes=left)
    batches = len(pages.result["batch"])
    window = min(WINDOW, max(1, batches // 4))
    table = _series(point, pages, window)
    paper = published("ginex-fig4")
    settled = paper.loc[paper["series"] == "page-cache miss ratio", "value"]
    if len(settled):
        label = f"paper, once settled: {settled.min():g}–{settled.max():g} %"
        right.axhspan(settled.min(), settled.max(), color="#d9d9d9", label=label)
    right.plot(table["iteration"], table["miss_percent"], color="#0B3C8C", label=SYSTEM)
    for epoch in point.record["epochs"][1:]:
        right.axvline(int((table["t"] < epoch["start_s"]).sum()) + 0.5, color="#888888", linewidth=0.5)
    right.set_ylim(0, max(100.0, 1.05 * float(table["miss_percent"].max())))
    right.set_xlim(0, len(table))
    right.set_xlabel("iteration (grey lines: epochs)")
    right.set_ylabel("page-cache miss ratio (%)")
    right.set_title(f"Major faults over pages asked for, last {window} iterations", loc="left")
    legend_above(canvas, [left, right], PARTS)
    extra = (
        "data preparation: the device neither computes nor copies; misses are the cap's major faults by 10 Hz telemetry"
    )
    text = caption(group, [point], f"{extra}, pages asked for are those of rows and neighbour lists by the trace")
    add_caption(canvas, text)
    data = pd.concat([shares.assign(panel="time"), table.assign(panel="miss ratio", window=window)], ignore_index=True)
    return Drawing(canvas, data, text, runs=[str(point.record["run_id"])])


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


def _shares(point: Point) -> pd.DataFrame:
    found = run_breakdown(point, ORDER, PARTS[-1])
    total = sum(found.values())
    name = point.record["config"]["dataset"]["name"]
    return pd.DataFrame(
        [
            {
                "bar": name,
                "part": part,
                "value": seconds,
                "percent": 100 * seconds / total,
                "run": point.record["run_id"],
            }
            for part, seconds in found.items()
        ]
    )


def _series(point: Point, pages: StudyRecord, window: int) -> pd.DataFrame:
    try:
        stages, telemetry = results.stages(Path(point.path)), results.telemetry(Path(point.path))
    except OutcoreError as error:
        raise NotDrawn(str(error)) from error
    return miss_ratio(stages, telemetry, pages.result, window)


register(Figure("ginex-fig4", planned, draw, studies=studies))
