"""A feature buffer in shared memory: processes use each other's rows, and the death of
one hangs no other."""

from __future__ import annotations

import mmap
import os
import signal
import time

import numpy as np
import pytest

from systems.gnndrive.buffers import BufferClosed, FeatureBuffer


def _shared(nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(
        mmap.mmap(-1, nbytes), dtype=np.uint8
    )  # anonymous and shared: a child has the same pages


def _child(work: object) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    return pid


def test_rows_that_one_process_read_are_hits_of_the_other() -> None:
    memory = _shared(FeatureBuffer.plan_bytes(8))
    buffer = FeatureBuffer(8, memory=memory)

    def load() -> None:
        other = FeatureBuffer(8, memory=memory, create=False)
        got = other.acquire(np.array([4, 5, 6]))
        assert len(got.load) == 3
        other.publish(got.load_slots)
        other.release_slots(got.alias)

    assert os.waitstatus_to_exitcode(os.waitpid(_child(load), 0)[1]) == 0
    got = buffer.acquire(np.array([5, 6, 7]))
    assert (buffer.counts["hits"] + buffer.counts["shared"], len(got.load)) == (2, 1)


def test_processes_gather_right_rows_under_pressure() -> None:
    """Two processes load rows late and in turn; each gathers exactly the rows it asked
    for."""
    slots = 40
    nodes = 100
    memory = _shared(FeatureBuffer.plan_bytes(slots))
    cells = _shared(8 * slots)
    table = cells.view(np.int64)
    buffer = FeatureBuffer(slots, memory=memory)

    def work(seed: int) -> None:
        own = FeatureBuffer(slots, memory=memory, create=False)
        random = np.random.default_rng(seed)
        for _ in range(300):
            ids = random.choice(nodes, size=20, replace=False)
            got = own.acquire(ids, timeout_s=30)
            table[got.load_slots] = -1
            if random.random() < 0.2:
                time.sleep(1e-4)
            table[got.load_slots] = ids[got.load]
            own.publish(got.load_slots)
            own.wait(got, timeout_s=30)
            assert (table[got.alias] == ids).all()
            own.release_slots(got.alias)

    children = [_child(lambda seed=seed: work(seed)) for seed in range(2)]
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [
        0,
        0,
    ]
    assert buffer.counts["unused"] == slots


def test_a_process_that_dies_while_it_waits_leaves_the_others_able_to_go_on() -> None:
    memory = _shared(FeatureBuffer.plan_bytes(2))
    buffer = FeatureBuffer(2, memory=memory)
    held = buffer.acquire(np.array([0, 1]))
    victim = _child(
        lambda: FeatureBuffer(2, memory=memory, create=False).acquire(np.array([2]))
    )
    time.sleep(0.3)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    buffer.publish(
        held.load_slots
    )  # wakes waiters; a condition variable that counts them would wait for the dead one
    buffer.release_slots(held.alias)
    buffer.close()
    with pytest.raises(BufferClosed):
        buffer.acquire(np.array([3]), timeout_s=5)


def test_memory_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        FeatureBuffer(100, memory=_shared(FeatureBuffer.plan_bytes(8)))
    memory = _shared(FeatureBuffer.plan_bytes(100))
    FeatureBuffer(8, memory=memory)
    with pytest.raises(ValueError, match="another number of slots"):
        FeatureBuffer(100, memory=memory, create=False)
