"""Ginex's figures of studies: Figures 4 (page cache) and 5 (miss ratio over cache size), Table 2 (datasets)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, Plan, first_setting, grid, value_at
from harness.compare.verdicts import NotDrawn
from harness.figures.base import Drawing, Sheet, drawn, figure, ids, paper_rows, paper_table, sheet, specs
from harness.figures.draw.bars import draw_stacks
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.captions import dataset_name, study_caption
from harness.figures.draw.curves import draw_curves
from harness.figures.draw.panels import many_panels, name_axes, plain_log
from harness.figures.draw.style import SERIES
from harness.figures.grids import dataset_of, gallery, study_of, systems_of
from harness.records.study import StudyRecord
from harness.results import store as results
from harness.studies.accesses import read_ratios
from harness.studies.base import StudyNeed
from workloads.errors import OutcoreError
from workloads.units import parse_count

SPEC = specs(__file__)
SYSTEM = "pyg+"
PARTS = [*SPEC["order"], SPEC["rest"]]
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
    table = pd.DataFrame({"iteration": np.arange(1, len(ends) + 1), "t": ends, "faults": faults, "accesses": accesses})
    within = table[["faults", "accesses"]] - table[["faults", "accesses"]].shift(window, fill_value=0.0)
    return table.assign(miss_percent=100 * (within["faults"] / within["accesses"]))


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
    group = evidence.points("ginex-fig4", planned, least=1)
    if not group.done:
        raise NotDrawn(f"{SYSTEM} did not finish an epoch")
    point = group.done[0]
    config = point.record["config"]
    pages = _pages_of(evidence, config)
    canvas, (left, right) = many_panels(2, height=2.3)
    left.get_gridspec().set_width_ratios([1.0, 3.0])
    spec = SPEC["fig4"]
    found = run_breakdown(point, list(SPEC["order"].items()), PARTS[-1])
    shares = pd.DataFrame({"bar": config["dataset"]["name"], "part": list(found), "value": list(found.values())})
    shares = shares.assign(percent=100 * shares["value"] / sum(found.values()), run=point.run)
    draw_stacks(shares, parts=PARTS, share=True, axes=left, **spec["stacks"])
    window = min(WINDOW, max(1, len(pages.result["batch"]) // 4))
    try:
        stages, telemetry = results.table(Path(point.path), "stages"), results.table(Path(point.path), "telemetry")
    except OutcoreError as error:
        raise NotDrawn(str(error)) from error
    table = miss_ratio(stages, telemetry, pages.result, window)
    steady = [row["value"] for row in paper_rows("ginex-fig4", "page-cache miss ratio")]
    if steady:
        label = spec["paper"].format(min(steady), max(steady))
        right.axhspan(min(steady), max(steady), color="#d9d9d9", label=label)
    right.plot(table["iteration"], table["miss_percent"], color="#0B3C8C", label=SYSTEM)
    for epoch in point.record["epochs"][1:]:
        right.axvline(int((table["t"] < epoch["start_s"]).sum()) + 0.5, color="#888888", linewidth=0.5)
    right.set(xlim=(0, len(table)), ylim=(0, max(100.0, 1.05 * float(table["miss_percent"].max()))))
    name_axes(right, spec["title"].format(window), spec["xlabel"], spec["ylabel"])
    data = pd.concat([shares.assign(panel="time"), table.assign(panel="miss ratio", window=window)], ignore_index=True)
    return drawn(canvas, data, group, *spec["notes"], points=[point], runs=ids([point]), order=PARTS)


def _pages_of(evidence: Evidence, config: Mapping[str, Any]) -> StudyRecord:
    """Return the study of exactly this run's mini-batches, else raise NotDrawn."""
    fingerprint = config["dataset"]["fingerprint"]
    for record in reversed(evidence.all_studies("page-accesses")):
        same = all(record.params[key] == config[key] for key in WORKLOAD)
        if same and record.dataset is not None and record.dataset.fingerprint == fingerprint:
            return record
    raise NotDrawn("the study page-accesses was not made of the run's mini-batches")


#: The two policies of Fig. 5 and their labels; the others are drawn in grey.
MAIN: dict[str, str] = SPEC["fig5"]["policies"]
LOOKS = {MAIN["degree"]: SERIES[1], MAIN["belady"]: SERIES[0]}
# Mini-batches of the trace: enough to request rows several times, as in one of the paper's superbatches.
BATCHES = 400
_MOST_PANELS = 2
# The randomised expansion flattens skew; a graph a tenth as large shows this and is made in seconds.
FRACTAL_SHARE = 0.1


def expansions(profile: Plain) -> dict[str, Plain]:
    """Return recipes of expanded datasets: the profile's own, a fractal one as in the paper, and all its others."""
    short = gallery(profile)
    own, recipe = dataset_of(short)
    found = {own: recipe}
    if recipe["kind"] != "fractal" and recipe.get("nodes"):
        counts = {key: parse_count(recipe[key], key) for key in ("nodes", "edges") if key in recipe}
        sizes: Plain = {key: round(FRACTAL_SHARE * count) for key, count in counts.items()}
        found[f"{own}-fractal"] = {**recipe, "kind": "fractal", **sizes}
    for name, other in short["datasets"].items():
        if other.get("kind") in ("kronecker", "fractal"):
            found.setdefault(name, other)
    return found


def traces(profile: Plain) -> list[StudyNeed]:
    """Return studies of the mini-batches' trace, on the profile's graph and on one expanded as in the paper."""
    short = gallery(profile)
    found = []
    for name, recipe in list(expansions(profile).items())[:_MOST_PANELS]:
        # A mini-batch must touch an equal share of a smaller graph.
        share = FRACTAL_SHARE if name == f"{short['run']['dataset']}-fractal" else 1.0
        params = {"batch_size": max(1, round(share * int(short["run"]["batch_size"]))), "max_batches": BATCHES}
        found.append(study_of(short, "miss-ratios", dataset=(name, recipe), **params))
    return found


@figure("ginex-fig5", studies=traces)
def fig5(evidence: Evidence) -> Drawing:
    """Draw miss ratios of PaGraph's static cache and the optimal one, other policies in grey; one panel per dataset."""
    records = _longest_by_dataset(evidence)
    canvas, panels = many_panels(len(records), wide=len(records) > 1, height=2.5, sharey=True)
    tables = [_ratios(record) for record in records]
    spec = SPEC["fig5"]
    for axes, record, table in zip(panels, records, tables, strict=True):
        for policy, (line, color) in spec["others"].items():
            mine, line = table[table["policy"] == policy], line if isinstance(line, str) else tuple(line)
            if len(mine):
                axes.plot(mine["x"], mine["y"], color=color, linestyle=line, linewidth=0.8, label=policy, zorder=1)
        rows, title = table[table["policy"].isin(list(MAIN))], dataset_name(record)
        ylabel = spec["ylabel"] if axes is panels[0] else ""
        draw_curves(rows, title=title, xlabel=spec["xlabel"], ylabel=ylabel, looks=LOOKS.__getitem__, axes=axes)
        axes.set_xscale("log")
        plain_log(axes.xaxis)
        axes.set_ylim(0, 103)
    repeats = ", ".join(f"{record.result['accesses'] / max(1, record.result['unique_rows']):.1f}" for record in records)
    extra = spec["note"].format(repeats)
    text = " ".join(study_caption(record, extra if record is records[-1] else "") for record in records)
    return drawn(canvas, pd.concat(tables, ignore_index=True), text, order=list(MAIN.values()))


def _longest_by_dataset(evidence: Evidence) -> list[StudyRecord]:
    """Return the study of the longest trace of each dataset, which is the most accurate; the longest first."""
    found: dict[str, StudyRecord] = {}
    for record in evidence.all_studies("miss-ratios"):
        policies = {entry["policy"] for entry in record.result["policies"]}
        if record.dataset is not None and set(MAIN) <= policies:
            known = found.get(record.dataset.name, record)
            if record.result["accesses"] >= known.result["accesses"]:
                found[record.dataset.name] = record
    if not found:
        raise NotDrawn("the study miss-ratios was not made with the policies belady and degree")
    return sorted(found.values(), key=lambda record: -record.result["accesses"])[:_MOST_PANELS]


def _ratios(record: StudyRecord) -> pd.DataFrame:
    result, name = record.result, dataset_name(record)
    tables = []
    for entry in result["policies"]:
        policy = entry["policy"]
        own = {"dataset": name, "series": MAIN.get(policy, policy), "policy": policy, "x": result["shares"]}
        own |= {"y": read_ratios(result, policy), "rows": result["sizes"]}
        own |= {"misses": entry["misses"], "fills": entry["fills"], "accesses": result["accesses"]}
        tables.append(pd.DataFrame(own))
    table = pd.concat(tables, ignore_index=True)
    return table.assign(x=100 * table["x"], y=100 * table["y"])


def expanded(profile: Plain) -> list[StudyNeed]:
    """Return the expansion study of each dataset."""
    return [StudyNeed("expansion", {"dataset": name}, {name: recipe}) for name, recipe in expansions(profile).items()]


@figure("ginex-tab2", studies=expanded)
def tab2(evidence: Evidence) -> Sheet:
    """Return counts and bytes of base and result, and skew and homophily before and after expansion."""
    records = sorted(evidence.all_studies("expansion"), key=dataset_name)
    rows = [_expansion(record) for record in records]
    for name, cells in paper_table("ginex-tab2").items():
        head = {"dataset": f"{name} (paper)", "source": "paper", "expansion": "fractal"}
        rows.append({**head, **cells, "copies": cells["nodes"] / cells["base nodes"]})
    return sheet(rows, SPEC["tab2"]["columns"], SPEC["tab2"]["caption"])


def _expansion(record: StudyRecord) -> Plain:
    result = record.result
    head = {"dataset": f"{dataset_name(record)} (dim {result['dim']})", "source": "ours"}
    head["expansion"] = f"{result['kind']} of {result['base_name'] or 'a drawn base'}"
    return {**head, **{column: value_at(result, place) for column, place in SPEC["tab2"]["places"].items()}}
