"""Progress of a run: a few numbers in shared memory, stored by the worker and read by
the orchestrator at any time. The worker's side is a plain store, no system call, so it
may count mini-batches while an epoch's clock runs; the page is made and touched by the
orchestrator, outside the cap. Foreign images have no board, only their events."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from harness.progress import Reading
from workloads.errors import HostError

if TYPE_CHECKING:
    from workloads.accelerators.pool import DevicePool

# Trained and total mini-batches of the epoch (uint64), share of the stage (float64),
# its name (UTF-8, zero-padded).
_COUNTS = slice(0, 16)
_SHARE = slice(16, 24)
_STAGE = slice(24, 128)
_BYTES = 128


class Board:
    """The page of a run's progress, in shared memory or, without a `pool`, in memory of
    this process. A context manager on the orchestrator's side. `name`: name for
    `attach`; None without shared memory."""

    def __init__(self, pool: DevicePool | None = None) -> None:
        self._pool = pool
        self.name = None if pool is None else pool.name
        cells = (
            np.zeros(_BYTES, np.uint8)
            if pool is None
            else pool.allocate(_BYTES).numpy()
        )
        self._counts = cells[_COUNTS].view(np.uint64)
        self._share = cells[_SHARE].view(np.float64)
        self._stage = cells[_STAGE]

    @classmethod
    def create(cls, name: str) -> Board:
        """Create a board that a worker attaches to by `name`, unique on the host."""
        from workloads.accelerators.pool import DevicePool

        return cls(DevicePool.create(_BYTES, name))

    @classmethod
    def attach(cls, name: str | None) -> Board:
        """Return the board called `name`; one without a reader where it does not exist,
        so that no run fails for it."""
        from workloads.accelerators.pool import DevicePool

        if name:
            with suppress(HostError):
                return cls(DevicePool.attach(name))
        return cls()

    def begin(self, batches: int) -> None:
        """Begin an epoch of `batches` mini-batches, none of them trained; 0: no epoch
        is under way."""
        self._counts[:] = 0, batches
        self.stage("", 0.0)

    def count(self, batches: int) -> None:
        """Store the number of trained mini-batches of the epoch. One store, since the
        clock runs."""
        self._counts[0] = batches

    def stage(self, what: str, share: float) -> None:
        """Store the completed share (0 to 1; NaN: unknown) of the stage `what`
        (`Runtime.progress`)."""
        text = np.frombuffer(what.encode()[: len(self._stage)], np.uint8)
        self._share[0] = share
        if self._stage[len(text) :].any() or not np.array_equal(
            self._stage[: len(text)], text
        ):
            self._stage[:] = 0
            self._stage[: len(text)] = text

    def read(self, phase: str) -> Reading:
        """Return the worker's progress; `phase` is the name of its present phase."""
        done, total = (float(number) for number in self._counts)
        if total:
            return Reading(phase, min(done, total), total, "mini-batches")
        what = self._stage.tobytes().rstrip(b"\0").decode(errors="replace")
        return (
            Reading(f"{phase}: {what}", float(self._share[0]), 1.0)
            if what
            else Reading(phase)
        )

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()
