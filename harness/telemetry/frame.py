"""Telemetry as a table: differences of counters, the run's zero and epochs, and the busy share of emulated lanes.

A row covers the interval that ends at its `t` (percentages, counts, bytes), or the state at `t` (memory). Unknown
values are NaN, never 0. `psi_*` are the cap's own stalls under cgroup v2 and the whole host's elsewhere;
`ctx_switches`, the processors and the disk are always the host's. `progress` is the share of an epoch's mini-batches
that are trained, or of the present part of preparation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from harness.telemetry.sources import Sample

COLUMNS = tuple(
    """
    t epoch monotonic cpu_percent iowait_percent ctx_switches major_faults mem_usage mem_anon mem_page_cache
    mem_shmem psi_io psi_memory disk_read_bytes disk_read_requests disk_queue disk_latency_s gpu_percent
    gpu_memory_bytes progress
    """.split()
)
_MEMORY = ("usage", "anon", "page_cache", "shmem")
_DISK = ("reads", "read_sectors", "read_ms", "queue_ms")
_SECTOR = 512


def to_frame(samples: Sequence[Sample]) -> pd.DataFrame:
    """Return samples as rows; `t` counts from the first sample and `epoch` is -1 until `align` is called. The first
    row's differences are NaN. `psi_*` are percent of the interval; `disk_queue` is the mean number of requests in
    flight; `disk_latency_s` is the mean time of a read that ended in the interval."""
    if not samples:
        return pd.DataFrame({column: pd.Series(dtype="float64") for column in COLUMNS})
    when = np.array([sample.monotonic for sample in samples])
    disk = {name: _step(_column([s.disk for s in samples], name)) for name in _DISK}
    memory = {name: _column([s.memory for s in samples], name) for name in (*_MEMORY, "major_faults")}
    seconds = _step(when)
    cpu = np.stack([sample.cpu for sample in samples]).astype(np.float64)
    busy, waiting, total = (_step(cpu[:, :, field]) for field in range(3))
    with np.errstate(divide="ignore", invalid="ignore"):
        # Between two samples closer than a clock tick no time is accounted: unknown, not idle.
        busy, waiting = (np.where(total > 0, 100 * part / total, np.nan) for part in (busy, waiting))
        frame = {
            "t": when - when[0],
            "epoch": np.full(len(samples), -1, np.int64),
            "monotonic": when,
            "cpu_percent": busy[:, 0],
            "iowait_percent": waiting[:, 0],
            "ctx_switches": _step(_column(samples, "switches")),
            "major_faults": _step(memory["major_faults"]),
            **{f"mem_{name}": memory[name] for name in _MEMORY},
            **{name: _step(_column(samples, name)) / seconds / 1e4 for name in ("psi_io", "psi_memory")},
            "disk_read_bytes": disk["read_sectors"] * _SECTOR,
            "disk_read_requests": disk["reads"],
            "disk_queue": disk["queue_ms"] / 1e3 / seconds,
            "disk_latency_s": np.where(disk["reads"] > 0, disk["read_ms"] / 1e3 / disk["reads"], np.nan),
            "gpu_percent": _column(samples, "gpu_percent"),
            "gpu_memory_bytes": _column(samples, "gpu_memory"),
            "progress": _column(samples, "progress"),
        }
    for core in range(1, cpu.shape[1]):
        frame[f"cpu{core - 1}_percent"] = busy[:, core]
    return pd.DataFrame(frame)


def align(frame: pd.DataFrame, zero: float, epochs: Iterable[tuple[int, float, float]] = ()) -> pd.DataFrame:
    """Return the frame with `t` counted from `zero`, and `epoch` set in each (epoch, start, end); monotonic seconds."""
    moved = frame.copy()
    moved["t"] = moved["monotonic"] - zero
    when = moved["monotonic"].to_numpy(dtype=np.float64)
    number = np.full(len(moved), -1, np.int64)
    for epoch, start, end in epochs:
        number[(when > start) & (when <= end)] = epoch
    moved["epoch"] = number
    return moved


def with_busy_lanes(
    frame: pd.DataFrame, spans: Sequence[tuple[float, float]], memory_bytes: int | None = None
) -> pd.DataFrame:
    """Return the frame with `gpu_percent` as the share of each interval in which at least one of the `spans` (start,
    end) of any lane was open, and the device memory in use where known. For emulated accelerators, whose lanes are
    known only afterwards (methodology rule 20); seconds are monotonic."""
    filled = frame.copy()
    ends = filled["monotonic"].to_numpy(dtype=np.float64)
    covered = _covered(spans, ends)
    filled["gpu_percent"] = 100 * _step(covered) / _step(ends)
    if memory_bytes is not None:
        filled["gpu_memory_bytes"] = float(memory_bytes)
    return filled


def at_peak(frame: pd.DataFrame) -> dict[str, float]:
    """Return the memory columns of the row with the highest usage: the sample nearest to the true peak."""
    known = frame["mem_usage"].dropna()
    if known.empty:
        return {}
    row = frame.iloc[int(np.nanargmax(frame["mem_usage"].to_numpy(dtype=np.float64)))]
    return {name: float(row[name]) for name in ("t", "mem_usage", "mem_anon", "mem_page_cache", "mem_shmem")}


def _covered(spans: Sequence[tuple[float, float]], moments: np.ndarray) -> np.ndarray:
    """Return seconds before each moment in which at least one span was open."""
    if not spans:
        return np.zeros(len(moments))
    starts, ends = np.array(sorted(spans)).T
    reach = np.maximum.accumulate(ends)
    apart = starts[1:] > reach[:-1]
    # Spans joined where they touch: the sum grows from the start to the end of each, and stays until the next.
    first, last = starts[np.append(True, apart)], reach[np.append(apart, True)]
    total = np.append(0.0, np.cumsum(last - first))
    knots = np.stack([first, last], axis=1).ravel()
    return np.asarray(np.interp(moments, knots, np.repeat(total, 2)[1:-1]))


def _step(values: np.ndarray) -> np.ndarray:
    """Return differences to the row before; NaN in the first."""
    out = np.full(values.shape, np.nan)
    out[1:] = values[1:] - values[:-1]
    return out


def _column(parts: Sequence[object], name: str) -> np.ndarray:
    """Return one attribute of each part, NaN where the part or its attribute is None."""
    values = (None if part is None else getattr(part, name) for part in parts)
    return np.array([np.nan if value is None else float(value) for value in values])
