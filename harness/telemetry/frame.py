"""Telemetry as a table: differences of counters, the run's zero and epochs, and the
busy share of emulated lanes. A row covers the interval that ends at its `t`
(percentages, counts, bytes), or the state at `t` (memory). Unknown values are NaN,
never 0: a processor that is offline, and the difference of a counter that fell, as of a
disk that was unplugged. The kernel's documentation warns that iowait (and idle) may
decrease: such an interval has 0 % of it. `psi_*` are the cap's stalls under cgroup v2,
else the host's; `ctx_switches`, processors and disk are the host's. `progress`: share
of an epoch's mini-batches that are trained, or of a part of the preparation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.isolation.base import MemoryStats
from harness.telemetry.gpu import GpuSample

COLUMNS = tuple(
    """
    t epoch monotonic cpu_percent iowait_percent ctx_switches major_faults mem_usage
    mem_anon mem_page_cache mem_shmem psi_io psi_memory disk_read_bytes
    disk_read_requests disk_queue disk_latency_s gpu_percent gpu_memory_bytes
    gpu_process_bytes gpu_kernel_percent gpu_sm_percent gpu_energy_j gpu_pcie_in_bytes_s
    gpu_pcie_out_bytes_s progress
    """.split()
)
_MEMORY = ("usage", "anon", "page_cache", "shmem")
_DISK = ("reads", "read_sectors", "read_ms", "queue_ms")
_SECTOR = 512
# How samples are joined to one: counts add up, states are the last, memory is the
# highest, others are the mean.
_JOINED = dict.fromkeys(
    ("ctx_switches", "major_faults", "disk_read_bytes", "disk_read_requests"), "sum"
)
_JOINED |= dict.fromkeys(("t", "epoch", "monotonic", "progress"), "last")
_JOINED |= dict.fromkeys(
    (*(f"mem_{name}" for name in _MEMORY), "gpu_memory_bytes", "gpu_process_bytes"),
    "max",
)


@dataclass(frozen=True)
class DiskSample:
    """Counters of the disks since boot: sectors of 512 bytes and milliseconds, as the
    kernel keeps them."""

    reads: int = 0
    read_sectors: int = 0
    read_ms: int = 0
    queue_ms: int = 0


@dataclass(frozen=True)
class Sample:
    """Raw counters at one moment; rates are differences of two samples, taken after the
    run."""

    monotonic: float
    cpu: np.ndarray
    switches: int
    memory: MemoryStats | None
    psi_io: int | None
    psi_memory: int | None
    disk: DiskSample | None
    gpu: GpuSample | None
    progress: float | None = None


def to_frame(samples: Sequence[Sample]) -> pd.DataFrame:
    """Return samples as rows; `t` counts from the first sample and `epoch` is -1 until
    `align` is called. The first row's differences are NaN. `psi_*` are percent of the
    interval; `disk_queue` is the mean number of requests in flight; `disk_latency_s` is
    the mean time of a read that ended in the interval."""
    if not samples:
        return pd.DataFrame({column: pd.Series(dtype="float64") for column in COLUMNS})
    when = np.array([sample.monotonic for sample in samples])
    disk = {name: _grown(_column([s.disk for s in samples], name)) for name in _DISK}
    memory = {
        name: _column([s.memory for s in samples], name)
        for name in (*_MEMORY, "major_faults")
    }
    gpu = [sample.gpu for sample in samples]
    seconds = _step(when)
    cpu = _same_processors([sample.cpu for sample in samples])
    with np.errstate(divide="ignore", invalid="ignore"):
        busy, waiting = _shares(cpu)
        frame = {
            "t": when - when[0],
            "epoch": np.full(len(samples), -1, np.int64),
            "monotonic": when,
            "cpu_percent": busy[:, 0],
            "iowait_percent": waiting[:, 0],
            "ctx_switches": _grown(_column(samples, "switches")),
            "major_faults": _grown(memory["major_faults"]),
            **{f"mem_{name}": memory[name] for name in _MEMORY},
            **{
                name: _grown(_column(samples, name)) / seconds / 1e4
                for name in ("psi_io", "psi_memory")
            },
            "disk_read_bytes": disk["read_sectors"] * _SECTOR,
            "disk_read_requests": disk["reads"],
            "disk_queue": disk["queue_ms"] / 1e3 / seconds,
            "disk_latency_s": np.where(
                disk["reads"] > 0, disk["read_ms"] / 1e3 / disk["reads"], np.nan
            ),
            "gpu_percent": np.full(len(samples), np.nan),
            "gpu_memory_bytes": _column(gpu, "memory_bytes"),
            "gpu_process_bytes": _column(gpu, "process_bytes"),
            "gpu_kernel_percent": _column(gpu, "kernel_percent"),
            "gpu_sm_percent": _column(gpu, "sm_percent"),
            "gpu_energy_j": _grown(_column(gpu, "energy_j")),
            "gpu_pcie_in_bytes_s": _column(gpu, "pcie_in"),
            "gpu_pcie_out_bytes_s": _column(gpu, "pcie_out"),
            "progress": _column(samples, "progress"),
        }
    for core in range(1, cpu.shape[1]):
        frame[f"cpu{core - 1}_percent"] = busy[:, core]
    return pd.DataFrame(frame)


def align(
    frame: pd.DataFrame, zero: float, epochs: Iterable[tuple[int, float, float]] = ()
) -> pd.DataFrame:
    """Return the frame with `t` counted from `zero`, and `epoch` set in each (epoch,
    start, end); monotonic seconds."""
    when = frame["monotonic"].to_numpy(dtype=np.float64)
    number = np.full(len(frame), -1, np.int64)
    for epoch, start, end in epochs:
        number[(when > start) & (when <= end)] = epoch
    return frame.assign(t=frame["monotonic"] - zero, epoch=number)


def with_busy_lanes(
    frame: pd.DataFrame,
    spans: Sequence[tuple[float, float]],
    memory_bytes: int | None = None,
) -> pd.DataFrame:
    """Return the frame with `gpu_percent` as the share of each interval in which at
    least one of the `spans` (start, end) of any lane was open, and the device memory in
    use where known. The lanes of emulated accelerators (methodology rule 20) and CUDA
    events are known only afterwards; seconds are monotonic."""
    ends = frame["monotonic"].to_numpy(dtype=np.float64)
    filled = frame.assign(gpu_percent=100 * _step(_covered(spans, ends)) / _step(ends))
    return (
        filled
        if memory_bytes is None
        else filled.assign(gpu_memory_bytes=float(memory_bytes))
    )


def thinned(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Return a frame of at most `rows` rows, and one more for each change of the epoch:
    neighbouring samples of one epoch are joined to the sample of the interval that they
    cover together; its memory is their highest."""
    if len(frame) <= rows:
        return frame
    changes = frame["epoch"].ne(frame["epoch"].shift())
    place = frame.groupby(changes.cumsum()).cumcount()
    samples = frame.groupby((place % -(-len(frame) // rows) == 0).cumsum(), sort=False)
    joined = samples.agg({column: _JOINED.get(str(column), "mean") for column in frame})
    return (
        joined.where(samples.count() > 0)
        .astype({"epoch": frame["epoch"].dtype})
        .reset_index(drop=True)
    )


def at_peak(frame: pd.DataFrame) -> dict[str, float]:
    """Return the memory columns of the row with the highest usage: the sample nearest
    to the true peak."""
    if frame["mem_usage"].dropna().empty:
        return {}
    row = frame.iloc[int(np.nanargmax(frame["mem_usage"].to_numpy(dtype=np.float64)))]
    return {
        name: float(row[name])
        for name in ("t", "mem_usage", "mem_anon", "mem_page_cache", "mem_shmem")
    }


def _covered(spans: Sequence[tuple[float, float]], moments: np.ndarray) -> np.ndarray:
    """Return seconds before each moment in which at least one span was open."""
    if not spans:
        return np.zeros(len(moments))
    starts, ends = np.array(sorted(spans)).T
    reach = np.maximum.accumulate(ends)
    apart = starts[1:] > reach[:-1]
    # Spans joined where they touch: the sum grows from the start to the end of each,
    # and stays until the next.
    first = starts[np.append(True, apart)]
    last = reach[np.append(apart, True)]
    total = np.append(0.0, np.cumsum(last - first))
    knots = np.stack([first, last], axis=1).ravel()
    return np.asarray(np.interp(moments, knots, np.repeat(total, 2)[1:-1]))


def _same_processors(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Stack samples of `recorder.parse_cpu`; a processor that a sample lacks, since it
    was offline, is NaN in it.

    Returns: float64 [samples, 1 + processors, 3].
    """
    most = max(len(sample) for sample in samples)
    stacked = np.full((len(samples), most, 3), np.nan)
    for number, sample in enumerate(samples):
        stacked[number, : len(sample)] = sample
    return stacked


def _shares(cpu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the busy and the waiting percentage of each interval, [samples, 1 +
    processors] each, within 0 and 100."""
    other = (
        cpu[:, :, 2] - cpu[:, :, 0] - cpu[:, :, 1]
    )  # idle, and stolen by other machines
    # Ticks that the kernel takes back belong to no interval.
    busy, waiting, rest = (
        np.maximum(_step(part), 0.0) for part in (cpu[:, :, 0], cpu[:, :, 1], other)
    )
    total = busy + waiting + rest
    # Between two samples closer than a clock tick no time is accounted: unknown, not
    # idle.
    return np.where(total > 0, 100 * busy / total, np.nan), np.where(
        total > 0, 100 * waiting / total, np.nan
    )


def _grown(values: np.ndarray) -> np.ndarray:
    """Return the differences of a counter to the row before; NaN in the first, and
    where it fell: it began anew."""
    steps = _step(values)
    return np.where(steps >= 0, steps, np.nan)


def _step(values: np.ndarray) -> np.ndarray:
    """Return differences to the row before; NaN in the first."""
    out = np.full(values.shape, np.nan)
    out[1:] = values[1:] - values[:-1]
    return out


def _column(parts: Sequence[object], name: str) -> np.ndarray:
    """Return one attribute of each part, NaN where the part or its attribute is
    None."""
    values = (None if part is None else getattr(part, name) for part in parts)
    return np.array([np.nan if value is None else float(value) for value in values])
