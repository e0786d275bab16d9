"""Run records for the page: a compact row a run for charts and tables; details and timelines of each run's page."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.compare.epochs import WHOLE, part_of_epoch
from harness.compare.plan import Plain
from harness.judge.metrics import METRICS
from harness.records.foreign import ForeignRecord
from harness.records.hosts import host_fingerprint, measured_on
from harness.records.record import class_of, spread
from harness.results.store import WORKER_LOG
from harness.results.table import measured_epochs, preparation_s
from workloads.errors import InputError, OutcoreError
from workloads.units import parse_bytes, row_bytes

if TYPE_CHECKING:
    import pandas as pd

# Bytes of a worker's log that are shown, from its end.
LOG_TAIL = 4096
# Control characters, and those that turn the writing direction: a log may contain anything.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Most moments of a timeline and spans of a pipeline: as many as a screen can show.
POINTS = 300
SPANS = 1500
# Column of telemetry -> name in the page, and the factor to its unit: per cent, MiB.
LEVELS = {f"{name}_percent": (name, 1.0) for name in ("cpu", "gpu", "iowait")}
LEVELS |= {
    f"mem_{key}": (name, 2.0**-20) for key, name in {"usage": "used", "anon": "anon", "page_cache": "cache"}.items()
}
# Counts of an interval, shown as rates: MB/s, thousand requests/s.
RATES = {"disk_read_bytes": ("read", 1e-6), "disk_read_requests": ("requests", 1e-3)}


def table_of(records: Sequence[Plain]) -> Plain:
    """Return all runs, oldest first: `columns`, `rows`, and `texts`, which a row's text columns index.

    `parts` of a row has its median seconds in each stage, in the order of `stages`.
    """
    texts: dict[str, int] = {}
    stages = list(dict.fromkeys(name for r in records for name in (r.get("summary") or {}).get("stages_s") or {}))
    found = [_row(record, stages) for record in records]
    rows = []
    for row in found:
        rows.append([texts.setdefault(cell, len(texts)) if isinstance(cell, str) else cell for cell in row.values()])
    columns = list(found[0]) if found else []
    return {"columns": columns, "stages": stages, "texts": list(texts), "rows": rows}


def foreign_table(found: Sequence[ForeignRecord]) -> Plain | None:
    """Return the measurements by other code as a table of texts, `header` and `rows`; None without one."""
    header = ["measured by other code", "dataset", "memory", "device", "epoch (s)", "how", "where"]
    rows = []
    for one in found:
        own = (one.settings.dataset, one.settings.memory, one.settings.device, f"{spread(one.seconds).median:.4g}")
        rows.append([one.label, *map(str, own), one.how, one.host])
    return {"header": header, "rows": rows, "left_out": 0} if rows else None


def _row(record: Plain, stages: Sequence[str]) -> Plain:
    """Return a run's cells by column."""
    config, dataset = record["config"], record["config"]["dataset"]
    summary = record.get("summary") or {}
    epoch, stage_s = summary.get("epoch_s") or {}, summary.get("stages_s") or {}
    low, high = epoch.get("interval") or (None, None)
    measured = measured_epochs(record)
    read = [entry["device_bytes"] for entry in measured if entry.get("device_bytes") is not None]
    peak_bytes = (record.get("memory") or {}).get("peak_bytes") or 0
    row = {
        "id": record["run_id"],
        "system": record["system"],
        "dataset": dataset["name"],
        "dim": dataset.get("dim"),
        "model": config.get("model"),
        "sampler": config.get("sampler"),
        "batch": config.get("batch_size"),
        "memory": config["memory"],
        "memory_bytes": _asked_bytes(config),
        "device": config["device"],
        "disk": config.get("disk_class"),
        "host": host_of(record),
        "accelerator": str(measured_on(record)["accelerator"] or ""),
        "ranks": config.get("ranks"),
        "stages": config.get("stages"),
        "experiment": config.get("experiment"),
        "round": config.get("round"),
        "status": record["status"],
        "verdict": record["verdict"],
        "class": class_of(record),
        "part": part_of_epoch(config) or WHOLE,
        "epoch_s": short(epoch.get("median")),
        "low": short(low),
        "high": short(high),
        "samples": len(measured),
        "kind": str(epoch.get("interval_kind") or ""),
        "prep_s": short(preparation_s(record)),
        "device_mb": short(sum(read) / len(read) / 1e6 if read else None),
        "peak_mib": short(peak_bytes / 2**20 or None),
    }
    row |= {metric.column: short(summary.get(metric.name)) for metric in METRICS if metric.column}
    return {**row, "parts": [short(stage_s.get(stage)) for stage in stages] if stage_s else None}


def host_of(record: Plain) -> str:
    """Return the host's fingerprint; `unknown` where the record has none."""
    return host_fingerprint(record.get("environment") or {}) or "unknown"


def _asked_bytes(config: Plain) -> int | None:
    """Return the memory setting (budget or cap) in bytes, for an axis; None without a cap or for an invalid record."""
    text = str(config["memory"])
    try:
        if text.endswith("x"):
            data = config["dataset"]
            return round(float(text[:-1]) * int(data["num_nodes"]) * row_bytes(int(data["dim"]), data["dtype"]))
        return None if text == "none" else parse_bytes(text.removeprefix("+"))
    except (InputError, ValueError, LookupError):
        return None


def short(value: Any, digits: int = 4) -> float | int | None:
    """Round a number and drop an empty fraction, since the page has thousands; None where it is not finite."""
    if value is None or isinstance(value, str) or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) else rounded


class Pool:
    """Values shared by many runs, each stored once; a run stores their numbers."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._known: dict[str | tuple[str, ...], int] = {}

    def add(self, value: Any) -> int:
        """Return the number of a value, adding the value where it is new."""
        # Rule names come 20 times a record, and a tuple of text can be looked up without serialising it.
        key = value if isinstance(value, tuple) else json.dumps(value, sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = len(self.values)
            self.values.append(value)
        return self._known[key]


def details_of(record: Plain, folder: Path, beside: str, pool: Pool) -> Plain:
    """Return the content of one run's page, without its timelines.

    Args:
        folder: folder of the run.
        beside: address of that folder, relative to the report.
        pool: store for values that many runs share.
    """
    config = {key: value for key, value in record["config"].items() if key not in ("dataset", "options")}
    return {
        "reason": record.get("reason") or "",
        "caveats": record.get("caveats") or [],
        "rules": [
            [pool.add((rule["rule"], rule["name"])), rule["ok"], rule.get("detail") or ""]
            for rule in record.get("verdict_rules") or []
        ],
        "started": record.get("started_at") or "",
        "duration": short(record.get("duration_s")),
        "config": pool.add(config),
        "dataset": pool.add(record["config"]["dataset"]),
        "options": pool.add(record["config"]["options"]),
        "environment": [[key, pool.add(value)] for key, value in (record.get("environment") or {}).items()],
        "memory": {key: value for key, value in (record.get("memory") or {}).items() if value is not None},
        "preprocess": record.get("preprocess") or {},
        "epochs": [_epoch(epoch) for epoch in record["epochs"]],
        "extra": {key: _rounded(value) for key, value in ((record.get("summary") or {}).get("extra") or {}).items()},
        "predicted": short((record.get("summary") or {}).get("predicted_s")),
        "overhead": {key: short(value) for key, value in (record.get("overhead") or {}).items()},
        "notes": record.get("notes") or {},
        "log": log_tail(folder),
        "files": [[path.name, f"{beside}/{path.name}"] for path in sorted(folder.glob("*")) if path.is_file()],
    }


def _epoch(epoch: Mapping[str, Any]) -> Plain:
    counters = {key: value for key, value in epoch["counters"].items() if isinstance(value, int | float) and value}
    hits = epoch["counters"].get("hits") or {}
    if isinstance(hits, Mapping):
        counters.update({f"{tier} hits": value for tier, value in hits.items()})
    kept = ("epoch", "warmup", "batches", "device_bytes", "device_requests", "digest")
    learned = ("loss", "accuracy", "test_accuracy")
    # JSON has no nan, and a dash would stand for a run that trains nothing.
    diverged = {"loss": "nan"} if epoch.get("losses_not_finite") else {}
    return {
        **{key: _rounded(epoch.get(key)) for key in (*kept, *learned)},
        **diverged,
        "seconds": short(epoch["seconds"]),
        "start": short(epoch.get("start_s")),
        "stages": {name: short(value) for name, value in (epoch.get("stages_s") or {}).items()},
        "counters": counters,
    }


def _rounded(value: Any) -> Any:
    return short(value) if isinstance(value, float) else value


def log_tail(folder: Path) -> str:
    """Read the last lines of the worker's log, control characters replaced; empty where there is none."""
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
    """Return plain data as base64 of gzipped JSON; numbers without a JSON form become null."""
    return base64.b64encode(gzip.compress(compact(value).encode("utf-8", "replace"), 6, mtime=0)).decode()


def compact(value: Any) -> str:
    """Return plain data as JSON without spaces; numbers without a JSON form become null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, default=str, ensure_ascii=False)
    except ValueError:
        return json.dumps(finite(value), separators=(",", ":"), allow_nan=False, default=str, ensure_ascii=False)


def finite(value: Any) -> Any:
    """Return the same data with None for every number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return value


def over_time(folder: Path, record: Mapping[str, Any], points: int = POINTS) -> Plain | None:
    """Return timeline and pipeline of one run; None where it has neither (it ended early, or its files are damaged)."""
    from harness.results import store as results

    parts: dict[str, Callable[[], Plain | None]] = {
        "line": lambda: timeline(results.table(folder, "telemetry"), points),
        "pipeline": lambda: pipeline(results.table(folder, "stages"), record),
    }
    found: dict[str, Plain | None] = {}
    for name, thin in parts.items():
        try:
            found[name] = thin()
        except (OutcoreError, OSError, ValueError, KeyError, TypeError):  # pyarrow's errors are ValueErrors
            found[name] = None
    return found if any(found.values()) else None


def timeline(table: pd.DataFrame, points: int = POINTS) -> Plain | None:
    """Average telemetry over at most `points` equal intervals; a table with no more rows stays as it is.

    Returns:
        `t` (s), and for each measured series of `LEVELS` and `RATES` a list, None where unknown. None for a table
        without rows.
    """
    import numpy as np

    ordered = table.sort_values("t")
    t = ordered["t"].to_numpy(dtype=np.float64)
    if len(t) < 2 or not np.isfinite(t).all() or t[-1] <= t[0]:
        return None
    count = min(points, len(t))
    dt = (t[-1] - t[0]) / count
    thin = len(t) > points
    at = np.minimum(((t - t[0]) / dt).astype(np.int64), count - 1) if thin else np.arange(count)
    seconds = np.diff(t, prepend=np.nan)
    moments = t[0] + (np.arange(count) + 0.5) * dt if thin else t
    found: Plain = {"t": [round(float(moment), 2) for moment in moments]}
    for column, (name, factor) in {**LEVELS, **RATES}.items():
        if column not in ordered:
            continue
        values = ordered[column].astype(float) * factor
        if column in RATES:
            values = values / np.where(seconds > 0, seconds, np.nan)
        means = values.replace([np.inf, -np.inf], np.nan).groupby(at).mean().reindex(range(count))
        if means.notna().any():
            found[name] = [short(value, 3) for value in means]
    return found


def pipeline(table: pd.DataFrame, record: Mapping[str, Any], spans: int = SPANS) -> Plain | None:
    """Return each mini-batch's spans in the stages of the first measured epoch.

    Returns:
        `epoch`, `stages` (names), `batches` and `of` (shown, and all of the epoch), and `spans`: stage, mini-batch,
        start (ms since the epoch began), length (ms); at most `spans`, of the first mini-batches. None for a run
        without stages.
    """
    import numpy as np

    measured = [epoch for epoch in record["epochs"] if not epoch["warmup"]] or list(record["epochs"])
    own = table[~table["stage"].astype(str).str.startswith("lane:")]
    if own.empty:
        return None
    epoch = measured[0]["epoch"] if measured else int(own["epoch"].min())
    inside = own[(own["epoch"] == epoch) & (own["batch"] >= 0)]
    if inside.empty:
        return None
    zero = float(measured[0]["start_s"]) if measured else float(inside["start"].min())
    order = inside.groupby("batch")["start"].min().sort_values().index.to_list()
    most = len(order)
    if len(inside) > spans:
        sizes = inside.groupby("batch").size().reindex(order).to_numpy()
        most = max(1, int(np.searchsorted(np.cumsum(sizes), spans, side="right")))
    shown = inside[inside["batch"].isin(order[:most])].sort_values(["start", "end"]).head(spans)
    names = list(dict.fromkeys(shown["stage"].astype(str)))
    rows = [
        [names.index(str(stage)), int(batch), round((start - zero) * 1e3, 1), round((end - start) * 1e3, 1)]
        for stage, batch, start, end in zip(shown["stage"], shown["batch"], shown["start"], shown["end"], strict=True)
    ]
    return {"epoch": int(epoch), "stages": names, "batches": most, "of": len(order), "spans": rows}
