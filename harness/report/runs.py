"""Run records for the page: a compact row a run for charts and tables; details and
timelines of each run's page."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from harness.compare.epochs import WHOLE, part_of_epoch
from harness.compare.plan import value_at
from harness.judge.metrics import METRICS
from harness.records.foreign import ForeignRecord
from harness.records.hosts import host_name, measured_on
from harness.records.latency import PERCENTILES, merged, no_latencies, rows
from harness.records.record import class_of, spread
from harness.results.store import WORKER_LOG
from harness.results.table import measured_epochs, preparation_s
from workloads.arraytypes import JsonDict
from workloads.errors import InputError, OutcoreError
from workloads.units import parse_bytes, row_bytes

# Bytes of a worker's log that are shown, from its end.
LOG_TAIL = 4096
# Control characters, and those that turn the writing direction: a log may contain
# anything.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
# Most moments of a timeline and spans of a pipeline: as many as a screen can show.
POINTS = 300
SPANS = 1500
# Column of telemetry -> name in the page, and the factor to its unit: per cent, MiB.
LEVELS = {
    "cpu_percent": ("cpu", 1.0),
    "gpu_percent": ("gpu", 1.0),
    "iowait_percent": ("iowait", 1.0),
    "mem_usage": ("used", 2.0**-20),
    "mem_anon": ("anon", 2.0**-20),
    "mem_page_cache": ("cache", 2.0**-20),
}
# Counts of an interval, shown as rates: MB/s, thousand requests/s.
RATES = {"disk_read_bytes": ("read", 1e-6), "disk_read_requests": ("requests", 1e-3)}


# Errors of a table that is missing or damaged; pyarrow's are ValueErrors.
_DAMAGED = (OutcoreError, OSError, ValueError, KeyError, TypeError)
#: Columns of the table of runs that are parts of the record, by their place in it.
PLACES = {
    "id": "run_id",
    "system": "system",
    "dataset": "config.dataset.name",
    "dim": "config.dataset.dim",
    "model": "config.model",
    "sampler": "config.sampler",
    "batch": "config.batch_size",
    "memory": "config.memory",
    "device": "config.device",
    "disk": "config.disk_class",
    "ranks": "config.ranks",
    "stages": "config.stages",
    "experiment": "config.experiment",
    "round": "config.round",
    "status": "status",
    "verdict": "verdict",
    "kind": "summary.epoch_s.interval_kind",
}
#: Parts of an epoch that its run's page shows as they are.
_OF_EPOCH = (
    "epoch warmup batches device_bytes device_requests digest loss accuracy "
    "test_accuracy"
).split()


def table_of(records: Sequence[JsonDict]) -> JsonDict:
    """Return all runs, oldest first: `columns`, `rows`, and `texts`, which a row's text
    columns index.

    `parts` of a row has its median seconds in each stage, in the order of `stages`.
    """
    stages = list(
        dict.fromkeys(
            stage for record in records for stage in record["summary"]["stages_s"]
        )
    )
    found = [_row(record, stages) for record in records]
    texts: dict[str, int] = {}
    rows = []
    for row in found:
        rows.append(
            [
                texts.setdefault(cell, len(texts)) if isinstance(cell, str) else cell
                for cell in row.values()
            ]
        )
    columns = list(found[0]) if found else []
    return {"columns": columns, "stages": stages, "texts": list(texts), "rows": rows}


def foreign_table(found: Sequence[ForeignRecord]) -> JsonDict | None:
    """Return the measurements by other code as a table of texts, `header` and `rows`;
    None without one."""
    header = [
        "measured by other code",
        "dataset",
        "memory",
        "device",
        "epoch (s)",
        "how",
        "where",
    ]
    rows = []
    for one in found:
        settings = [
            str(setting)
            for setting in (
                one.settings.dataset,
                one.settings.memory,
                one.settings.device,
            )
        ]
        median = spread(one.seconds).median
        rows.append([one.label, *settings, f"{median:.4g}", one.how, one.host])
    return {"header": header, "rows": rows, "left_out": 0} if rows else None


def _row(record: JsonDict, stages: Sequence[str]) -> JsonDict:
    """Return a run's cells by column."""
    config = record["config"]
    summary = record["summary"]
    measured = measured_epochs(record)
    row = {column: value_at(record, place) for column, place in PLACES.items()}
    row |= {
        metric.column: short(summary.get(metric.name))
        for metric in METRICS
        if metric.column
    }
    row["epoch_s"] = short(value_at(summary, "epoch_s.median"))
    row["low"], row["high"] = map(
        short, value_at(summary, "epoch_s.interval") or (None, None)
    )
    row["samples"] = len(measured)
    row["part"] = part_of_epoch(config) or WHOLE
    row["class"] = class_of(record)
    row["host"] = host_of(record)
    row["accelerator"] = str(measured_on(record)["accelerator"] or "")
    row["prep_s"] = short(preparation_s(record))
    row["memory_bytes"] = _asked_bytes(config)
    peak_bytes = record["memory"]["peak_bytes"]
    row["peak_mib"] = short(peak_bytes / 2**20) if peak_bytes else None
    read = [
        epoch["device_bytes"] for epoch in measured if epoch["device_bytes"] is not None
    ]
    row["device_mb"] = short(sum(read) / len(read) / 1e6) if read else None
    stages_s = summary["stages_s"]
    row["parts"] = (
        [short(stages_s.get(stage)) for stage in stages] if stages_s else None
    )
    return row


def host_of(record: JsonDict) -> str:
    """Return the host's label and fingerprint; `unknown` where the record has none."""
    return host_name(record["environment"]) or "unknown"


def _asked_bytes(config: JsonDict) -> int | None:
    """Return the memory setting (budget or cap) in bytes, for an axis; None without a
    cap or for an invalid record."""
    text = config["memory"]
    data = config["dataset"]
    try:
        if text.endswith("x"):
            feature_bytes = int(data["num_nodes"]) * row_bytes(
                data["dim"], data["dtype"]
            )
            return round(float(text[:-1]) * feature_bytes)
        return None if text == "none" else parse_bytes(text.removeprefix("+"))
    except (InputError, ValueError, LookupError):
        return None


def short(value: float | None, digits: int = 4) -> float | int | None:
    """Round a number and drop an empty fraction, since the page has thousands; None
    where it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def details_of(record: JsonDict, folder: Path, beside: str) -> JsonDict:
    """Return the content of one run's page, without its timelines.

    Args:
        folder: folder of the run.
        beside: address of that folder, relative to the report.
    """
    config = record["config"]
    summary = record["summary"]
    settings = {
        name: value
        for name, value in config.items()
        if name not in ("dataset", "options")
    }
    rules = [
        [rule["rule"], rule["name"], rule["ok"], rule["detail"]]
        for rule in record["verdict_rules"]
    ]
    files = [path.name for path in sorted(folder.glob("*")) if path.is_file()]
    return {
        **{name: record[name] for name in ("reason", "caveats", "preprocess", "notes")},
        "rules": rules,
        "started": record["started_at"],
        "duration": short(record["duration_s"]),
        "config": settings,
        "dataset": config["dataset"],
        "options": config["options"],
        "environment": record["environment"],
        "memory": {
            key: value for key, value in record["memory"].items() if value is not None
        },
        "epochs": [_epoch(epoch) for epoch in record["epochs"]],
        "latencies": _latencies(record),
        "extra": _all_rounded(summary["extra"]),
        "predicted": short(summary["predicted_s"]),
        "overhead": _all_rounded(record["overhead"]),
        "log": log_tail(folder),
        "files": [[name, f"{beside}/{name}"] for name in files],
    }


def _latencies(record: JsonDict) -> JsonDict:
    """Return the latencies of the measured epochs' requests: `rows` of direction, size,
    requests, and microseconds by percentile; `why` there is none."""
    measured = measured_epochs(record)
    found = rows(merged(epoch.get("latencies") or {} for epoch in measured))
    cells = []
    for row in found:
        times_s = [*row.percentiles_s.values(), row.longest_s]
        times_us = [short(1e6 * seconds) for seconds in times_s]
        cells.append([row.direction, row.size_text, row.requests, *times_us])
    why = no_latencies(record["system"], [epoch["counters"] for epoch in measured])
    return {
        "heads": ["direction", "up to", "requests", *PERCENTILES, "longest"],
        "rows": cells,
        "why": "" if found else why,
    }


def _epoch(epoch: JsonDict) -> JsonDict:
    counters = dict(epoch["counters"])
    hits = counters.pop("hits", {})
    shown = {
        name: count
        for name, count in counters.items()
        if isinstance(count, int | float) and count
    }
    if isinstance(hits, Mapping):
        shown |= {f"{tier} hits": count for tier, count in hits.items()}
    found = _all_rounded({name: epoch[name] for name in _OF_EPOCH})
    if epoch["losses_not_finite"]:
        # JSON has no nan, and a dash would stand for a run that trains nothing.
        found["loss"] = "nan"
    times = {"seconds": short(epoch["seconds"]), "start": short(epoch["start_s"])}
    return {
        **found,
        **times,
        "stages": _all_rounded(epoch["stages_s"]),
        "counters": shown,
    }


def _all_rounded(values: Mapping[str, Any]) -> JsonDict:
    return {
        name: short(value) if isinstance(value, float) else value
        for name, value in values.items()
    }


def log_tail(folder: Path) -> str:
    """Read the last lines of the worker's log, control characters replaced; empty where
    there is none."""
    path = folder / WORKER_LOG
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(max(0, size - LOG_TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    if size > LOG_TAIL:
        text = "… " + text.partition("\n")[2]
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def packed(value: Any) -> str:
    """Return plain data as base64 of gzipped JSON; numbers without a JSON form become
    null."""
    return base64.b64encode(
        gzip.compress(compact(value).encode("utf-8", "replace"), 6, mtime=0)
    ).decode()


def compact(value: Any) -> str:
    """Return plain data as JSON without spaces; numbers without a JSON form become
    null."""
    try:
        return json.dumps(
            value,
            separators=(",", ":"),
            allow_nan=False,
            default=str,
            ensure_ascii=False,
        )
    except ValueError:
        return json.dumps(
            finite(value),
            separators=(",", ":"),
            allow_nan=False,
            default=str,
            ensure_ascii=False,
        )


def finite(value: Any) -> Any:
    """Return the same data with None for every number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return value


def over_time(folder: Path, record: JsonDict) -> JsonDict | None:
    """Return timeline and pipeline of one run; None where it has neither (it ended
    early, or its files are damaged)."""
    from harness.results.store import table

    found: JsonDict = {"line": None, "pipeline": None}
    with suppress(*_DAMAGED):
        found["line"] = timeline(table(folder, "telemetry"))
    with suppress(*_DAMAGED):
        found["pipeline"] = pipeline(table(folder, "stages"), record)
    return found if any(found.values()) else None


def timeline(table: pd.DataFrame) -> JsonDict | None:
    """Average telemetry over at most `POINTS` equal intervals; a table with no more
    rows stays as it is.

    Returns:
        `t` (s), and for each measured series of `LEVELS` and `RATES` a list, None where
        unknown. None for a table without rows.
    """
    import numpy as np

    ordered = table.sort_values("t")
    t = ordered["t"].to_numpy(dtype=np.float64)
    if len(t) < 2 or not np.isfinite(t).all() or t[-1] <= t[0]:
        return None
    count = len(t)
    at = np.arange(count)
    moments = t
    if count > POINTS:
        count = POINTS
        dt = (t[-1] - t[0]) / count
        at = ((t - t[0]) / dt).astype(np.int64).clip(max=count - 1)
        moments = t[0] + (np.arange(count) + 0.5) * dt
    seconds = np.diff(t, prepend=np.nan)
    seconds[~(seconds > 0)] = np.nan
    series = {}
    for column, (name, factor) in {**LEVELS, **RATES}.items():
        if column in ordered:
            values = ordered[column].to_numpy(dtype=np.float64) * factor
            series[name] = values / seconds if column in RATES else values
    every = pd.DataFrame(series).replace([np.inf, -np.inf], np.nan)
    means = every.groupby(at).mean().reindex(range(count))
    shown = means.dropna(axis="columns", how="all")
    found: JsonDict = {"t": [round(float(moment), 2) for moment in moments]}
    for label, series_means in shown.items():
        found[str(label)] = [short(mean, 3) for mean in series_means]
    return found


def pipeline(table: pd.DataFrame, record: JsonDict) -> JsonDict | None:
    """Return each mini-batch's spans in the stages of the first measured epoch.

    Returns:
        `epoch`, `stages` (names), `batches` and `of` (shown, and all of the epoch), and
        `spans`: stage, mini-batch, start (ms since the epoch began), length (ms); at
        most `SPANS`, of the first mini-batches. None for a run without stages.
    """
    spans = table[~table["stage"].str.startswith("lane:") & (table["batch"] >= 0)]
    epochs = measured_epochs(record) or record["epochs"]
    if epochs:
        number = epochs[0]["epoch"]
        zero = epochs[0]["start_s"]
    else:
        number = table["epoch"].min()
        zero = spans["start"].min()
    inside = spans[spans["epoch"] == number]
    if inside.empty:
        return None
    starts = inside.groupby("batch")["start"]
    batches = starts.min().sort_values().index
    sizes = starts.size().reindex(batches)
    most = max(1, int((sizes.cumsum() <= SPANS).sum()))
    shown = (
        inside[inside["batch"].isin(batches[:most])]
        .sort_values(["start", "end"])
        .head(SPANS)
    )
    stage, names = shown["stage"].factorize()
    times = pd.DataFrame(
        {"start": shown["start"] - zero, "length": shown["end"] - shown["start"]}
    )
    times_ms = (times * 1e3).round(1)
    columns = [stage.tolist(), shown["batch"], times_ms["start"], times_ms["length"]]
    rows = [list(span) for span in zip(*columns, strict=True)]
    return {
        "epoch": int(number),
        "stages": list(names),
        "batches": most,
        "of": len(batches),
        "spans": rows,
    }
