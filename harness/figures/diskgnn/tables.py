"""DiskGNN Tables 1 (time, disk access, accuracy), 5 and 6 (accuracy by model and
sampler) and 8 (the pipeline)."""

from __future__ import annotations

from itertools import repeat

import pandas as pd

from harness.compare.cells import Cells
from harness.compare.evidence import Evidence
from harness.compare.plan import Plan, joined
from harness.figures.accuracy_runs import (
    accuracy_curve,
    at_target,
    best_accuracy,
    common_target,
    first_to_target,
    origin,
)
from harness.figures.base import (
    GB,
    Sheet,
    figure,
    figure_of_cells,
    paper_frame,
    published,
    sheet,
)
from harness.figures.diskgnn.grid import SYSTEMS, in_gallery, judged, percent, variants
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.captions import describe_memory, row_texts
from harness.figures.findings import plain, span, wide
from harness.figures.grids import gallery, host_budget
from harness.figures.over_axis import Places
from harness.results.table import preparation_s
from workloads.arraytypes import JsonDict

#: Factor on the profile's memory in Table 1: mariusgnn needs a little more than `quick`
#: has.
MORE_MEMORY = 1.25
#: Measures of Table 1 with their units, and the stages of `disk access`, by the
#: systems' own names.
UNITS = {
    "end-to-end": "s",
    "preprocessing": "s",
    "training": "s",
    "epoch": "s",
    "disk access": "s",
}
UNITS |= {"disk volume": "GB", "test accuracy": "%"}
DISK = ["extract", "read", "data_prep", "switch", "load", "load_graph"]
COLUMNS = {
    "model": "",
    "system": "",
    "accuracy (%)": ".2f",
    "end to end (s)": ".1f",
    "to the target (s)": ".1f",
}
COLUMNS |= {"epochs": "", "paper (%)": ".2f", "paper (h)": ".2f"}
#: The paper's values in Tables 5 and 6.
PAPERS = ["Papers100M accuracy", "Papers100M time"]
#: The paper's graphs in Table 8.
GRAPHS = ["Friendster", "IGB260M"]


def budgets(profile: JsonDict) -> Plan:
    """Plan the three systems at the profile's memory, and at a little more."""
    own = gallery(profile)["run"]["memory"]
    budget = MORE_MEMORY * host_budget(profile)
    more = f"+{round(budget)}"
    return in_gallery(profile, SYSTEMS, {own: {}, more: {"memory": more}})


def trained(profile: JsonDict) -> list[JsonDict]:
    """Return the experiment of the test accuracy in Table 1."""
    return [judged(profile).experiment("diskgnn-tab1-accuracy")]


@figure("diskgnn-tab1", budgets, beside=trained)
def tab1(evidence: Evidence) -> Sheet:
    """Return one row per measure, one column per system, with the paper's; raise
    NotDrawn without a measured epoch.

    All columns are of one memory: of the two the one with which more systems ended
    well, the less of equals.
    """
    cells = evidence.cells("diskgnn-tab1", budgets, least=1)
    done = cells.measured()
    most = done.x.value_counts(sort=False).idxmax()
    done = done[done.x == most].set_index("system", drop=False)
    records = done.record
    preparation = records.map(preparation_s)
    training = records.map(lambda record: pd.DataFrame(record["epochs"]).seconds.sum())
    volumes = cells.measured("device_bytes")
    volumes = volumes[volumes.x == most].set_index("system")
    judged_cells = evidence.cells("diskgnn-tab1", judged, least=0)
    accurate = judged_cells.medians().dropna(subset="value")
    accuracies = accurate.set_index("system").record.map(best_accuracy)
    ours = pd.DataFrame(index=SYSTEMS)
    ours["end-to-end"] = preparation + training
    ours["preprocessing"] = preparation
    ours["training"] = training
    ours["epoch"] = done.value
    ours["disk access"] = done.apply(
        lambda row: run_breakdown(row, {"disk": DISK})["disk"], axis=1
    )
    ours["disk volume"] = volumes.value / GB
    ours["test accuracy"] = 100 * accuracies.astype(float)
    paper = paper_frame("diskgnn-tab1").reindex(SYSTEMS).add_suffix(", paper", axis=0)
    paper_units = published("diskgnn-tab1").groupby("x").unit
    table = ours.T.join(paper.T)
    table.insert(0, "unit", pd.Series(UNITS))
    table.insert(5, "paper unit", paper_units.first())
    table = table.reset_index(names="measure")
    epochs = records.iloc[0]["config"]["epochs"]
    source = "of the runs of diskgnn-fig8" if len(accurate) else "not run"
    notes = [f"memory: {describe_memory(str(most))}"]
    notes += [f"end to end: preprocessing and {epochs} epochs (paper: 50, in hours)"]
    notes += ["disk access: time with a read open", f"accuracy: {source}"]
    runs = [*done.run, *accurate.run]
    columns = dict.fromkeys(map(str, table), ".4g")
    return sheet(
        table,
        columns,
        cells,
        *notes,
        rows=done,
        runs=runs,
        finding=_whole_and_epoch(ours),
        places=Places(cells.xs, describe_memory, "with"),
    )


def _whole_and_epoch(ours: pd.DataFrame) -> str:
    """Return the sentence on each system's training with its preprocessing, and its
    epoch alone, fastest first.

    Args:
        ours: one row for each system, with `end-to-end` and `epoch` in seconds.
    """
    by_time = ours[["end-to-end", "epoch"]].dropna().sort_values("end-to-end")
    texts = by_time.map(plain).reset_index(names="system")
    return row_texts(
        texts,
        "{system} {end-to-end} s (an epoch {epoch} s)",
        before="Preprocessing and training: ",
    )


@figure_of_cells(
    "diskgnn-tab5",
    lambda profile: judged(profile, over={"sage": {}, "gat": {"model": "gat"}}),
    least=1,
)
def tab5(cells: Cells) -> Sheet:
    """Return test accuracy and end-to-end time by model."""
    return _accuracy(cells, "diskgnn-tab5")


def by_sampler(profile: JsonDict) -> Plan:
    """Plan the systems with GCN, and with ShaDow's samples where they can: MariusGNN
    samples by itself."""
    gcn = judged(profile, SYSTEMS, {"gcn": {"model": "gcn"}})
    shadow = judged(profile, ["ginex", "diskgnn"], {"shadow": {"sampler": "shadow"}})
    return joined([gcn, shadow])


@figure_of_cells("diskgnn-tab6", by_sampler, least=1)
def tab6(cells: Cells) -> Sheet:
    """Return test accuracy and end-to-end time by sampler."""
    return _accuracy(cells, "diskgnn-tab6")


def _accuracy(cells: Cells, table: str) -> Sheet:
    """Return one row per setting and system, with the paper's; raise NotDrawn without a
    measured epoch."""
    done = cells.measured()
    targets = done.groupby("x", sort=False).record.agg(common_target)
    rows = cells.medians()
    curves = [accuracy_curve(record) for record in rows.record]
    data = rows[["x", "system"]].rename(columns={"x": "model"})
    best = rows.record.map(best_accuracy)
    data["accuracy (%)"] = 100 * best.astype(float)
    data["end to end (s)"] = [curve.end_to_end.max() for curve in curves]
    data["epochs"] = [len(curve) for curve in curves]
    data["run"] = rows.run
    goals = rows.x.map(targets)
    data["to the target (s)"] = list(
        map(at_target, rows.record, goals, repeat("end_to_end"))
    )
    names = data.model + " " + data.system
    paper = paper_frame(table).reindex(names, columns=PAPERS)
    data[["paper (%)", "paper (h)"]] = paper.to_numpy()
    labels = origin(done.record.iloc[0])
    what = (
        "best test accuracy of any epoch; end to end: preprocessing and all epochs; "
        "paper: papers100M"
    )
    shares = 100 * targets
    targeted = row_texts(shares.reset_index(name="target"), "{x} target {target:.1f} %")
    reached = data.assign(
        seconds=data["to the target (s)"].astype(float), target=rows.x.map(shares)
    )
    by_model = reached.groupby("model", sort=False)
    findings = [first_to_target(str(model), own) for model, own in by_model]
    finding = "; ".join(filter(None, findings))
    return sheet(data, COLUMNS, cells, labels, what, targeted, finding=finding)


#: Options of diskgnn with and without its pipeline.
PIPELINES = {"pipeline": {}, "sequential": {"pipeline": False}}


@figure_of_cells("diskgnn-tab8", lambda profile: variants(profile, PIPELINES), least=1)
def tab8(cells: Cells) -> Sheet:
    """Return one row per share of memory, with the paper's speedups."""
    table = (
        wide(cells.measured())
        .reindex(columns=["sequential", "pipeline"])
        .add_suffix(" (s)")
    )
    table["speedup"] = table["sequential (s)"] / table["pipeline (s)"]
    table = table.rename(index=percent)
    paper = paper_frame("diskgnn-tab8").rename(columns="{} %".format).T
    for graph in GRAPHS:
        before = f"{graph} sequential"
        after = f"{graph} pipeline"
        table[f"paper {graph}"] = (
            paper[before] / paper[after] if before in paper else None
        )
    table = table.reset_index(names="memory")
    columns = dict.fromkeys(map(str, table), ".2f")
    faster = table.speedup.dropna()
    finding = (
        f"The pipeline makes diskgnn's epochs {span(faster)} times as fast"
        if len(faster)
        else ""
    )
    return sheet(table, columns, cells, "memory over the features", finding=finding)
