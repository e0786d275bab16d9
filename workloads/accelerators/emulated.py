"""Emulated accelerator: bytes really move into its memory, times follow a named device
(methodology rule 20).

A copy lane and a compute lane run in parallel; each is a timeline on which one piece of
work follows the other. A copy moves its bytes at once on the caller's thread and ends
after its modelled time, or when the bytes have moved if that takes longer. A training
step computes nothing and holds the compute lane for the modelled time; rows that it
reads from host memory are faulted in, so that rows of a mapped file are read from it.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from workloads.accelerator import (
    CpuAccelerator,
    Event,
    Lane,
    LaneSpan,
    move_rows,
    wait_until,
)
from workloads.accelerators.pool import DevicePool
from workloads.accelerators.profile import Profile
from workloads.errors import InputError, require
from workloads.feature_table import SplitTable, Table


class EmulatedAccelerator(CpuAccelerator):
    """A device made of a profile, a pool of shared memory and two lanes; a gather's
    time is part of a step's."""

    def __init__(
        self,
        profile: Profile,
        memory_bytes: int | None = None,
        pool: DevicePool | None = None,
        *,
        touch: bool = True,
    ) -> None:
        if pool is None:
            if memory_bytes is None:
                fault = f"emulated:{profile.name} has no memory"
                raise InputError(fault, "give --device-memory, for example 32MiB")
            pool = DevicePool.create(
                memory_bytes,
                f"private-{id(self):x}-{time.monotonic_ns():x}",
                touch=touch,
            )
        fault = (
            f"device memory is {memory_bytes} bytes and the pool made for it "
            f"{pool.nbytes}"
        )
        require(memory_bytes in (None, pool.nbytes), fault, "make both the same")
        self.name = f"emulated:{profile.name}"
        self.kind = "emulated"
        self.memory_bytes = pool.nbytes
        self.keeps_rows = profile.keeps_rows
        self.bus_bytes_per_s = profile.bus_bytes_per_s.value
        self.profile = profile
        self.pool = pool
        self._copy_lane = Lane("copy")
        self._compute_lane = Lane("compute")
        # first byte and end of each `host_buffer`
        self._resident: tuple[tuple[int, int], ...] = ()

    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> Tensor:
        """Allocate a table in the pool; raises BudgetError where the pool is full."""
        return (
            self.pool.allocate(rows * dim * dtype.itemsize).view(dtype).view(rows, dim)
        )

    def free(self, table: Tensor) -> None:
        """Return the table's bytes to the pool."""
        self.pool.free(table)

    @property
    def used_bytes(self) -> int:
        """Bytes of the tables in the pool."""
        return self.pool.used_bytes

    @property
    def peak_bytes(self) -> int:
        """Most bytes of tables so far."""
        return self.pool.peak_bytes

    def seen_by_device(self, table: Table) -> Table:
        """Return a table of the pool as the device reads and writes it
        (`DevicePool.seen_by_device`)."""
        if isinstance(table, SplitTable):
            return SplitTable(self.pool.seen_by_device(table.device), table.host)
        return self.pool.seen_by_device(table)

    def holds(self, table: Tensor) -> bool:
        """Return whether the table lies in device memory; if not, the device reads it
        from host memory."""
        return self.pool.offset_of(table) is not None

    def host_buffer(self, nbytes: int) -> Tensor:
        """Allocate page-aligned host memory; the device reads it without the processor,
        as no other memory."""
        buffer = super().host_buffer(nbytes)
        self._resident = (
            *self._resident,
            (buffer.data_ptr(), buffer.data_ptr() + nbytes),
        )
        return buffer

    def free_host(self, buffer: Tensor) -> None:
        """Forget a buffer of `host_buffer`, whose last reference frees it."""
        self._resident = tuple(
            span for span in self._resident if span[0] != buffer.data_ptr()
        )

    def reads_alone(self, table: Tensor) -> bool:
        """Return whether the table lies in device memory or in a `host_buffer`: a read
        of it faults in no page."""
        first = table.data_ptr()
        return self.holds(table) or any(
            begin <= first < end for begin, end in self._resident
        )

    def copy(
        self,
        dst: Tensor,
        src: Tensor,
        dst_rows: Tensor | None = None,
        *,
        batch: int = -1,
    ) -> Event:
        """Copy the rows on the caller's thread; the event is done after their modelled
        time on the copy lane."""
        asked_at = time.monotonic()
        move_rows(self.pool.seen_by_device(dst), src, dst_rows)
        seconds = self.profile.copy_seconds(src.numel() * src.element_size())
        return Event(self._copy_lane.occupy(seconds, asked_at=asked_at, batch=batch))

    def gather(self, table: Table, rows: Tensor) -> Tensor:
        """Gather `table[rows]` on the processor, into host memory."""
        return super().gather(self.seen_by_device(table), rows)

    def gather_ahead(
        self, out: Tensor, table: Table, rows: Tensor, *, batch: int = -1
    ) -> Event:
        """Gather the rows on the caller's thread; the event is done after the time of a
        copy of them."""
        asked_at = time.monotonic()
        super().gather_ahead(self.pool.seen_by_device(out), table, rows, batch=batch)
        seconds = self.profile.copy_seconds(
            rows.shape[0] * table.shape[1] * table.dtype.itemsize
        )
        return Event(self._copy_lane.occupy(seconds, asked_at=asked_at, batch=batch))

    def read_seconds(
        self, on_device: int, by_zero_copy: int, row_bytes: int
    ) -> tuple[float, float]:
        """Return the modelled seconds to gather `on_device` device rows, and to read
        `by_zero_copy` host rows."""
        own = self.profile.gather_seconds(on_device * row_bytes) if on_device else 0.0
        return own, self.profile.zero_copy_seconds(
            by_zero_copy * row_bytes
        ) if by_zero_copy else 0.0

    def compute(
        self,
        seconds: float,
        *,
        batch: int = -1,
        bus_seconds: float = 0.0,
        asked_at: float | None = None,
    ) -> float:
        """Hold the compute lane for `seconds` from `asked_at` (monotonic; None: now);
        sleep to the end and return it.

        The step begins with `bus_seconds` of zero-copy reads (part of `seconds`).
        Zero-copy reads and staged copies share the bus, so the reads hold the copy lane
        too and wait for earlier copies.
        """
        begin = time.monotonic() if asked_at is None else asked_at
        if bus_seconds > 0.0:
            free = max(begin, self._compute_lane.busy_until)
            begin = (
                self._copy_lane.occupy(bus_seconds, asked_at=free, batch=batch)
                - bus_seconds
            )
        end = self._compute_lane.occupy(seconds, asked_at=begin, batch=batch)
        wait_until(end)
        return end

    def synchronize(self) -> None:
        """Sleep until both lanes are idle."""
        wait_until(max(self._copy_lane.busy_until, self._compute_lane.busy_until))

    def lanes(self) -> list[LaneSpan]:
        """Return the busy spans since the last call, oldest first; the last ones may
        end in the future."""
        return sorted(
            self._copy_lane.drain() + self._compute_lane.drain(),
            key=lambda span: span.start,
        )

    def close(self) -> None:
        """Close the pool."""
        self.pool.close()
