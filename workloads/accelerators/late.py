"""Emulated device whose copies arrive as late as the interface allows
(`emulated:late`), for checks of code.

On a GPU a copy that is not waited for has usually arrived in time all the same. Here it
moves nothing until its event, or a later one, is waited for. Memory whose content is
undefined reads 0xFF (NaN as a feature): rows that a copy will write, new and freed
tables, new and freed staging buffers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from workloads.accelerator import Event, move_rows
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.accelerators.pool import DevicePool
from workloads.accelerators.profile import Profile
from workloads.feature_table import Table

UNDEFINED = 0xFF


class LateEvent(Event):
    """Completion of a transfer of a `LateAccelerator`, which has not happened before
    `wait`."""

    def __init__(self, lane: _LateLane, number: int, ended_at: float) -> None:
        super().__init__(ended_at)
        self._lane = lane
        self._number = number

    def wait(self) -> None:
        """Move the bytes of this transfer and of those before it, as the source holds
        them now."""
        self._lane.arrive(self._number)
        super().wait()

    def done(self) -> bool:
        """Return whether the transfer, or a later one, was waited for and its modelled
        time is over."""
        return self._lane.arrived >= self._number and super().done()


class _LateLane:
    """Transfers that were asked for and have not arrived; they arrive in order, as on a
    CUDA stream.

    Attributes:
        arrived: number of the last transfer that has arrived.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = self.arrived = 0
        # number, address, move
        self._under_way: deque[tuple[int, int, Callable[[], object]]] = deque()

    def ask(self, dst: Tensor, rows: Tensor | None, move: Callable[[], object]) -> int:
        """Take on a transfer and return its number.

        Args:
            dst: its table.
            rows: rows that it will write, undefined from now on; None: all.
            move: moves its bytes.
        """
        with self._lock:
            if rows is None:
                poison(dst)
            elif dst.numel():
                dst.view(torch.uint8).index_fill_(0, rows, UNDEFINED)
            self._asked += 1
            self._under_way.append((self._asked, dst.data_ptr(), move))
            return self._asked

    def arrive(self, number: int | None = None) -> None:
        """Move the bytes of all transfers up to this number; None: of all."""
        with self._lock:
            last = self._asked if number is None else number
            while self._under_way and self._under_way[0][0] <= last:
                asked, _, move = self._under_way.popleft()
                move()
                self.arrived = asked

    def forget(self, table: Tensor) -> None:
        """Drop the transfers into a table."""
        inside = range(table.data_ptr(), table.data_ptr() + table.nbytes)
        with self._lock:
            self._under_way = deque(
                one for one in self._under_way if one[1] not in inside
            )


class LateAccelerator(EmulatedAccelerator):
    """Emulated device with late transfers, whose undefined memory shows."""

    gathers_ahead = True

    def __init__(
        self,
        profile: Profile,
        memory_bytes: int | None = None,
        pool: DevicePool | None = None,
        *,
        touch: bool = True,
    ) -> None:
        super().__init__(profile, memory_bytes, pool, touch=touch)
        self._late = _LateLane()
        self._staging: set[int] = set()  # addresses of the staging buffers

    def allocate(self, rows: int, dim: int, dtype: torch.dtype) -> Tensor:
        """Allocate a table in the pool, undefined; raises BudgetError where the pool is
        full."""
        table = super().allocate(rows, dim, dtype)
        poison(self.pool.seen_by_device(table))
        return table

    def free(self, table: Tensor) -> None:
        """Return the table's bytes to the pool, undefined; copies into it never
        arrive."""
        seen = self.pool.seen_by_device(table)
        self._late.forget(seen)
        poison(seen)
        super().free(table)

    def host_buffer(self, nbytes: int) -> Tensor:
        """Allocate page-aligned staging memory, undefined."""
        buffer = super().host_buffer(nbytes)
        poison(buffer)
        self._staging.add(buffer.data_ptr())
        return buffer

    def free_host(self, buffer: Tensor) -> None:
        """Make the staging buffer that starts where `buffer` does undefined; does
        nothing to other memory."""
        if buffer.data_ptr() in self._staging:
            self._staging.remove(buffer.data_ptr())
            poison(buffer)
            super().free_host(buffer)

    def copy(
        self,
        dst: Tensor,
        src: Tensor,
        dst_rows: Tensor | None = None,
        *,
        batch: int = -1,
    ) -> Event:
        """Take on a copy, which moves its bytes when it is waited for."""
        if dst_rows is not None:
            # unlike the source, the caller may reuse it at once
            dst_rows = dst_rows.clone()
        dst = self.pool.seen_by_device(dst)
        target = dst[: src.shape[0]] if dst_rows is None else dst
        number = self._late.ask(target, dst_rows, lambda: move_rows(dst, src, dst_rows))
        seconds = self.profile.copy_seconds(src.numel() * src.element_size())
        return LateEvent(
            self._late, number, self._copy_lane.occupy(seconds, batch=batch)
        )

    def gather_ahead(
        self, out: Tensor, table: Table, rows: Tensor, *, batch: int = -1
    ) -> Event:
        """Take on a gather of `table[rows]` into the first rows of `out`, which happens
        when it is waited for."""
        rows, target = rows.clone(), self.pool.seen_by_device(out[: rows.shape[0]])
        number = self._late.ask(
            target, None, lambda: target.copy_(self.gather(table, rows))
        )
        return LateEvent(self._late, number, self._copy_lane.occupy(0.0, batch=batch))

    def synchronize(self) -> None:
        """Let all transfers arrive, and sleep until both lanes are idle."""
        self._late.arrive()
        super().synchronize()


def poison(memory: Tensor) -> None:
    """Overwrite a tensor's bytes by `UNDEFINED`."""
    if memory.numel():
        memory.view(torch.uint8).fill_(UNDEFINED)
