from __future__ import annotations

import itertools
import time

import pytest

from harness.regress.slowdown import SlowedClock, slowed
from harness.wire.protocol import WorkerSpec
from harness.worker.build import stage_clock
from systems.interface import StageClock


def clock_of(told: str) -> StageClock:
    return stage_clock(WorkerSpec.model_construct(test_clock=told))


def test_a_run_without_a_test_has_the_plain_clock():
    assert type(clock_of("")) is StageClock


def test_a_slowed_run_spins_for_all_mini_batches_in_the_last_training_step_after_the_warm_up(
    monkeypatch: pytest.MonkeyPatch,
):
    """The clock advances by a millisecond whenever it is read."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks) / 1000)
    clock = clock_of(slowed(0.01))
    assert isinstance(clock, SlowedClock)
    longest = []
    for _ in range(3):
        assert clock.drain() == []
        for batch in range(3):
            for name in ("sample", "extract", "train"):
                with clock.stage(name, batch):
                    pass
        clock.add("extract", 3, 0.0, 0.001)
        spans = {(span.stage, span.batch): span.end - span.start for span in clock.drain()}
        longest.append(spans.pop(("train", 2)))
        assert all(seconds < 0.003 for seconds in spans.values())
    assert longest[0] < 0.003 and all(0.03 <= seconds < 0.04 for seconds in longest[1:])
