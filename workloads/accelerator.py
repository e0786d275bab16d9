"""Accelerator interface of the systems: device memory, copies and busy spans, for cpu,
cuda and emulated devices."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workloads.arraytypes import Array
from workloads.direct_files import aligned_empty
from workloads.feature_table import SplitTable, Table, fault_in

Kind = Literal["cpu", "cuda", "emulated"]
PAGE_BYTES = 4096
# Fix for a cache requested on a device that keeps no rows (`Accelerator.keeps_rows`).
NO_ROWS = "this device holds mini-batches only: use cpu, emulated:a10g or cuda"


class LaneSpan(NamedTuple):
    """Busy span of a lane (`copy`, `compute`; on CUDA also `zero-copy`), in seconds on
    the monotonic clock; `batch` is -1 where unknown."""

    lane: str
    batch: int
    start: float
    end: float


class Event:
    """Completion of a copy whose bytes have moved, at `ended_at` (monotonic seconds),
    which may be yet to come."""

    def __init__(self, ended_at: float) -> None:
        self.ended_at = ended_at

    def wait(self) -> None:
        """Wait until the device may read the bytes and the caller may reuse the
        source."""
        wait_until(self.ended_at)

    def done(self) -> bool:
        """Return whether `wait` would return at once."""
        return time.monotonic() >= self.ended_at


class Accelerator(ABC):
    """A device that holds feature tables and trains."""

    name: str  # as a user writes it: `cpu`, `cuda`, `emulated:a10g`
    kind: Kind
    # of the tables; the processor for an emulated accelerator
    torch_device: torch.device
    # capacity for tables, beside what training takes; None where host memory is the
    # device
    memory_bytes: int | None
    # device memory of model, optimiser and the largest step, not part of `memory_bytes`
    training_bytes: int = 0
    # whether zero-copy reads run beside training (`gather_ahead`)
    gathers_ahead: bool = False
    # Whether feature rows may stay in device memory after their mini-batch; if not,
    # device memory is lost between epochs and systems cache no rows on the device.
    keeps_rows: bool = True
    # modelled bytes a second of copies to the device; 0: no bus, or it is not modelled
    bus_bytes_per_s: float = 0.0

    @property
    def used_bytes(self) -> int:
        """Bytes of the tables allocated now; 0 where host memory is the device."""
        return 0

    @property
    def peak_bytes(self) -> int | None:
        """Most bytes of device memory held so far, those of training included; None
        where host memory is the device."""
        return None

    @property
    def peak_beside_tables(self) -> int:
        """Most device memory held beside the tables allocated now: what training takes,
        where nothing else ran."""
        return max(0, (self.peak_bytes or 0) - self.used_bytes)

    @abstractmethod
    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> Tensor:
        """Allocate a table [rows, dim] in the device tier, uninitialised, its first row
        aligned to 4096 bytes; raises BudgetError where too little is free."""

    def free(self, table: Tensor) -> None:  # noqa: B027 - only some tiers count their tables
        """Release a table of `allocate`, which is invalid afterwards."""

    def seen_by_device(self, table: Table) -> Table:
        """Return a table as the device reads and writes it, which on an emulated device
        is at other addresses."""
        return table

    def host_buffer(self, nbytes: int) -> Tensor:
        """Allocate page-aligned staging memory, uint8 [nbytes], pinned where that
        speeds up the device's copies."""
        return aligned_host_tensor(nbytes)

    def pin(self, buffer: Tensor) -> None:  # noqa: B027 - only some devices gain by it
        """Pin existing page-aligned host memory as `host_buffer` would; does nothing
        where pinning gains nothing."""

    def free_host(self, buffer: Tensor) -> None:  # noqa: B027 - elsewhere the last reference frees it
        """Unpin memory of `host_buffer` or `pin` (or any view that starts at the same
        byte) once no copy and no kernel reads it any more. Its last reference frees it;
        does nothing for other memory."""

    def map_host(self, buffer: Tensor) -> Tensor:
        """Return `host_buffer` memory (any view) as the device sees it, without a
        copy."""
        return buffer

    @abstractmethod
    def copy(
        self,
        dst: Tensor,
        src: Tensor,
        dst_rows: Tensor | None = None,
        *,
        batch: int = -1,
    ) -> Event:
        """Start to copy host rows to the device on the copy lane, and return without
        waiting. Any thread may call it.

        Args:
            dst: [m, dim], table on the device.
            src: [n, dim], rows in host memory, which must not change until the event is
                done.
            dst_rows: int64 [n] on the host, row of `dst` for each row of `src`; None:
                row i goes to `dst[i]`.
            batch: index of the rows' mini-batch, for `LaneSpan`.
        """

    @abstractmethod
    def gather(self, table: Table, rows: Tensor) -> Tensor:
        """Gather `table[rows]` on the device: [n, dim] of the table's dtype; `rows` is
        int64 [n].

        For a split table, `rows` lies on the host and the device reads the host part's
        rows by zero-copy.
        """

    def reads_alone(self, table: Tensor) -> bool:
        """Return whether a read of the table by the device faults in no page of host
        memory."""
        return table.device.type != "cpu"

    def fault_in(self, table: Table | None, rows: Tensor | None, count: int) -> None:
        """Fault in the rows of a mini-batch that lie in host memory, where nothing else
        would read those of a mapped file: in a modelled training step, and without one.
        Arguments as for `feature_table.fault_in`; None: no rows."""
        host = table.host if isinstance(table, SplitTable) else table
        if host is None or self.reads_alone(host):
            return
        if isinstance(table, SplitTable):
            cut = table.device.shape[0]
            rows = torch.arange(count) if rows is None else rows
            rows = rows[rows >= cut] - cut
        fault_in(host, rows, count)

    def gather_ahead(
        self, out: Tensor, table: Table, rows: Tensor, *, batch: int = -1
    ) -> Event:
        """Start to gather `table[rows]` into the first rows of `out` beside training,
        where `gathers_ahead`; return an event. `out`: [m, dim] on the device; `rows`:
        int64 [n] on the host; `batch`: as for `copy`."""
        out[: rows.shape[0]].copy_(self.gather(table, rows))
        return Event(time.monotonic())

    def upload(self, arrays: Sequence[Array]) -> list[Tensor]:
        """Return arrays of a mini-batch's structure as tensors on the training device,
        valid until the next call."""
        return [torch.from_numpy(array) for array in arrays]

    def fetch(self, values: Tensor) -> list[float]:
        """Return the numbers of a one-dimensional tensor on the training device, once
        all work before it is done."""
        found: list[float] = values.tolist()
        return found

    def span(self, lane: str, batch: int = -1) -> AbstractContextManager[None]:
        """Time the device's work that is started inside the `with` block, for `lanes`,
        where the device can."""
        return nullcontext()

    def seconds(self, action: Callable[[], object]) -> float:
        """Return the seconds of an action and of all work that it starts, the device
        idle before it."""
        self.synchronize()
        start = time.perf_counter()
        action()
        self.synchronize()
        return time.perf_counter() - start

    def warm_up(self, dim: int, dtype: torch.dtype) -> None:  # noqa: B027 - only some devices compile
        """Compile the kernels for rows of `dim` elements before any clock runs."""

    def notes(self) -> dict[str, str]:
        """Return remarks for the record, such as a kernel that could not be
        compiled."""
        return {}

    def synchronize(self) -> None:  # noqa: B027 - a processor copies synchronously
        """Wait until all lanes are idle."""

    def lanes(self) -> list[LaneSpan]:
        """Return the busy spans since the last call, oldest first; empty on the
        processor."""
        return []

    def close(self) -> None:  # noqa: B027 - only some devices hold resources
        """Release the device's resources; further calls do nothing."""


class CpuAccelerator(Accelerator):
    """The processor itself: host memory is the device, a copy is a memcpy."""

    name = "cpu"
    kind: Kind = "cpu"
    torch_device = torch.device("cpu")
    memory_bytes: int | None = None

    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> Tensor:
        """Allocate page-aligned host memory; the kernel charges its pages as they are
        written."""
        return (
            aligned_host_tensor(rows * dim * dtype.itemsize).view(dtype).view(rows, dim)
        )

    def copy(
        self,
        dst: Tensor,
        src: Tensor,
        dst_rows: Tensor | None = None,
        *,
        batch: int = -1,
    ) -> Event:
        """Copy the rows on the caller's thread and return a completed event."""
        move_rows(dst, src, dst_rows)
        return Event(time.monotonic())

    def gather(self, table: Table, rows: Tensor) -> Tensor:
        """Gather `table[rows]` on the processor."""
        if isinstance(table, SplitTable):
            return table.take(rows)
        return torch.index_select(table, 0, rows)


def aligned_host_tensor(nbytes: int) -> Tensor:
    """Allocate zeroed host memory as uint8 [nbytes], aligned to a page, with huge pages
    as `aligned_empty`."""
    return torch.from_numpy(aligned_empty(nbytes))


def move_rows(dst: Tensor, src: Tensor, dst_rows: Tensor | None) -> None:
    """Copy host rows to host rows: `dst[dst_rows[i]] = src[i]`, or `dst[i] = src[i]`
    without `dst_rows`."""
    if dst_rows is None:
        # On the caller's thread alone: torch would split the copy among threads and
        # wait for the slowest.
        np.copyto(dst.numpy()[: src.shape[0]], src.numpy())
    elif src.numel() and src.is_contiguous() and dst.is_contiguous():
        # One opaque item a row makes numpy copy rows whole: three times index_copy_'s
        # speed.
        row_type = f"V{src.shape[1] * src.element_size()}"
        to, come_from = (
            tensor.view(-1).view(torch.uint8).numpy().view(row_type)
            for tensor in (dst, src)
        )
        to[dst_rows.numpy()] = come_from
    else:
        dst.index_copy_(0, dst_rows, src)


def wait_until(moment: float) -> None:
    """Sleep until `moment` (monotonic seconds), to within a few µs: sleep, then spin
    for the last 100 µs at most."""
    spin = 100e-6
    while (left := moment - time.monotonic()) > spin:
        time.sleep(left - spin)
    while time.monotonic() < moment:
        pass


class Lane:
    """Lane of an emulated device: a timeline on which one piece of work follows the
    other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._busy_until = 0.0
        self._spans: list[LaneSpan] = []

    def occupy(
        self, seconds: float, *, asked_at: float | None = None, batch: int = -1
    ) -> float:
        """Reserve the lane for `seconds` from the moment it is free; return the
        monotonic seconds of its end.

        `asked_at` is the moment at which the real work began: its real duration counts
        where it exceeds `seconds`.
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
        """Monotonic seconds at which the last reserved work ends."""
        with self._lock:
            return self._busy_until

    def drain(self) -> list[LaneSpan]:
        """Return the spans since the last call."""
        with self._lock:
            spans = self._spans
            self._spans = []
        return spans
