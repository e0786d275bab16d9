"""outcore-fidelity: each reimplementation beside its public original, where both ran in one setting."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from harness.compare.comparable import side_by_side, side_by_side_of
from harness.compare.evidence import Evidence
from harness.compare.plan import Plain
from harness.compare.verdicts import NotDrawn
from harness.figures.base import NOTHING, Sheet, figure, sheet
from harness.records.foreign import ForeignRecord
from harness.results.table import each, epochs_table
from workloads.units import format_count

DIFFERS = "differs by design"
#: Reimplementation, its originals (systems of a run, or of a time of `outcore results add`), differences by design.
SYSTEMS = [
    ("pyg+", ["env:pyg", "PyG"], "rows are faulted by many threads, without read-ahead; draws keyed by node"),
    (
        "dgl-ondisk",
        ["env:graphbolt", "GraphBolt", "DGL"],
        "each row is one direct read, no page cache; draws keyed by node",
    ),
    ("dgl", ["env:dgl", "DGL"], "DGL 1.1.3 loads; draws keyed by node unless its own sampler is chosen"),
    ("ginex", ["Ginex"], "io_uring, superbatches cross the ends of epochs; draws keyed by node"),
    ("gnndrive", ["GNNDrive"], "requests merged, at the device's block; draws keyed by node"),
    ("mariusgnn", ["MariusGNN"], "sampling in native code of ours, within the buffered partitions as there"),
    ("diskgnn", ["DiskGNN"], "packs by one stream over the table; an epoch's samples may be drawn anew"),
    ("pagraph", ["PaGraph"], "loads by threads, not by processes; draws keyed by node"),
]
#: Counts of an epoch, from a run's counters or from the kernel.
COUNTERS = ["batches", "rows", "misses", "hits", "observed", "device_requests", "io_requests"]
COUNTERS += ["device_bytes", "bytes_read"]
#: Columns of the counts that must agree, a mini-batch -> their text.
COUNTS: dict[str, Callable[[float], str]] = {name: format_count for name in ("rows", "requests", "bytes")}
COUNTS["hits"] = "{:.1f} %".format
TIMES = {"epoch (s)": ".3g", "its epoch (s)": ".3g", "times as fast": ".2f"}
COLUMNS = {**dict.fromkeys(["system", "original", "dataset", "memory"], ""), **TIMES, **dict.fromkeys(COUNTS, "")}
MISSING = "no reimplementation and its original were measured in one setting (outcore-fidelity)"
CAPTION = (
    "Equal dataset, memory, model, fan-out and batch size. Rows, hits, and requests and bytes of the device, a "
    "mini-batch: ours / the original's. An original marked as other code is as told by others "
    "(`outcore results add`), not judged."
)


@figure("outcore-fidelity")
def fidelity(evidence: Evidence) -> Sheet:
    """Show one row for each pair in each setting, and `not measured` for reimplementations without one.

    Raises:
        NotDrawn: there is no pair.
    """
    known = pd.DataFrame(SYSTEMS, columns=["system", "program", DIFFERS])
    pairs = _pairs(evidence, known[["system", "program"]].explode("program"))
    known["original"] = known["program"].str[-1]
    rows = known.merge(pairs, on="system", how="left")
    table = rows[["system", DIFFERS, "dataset", "memory"]].copy()
    table["original"] = rows["name_theirs"].fillna(rows["original"])
    table["epoch (s)"] = rows["seconds"]
    table["its epoch (s)"] = rows["seconds_theirs"].astype(object).fillna("not measured")
    table["times as fast"] = rows["seconds_theirs"] / rows["seconds"]
    for column, text in COUNTS.items():
        ours, theirs = rows[column], rows[f"{column}_theirs"]
        both = [side.map(text, na_action="ignore").fillna(NOTHING) for side in (ours, theirs)]
        table[column] = (both[0] + " / " + both[1]).mask(ours.isna() & theirs.isna())
    runs = [run for pair in each(pairs) for run in [*pair.runs, *pair.runs_theirs] if run]
    return sheet(table, COLUMNS | {DIFFERS: ""}, CAPTION, runs=list(dict.fromkeys(runs)))


def _pairs(evidence: Evidence, originals: pd.DataFrame) -> pd.DataFrame:
    """Return the settings in which a system, with its newest options, and one of its originals were measured.

    Args:
        originals: one row for each system (`system`) and name of an original (`program`).

    Returns:
        Columns of `_measured`: ours, and with the suffix `_theirs` the original's.
    """
    measured = _measured(evidence)
    newest = measured.drop_duplicates(["program", "setting"], keep="last")
    ours = newest.rename(columns={"program": "system"}).drop(columns="name")
    theirs = originals.merge(measured.drop(columns=["dataset", "memory"]), on="program")
    pairs = theirs.merge(ours, on=["system", "setting"], suffixes=("_theirs", ""))
    if pairs.empty:
        raise NotDrawn(MISSING)
    return pairs.rename(columns={"name": "name_theirs"}).drop(columns="program")


def _measured(evidence: Evidence) -> pd.DataFrame:
    """Return one row for each program in each setting, with options of its own, in the order of their newest runs.

    Returns:
        Columns: `program`, `name` (with the options where they vary), `setting`, `dataset`, `memory`; medians of the
        epochs (`seconds`) and of counts a mini-batch (`COUNTS`, hits in per cent); `runs`, ids of the runs.
    """
    own = [] if evidence.runs.empty else [_own_epochs(evidence.runs)]
    others = [_foreign_epochs(record) for record in evidence.foreign]
    if not own:
        raise NotDrawn(MISSING)
    found = pd.concat([*own, *others], ignore_index=True)
    keys = ["program", "name", "setting", "dataset", "memory"]
    epochs = found.reindex(columns=[*keys, "run_id", "seconds", *COUNTERS])
    mapped = epochs["hits"].astype(object).str.get("page_cache").notna()
    # Counters of a memory map have no misses: there, page faults that read count as misses.
    faulted = epochs["observed"].astype(object).str.get("page_cache_miss_ratio")
    missed = (epochs["misses"] / epochs["rows"]).where(~mapped, faulted)
    epochs["hits"] = 100 * (1 - missed.astype(float))
    # The counts by the kernel come before those by the program itself.
    epochs["requests"] = epochs["device_requests"].fillna(epochs["io_requests"])
    epochs["bytes"] = epochs["device_bytes"].fillna(epochs["bytes_read"])
    counts = ["rows", "requests", "bytes"]
    epochs[counts] = epochs[counts].div(epochs["batches"], axis=0)
    cells = epochs.groupby(keys, dropna=False)
    medians = cells[["seconds", *COUNTS]].median()
    medians["runs"] = cells["run_id"].unique()
    medians["newest"] = cells["run_id"].max()
    return medians.sort_values("newest").drop(columns="newest").reset_index()


def _own_epochs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the epochs of counted runs that ended well, with program and setting."""
    done = runs[runs["counts"] & (runs["status"] == "ok")]
    heads = done[["run_id"]].assign(program=done["system"], dataset=done["config.dataset.name"])
    heads["memory"] = done["config.memory"]
    heads["setting"] = done["record"].map(side_by_side_of)
    options = done["record"].map(_options)
    varied = options.groupby(done["system"]).transform("nunique") > 1
    heads["name"] = done["system"] + (" " + options).where(varied, "")
    epochs = heads.merge(epochs_table(done), on="run_id")
    return epochs.rename(columns=lambda name: str(name).removeprefix("counters."))


def _options(record: Plain) -> str:
    options = record["config"]["options"]
    return " ".join(f"{name}={options[name]}" for name in sorted(options))


def _foreign_epochs(record: ForeignRecord) -> pd.DataFrame:
    """Return the epochs of a measurement by other code."""
    setting = side_by_side(record.settings)
    head = {"program": record.system, "name": record.label, "setting": setting, "run_id": "", "memory": ""}
    return pd.DataFrame({"seconds": record.seconds}).assign(dataset="", **head, **record.counters)
