from __future__ import annotations

import itertools
import time

import pytest

from harness.records.record import SLOWED
from harness.worker.slowdown import VARIABLE, SlowedClock, notes, stage_clock
from systems.interface import StageClock


def test_without_the_variable_a_run_has_the_plain_clock_and_says_nothing():
    assert type(stage_clock({})) is StageClock
    assert notes({}) == {}


def test_with_it_every_batch_spins_once_an_epoch_within_its_extract_span(monkeypatch: pytest.MonkeyPatch):
    """By a clock that goes on by a thousandth of a second whenever it is read."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks) / 1000)
    clock = stage_clock({VARIABLE: "0.01"})
    assert isinstance(clock, SlowedClock) and notes({VARIABLE: "0.01"}) == {SLOWED: "0.01"}
    for _ in range(2):
        begin = time.monotonic()
        for name, batch in [("sample", 0), ("extract", 0), ("extract", 0), ("extract", 1), ("train", 0)]:
            with clock.stage(name, batch):
                pass
        clock.add("extract", 2, begin, begin)
        took = time.monotonic() - begin
        assert 0.03 <= took < 0.06
        spans = {(span.stage, span.batch): span.end - span.start for span in clock.drain()}
        assert spans["sample", 0] < 0.005
        assert spans["extract", 1] >= 0.01 and spans["extract", 2] >= 0.01
