"""The kernel's own count of a run's waiting for a processor, with real processes on one
processor."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from harness.telemetry.waiting import Waiting

# Prints a line for each part of its work, on one processor: one thread; a new thread
# for each part; or a thread that ends with the part beside one that hardly computes,
# with the seconds for which the first was ready and did not run.
_LOOP = """
import os, sys, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
def work():
    for _ in range(3_000_000): pass
def measured():
    began = time.monotonic() - time.thread_time()
    for _ in range(5): work()
    waited.append(time.monotonic() - time.thread_time() - began)
while True:
    if sys.argv[1] == "beside":
        waited = []
        thread = threading.Thread(target=measured); thread.start()
        while thread.is_alive(): time.sleep(0.005)
        print(waited[0], flush=True)
        continue
    if sys.argv[1] == "threads":
        thread = threading.Thread(target=work); thread.start(); thread.join()
    else:
        work()
    print(flush=True)
"""


@contextmanager
def looping(kind: str = "one") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _LOOP, kind], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def watched(waiting: Waiting, pid: int) -> Iterator[None]:
    """Look ten times a second from another thread, as the samples of a run do."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            waiting.look([pid])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def parts(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


@pytest.mark.parametrize("kind", ["one", "threads"])
def test_a_process_beside_three_others_on_its_processor_waits_for_most_of_the_time(
    kind: str,
) -> None:
    waiting = Waiting()
    with (
        looping() as first,
        looping() as second,
        looping() as third,
        looping(kind) as own,
    ):
        for process in (first, second, third, own):
            parts(process, 1)
        before = waiting.look([own.pid])
        began = time.monotonic()
        parts(own, 5)
        after = waiting.look([own.pid])
        seconds = time.monotonic() - began
    if before is None or after is None:
        pytest.skip("this kernel does not count how long threads wait for a processor")
    # A quarter of the processor is its share. Threads that ended between the looks
    # count, too.
    assert after - before > 0.3 * seconds


def test_threads_that_ended_waited_for_what_looks_between_saw() -> None:
    """The thread that stays sleeps and wakes, and waits five times as long for each
    second as the one that ends."""
    waiting = Waiting()
    with (
        looping() as first,
        looping() as second,
        looping() as third,
        looping("beside") as own,
    ):
        for process in (first, second, third, own):
            parts(process, 1)
        before = waiting.look([own.pid])
        with watched(waiting, own.pid):
            wanted_s = sum(map(float, parts(own, 2)))
        after = waiting.look([own.pid])
    if before is None or after is None:
        pytest.skip("this kernel does not count how long threads wait for a processor")
    # What the thread that stays waited itself is on top.
    assert 0.7 < (after - before) / wanted_s < 2.5


def test_a_process_that_sleeps_waits_for_nothing_and_one_that_ended_keeps_what_it_waited() -> (
    None
):
    waiting = Waiting()
    with looping() as process:
        parts(process, 1)
        process.send_signal(signal.SIGSTOP)
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        before = waiting.look([process.pid])
        time.sleep(0.2)
        assert waiting.look([process.pid]) == before
    assert waiting.look([process.pid]) == before
