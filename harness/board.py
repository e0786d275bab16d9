"""How far a run is: a few numbers in shared memory that the worker stores and the orchestrator reads when it likes.

The worker's side is a plain store, no system call, so it may count mini-batches while an epoch's clock runs; the page
is made and touched by the orchestrator, outside the cap. Foreign images have none and are told by their events alone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workloads.errors import HostError

if TYPE_CHECKING:
    from workloads.accelerators.pool import DevicePool

# Mini-batches trained and of the epoch (uint64 each), share of the stage (float64), its name (UTF-8, zeros behind it).
_COUNTS, _SHARE, _STAGE, _BYTES = slice(0, 16), slice(16, 24), slice(24, 128), 128


@dataclass(frozen=True)
class Reading:
    """How far some work is; `text` says which.

    Attributes:
        done: of `total`; a share where `total` is 1.
        total: 0 where nobody knows.
        unit: what is counted.
    """

    text: str
    done: float = 0.0
    total: float = 0.0
    unit: str = ""

    @property
    def share(self) -> float | None:
        """From 0 to 1; None where nobody knows."""
        known = self.total > 0 and self.done == self.done
        return min(1.0, max(0.0, self.done / self.total)) if known else None


class Board:
    """The page. A context manager on the orchestrator's side.

    Args:
        pool: its shared memory; None: memory of this process, where nobody looks.
    """

    def __init__(self, pool: DevicePool | None = None) -> None:
        self._pool = pool
        cells = np.zeros(_BYTES, np.uint8) if pool is None else pool.allocate(_BYTES).numpy()
        self._counts = cells[_COUNTS].view(np.uint64)
        self._share = cells[_SHARE].view(np.float64)
        self._stage = cells[_STAGE]

    @classmethod
    def create(cls, name: str) -> Board:
        """A board that a worker finds by `name`, unique on the host."""
        from workloads.accelerators.pool import DevicePool

        return cls(DevicePool.create(_BYTES, name))

    @classmethod
    def attach(cls, name: str | None) -> Board:
        """The board of that name; one that nobody looks at where there is none: no run fails for it."""
        from workloads.accelerators.pool import DevicePool

        if name:
            with suppress(HostError):
                return cls(DevicePool.attach(name))
        return cls()

    @property
    def name(self) -> str | None:
        """What `attach` finds it by."""
        return None if self._pool is None else self._pool.name

    def begin(self, batches: int) -> None:
        """An epoch of so many mini-batches, of which none is trained; 0: no epoch is under way."""
        self._counts[:] = 0, batches
        self.stage("", 0.0)

    def count(self, batches: int) -> None:
        """So many mini-batches of the epoch are trained. One store: it is called while the clock runs."""
        self._counts[0] = batches

    def stage(self, what: str, share: float) -> None:
        """A share (0 to 1; NaN: nobody knows) of some part of the work is done: `Runtime.progress`."""
        text = np.frombuffer(what.encode()[: len(self._stage)], np.uint8)
        self._share[0] = share
        if self._stage[len(text) :].any() or not np.array_equal(self._stage[: len(text)], text):
            self._stage[:] = 0
            self._stage[: len(text)] = text

    def read(self, phase: str) -> Reading:
        """How far the worker is; `phase` is what it is known to be doing."""
        done, total = (float(number) for number in self._counts)
        if total:
            return Reading(phase, min(done, total), total, "mini-batches")
        what = self._stage.tobytes().rstrip(b"\0").decode(errors="replace")
        return Reading(f"{phase}: {what}", float(self._share[0]), 1.0) if what else Reading(phase)

    def close(self) -> None:
        """Let go of the memory."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
