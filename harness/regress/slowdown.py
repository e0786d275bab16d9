"""A busy wait at the start of an epoch, to test the gate with runs that are slowed on
purpose.

It is set by an environment variable of whoever starts a run (`harness/run/spec.py`),
not by an experiment, a command or a setting. A slowed run has a note and is INVALID
(rule 23), and no figure draws it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from systems.interface import StageClock, StageSpan


def slowed(wait_s: float) -> str:
    """Return the value of `OUTCORE_TEST_CLOCK` for runs whose epochs take `wait_s`
    longer for every mini-batch."""
    return f"{__name__}:{wait_s!r}"


def stage_clock(argument: str) -> StageClock:
    """Return the clock of a run that spins for `argument` seconds a mini-batch."""
    return SlowedClock(float(argument))


class SlowedClock(StageClock):
    """A stage clock that spins before an epoch's first stage, for all mini-batches at
    once; no stage begins meanwhile.

    A wait in every mini-batch is hidden by what a pipeline does at the same time: 10 %
    of an epoch of `ginex`, spun in extract, made it no longer; a wait at the end hides
    what ends threads. The number of mini-batches is that of the epoch before, so the
    first epoch, which warms up, is as it is.
    """

    def __init__(self, wait_s: float) -> None:
        super().__init__()
        self._wait_s = wait_s
        self._due_s = 0.0
        self._first = threading.Lock()

    @contextmanager
    def stage(self, name: str, batch: int = -1) -> Iterator[None]:
        """Time the body, after the epoch's wait."""
        with self._first:
            due = time.monotonic() + self._due_s
            self._due_s = 0.0
            while time.monotonic() < due:  # a sleep would free the processor
                pass
        with super().stage(name, batch):
            yield

    def drain(self) -> list[StageSpan]:
        """Return all spans; the next epoch has as many mini-batches as they trained."""
        spans = super().drain()
        self._due_s = (
            self._wait_s * sum(span.stage == "train" for span in spans) or self._due_s
        )
        return spans
