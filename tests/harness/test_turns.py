"""Turns: one at a time, in the order of requests, and none waits for a party that is
gone."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from harness.run.turns import VARIABLE, Turn, Turns
from workloads.errors import HostError

pytestmark = pytest.mark.timeout(30)


def test_who_takes_turns_alternates_and_none_overlaps():
    log: list[str] = []
    busy = threading.Lock()
    with Turns(parties=3) as turns:

        def work(name: str) -> None:
            turn = Turn(turns.address)
            turn.take()
            for _ in range(20):
                assert busy.acquire(blocking=False)
                log.append(name)
                time.sleep(0.001)
                busy.release()
                turn.let_others()
            turn.close()

        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(log) == 60
    order = log[:3]
    assert log == order * 20


def test_none_begins_before_all_have_asked():
    with Turns(parties=2) as turns, socket.socket(socket.AF_UNIX) as asks_later:
        first = Turn(turns.address)
        second = Turn(turns.address)
        asks_later.connect(turns.address)
        begun = threading.Event()

        def work() -> None:
            first.take()
            begun.set()
            first.close()

        thread = threading.Thread(target=work)
        thread.start()
        assert not begun.wait(0.2)
        second.take()
        second.close()
        assert begun.wait(10)
        thread.join()
        assert first.waited_s >= 0.2


def test_one_that_never_came_is_not_waited_for():
    with Turns(parties=2) as turns:
        turns.all_here()
        turn = Turn(turns.address)
        turn.take()
        turn.close()


def test_one_that_dies_with_the_turn_gives_it_back():
    with Turns() as turns:
        dead = Turn(turns.address)
        other = Turn(turns.address)
        dead.take()
        dead.close()
        other.take()
        other.close()


def test_alone_it_is_always_ones_turn(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    turn = Turn.of_environment()
    turn.take()
    turn.let_others()
    turn.close()
    assert turn.waited_s == 0.0


def test_turns_that_ended_are_reported():
    turns = Turns()
    with turns:
        pass
    with pytest.raises(HostError, match="turn"):
        Turn(turns.address).take()
