"""Promises of the pipeline inside every system: order, errors, an end at any moment."""

from __future__ import annotations

import random
import threading
import time

import pytest

from systems.engine.pipeline import Channel, Pipeline, Stopped, Turnstile

pytestmark = pytest.mark.timeout(30)


def outcore_threads() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith("t-")
    ]


def run_three_stages(items: int, ordered: bool, workers: int = 4) -> list[int]:
    def slow_square(_: int, value: int) -> int:
        time.sleep(random.random() * 0.003)
        return value * value

    with Pipeline("t") as pipe:
        first: Channel[int] = pipe.channel(3, ordered=ordered)
        last: Channel[int] = pipe.channel(2, ordered=ordered)
        pipe.stage("a", workers, slow_square, range(items), first)
        pipe.stage("b", workers, slow_square, first, last)
        return list(pipe.results(last))


def test_every_item_comes_out_once() -> None:
    assert sorted(run_three_stages(200, ordered=False)) == [
        value**4 for value in range(200)
    ]


def test_an_ordered_channel_restores_the_order() -> None:
    assert run_three_stages(200, ordered=True) == [value**4 for value in range(200)]


def test_an_ordered_channel_behind_an_unordered_one_is_refused() -> None:
    with Pipeline("t") as pipe, pytest.raises(ValueError, match="has to be ordered"):
        pipe.stage(
            "a",
            1,
            lambda _, value: value,
            pipe.channel(1),
            pipe.channel(1, ordered=True),
        )


def test_an_unordered_channel_does_not_wait_for_the_slowest() -> None:
    def work(_: int, value: int) -> int:
        time.sleep(0.3 if value == 0 else 0.0)
        return value

    with Pipeline("t") as pipe:
        out: Channel[int] = pipe.channel(10)
        pipe.stage("a", 2, work, range(5), out)
        assert list(pipe.results(out)) == [1, 2, 3, 4, 0]


def test_an_ordered_channel_bounds_how_far_others_run_ahead() -> None:
    started: list[int] = []
    gate = threading.Event()

    def work(number: int, value: int) -> int:
        started.append(number)
        if number == 0:
            gate.wait(5)
        return value

    with Pipeline("t") as pipe:
        out: Channel[int] = pipe.channel(3, ordered=True)
        pipe.stage("a", 2, work, range(100), out)
        time.sleep(0.2)
        assert max(started) <= 3
        gate.set()
        assert list(pipe.results(out)) == list(range(100))


def test_an_error_in_any_stage_reaches_the_reader_and_ends_all_threads() -> None:
    def bad(_: int, value: int) -> int:
        if value == 7:
            raise OSError("the disk is gone")
        return value

    with pytest.raises(OSError, match="the disk is gone"), Pipeline("t") as pipe:
        middle: Channel[int] = pipe.channel(1)
        out: Channel[int] = pipe.channel(1)
        pipe.stage("a", 3, bad, range(1000), middle)
        pipe.stage("b", 3, lambda _, value: value, middle, out)
        list(pipe.results(out))
    assert outcore_threads() == []


def test_leaving_in_the_middle_ends_every_thread_and_drops_what_is_left() -> None:
    made: list[int] = []

    def work(_: int, value: int) -> int:
        made.append(value)
        return value

    with Pipeline("t") as pipe:
        out: Channel[int] = pipe.channel(4)
        pipe.stage("a", 3, work, range(1000), out)
        taken = [item for _, item in zip(range(5), pipe.results(out), strict=False)]
    assert outcore_threads() == []
    assert len(out) == 0
    assert set(taken) < set(made)
    assert len(made) <= len(taken) + 4 + 3, (
        "more is made than the channel holds and the threads work on"
    )


def test_an_abandoned_generator_ends_its_threads() -> None:
    def epoch():  # type: ignore[no-untyped-def]
        with Pipeline("t") as pipe:
            out: Channel[int] = pipe.channel(2)
            pipe.stage("a", 2, lambda _, value: value, range(100), out)
            yield from pipe.results(out)

    items = epoch()
    assert next(items) in (0, 1)
    items.close()
    assert outcore_threads() == []


def test_closing_from_elsewhere_is_not_taken_for_the_end_of_the_epoch() -> None:
    with Pipeline("t") as pipe:
        out: Channel[int] = pipe.channel(2)
        pipe.stage(
            "a", 1, lambda _, value: (time.sleep(0.01), value)[1], range(1000), out
        )
        threading.Timer(0.1, pipe.stop).start()
        with pytest.raises(InterruptedError):
            list(pipe.results(out))


def test_stop_wakes_a_thread_that_waits_elsewhere() -> None:
    begun = threading.Event()
    waiting = threading.Event()
    woken: list[bool] = []

    def wait(_: int, __: int) -> None:
        begun.set()
        woken.append(waiting.wait(60))

    with Pipeline("t") as pipe:
        pipe.on_stop(waiting.set)
        pipe.stage("a", 1, wait, range(1))
        begun.wait()
    assert woken == [True]


def test_a_thread_that_never_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pipeline, "JOIN_SECONDS", 0.1)
    release = threading.Event()
    pipe = Pipeline("t")
    pipe.stage("stuck", 1, lambda _, __: release.wait(60), range(1))
    with pytest.raises(RuntimeError, match="t-stuck-0"):
        pipe.close()
    release.set()
    pipe.close()


def test_a_turnstile_lets_threads_through_in_order() -> None:
    turnstile = Turnstile()
    order = []

    def pass_through(number: int) -> None:
        time.sleep(random.random() * 0.01)
        turnstile.enter(number)
        order.append(number)
        turnstile.leave()

    threads = [
        threading.Thread(target=pass_through, args=(number,)) for number in range(20)
    ]
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join(5)
    assert order == list(range(20))
    turnstile.stop()
    with pytest.raises(Stopped):
        turnstile.enter(99)
