"""Kernel counters that telemetry samples, each parsed with as little work as possible."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.isolation.base import MemoryStats
from harness.isolation.files import KernelFile, psi_some_total

# Fields of a cpu line in /proc/stat. Guest time is already in user; steal belongs to other machines.
_BUSY = (0, 1, 2, 5, 6)
_IDLE, _IOWAIT = 3, 4
_TOTAL = slice(0, 8)


class CpuSource:
    """/proc/stat: time per processor, and context switches of the host."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._file = KernelFile(proc / "stat")

    def read(self) -> tuple[np.ndarray, int]:
        """Read clock ticks as int64 [1 + processors, 3] (busy, iowait, total; row 0: all processors), and switches."""
        return parse_cpu(self._file.read())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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


class DiskSource:
    """/sys/dev/block/M:N/stat of each disk, summed: the line of /proc/diskstats without the others."""

    def __init__(self, devices: list[str], sys: Path = Path("/sys")) -> None:
        self._files = [KernelFile(_stat_file(device, sys)) for device in devices]

    def read(self) -> DiskSample | None:
        """Read the counters; None where no disk is known."""
        rows = [row for file in self._files if len(row := file.read().split()) >= 11]
        if not rows:
            return None
        return DiskSample(*(sum(int(row[column]) for row in rows) for column in (0, 2, 3, 10)))

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _stat_file(device: str, sys: Path) -> Path:
    """Return the counter file of `device`, which is `major:minor` or a kernel name such as `nvme0n1`."""
    return sys / ("dev/block" if ":" in device else "class/block") / device / "stat"


class PressureSource:
    """/proc/pressure: time in which tasks of the host stalled on I/O and on memory."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._io, self._memory = KernelFile(proc / "pressure/io"), KernelFile(proc / "pressure/memory")

    def read(self) -> tuple[int | None, int | None]:
        """Read microseconds so far of (I/O, memory); None where the kernel was built without PSI."""
        return psi_some_total(self._io.read()), psi_some_total(self._memory.read())

    def close(self) -> None:
        """Close the files."""
        self._io.close()
        self._memory.close()


class GpuSource:
    """One GPU through NVML; `present` is False where there is no driver, no library or no GPU."""

    def __init__(self, index: int = 0) -> None:
        self.present = False
        self.name = ""
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(_visible(index))
            name = pynvml.nvmlDeviceGetName(self._handle)
            self.name = name.decode() if isinstance(name, bytes) else str(name)
            self.present = True
        except Exception:
            # NVML fails differently on every host without a GPU; all failures mean the same.
            return

    def read(self) -> tuple[float | None, int | None]:
        """Read utilisation in percent and memory in use in bytes; None for a value that the GPU hides (MIG slices)."""
        if not self.present:
            return None, None
        percent: float | None
        used: int | None
        try:
            percent = float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
        except self._nvml.NVMLError:
            percent = None
        try:
            used = int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
        except self._nvml.NVMLError:
            used = None
        return percent, used

    def close(self) -> None:
        """Shut down NVML."""
        if self.present:
            self.present = False
            self._nvml.nvmlShutdown()


def _visible(index: int) -> int:
    """Return the physical index of the process's device `index`, from the numbers in CUDA_VISIBLE_DEVICES."""
    visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip().isdigit()]
    return int(visible[index]) if index < len(visible) else index
