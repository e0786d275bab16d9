"""The emulated accelerator: bytes really move into its memory, time is that of a named device (methodology rule 20).

It has a copy lane and a compute lane that run beside each other, each a timeline on which work takes turns. A copy
moves its bytes at once on the caller's thread and is over when its lane says so, or when the bytes have moved, if that
took longer. Nothing is computed: a training step holds the compute lane for the modelled time.
"""

from __future__ import annotations

import time

import torch

from workloads.accelerator import Accelerator, Event, Kind, Lane, LaneSpan, move_rows, wait_until
from workloads.accelerators.pool import DevicePool
from workloads.accelerators.profile import Profile
from workloads.errors import InputError
from workloads.feature_table import SplitTable, Table


class EmulatedEvent(Event):
    """A copy whose bytes are there and whose modelled time may not be over."""

    def wait(self) -> None:
        """Sleep until the modelled end."""
        wait_until(self._ended_at)

    def done(self) -> bool:
        """Whether the modelled end has passed."""
        return time.monotonic() >= self._ended_at


class EmulatedAccelerator(Accelerator):
    """A device made of a profile, a pool of shared memory and two lanes."""

    def __init__(
        self, profile: Profile, memory_bytes: int | None = None, pool: DevicePool | None = None, *, touch: bool = True
    ) -> None:
        if pool is None:
            if memory_bytes is None:
                raise InputError(f"emulated:{profile.name} has no memory", "give --device-memory, say 32MiB")
            pool = DevicePool.create(memory_bytes, f"private-{id(self):x}-{time.monotonic_ns():x}", touch=touch)
        elif memory_bytes is not None and memory_bytes != pool.nbytes:
            raise InputError(
                f"device memory is {memory_bytes} bytes and the pool made for it {pool.nbytes}", "make both the same"
            )
        self.name = f"emulated:{profile.name}"
        self.kind: Kind = "emulated"
        self.torch_device = torch.device("cpu")
        self.memory_bytes: int | None = pool.nbytes
        self.keeps_rows = profile.keeps_rows
        self.profile = profile
        self.pool = pool
        self._copy_lane = Lane("copy")
        self._compute_lane = Lane("compute")

    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
        """A table in the pool. Raises BudgetError where the pool is full."""
        return self.pool.allocate(rows * dim * dtype.itemsize).view(dtype).view(rows, dim)

    def free(self, table: torch.Tensor) -> None:
        """Give the table's bytes back to the pool."""
        self.pool.free(table)

    def holds(self, table: torch.Tensor) -> bool:
        """Whether the table lies in the device's memory (if not, the device reads it from the host's)."""
        return self.pool.offset_of(table) is not None

    def copy(
        self, dst: torch.Tensor, src: torch.Tensor, dst_rows: torch.Tensor | None = None, *, batch: int = -1
    ) -> Event:
        """Move the rows now; the event is over when the copy lane's modelled time for them is."""
        asked_at = time.monotonic()
        move_rows(dst, src, dst_rows)
        seconds = self.profile.copy_seconds(src.numel() * src.element_size())
        return EmulatedEvent(self._copy_lane.occupy(seconds, asked_at=asked_at, batch=batch))

    def gather(self, table: Table, rows: torch.Tensor) -> torch.Tensor:
        """`table[rows]`, read really; its modelled time is part of the training step's."""
        return table.take(rows) if isinstance(table, SplitTable) else torch.index_select(table, 0, rows)

    def read_seconds(self, on_device: int, by_zero_copy: int, row_bytes: int) -> tuple[float, float]:
        """Modelled seconds for the device to gather so many rows from its own memory, and from the host's."""
        own = self.profile.gather_seconds(on_device * row_bytes) if on_device else 0.0
        return own, self.profile.zero_copy_seconds(by_zero_copy * row_bytes) if by_zero_copy else 0.0

    def compute(self, seconds: float, *, batch: int = -1, bus_seconds: float = 0.0) -> float:
        """Hold the compute lane for `seconds` and return when that is over: its monotonic moment.

        The step begins with `bus_seconds` of zero-copy reads (part of `seconds`). They cross the bus that staged copies
        cross, so they hold the copy lane too and wait for the copies before them.
        """
        reading_from = None
        if bus_seconds > 0.0:
            free = max(time.monotonic(), self._compute_lane.busy_until)
            reading_from = self._copy_lane.occupy(bus_seconds, asked_at=free, batch=batch) - bus_seconds
        end = self._compute_lane.occupy(seconds, asked_at=reading_from, batch=batch)
        wait_until(end)
        return end

    def synchronize(self) -> None:
        """Sleep until both lanes are idle."""
        wait_until(max(self._copy_lane.busy_until, self._compute_lane.busy_until))

    def lanes(self) -> list[LaneSpan]:
        """Busy spans since the last call; the last ones may end in the future."""
        return sorted(self._copy_lane.drain() + self._compute_lane.drain(), key=lambda span: span.start)

    def close(self) -> None:
        """Let go of the pool."""
        self.pool.close()
