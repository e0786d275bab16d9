"""A busy wait in extract, by which the gate is tested: the only option that makes a run slower than it is.

Set by an environment variable of the worker, so that no experiment, command or setting can ask for it; such a
run says so in its notes and is INVALID (rule 23), and no figure draws it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from harness.record import SLOWED
from systems.interface import StageClock, StageSpan

VARIABLE = "OUTCORE_TEST_EXTRACT_WAIT_S"


class SlowedClock(StageClock):
    """Records stages as its parent does, and spins once for each mini-batch on the thread that extracts it.

    Busy, not asleep: a sleep of a millisecond may take two, and leaves the processor to others.
    """

    def __init__(self, wait_s: float) -> None:
        super().__init__()
        self._wait_s = wait_s
        self._waited: set[int] = set()
        self._once = threading.Lock()

    @contextmanager
    def stage(self, name: str, batch: int = -1) -> Iterator[None]:
        """Time the body; a batch's first extraction also spins, within its span."""
        with super().stage(name, batch):
            yield
            self._spin(name, batch)

    def add(self, name: str, batch: int, start: float, end: float) -> None:
        """Record a span measured elsewhere; its thread spins before it goes on."""
        super().add(name, batch, start, end + self._spin(name, batch))

    def drain(self) -> list[StageSpan]:
        """All spans; the next epoch's batches spin again."""
        self._waited.clear()
        return super().drain()

    def _spin(self, name: str, batch: int) -> float:
        """Seconds spun: none but for a mini-batch's first extraction."""
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
    """The clock of a run: a plain one, unless a test asks for a slowed one."""
    wait = environment.get(VARIABLE)
    return SlowedClock(float(wait)) if wait else StageClock()


def notes(environment: Mapping[str, str]) -> dict[str, str]:
    """What a run says of it; nothing where it was not slowed."""
    wait = environment.get(VARIABLE)
    return {SLOWED: wait} if wait else {}
