"""The table of results: one row a run and one row a measured epoch, with the parts of
the record as columns.

A column is named as the part of the record, with dots between the names:
`config.memory`, `memory.budget_bytes` and `summary.once_s` of a run; `seconds`,
`stages_s.sample` and `counters.misses` of an epoch. Sentences, tables, figures and
claims are queries on these two tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.progress import Notice, silent
from harness.records.cell import cell_key
from harness.records.hosts import measured_on
from harness.records.record import COUNTED, spread
from harness.results.newest import without_replaced
from harness.results.store import BadRecord, scan
from workloads.arraytypes import JsonDict

#: Texts of a record, and parts of it, whose values are columns of the table of runs.
TEXTS = ("run_id", "system", "status", "verdict", "class")
PARTS = ("config", "memory", "facts", "summary", "preprocess")
#: Columns of `medians`, after those by which epochs are grouped.
STATISTICS = ("value", "low", "high", "samples", "interval")


def load(root: Path | str, progress: Notice = silent) -> pd.DataFrame:
    """Read the table of runs of a results root, oldest run first.

    Unreadable records (damaged, cut off, of another schema) are in `attrs["bad"]`, a
    list of `BadRecord`.
    """
    bad: list[BadRecord] = []
    found = [
        (record.to_json(), str(folder))
        for folder, record in scan(Path(root), bad, progress)
    ]
    table = runs_table([record for record, _ in found], [folder for _, folder in found])
    table.attrs["bad"] = bad
    return table


def runs_table(
    records: Iterable[JsonDict], folders: Iterable[str] = ()
) -> pd.DataFrame:
    """Return one row for each record (plain data).

    Args:
        records: records as `Record.to_json` returns them.
        folders: folder of each run; empty where runs are on no disk.

    Returns:
        Columns: single values of the record, and the parts named in `PARTS`, with dots
            between their names; `record`,
        the record itself; `path`, its folder; `cell`, equal for runs of one planned
        cell; `host`, `harness`, `limits` and `accelerator`, the place of the run
        (`harness.records.hosts.measured_on`); `counts`, whether the verdict lets the
        run count; `replaced`, whether a newer run of the same settings and round stands
        for it.
    """
    given = list(records)
    paths = list(folders) or [""] * len(given)
    standing = {id(record) for record in without_replaced(given)}
    rows = []
    for record, path in zip(given, paths, strict=True):
        parts = {name: record[name] for name in PARTS if record.get(name)}
        row = {
            name: value
            for name, value in record.items()
            if not isinstance(value, Mapping | Sequence)
        }
        row |= {name: record[name] for name in TEXTS} | _flatten(parts)
        row |= {name: _text(fact) for name, fact in measured_on(record).items()}
        row["cell"] = cell_of(record)
        row["counts"] = record["verdict"] in COUNTED
        row["replaced"] = id(record) not in standing
        row |= {"record": record, "path": path}
        rows.append(row)
    return pd.DataFrame(rows)


def every_part(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a table of runs with each part of the record in a column, for programs of
    others: hundreds of columns."""
    rows = [
        {**_flatten(run.record), "record": run.record, "path": run.path}
        for run in each(runs)
    ]
    table = pd.DataFrame(rows)
    table.attrs = runs.attrs
    return table


def epochs_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each measured epoch of a table of runs: `run_id`, and the
    parts of the epoch.

    `online_s` is the epoch without the offline work within it, which T(E) counts as
    `each`.
    """
    rows = []
    for record in [] if runs.empty else runs["record"]:
        for epoch in measured_epochs(record):
            offline = epoch.get("offline") or {}
            online_s = epoch["seconds"] - offline.get("seconds", 0.0)
            rows.append(
                {
                    "run_id": record["run_id"],
                    "online_s": online_s,
                    **_flatten(epoch, depth=1),
                }
            )
    if not rows:
        return pd.DataFrame(columns=["run_id", "online_s", "seconds"])
    return pd.DataFrame(rows)


def each(rows: pd.DataFrame) -> Iterator[Any]:
    """Yield each row of a table; a column whose name is a Python name is an attribute
    of the row."""
    yield from rows.itertuples(index=False)


def measured_epochs(record: Mapping[str, Any]) -> list[JsonDict]:
    """Return the epochs of a run (plain data) after its warm-up."""
    return [epoch for epoch in record["epochs"] if not epoch["warmup"]]


def preparation_s(record: Mapping[str, Any]) -> float:
    """Return seconds of a run's preprocessing (plain data), whether it or an earlier
    run spent them."""
    spent = record.get("preprocess") or {}
    return float(spent.get("seconds") or 0.0) + float(spent.get("made_s") or 0.0)


def medians(epochs: pd.DataFrame, column: str, by: Sequence[str]) -> pd.DataFrame:
    """Return the median of a column over the epochs of each group, with its interval
    (`harness.records.record.spread`).

    Args:
        epochs: rows of epochs; those without a value in `column` are left out.
        column: name of a column of numbers; none of this name: no rows.
        by: names of the columns whose equal values make a group.

    Returns:
        One row a group, in the order of their first epoch, with the columns `by` and
        `STATISTICS`.
    """
    columns = [*by, *STATISTICS]
    if column not in epochs:
        return pd.DataFrame(columns=columns)
    known = epochs[epochs[column].notna()]
    rows = []
    for key, samples in known.groupby(list(by), sort=False, dropna=False)[column]:
        seen = spread([float(sample) for sample in samples])
        rows.append(
            [*key, seen.median, *seen.interval, len(samples), seen.interval_kind]
        )
    return pd.DataFrame(rows, columns=columns)


def cell_of(record: JsonDict) -> str:
    """Return the identity of the planned cell that a run measured."""
    from harness.settings import complete_options

    config = record["config"]
    options = complete_options(record["system"], config["options"])
    data = config["dataset"]["name"]
    device = config["device_memory_bytes"]
    return cell_key(
        record["system"],
        data,
        config,
        options,
        layers=config["layers"],
        device_memory_bytes=device,
    )


def _text(fact: Any) -> str:
    """Return a fact as text by which rows can be grouped."""
    return (
        fact if isinstance(fact, str) else json.dumps(fact, sort_keys=True, default=str)
    )


def _flatten(content: Mapping[str, Any], prefix: str = "", depth: int = 9) -> JsonDict:
    """Return nested plain data as one mapping, names joined by dots down to `depth`
    levels."""
    flat: JsonDict = {}
    for key, value in content.items():
        if isinstance(value, Mapping) and value and depth:
            flat |= _flatten(value, f"{prefix}{key}.", depth - 1)
        else:
            flat[prefix + key] = value
    return flat
