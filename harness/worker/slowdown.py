"""A busy wait in extract, to test the gate with runs that are slowed on purpose.

It is set by an environment variable of the worker, not by an experiment, a command or a setting. A slowed run has a
note and is INVALID (rule 23), and no figure draws it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from harness.records.record import SLOWED
from systems.interface import StageClock, StageSpan

VARIABLE = "OUTCORE_TEST_EXTRACT_WAIT_S"


class SlowedClock(StageClock):
    """A stage clock that spins once per mini-batch in extract; a sleep of 1 ms may take 2 and frees the processor."""

    def __init__(self, wait_s: float) -> None:
        super().__init__()
        self._wait_s = wait_s
        self._waited: set[int] = set()
        self._once = threading.Lock()

    @contextmanager
    def stage(self, name: str, batch: int = -1) -> Iterator[None]:
        """Time the body; the first extraction of a mini-batch also spins, within its span."""
        with super().stage(name, batch):
            yield
            self._spin(name, batch)

    def add(self, name: str, batch: int, start: float, end: float) -> None:
        """Record a span measured elsewhere, extended by the spin of the calling thread."""
        super().add(name, batch, start, end + self._spin(name, batch))

    def drain(self) -> list[StageSpan]:
        """Return all spans; mini-batches of the next epoch spin again."""
        self._waited.clear()
        return super().drain()

    def _spin(self, name: str, batch: int) -> float:
        """Spin at the first extraction of a mini-batch; return the seconds spun."""
        if name != "extract" or batch < 0:
            return 0.0
        with self._once:
            if batch in self._waited:
                return 0.0
            self._waited.add(batch)
        begin = time.monotonic()
        while (spun := time.monotonic() - begin) < self._wait_s:
            pass
        return spun


def stage_clock(environment: Mapping[str, str]) -> StageClock:
    """Return the clock of a run: slowed if the environment sets `VARIABLE`, else plain."""
    wait = environment.get(VARIABLE)
    return SlowedClock(float(wait)) if wait else StageClock()


def notes(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the note of a slowed run; empty for other runs."""
    wait = environment.get(VARIABLE)
    return {SLOWED: wait} if wait else {}


def facts(environment: Mapping[str, str]) -> dict[str, float]:
    """Return the fact of a slowed run; empty for other runs."""
    return {name: float(wait) for name, wait in notes(environment).items()}
