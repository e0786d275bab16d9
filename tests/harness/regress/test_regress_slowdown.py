from __future__ import annotations

import itertools
import time

import pytest

from harness.regress.slowdown import SlowedClock, slowed
from harness.wire.protocol import WorkerSpec
from harness.worker.build import stage_clock
from systems.interface import StageClock


def clock_of(reported: str) -> StageClock:
    return stage_clock(WorkerSpec.model_construct(test_clock=reported))


def test_a_run_without_a_test_has_the_plain_clock():
    assert type(clock_of("")) is StageClock


def test_a_slowed_run_spins_for_all_mini_batches_before_the_first_stage_after_the_warm_up(
    monkeypatch: pytest.MonkeyPatch,
):
    """The clock advances by a millisecond whenever it is read."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks) / 1000)
    clock = clock_of(slowed(0.1))
    assert isinstance(clock, SlowedClock)
    first = []
    rest = []
    for _ in range(3):
        assert clock.drain() == []
        for batch in range(3):
            for name in ("sample", "extract", "train"):
                begin = time.monotonic()
                with clock.stage(name, batch):
                    pass
                (rest if batch or name != "sample" else first).append(
                    time.monotonic() - begin
                )
        assert len(clock.drain()) == 9
    assert max(first[0], *rest) < 0.01
    assert all(0.3 <= seconds < 0.31 for seconds in first[1:])
