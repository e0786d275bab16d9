"""DiskGNN Tables 1 (time, disk access, accuracy), 5 and 6 (accuracy by model and sampler) and 8 (the pipeline)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from harness.compare.cells import Cells, with_absent
from harness.compare.evidence import Evidence
from harness.compare.plan import Plain, Plan
from harness.compare.verdicts import NotDrawn
from harness.figures import accuracy_runs as accuracy
from harness.figures.base import Sheet, figure, figure_of_cells, published, sheet
from harness.figures.diskgnn.epochs import judged
from harness.figures.diskgnn.grid import GB, SYSTEMS, in_gallery, measured, over_shares, paper_frame, percent, variant
from harness.figures.draw.breakdown import run_breakdown
from harness.figures.draw.captions import describe_memory
from harness.figures.grids import host_budget
from harness.results.table import each, preparation_s

#: Factor on the profile's memory in Table 1: mariusgnn needs a little more than `quick` has.
MORE_MEMORY = 1.25
#: Measures of Table 1 with their units, and the stages of `disk access`, by the systems' own names.
UNITS = {"end-to-end": "s", "preprocessing": "s", "training": "s", "epoch": "s", "disk access": "s"}
UNITS |= {"disk volume": "GB", "test accuracy": "%"}
DISK = ["extract", "read", "data_prep", "switch", "load", "load_graph"]
#: Settings of the rows of Tables 5 and 6. MariusGNN samples by itself: the paper has no ShaDow for it either.
ROWS: dict[str, dict[str, Plain]] = {
    "diskgnn-tab5": {"sage": {}, "gat": {"model": "gat"}},
    "diskgnn-tab6": {"gcn": {"model": "gcn"}, "shadow": {"sampler": "shadow", "systems": ["ginex", "diskgnn"]}},
}
COLUMNS = {"model": "", "system": "", "accuracy (%)": ".2f", "end to end (s)": ".1f", "to the target (s)": ".1f"}
COLUMNS |= {"epochs": "", "paper (%)": ".2f", "paper (h)": ".2f"}
#: Ways of training in Table 8, and the paper's graphs.
WAYS = ["sequential", "pipeline"]
GRAPHS = ["Friendster", "IGB260M"]


def budgets(profile: Plain) -> Plan:
    """Plan the three systems at the profile's memory, and at a little more."""
    more = round(MORE_MEMORY * host_budget(profile))
    return in_gallery(profile, SYSTEMS, {"": {}, "more": {"memory": f"+{more}"}})


def trained(profile: Plain) -> list[Plain]:
    """Return the experiment of the test accuracy in Table 1."""
    return [judged(profile).experiment("diskgnn-tab1-accuracy")]


@figure("diskgnn-tab1", budgets, beside=trained)
def tab1(evidence: Evidence) -> Sheet:
    """Return one row per measure, one column per system, with the paper's; raise NotDrawn without a measured epoch.

    All columns are of one memory: of the two the one with which more systems ended well, the less of equals.
    """
    cells = evidence.cells("diskgnn-tab1", budgets, least=1)
    done = measured(cells)
    most = done["x"].mode()[0]
    done = done[done["x"] == most]
    records = done["record"]
    done["epoch"] = done["value"]
    done["preprocessing"] = records.map(preparation_s)
    done["training"] = records.map(_training_s)
    done["end-to-end"] = done["preprocessing"] + done["training"]
    done["disk access"] = [run_breakdown(row, [("disk", DISK)], "rest")["disk"] for row in each(done)]
    done["disk volume"] = cells.medians("device_bytes")["value"] / GB
    judged_runs = evidence.cells("diskgnn-tab1", judged, least=0).medians().dropna(subset="value")
    judged_runs["test accuracy"] = 100 * judged_runs["record"].map(accuracy.best_accuracy).astype(float)
    ours = done.merge(judged_runs[["system", "test accuracy"]], "outer", on="system").set_index("system")
    paper = paper_frame("diskgnn-tab1").reindex(SYSTEMS).T
    table = ours.reindex(SYSTEMS)[list(UNITS)].T.join(paper.add_suffix(", paper"))
    table.insert(0, "unit", pd.Series(UNITS))
    table.insert(5, "paper unit", published("diskgnn-tab1").groupby("x")["unit"].first())
    table = table.reset_index(names="measure")
    config = records.iloc[0]["config"]
    source = "of the runs of diskgnn-fig8" if len(judged_runs) else "not run"
    notes = [
        f"memory: {describe_memory(config['memory'])}",
        f"end to end: preprocessing and {config['epochs']} epochs (paper: 50, in hours)",
        "disk access: time with a read open",
        f"accuracy: {source}",
        *failures(cells.medians()),
    ]
    runs = [*done["run"], *judged_runs["run"]]
    return sheet(table, dict.fromkeys(table, ".4g"), cells, *notes, rows=done, runs=runs)


def _training_s(record: Plain) -> float:
    return sum(epoch["seconds"] for epoch in record["epochs"])


def failures(rows: pd.DataFrame) -> list[str]:
    """Return status and memory of each row of `Cells.medians` without a value, in words."""
    failed = rows[rows["value"].isna()]
    memories = [describe_memory(record["config"]["memory"]) for record in failed["record"]]
    found = zip(failed["system"], failed["status"].str.upper(), memories, strict=True)
    return [f"{system} {status} with {memory}" for system, status, memory in found]


def judged_rows(profile: Plain, table: str) -> list[Plain]:
    """Return the experiments of the rows of Table 5 or 6."""
    return [judged(profile, **how).experiment(f"{table}-{label}") for label, how in ROWS[table].items()]


@figure("diskgnn-tab5", partial(judged_rows, table="diskgnn-tab5"))
def tab5(evidence: Evidence) -> Sheet:
    """Return test accuracy and end-to-end time of GraphSAGE and GAT."""
    return _accuracy(evidence, "diskgnn-tab5")


@figure("diskgnn-tab6", partial(judged_rows, table="diskgnn-tab6"))
def tab6(evidence: Evidence) -> Sheet:
    """Return test accuracy and end-to-end time of GCN and of ShaDow's samples."""
    return _accuracy(evidence, "diskgnn-tab6")


def _accuracy(evidence: Evidence, table: str) -> Sheet:
    """Return one row per setting and system, with the paper's; raise NotDrawn without a measured epoch."""
    rows: list[Plain] = []
    targets: list[str] = []
    judged_cells: list[Cells] = []
    for label, how in ROWS[table].items():
        cells = evidence.cells(table, partial(judged, **how), least=0)
        medians = cells.medians()
        done = medians.dropna(subset="value")
        target = accuracy.common_target(list(done["record"])) or 0.0
        for cell in each(with_absent(medians, how.get("systems", SYSTEMS), [""])):
            rows.append({"model": label, "system": cell.system, **_reached(cell, target)})
        if len(done):
            targets.append(f"{label} target {100 * target:.1f} %")
            judged_cells.append(cells)
    if not judged_cells:
        raise NotDrawn("no run judged its model on test nodes after every epoch")
    data = pd.DataFrame(rows)
    names = data["model"] + " " + data["system"]
    paper = paper_frame(table).reindex(index=names, columns=["Papers100M accuracy", "Papers100M time"])
    data[["paper (%)", "paper (h)"]] = paper.to_numpy()
    first = judged_cells[0]
    done = measured(first)
    notes = [
        accuracy.origin(done["record"].iloc[0]),
        "best test accuracy of any epoch",
        "end to end: preprocessing and all epochs",
        *targets,
        f"paper: papers100M; models and sampling: {', '.join(ROWS[table])}",
    ]
    return sheet(data, COLUMNS, first, *notes, rows=done, runs=list(data["run"].dropna()))


def _reached(cell: Any, target: float) -> Plain:
    """Return a run's best accuracy, and its time for all epochs and to the target; its status where it failed."""
    if pd.isna(cell.value):
        return {"accuracy (%)": cell.status}
    curve = accuracy.accuracy_curve(cell.record)
    return {
        "accuracy (%)": 100 * curve["accuracy"].max(),
        "end to end (s)": curve["end_to_end"].max(),
        "epochs": len(curve),
        "run": cell.run,
        "to the target (s)": accuracy.at_target(cell.record, target, "end_to_end"),
    }


def by_pipeline(profile: Plain) -> Plan:
    """Plan diskgnn with and without its pipeline at each share of memory."""
    return over_shares(profile, [variant(profile, "pipeline"), variant(profile, "sequential", pipeline=False)])


@figure_of_cells("diskgnn-tab8", by_pipeline, least=1)
def tab8(cells: Cells) -> Sheet:
    """Return one row per share of memory, with the paper's speedups; raise NotDrawn without a pair to compare."""
    rows = cells.medians()
    seconds = rows.pivot(index="x", columns="system", values="value").reindex(columns=WAYS)
    table = seconds.rename(index=percent, columns="{} (s)".format)
    table["speedup"] = table["sequential (s)"] / table["pipeline (s)"]
    if table["speedup"].isna().all():
        raise NotDrawn("at no share of memory was diskgnn measured both with and without its pipeline")
    paper = paper_frame("diskgnn-tab8").rename(columns="{} %".format)
    for graph in GRAPHS:
        ways = paper.reindex([f"{graph} sequential", f"{graph} pipeline"])
        table[f"paper {graph}"] = ways.iloc[0] / ways.iloc[1]
    table = table.reset_index(names="memory")
    return sheet(table, dict.fromkeys(table, ".2f"), cells, "memory over the features", *failures(rows))
