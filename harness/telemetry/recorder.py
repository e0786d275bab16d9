"""Sampling of the host, the cap, the disk and the GPU at 10 Hz from outside the cap
(methodology rule 3), from counters of the kernel that are parsed with as little work as
possible."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from harness.isolation.base import Cap, MemoryStats
from harness.isolation.files import KernelFile, psi_some_total
from harness.telemetry.frame import DiskSample, Sample, to_frame
from harness.telemetry.gpu import GpuSource

# Fields of a cpu line in /proc/stat. Guest time is already in user; steal belongs to
# other machines.
_BUSY = (0, 1, 2, 5, 6)
_IOWAIT = 4
# Columns of a disk's `stat` since Linux 2.6; later kernels append others.
_DISK_COLUMNS = 11
_NO_TICKS = [b"0"] * 8  # user, nice, system, idle, iowait, irq, softirq, steal


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
        """Read clock ticks and context switches, see `parse_cpu`."""
        return parse_cpu(self._files[0].read())


def parse_cpu(data: bytes) -> tuple[np.ndarray, int]:
    """Parse /proc/stat into clock ticks and context switches.

    Returns:
        Ticks as float64 [1 + processors, 3]: busy, iowait, total. Row 0 is of all
        processors, row 1 + n of processor n.
        The kernel has no line for a processor that is offline: its row is NaN up to the
            last processor online.
    """
    end = data.find(b"intr")
    lines = data[: end if end >= 0 else len(data)].splitlines()
    rows: dict[int, list[bytes]] = {}
    for line in lines:
        name, *fields = line.split() or [b""]
        number = name.removeprefix(b"cpu")
        if name.startswith(b"cpu") and (number.isdigit() or not number):
            # Old kernels have fewer columns.
            rows[int(number) + 1 if number else 0] = [*fields, *_NO_TICKS][
                : len(_NO_TICKS)
            ]
    if not rows:
        return np.zeros((1, 3)), 0
    ticks = np.array(list(rows.values()), dtype=np.float64)
    times = np.full((max(rows) + 1, 3), np.nan)
    times[list(rows)] = np.stack(
        [ticks[:, _BUSY].sum(1), ticks[:, _IOWAIT], ticks.sum(1)], axis=1
    )
    start = data.find(b"ctxt ") + 5
    switches = int(data[start : data.find(b"\n", start)]) if start > 4 else 0
    return times, switches


class DiskSource(_Files):
    """/sys/dev/block/M:N/stat of each disk (`major:minor` or a kernel name), summed:
    its line of /proc/diskstats."""

    def __init__(self, devices: list[str], sys: Path = Path("/sys")) -> None:
        super().__init__(
            *(
                sys / ("dev/block" if ":" in name else "class/block") / name / "stat"
                for name in devices
            )
        )

    def read(self) -> DiskSample | None:
        """Read the counters; None without disks, and where one is unknown or gone: a
        sum over the others would fall."""
        rows = [file.read().split() for file in self._files]
        if not rows or any(len(row) < _DISK_COLUMNS for row in rows):
            return None
        return DiskSample(
            *(sum(int(row[column]) for row in rows) for column in (0, 2, 3, 10))
        )


class PressureSource(_Files):
    """/proc/pressure: time in which tasks of the host stalled on I/O and on memory."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        super().__init__(proc / "pressure" / "io", proc / "pressure" / "memory")

    def read(self) -> tuple[int | None, int | None]:
        """Read microseconds since boot in which at least one task stalled (I/O,
        memory); None without PSI."""
        io, memory = (psi_some_total(file.read()) for file in self._files)
        return io, memory


class Recorder:
    """Sampler in its own thread until stopped. Costs under 1 % of one core. Survives
    the end of the cap, whose last memory reading is then repeated.

    Args:
        cap: cap of the run, None for the host alone.
        device: disk under the dataset, `major:minor` or kernel name; several for an
            array; None for none.
        hz: samples per second.
        gpus: UUIDs of the GPUs to watch through NVML.
        look: function called with each sample's memory of the cap.
        share: function that returns the completed share of the run's phase (0 to 1),
            None where unknown.
    """

    def __init__(
        self,
        cap: Cap | None,
        device: str | Sequence[str] | None,
        hz: float = 10.0,
        gpus: Sequence[str] = (),
        look: Callable[[MemoryStats], object] | None = None,
        share: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._cap = cap
        self._look = look
        self._share = share
        devices = [device] if isinstance(device, str) else list(device or [])
        self._cpu = CpuSource()
        self._disk = DiskSource(devices)
        self._pressure = PressureSource()
        self._gpu = GpuSource(gpus) if gpus else None
        self._period = 1.0 / hz
        self._samples: list[Sample] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.cpu_seconds = 0.0  # of the processor, for sampling so far

    def start(self) -> Recorder:
        """Take the first sample, so that nothing after this call is missed, and sample
        on in a thread."""
        self._samples.append(self._sample())
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> pd.DataFrame:
        """Stop sampling; return all samples as a frame with the columns of
        `frame.COLUMNS` and one per core."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            for source in (self._cpu, self._disk, self._pressure, self._gpu):
                if source is not None:
                    source.close()
        return to_frame(self._samples)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            # A fixed grid, so that a late sample does not delay all later ones.
            due += self._period
            late = time.monotonic() - due
            if late > 0:
                due += self._period * int(late / self._period)
            stopped = self._stopping.wait(max(0.0, due - time.monotonic()))
            self._samples.append(self._sample())
            self.cpu_seconds = time.thread_time()
            if stopped:
                return

    def _sample(self) -> Sample:
        cpu, switches = self._cpu.read()
        psi_io, psi_memory = self._cap.pressure() if self._cap else (None, None)
        if psi_io is None:
            psi_io, psi_memory = self._pressure.read()
        gpu = (
            self._gpu.read(self._cap.pids() if self._cap else ()) if self._gpu else None
        )
        memory = self._cap.memory() if self._cap else None
        if self._look and memory:
            self._look(memory)
        now = time.monotonic()
        disk = self._disk.read()
        return Sample(
            now, cpu, switches, memory, psi_io, psi_memory, disk, gpu, self._share()
        )
