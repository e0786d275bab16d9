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


def test_a_slowed_run_spins_once_for_every_batch_of_an_epoch_within_its_extract_span(monkeypatch: pytest.MonkeyPatch):
    """The clock advances by a millisecond whenever it is read."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks) / 1000)
    clock = clock_of(slowed(0.01))
    assert isinstance(clock, SlowedClock)
    for _ in range(2):
        begin = time.monotonic()
        for name, batch in [("sample", 0), ("extract", 0), ("extract", 0), ("extract", 1), ("train", 0)]:
            with clock.stage(name, batch):
                pass
        clock.add("extract", 2, begin, begin)
        took = time.monotonic() - begin
        assert 0.03 <= took < 0.06
        spans = {(span.stage, span.batch): span.end - span.start for span in clock.drain()}
        assert spans["extract", 1] >= 0.01 and spans["extract", 2] >= 0.01
