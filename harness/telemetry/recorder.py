"""Sampling of the host, the cap, the disk and the GPU at 10 Hz from outside the cap (methodology rule 3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pandas as pd

from harness.isolation.base import Cap, MemoryStats
from harness.telemetry.frame import to_frame
from harness.telemetry.sources import CpuSource, DiskSource, GpuSource, PressureSource, Sample


class Recorder:
    """Sampler in its own thread until stopped. Costs under 1 % of one core (`benchmarks/telemetry_cost.py`). Survives
    the end of the cap, whose last memory reading is then repeated.

    Args:
        cap: cap of the run, None for the host alone.
        device: disk under the dataset, `major:minor` or kernel name; several for an array; None for none.
        hz: samples per second.
        gpu: index of the GPU to watch through NVML, None for none.
        look: function called with each sample's memory of the cap.
        share: function that returns the completed share of the run's phase (0 to 1), None where unknown.
    """

    def __init__(
        self,
        cap: Cap | None,
        device: str | Sequence[str] | None,
        hz: float = 10.0,
        gpu: int | None = None,
        look: Callable[[MemoryStats], object] | None = None,
        share: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._cap = cap
        self._look = look
        devices = [device] if isinstance(device, str) else list(device or [])
        self._cpu, self._disk, self._pressure = CpuSource(), DiskSource(devices), PressureSource()
        self._gpu = GpuSource(gpu) if gpu is not None else None
        self._share = share
        self._period = 1.0 / hz
        self._samples: list[Sample] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.cpu_seconds = 0.0
        """Seconds of processor time that sampling took so far."""

    def start(self) -> Recorder:
        """Take the first sample, so that nothing after this call is missed, and sample on in a thread."""
        self._samples.append(self._sample())
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> pd.DataFrame:
        """Stop sampling; return all samples as a frame with the columns of `frame.COLUMNS` and one per core."""
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
        gpu_percent, gpu_memory = self._gpu.read() if self._gpu else (None, None)
        memory = self._cap.memory() if self._cap else None
        if self._look and memory:
            self._look(memory)
        now, disk = time.monotonic(), self._disk.read()
        return Sample(now, cpu, switches, memory, psi_io, psi_memory, disk, gpu_percent, gpu_memory, self._share())
