"""outcore-fidelity: each reimplementation beside its public original, where both ran in
one setting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from harness.compare.comparable import side_by_side, side_by_side_of
from harness.compare.evidence import Evidence
from harness.compare.verdicts import NotDrawn
from harness.figures.base import NOTHING, Sheet, figure, sheet
from harness.figures.draw.captions import row_texts
from harness.figures.findings import span
from harness.records.foreign import ForeignRecord
from harness.results.table import epochs_table
from workloads.units import format_count

DIFFERS = "differs by design"
#: Reimplementations, their originals (systems of a run, or of a time of `outcore
#: results add`), differences by design.
ORIGINALS = Path(__file__).with_name("originals.csv")
#: Columns of the counts that must agree, a mini-batch.
COUNTS = ["rows", "requests", "bytes"]
HITS = "{:.1f} %".format
TEXTS = dict.fromkeys(["system", "original", "dataset", "memory"], "")
TIMES = {"epoch (s)": ".3g", "its epoch (s)": ".3g", "times as fast": ".2f"}
COLUMNS = {**TEXTS, **TIMES, **dict.fromkeys([*COUNTS, "hits", DIFFERS], "")}
KEYS = ["program", "name", "setting", "cell", "dataset", "memory"]
COUNTERS = ["batches", "rows", "misses", "hits", "observed"]
COUNTERS += ["device_requests", "io_requests", "device_bytes", "bytes_read"]
MISSING = (
    "no reimplementation and its original were measured in one setting "
    "(outcore-fidelity)"
)
CAPTION = (
    "Equal dataset, memory, model, fan-out and batch size. Rows, hits, device requests "
    "and bytes of a mini-batch: ours / the original's. An original marked as other "
    "code is as reported by others (`outcore results add`), not judged."
)


@figure("outcore-fidelity")
def fidelity(evidence: Evidence) -> Sheet:
    """Show one row for each pair in each setting, and `not measured` for
    reimplementations without one.

    Raises:
        NotDrawn: there is no pair.
    """
    known = pd.read_csv(ORIGINALS)
    known["program"] = known.program.str.split(";")
    pairs = _pairs(evidence, known[["system", "program"]].explode("program"))
    rows = known.merge(pairs, on="system", how="left")
    table = rows[["system", DIFFERS, "dataset", "memory"]].copy()
    table["original"] = rows.name_theirs.fillna(rows.program.str[-1])
    table["epoch (s)"] = rows.seconds
    table["its epoch (s)"] = rows.seconds_theirs.astype(object).fillna("not measured")
    table["times as fast"] = rows.seconds_theirs / rows.seconds
    for column in COUNTS:
        table[column] = _beside(rows, column, format_count)
    table["hits"] = _beside(rows, "hits", HITS)
    runs: Any = pairs[["runs", "runs_theirs"]].stack()
    return sheet(
        table,
        COLUMNS,
        CAPTION,
        runs=list(runs.explode().dropna().unique()),
        finding=_beside_originals(table),
    )


def _beside_originals(table: pd.DataFrame) -> str:
    """Return the sentence on the speed of each system over its original, and on systems
    without a measured one."""
    measured = (
        table.dropna(subset="times as fast")
        .groupby("system", sort=False)["times as fast"]
        .agg(span)
    )
    times = row_texts(
        measured.reset_index(name="times"),
        "{system} {times}",
        before="Times as fast as the originals: ",
    )
    missing = table.system.nunique() - len(measured)
    return f"{times}; {missing} not measured" if missing else times


def _beside(
    rows: pd.DataFrame, column: str, text: Callable[[float], str]
) -> pd.Series[str]:
    """Return a count of ours and of the original as text; missing where neither is
    known."""
    both = rows[[column, f"{column}_theirs"]]
    texts = both.map(text, na_action="ignore").astype(object).fillna(NOTHING)
    joined = texts[column] + " / " + texts[f"{column}_theirs"]
    return joined.mask(both.isna().all(axis=1))


def _pairs(evidence: Evidence, originals: pd.DataFrame) -> pd.DataFrame:
    """Return the settings in which a system and one of its originals were measured,
    both with their newest options.

    Args:
        originals: one row for each system (`system`) and name of an original
            (`program`).

    Returns:
        Columns of `_measured`: ours, and with the suffix `_theirs` the original's.
    """
    if evidence.runs.empty:
        raise NotDrawn(MISSING)
    measured = _measured(evidence)
    ours = measured.rename(columns={"program": "system"})
    theirs = originals.merge(measured, on="program").drop(columns="program")
    pairs = theirs.merge(ours, on=["system", "setting"], suffixes=("_theirs", ""))
    if pairs.empty:
        raise NotDrawn(MISSING)
    return pairs


def _measured(evidence: Evidence) -> pd.DataFrame:
    """Return one row for each program in each setting, with its newest options.

    Returns:
        Columns: `program`, `name`, `setting`, `dataset`, `memory`; medians of the
            epochs (`seconds`), of `COUNTS` a
        mini-batch and of `hits` (%); `runs`, ids of the runs.
    """
    found = [_own_epochs(evidence.runs)]
    found += map(_foreign_epochs, evidence.foreign)
    epochs = _counted(pd.concat(found, ignore_index=True))
    cells = epochs.groupby(KEYS, dropna=False)
    medians = cells[["seconds", *COUNTS, "hits"]].median()
    medians["runs"] = cells["run_id"].unique()
    medians["newest"] = cells["run_id"].max()
    newest = medians.sort_values("newest").reset_index()
    return newest.drop_duplicates(["name", "setting"], keep="last")


def _own_epochs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the epochs of counted runs that ended well, with program and setting."""
    done = runs[runs.counts & (runs.status == "ok")]
    heads = done[["run_id", "cell"]].assign(program=done.system, name=done.system)
    heads["setting"] = done.record.map(side_by_side_of)
    heads["dataset"] = done["config.dataset.name"]
    heads["memory"] = done["config.memory"]
    epochs = heads.merge(epochs_table(done), on="run_id")
    return epochs.rename(columns=lambda name: str(name).removeprefix("counters."))


def _foreign_epochs(record: ForeignRecord) -> pd.DataFrame:
    """Return the epochs of a measurement by other code."""
    epochs = pd.DataFrame({"seconds": record.seconds}).assign(**record.counters)
    setting = side_by_side(record.settings)
    return epochs.assign(
        program=record.system, name=record.label, setting=setting, cell=record.added_at
    )


def _counted(found: pd.DataFrame) -> pd.DataFrame:
    """Return epochs with `COUNTS` a mini-batch, and hits in per cent."""
    epochs = found.reindex(columns=[*KEYS, "run_id", "seconds", *COUNTERS])
    # Counters of a memory map have no misses: there, page faults that read count as
    # misses.
    mapped = epochs.hits.astype(object).str.get("page_cache").notna()
    faulted = epochs.observed.astype(object).str.get("page_cache_miss_ratio")
    missed = (epochs.misses / epochs.rows).where(~mapped, faulted)
    epochs["hits"] = 100 * (1 - missed.astype(float))
    # The counts by the kernel come before those by the program itself.
    epochs["requests"] = epochs.device_requests.fillna(epochs.io_requests)
    epochs["bytes"] = epochs.device_bytes.fillna(epochs.bytes_read)
    epochs[COUNTS] = epochs[COUNTS].div(epochs.batches, axis=0)
    return epochs
