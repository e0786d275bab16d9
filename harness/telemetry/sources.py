"""Kernel counters that telemetry samples, each parsed with as little work as possible."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.isolation.base import MemoryStats
from harness.isolation.files import KernelFile, psi_some_total

# Fields of a cpu line in /proc/stat. Guest time is already in user; steal belongs to other machines.
_BUSY = (0, 1, 2, 5, 6)
_IDLE, _IOWAIT = 3, 4
_TOTAL = slice(0, 8)


class _Files:
    """Files of the kernel that stay open from one sample to the next."""

    def __init__(self, *paths: Path) -> None:
        self._files = [KernelFile(path) for path in paths]

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


class CpuSource(_Files):
    """/proc/stat: time per processor, and context switches of the host."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        super().__init__(proc / "stat")

    def read(self) -> tuple[np.ndarray, int]:
        """Read clock ticks as int64 [1 + processors, 3] (busy, iowait, total; row 0: all processors), and switches."""
        return parse_cpu(self._files[0].read())


def parse_cpu(data: bytes) -> tuple[np.ndarray, int]:
    """Parse /proc/stat into the result of `CpuSource.read`."""
    end = data.find(b"intr")
    lines = data[: end if end >= 0 else len(data)].splitlines()
    times = np.array([line.split()[1:9] for line in lines if line.startswith(b"cpu")], dtype=np.int64)
    if times.size == 0:
        return np.zeros((1, 3), np.int64), 0
    start = data.find(b"ctxt ") + 5
    switches = int(data[start : data.find(b"\n", start)]) if start > 4 else 0
    return np.stack([times[:, _BUSY].sum(1), times[:, _IOWAIT], times[:, _TOTAL].sum(1)], axis=1), switches


@dataclass(frozen=True)
class DiskSample:
    """Counters of the disks since boot: sectors of 512 bytes and milliseconds, as the kernel keeps them."""

    reads: int = 0
    read_sectors: int = 0
    read_ms: int = 0
    queue_ms: int = 0


@dataclass(frozen=True)
class Sample:
    """Raw counters at one moment; rates are differences of two samples, taken after the run."""

    monotonic: float
    cpu: np.ndarray
    switches: int
    memory: MemoryStats | None
    psi_io: int | None
    psi_memory: int | None
    disk: DiskSample | None
    gpu_percent: float | None
    gpu_memory: int | None
    progress: float | None = None


class DiskSource(_Files):
    """/sys/dev/block/M:N/stat of each disk (`major:minor` or a kernel name), summed: its line of /proc/diskstats."""

    def __init__(self, devices: list[str], sys: Path = Path("/sys")) -> None:
        super().__init__(*(sys / ("dev/block" if ":" in name else "class/block") / name / "stat" for name in devices))

    def read(self) -> DiskSample | None:
        """Read the counters; None where no disk is known."""
        rows = [row for file in self._files if len(row := file.read().split()) >= 11]
        return DiskSample(*(sum(int(row[column]) for row in rows) for column in (0, 2, 3, 10))) if rows else None


class PressureSource(_Files):
    """/proc/pressure: time in which tasks of the host stalled on I/O and on memory."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        super().__init__(proc / "pressure" / "io", proc / "pressure" / "memory")

    def read(self) -> tuple[int | None, int | None]:
        """Read microseconds since boot in which at least one task stalled (I/O, memory); None without PSI."""
        io, memory = (psi_some_total(file.read()) for file in self._files)
        return io, memory


class GpuSource:
    """One GPU through NVML; `present` is False where there is no driver, no library or no GPU."""

    def __init__(self, index: int = 0) -> None:
        self.present = False
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            # The numbers in CUDA_VISIBLE_DEVICES are physical indices.
            visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip().isdigit()]
            physical = int(visible[index]) if index < len(visible) else index
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(physical)
            self.present = True
        except Exception:
            # NVML fails differently on every host without a GPU; all failures mean the same.
            return

    def read(self) -> tuple[float | None, int | None]:
        """Read utilisation in percent and memory in use in bytes; None for a value that the GPU hides (MIG slices)."""
        percent: float | None = None
        used: int | None = None
        if self.present:
            with suppress(self._nvml.NVMLError):
                percent = float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
            with suppress(self._nvml.NVMLError):
                used = int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
        return percent, used

    def close(self) -> None:
        """Shut down NVML."""
        if self.present:
            self.present = False
            self._nvml.nvmlShutdown()
