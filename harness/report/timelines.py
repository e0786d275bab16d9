"""The course of a run in time, thinned out for a page: telemetry, and each mini-batch's spans in the stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.compare.plan import Plain
from harness.report.runs import short
from workloads.errors import OutcoreError

if TYPE_CHECKING:
    import pandas as pd

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
