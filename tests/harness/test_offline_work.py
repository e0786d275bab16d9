"""Offline work of single epochs: called once for each episode, timed by the harness, exact in bytes for each epoch."""

from __future__ import annotations

from typing import cast

import pytest

from harness.records.record import OfflineWork
from harness.worker.offline import EpisodeTimer
from systems.interface import System


class Episodic:
    """Stand-in for a system that prepares `length` epochs together; notes the calls."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.calls: list[int] = []

    def prepare_epochs(self, first: int) -> int:
        self.calls.append(first)
        return self.length


def timed(length: int, epochs: int) -> tuple[Episodic, list[OfflineWork | None]]:
    system = Episodic(length)
    timer = EpisodeTimer(cast(System, system), epochs)
    return system, [timer.prepare(0), *(timer.prepare(epoch) for epoch in range(epochs))]


def test_each_episode_is_prepared_once_before_its_first_epoch() -> None:
    system, works = timed(3, 8)
    assert system.calls == [0, 3, 6]
    assert [work.epochs for work in works if work] == [3, 3, 2], "an epoch beyond the run's end is not counted"


def test_a_system_without_such_work_is_asked_once() -> None:
    system, works = timed(0, 5)
    assert system.calls == [0] and works == [None] * 6


def test_a_number_of_epochs_that_is_none_is_a_fault_of_the_system() -> None:
    with pytest.raises(ValueError, match="not a number of epochs"):
        timed(-1, 2)


def test_work_of_ranks_is_the_longest_and_the_sum_of_bytes() -> None:
    parts = [OfflineWork(epochs=2, seconds=1.0, bytes_read=3), OfflineWork(epochs=2, seconds=4.0, bytes_read=5)]
    joined = OfflineWork.joined(parts)
    assert (joined.epochs, joined.seconds, joined.bytes_read) == (2, 4.0, 8)
    with pytest.raises(ValueError, match="different numbers of epochs"):
        OfflineWork.joined([parts[0], OfflineWork(epochs=1)])
