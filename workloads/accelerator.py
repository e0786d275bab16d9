"""Accelerators: where training runs and features end up; cpu and cuda for real, emulated ones by a model of their time.

The interface that systems see. `workloads/accelerators/` holds the CUDA and the emulated one and the profiles.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from workloads.errors import InputError
from workloads.feature_table import SplitTable, Table

if TYPE_CHECKING:
    from workloads.accelerators.pool import DevicePool

Kind = Literal["cpu", "cuda", "emulated"]
PAGE_BYTES = 4096
HUGE_PAGE_BYTES = 2 << 20
# What to do where a cache was asked for on a device that keeps no rows.
NO_ROWS = "this device holds mini-batches only: use cpu, emulated:a10g or cuda"


@dataclass(frozen=True)
class LaneSpan:
    """One busy span of a lane (`copy`, `compute`): seconds on the monotonic clock; `batch` -1 where unknown."""

    lane: str
    batch: int
    start: float
    end: float


class Event:
    """A copy that may still be under way. This one is over already; subclasses know better."""

    def __init__(self, ended_at: float) -> None:
        self._ended_at = ended_at

    def wait(self) -> None:
        """Return when the bytes may be read on the device and the source may be reused."""

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return True

    @property
    def ended_at(self) -> float:
        """Monotonic seconds at which it ended (or, emulated, will end); waits for it on real devices."""
        return self._ended_at


class Accelerator(ABC):
    """A device that holds feature tables and trains.

    Attributes:
        name: as a user writes it: `cpu`, `cuda`, `emulated:a10g`.
        kind: which of the three.
        torch_device: device of its tables as torch sees it; the processor for an emulated one.
        memory_bytes: capacity of the device tier; None where host memory is the device.
        keeps_rows: whether rows may stay there beyond their mini-batch; else what is there is lost between epochs, and
            a system caches nothing there.
    """

    name: str
    kind: Kind
    torch_device: torch.device
    memory_bytes: int | None
    keeps_rows: bool = True

    @abstractmethod
    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
        """A table [rows, dim] in the device tier, uninitialised, its first row aligned to 4096 bytes.

        Raises:
            BudgetError: the device tier has no room for it.
        """

    def free(self, table: torch.Tensor) -> None:  # noqa: B027 - only some tiers need telling
        """Give a table of `allocate` back; it may not be used afterwards."""

    def host_buffer(self, nbytes: int) -> torch.Tensor:
        """Staging memory, uint8 [nbytes], page-aligned; pinned where the device copies from pinned memory faster."""
        return aligned_host_tensor(nbytes)

    def pin(self, buffer: torch.Tensor) -> None:  # noqa: B027 - only some devices gain by it
        """Make staging memory of `buffer`, page-aligned host memory that others made, as `host_buffer` would."""

    @abstractmethod
    def copy(
        self, dst: torch.Tensor, src: torch.Tensor, dst_rows: torch.Tensor | None = None, *, batch: int = -1
    ) -> Event:
        """Copy host rows `src` [n, dim] to the device on the copy lane, without waiting for it.

        Row i lands in `dst[dst_rows[i]]` (int64 [n] on the host), or in `dst[i]` where `dst_rows` is None. `src` has to
        stay as it is until the event is done. Any thread may call it.
        """

    @abstractmethod
    def gather(self, table: Table, rows: torch.Tensor) -> torch.Tensor:
        """`table[rows]` on the device: [n, dim] of the table's dtype; `rows` int64 [n].

        Of a split table (`rows` then on the host) the device reads the host part's rows itself, by zero-copy.
        """

    def synchronize(self) -> None:  # noqa: B027 - nothing runs behind a processor's back
        """Return when all lanes are idle."""

    def lanes(self) -> list[LaneSpan]:
        """Busy spans since the last call, oldest first; empty where the device cannot tell (NVML then does)."""
        return []

    def close(self) -> None:  # noqa: B027 - only some devices hold something
        """Free what it holds. May be called more than once."""


class CpuAccelerator(Accelerator):
    """The processor itself: host memory is the device, a copy is a memcpy."""

    def __init__(self) -> None:
        self.name = "cpu"
        self.kind: Kind = "cpu"
        self.torch_device = torch.device("cpu")
        self.memory_bytes: int | None = None

    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
        """Page-aligned host memory, untouched: pages are charged as they are written."""
        return aligned_host_tensor(rows * dim * dtype.itemsize).view(dtype).view(rows, dim)

    def copy(
        self, dst: torch.Tensor, src: torch.Tensor, dst_rows: torch.Tensor | None = None, *, batch: int = -1
    ) -> Event:
        """Move the rows now; the event is over on return."""
        move_rows(dst, src, dst_rows)
        return Event(time.monotonic())

    def gather(self, table: Table, rows: torch.Tensor) -> torch.Tensor:
        """`table[rows]`."""
        return table.take(rows) if isinstance(table, SplitTable) else torch.index_select(table, 0, rows)


def aligned_host_tensor(nbytes: int) -> torch.Tensor:
    """Anonymous host memory as uint8 [nbytes], aligned to a page; freed with the last view of it.

    Where it is large, huge pages are asked for, which direct reads and copies meet fewer of; only as far as they lie
    within it whole, so that it takes no more memory than it has.
    """
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    spare = HUGE_PAGE_BYTES if nbytes >= HUGE_PAGE_BYTES else 0
    memory = mmap.mmap(-1, nbytes + spare, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE_PAGE_BYTES if spare else 0
    if spare:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE, start, nbytes // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES)
    return whole[start : start + nbytes]


def move_rows(dst: torch.Tensor, src: torch.Tensor, dst_rows: torch.Tensor | None) -> None:
    """Copy host rows to host rows: `dst[dst_rows[i]] = src[i]`, or `dst[i] = src[i]` without `dst_rows`."""
    if dst_rows is None:
        # By the caller's thread alone: torch shares a copy out among threads, and the slowest of them ends it.
        np.copyto(dst[: src.shape[0]].numpy(), src.numpy())
    elif src.numel() and src.is_contiguous() and dst.is_contiguous():
        # One opaque item a row makes numpy copy rows whole: three times index_copy_'s speed.
        row_type = f"V{src.shape[1] * src.element_size()}"
        to, come_from = (t.view(-1).view(torch.uint8).numpy().view(row_type) for t in (dst, src))
        to[dst_rows.numpy()] = come_from
    else:
        dst.index_copy_(0, dst_rows, src)


def wait_until(moment: float) -> None:
    """Sleep until `moment` (monotonic seconds), to within a few µs: sleep, then spin for the last 100 µs at most."""
    spin = 100e-6
    while (left := moment - time.monotonic()) > spin:
        time.sleep(left - spin)
    while time.monotonic() < moment:
        pass


def busy_share(spans: Sequence[LaneSpan], start: float, end: float, lanes: Sequence[str] | None = None) -> float:
    """Share of [start, end] in which at least one lane was busy, from 0 to 1: an emulated device's utilisation."""
    if end <= start:
        return 0.0
    chosen = sorted((span.start, span.end) for span in spans if lanes is None or span.lane in lanes)
    total, reach = 0.0, start
    for span_start, span_end in chosen:
        total += max(0.0, min(span_end, end) - max(span_start, reach))
        reach = max(reach, min(span_end, end))
    return total / (end - start)


class Lane:
    """One lane of an emulated device: work on it takes turns along a virtual timeline."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._busy_until = 0.0
        self._spans: list[LaneSpan] = []

    def occupy(self, seconds: float, *, asked_at: float | None = None, batch: int = -1) -> float:
        """Hold the lane for `seconds` from the moment it is free; monotonic seconds at which that is over.

        `asked_at` is when the work began for real: what it really took counts, if that is longer than the model says.
        """
        with self._lock:
            now = time.monotonic()
            start = max(now if asked_at is None else asked_at, self._busy_until)
            end = max(start + seconds, now)
            self._busy_until = end
            if end > start:
                self._spans.append(LaneSpan(self.name, batch, start, end))
        return end

    @property
    def busy_until(self) -> float:
        """Monotonic seconds at which the last work taken on is over."""
        with self._lock:
            return self._busy_until

    def drain(self) -> list[LaneSpan]:
        """Spans since the last call."""
        with self._lock:
            spans, self._spans = self._spans, []
        return spans


def make_accelerator(
    name: str, *, memory_bytes: int | None = None, pool: DevicePool | None = None, touch: bool = True
) -> Accelerator:
    """The accelerator called `name`.

    Args:
        name: `cpu`, `cuda` (or `cuda:1`), `emulated:<profile>`.
        memory_bytes: capacity of the device tier; None: all there is (`cuda`), the pool (`emulated`).
        pool: shared memory that stands for an emulated device's memory; without one a private one is made.
        touch: take all of the private pool's pages at once, as for measuring; see `DevicePool.create`.

    Raises:
        InputError: no such device or profile, or an emulated one without memory.
        HostError: `cuda` where there is none.
    """
    if name == "cpu":
        if memory_bytes is not None:
            raise InputError("device cpu has no memory of its own", "leave --device-memory out, or use emulated:a10g")
        return CpuAccelerator()
    if name == "cuda" or (name.startswith("cuda:") and name[5:].isdecimal()):
        from workloads.accelerators.cuda import CudaAccelerator

        return CudaAccelerator(name, memory_bytes)
    if name.startswith("emulated:"):
        from workloads.accelerators.emulated import EmulatedAccelerator
        from workloads.accelerators.profile import load_profile

        return EmulatedAccelerator(load_profile(name.removeprefix("emulated:")), memory_bytes, pool, touch=touch)
    raise InputError(f"device is {name!r}, which is not known", "use cpu, cuda or emulated:<profile>")
