"""Counters of a run's GPUs from outside the cap: devices by UUID, in CUDA's own order,
and their readings by NVML.

NVML's utilisation is the share of time in which some kernel was resident, however
small. The busy share of copies, training and zero-copy reads comes from CUDA events
instead (`workloads/accelerators/timeline.py`).
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_MIB = 1 << 20


@dataclass(frozen=True)
class GpuSample:
    """Readings of a run's GPUs at one moment, None where a device hides a value (MIG
    slices, older devices).

    Attributes:
        kernel_percent: NVML's utilisation: time with any kernel resident; mean of the
            GPUs.
        memory_bytes: memory in use, by all processes; sum of the GPUs.
        energy_j: joules since the driver was loaded; sum of the GPUs.
        sm_percent: busy multiprocessors since the last sample; mean of the GPUs.
        pcie_in, pcie_out: bytes a second to and from the GPUs since the last sample;
            sums.
        process_bytes: memory in use by the run's processes, on any GPU of the host.
    """

    kernel_percent: float | None = None
    memory_bytes: float | None = None
    energy_j: float | None = None
    sm_percent: float | None = None
    pcie_in: float | None = None
    pcie_out: float | None = None
    process_bytes: float | None = None


def cuda_uuids(library: str = "libcuda.so.1") -> list[str]:
    """Return the UUIDs of the CUDA devices of a worker started by this process, in the
    order of their numbers.

    CUDA numbers the fastest device first and obeys CUDA_VISIBLE_DEVICES and MIG, which
    NVML does not. Asking the driver makes no context and takes no device memory. Empty
    without a driver or a device.
    """
    found: list[str] = []
    with suppress(OSError, AttributeError):
        cuda = ctypes.CDLL(library)
        count = ctypes.c_int()
        device = ctypes.c_int()
        raw = (ctypes.c_ubyte * 16)()
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return []
        for number in range(count.value):
            # The first form of the call knows no MIG slices.
            if cuda.cuDeviceGet(
                ctypes.byref(device), number
            ) or cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), device):
                return []
            found.append(str(uuid.UUID(bytes=bytes(raw))))
    return found


def gpus_of(device: str, ranks: int) -> list[str]:
    """Return the UUIDs of the GPUs on which the ranks of a run on `device` train; empty
    for other devices."""
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return []
    found = cuda_uuids()
    return [
        found[index]
        for index in ([int(number)] if number else range(ranks))
        if index < len(found)
    ]


class GpuSource:
    """The GPUs of a run through NVML; `present` is False where there is no driver, no
    library or none of the GPUs.

    Args:
        uuids: UUIDs of the GPUs or MIG slices, as `cuda_uuids` returns them.
    """

    def __init__(self, uuids: Sequence[str]) -> None:
        self.present = False
        self._handles: list[Any] = []
        self._counters: list[_Counters] = []
        # NVML fails differently on every host without a GPU; all failures mean the
        # same.
        with suppress(Exception):
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = [
                handle for one in uuids if (handle := self._handle(one)) is not None
            ]
            if not self._handles:
                pynvml.nvmlShutdown()
                return
            self.present = True
            with suppress(Exception):
                self._counters = [_Counters(pynvml, handle) for handle in self._handles]

    def _handle(self, name: str) -> Any:
        """Return the handle of a GPU or a MIG slice; None if NVML knows neither."""
        for kind in ("GPU", "MIG"):
            with suppress(self._nvml.NVMLError):
                return self._nvml.nvmlDeviceGetHandleByUUID(f"{kind}-{name}")
        return None

    def held_by(self, pids: Collection[int]) -> int | None:
        """Return the bytes of device memory that processes hold on any GPU of the host,
        CUDA contexts included; None where NVML does not report it or there are no GPUs.
        Of pids of another namespace it knows none: 0."""
        if not self.present:
            return None
        nvml = self._nvml
        wanted = set(pids)
        held = 0
        with suppress(nvml.NVMLError):
            for index in range(nvml.nvmlDeviceGetCount()):
                for one in nvml.nvmlDeviceGetComputeRunningProcesses(
                    nvml.nvmlDeviceGetHandleByIndex(index)
                ):
                    if one.pid in wanted:
                        if one.usedGpuMemory is None:  # hidden, as by some drivers
                            return None
                        held += int(one.usedGpuMemory)
            return held
        return None

    def read(self, pids: Collection[int] = ()) -> GpuSample | None:
        """Read all GPUs, and the memory of the processes `pids`; None without a GPU."""
        if not self.present:
            return None
        nvml = self._nvml
        kernel = self._each(lambda one: nvml.nvmlDeviceGetUtilizationRates(one).gpu)
        memory = self._each(lambda one: nvml.nvmlDeviceGetMemoryInfo(one).used)
        energy = self._each(nvml.nvmlDeviceGetTotalEnergyConsumption)  # millijoules
        busy = [counters.read() for counters in self._counters]
        sm, into, out = ([values[at] for values in busy] for at in range(3))
        bus = _sum(into, _MIB), _sum(out, _MIB)
        return GpuSample(
            _mean(kernel),
            _sum(memory),
            _sum(energy, 1e-3),
            _mean(sm),
            *bus,
            self.held_by(pids),
        )

    def _each(self, read: Callable[[Any], float]) -> list[float | None]:
        found: list[float | None] = []
        for handle in self._handles:
            value = None
            with suppress(self._nvml.NVMLError):
                value = float(read(handle))
            found.append(value)
        return found

    def close(self) -> None:
        """Shut down NVML."""
        if self.present:
            self.present = False
            for counters in self._counters:
                counters.close()
            self._nvml.nvmlShutdown()


class _Counters:
    """Hardware counters of one GPU (GPM, from Hopper on), each the mean since the last
    reading. Raises NVMLError or ValueError where the device has none."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise ValueError("no GPM")
        self._nvml = nvml
        self._handle = handle
        wanted = (nvml.NVML_GPM_METRIC_SM_UTIL, nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC)
        self._metrics = (*wanted, nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC)
        self._last, self._now = (nvml.nvmlGpmSampleAlloc() for _ in range(2))
        nvml.nvmlGpmSampleGet(handle, self._last)

    def read(self) -> list[float | None]:
        """Return the percentage of busy multiprocessors, and MiB a second from and to
        the host."""
        nvml = self._nvml
        try:
            nvml.nvmlGpmSampleGet(self._handle, self._now)
            asked = nvml.c_nvmlGpmMetricsGet_t()
            asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
            asked.numMetrics = len(self._metrics)
            asked.sample1 = self._last
            asked.sample2 = self._now
            for place, metric in enumerate(self._metrics):
                asked.metrics[place].metricId = metric
            nvml.nvmlGpmMetricsGet(asked)
        except nvml.NVMLError:
            return [None] * len(self._metrics)
        self._last, self._now = self._now, self._last
        found = (asked.metrics[place] for place in range(len(self._metrics)))
        return [
            float(one.value) if one.nvmlReturn == nvml.NVML_SUCCESS else None
            for one in found
        ]

    def close(self) -> None:
        """Free the samples."""
        with suppress(self._nvml.NVMLError):
            for sample in (self._last, self._now):
                self._nvml.nvmlGpmSampleFree(sample)


def _sum(values: Sequence[float | None], unit: float = 1.0) -> float | None:
    """Return the sum in `unit`; None if any is unknown or there are none."""
    known = [value for value in values if value is not None]
    return unit * sum(known) if known and len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    total = _sum(values)
    return None if total is None else total / len(values)
