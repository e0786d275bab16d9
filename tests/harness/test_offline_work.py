"""Offline work of single epochs: called once for each episode, timed by the harness,
exact in bytes for each epoch."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from pydantic import ValidationError

from harness.records.record import OfflineWork
from harness.wire.protocol import Gate, Order, Planned, Prepared, ProtocolError
from harness.worker.offline import EpisodeTimer
from systems.interface import System


class Episodic:
    """Stand-in for a system that prepares `length` epochs together; notes the calls."""

    def __init__(self, length: Any) -> None:
        self.length = length
        self.shared = 0.0
        self.calls: list[int] = []

    def prepare_epochs(self, first: int) -> Any:
        self.calls.append(first)
        return self.length

    def shared_s(self) -> float:
        return self.shared


def timed(length: Any, epochs: int) -> tuple[Episodic, list[OfflineWork | None]]:
    system = Episodic(length)
    timer = EpisodeTimer(cast(System, system), epochs)
    return system, [
        timer.prepare(0),
        *(timer.prepare(epoch) for epoch in range(epochs)),
    ]


def test_each_episode_is_prepared_once_before_its_first_epoch() -> None:
    system, works = timed(3, 8)
    assert system.calls == [0, 3, 6]
    assert [work.epochs for work in works if work] == [3, 3, 2], (
        "an epoch beyond the run's end is not counted"
    )


def test_a_system_without_such_work_is_asked_once() -> None:
    system, works = timed(0, 5)
    assert system.calls == [0]
    assert works == [None] * 6


@pytest.mark.parametrize("served", [-1, None, 1.5, "2", float("nan"), True, [1]])
def test_a_number_of_epochs_that_is_none_is_a_fault_of_the_system(
    served: object,
) -> None:
    with pytest.raises(
        ValueError,
        match=r"prepare_epochs\(0\) returned .*, which is not a number of epochs; "
        r"return",
    ):
        timed(served, 2)


@pytest.mark.parametrize("served", [2, np.int64(2), np.uint8(2), 10**30])
def test_any_whole_number_of_epochs_is_one(served: object) -> None:
    assert [work.epochs for work in timed(served, 2)[1] if work] == [2]


@pytest.mark.parametrize("shared", [-1.0, float("nan"), float("inf")])
def test_shared_seconds_that_are_none_are_a_fault_of_the_system(shared: float) -> None:
    system = Episodic(2)
    system.shared = shared
    with pytest.raises(
        ValueError,
        match=r"shared_s\(\) returned .*: return seconds, 0 where epochs share no work",
    ):
        EpisodeTimer(cast(System, system), 2).prepare(0)


def test_shared_seconds_are_at_most_those_of_the_work() -> None:
    system = Episodic(2)
    system.shared = 1e6
    work = EpisodeTimer(cast(System, system), 2).prepare(0)
    assert work is not None
    assert work.shared_s == work.whole_s


def test_work_of_ranks_is_the_longest_and_the_sum_of_bytes() -> None:
    parts = [
        OfflineWork(epochs=2, seconds=1.0, bytes_read=3, shared_s=0.5),
        OfflineWork(epochs=2, seconds=4.0, bytes_read=5, shared_s=3.0),
    ]
    joined = OfflineWork.joined(parts)
    assert joined.shared_s == 0.5
    assert (joined.epochs, joined.seconds, joined.bytes_read) == (2, 4.0, 8)
    with pytest.raises(ValueError, match="different numbers of epochs"):
        OfflineWork.joined([parts[0], OfflineWork(epochs=1)])


def prepared(seconds: float, work: OfflineWork) -> Prepared:
    parts = {
        "seconds": seconds,
        "bytes_read": 0,
        "bytes_written": 0,
        "reused": False,
        "files": [],
    }
    return Prepared(**parts, offline=work)


@pytest.mark.parametrize(
    ("work", "fault"),
    [
        (OfflineWork(epochs=4, seconds=1.0), "serves 4 epochs, of which the run has 3"),
        (OfflineWork(epochs=3, seconds=2.5), "takes 2.5 s of 2 s"),
    ],
)
def test_offline_work_that_is_no_part_of_the_run_is_refused(
    work: OfflineWork, fault: str
) -> None:
    order = Order("run", epochs=3)
    order.take(Gate(at="floor"))
    order.take(Planned(items=[]))
    with pytest.raises(ProtocolError, match=fault):
        order.take(prepared(2.0, work))
    order.take(prepared(2.0, OfflineWork(epochs=3, seconds=2.0)))


def test_offline_work_without_an_end_is_no_number() -> None:
    for seconds in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValidationError):
            OfflineWork(epochs=1, seconds=seconds)
    with pytest.raises(ValidationError):
        OfflineWork(epochs=0)
