"""A busy wait at the end of an epoch, to test the gate with runs that are slowed on purpose.

It is set by an environment variable of whoever starts a run (`harness/run/spec.py`), not by an experiment, a command
or a setting. A slowed run has a note and is INVALID (rule 23), and no figure draws it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from systems.interface import StageClock, StageSpan


def slowed(wait_s: float) -> str:
    """Return the value of `OUTCORE_TEST_CLOCK` for runs whose epochs take `wait_s` longer for every mini-batch."""
    return f"{__name__}:{wait_s!r}"


def stage_clock(argument: str) -> StageClock:
    """Return the clock of a run that spins for as many seconds a mini-batch as `argument` says."""
    return SlowedClock(float(argument))


class SlowedClock(StageClock):
    """A stage clock that spins in an epoch's last training step, for all mini-batches at once.

    A wait in every mini-batch would be hidden by what a pipeline does at the same time: 10 % of an epoch of `ginex`,
    spun in extract, made it no longer. After the last mini-batch no other stage is at work. It is known from the epoch
    before, so the first epoch, which warms up, is as it is.
    """

    def __init__(self, wait_s: float) -> None:
        super().__init__()
        self._wait_s = wait_s
        self._trained = 0
        self._batches = 0

    @contextmanager
    def stage(self, name: str, batch: int = -1) -> Iterator[None]:
        """Time the body; the last training step of an epoch also spins, within its span."""
        with super().stage(name, batch):
            yield
            if name == "train":
                self._trained += 1
                if self._trained == self._batches:
                    self._spin()

    def drain(self) -> list[StageSpan]:
        """Return all spans; the epoch that begins has as many mini-batches as the one that ended."""
        self._batches, self._trained = self._trained or self._batches, 0
        return super().drain()

    def _spin(self) -> None:
        """Spin, since a sleep frees the processor."""
        end = time.monotonic() + self._wait_s * self._batches
        while time.monotonic() < end:
            pass
