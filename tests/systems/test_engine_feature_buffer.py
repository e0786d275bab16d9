"""GNNDrive's feature buffer equals a simple model, never gives a stale row and never
hangs."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.gnndrive.buffers import (
    BufferClosed,
    FeatureBuffer,
    FeatureBufferTimeout,
    LoaderFailed,
)
from workloads.errors import BudgetError


class Model:
    """Feature buffer for one extractor at a time: slots, references, and an LRU of
    released rows."""

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.standby: OrderedDict[int, None] = OrderedDict()
        self.references: dict[int, int] = {}
        self.hits = self.misses = self.evictions = 0

    def acquire(self, ids: list[int]) -> list[int]:
        """Take references to the rows of `ids`; return the positions to load."""
        for node in ids:
            if node in self.references or node in self.standby:
                self.standby.pop(node, None)
                self.references[node] = self.references.get(node, 0) + 1
                self.hits += 1
        load = []
        present = {node for node in ids if node in self.references}
        for position, node in enumerate(ids):
            if node in present:
                continue
            if node in self.references:
                self.references[node] += 1
                self.hits += 1
                continue
            if self.free:
                self.free -= 1
            else:
                self.standby.popitem(last=False)
                self.evictions += 1
            self.references[node] = 1
            self.misses += 1
            load.append(position)
        return load

    def release(self, ids: list[int]) -> None:
        for node in ids:
            self.references[node] -= 1
            if self.references[node] == 0:
                del self.references[node]
                self.standby[node] = None


@settings(max_examples=200, deadline=None)
@given(
    slots=st.integers(1, 12),
    batches=st.lists(st.lists(st.integers(0, 20), max_size=12), max_size=30),
    in_flight=st.integers(1, 3),
)
def test_buffer_equals_the_model(
    slots: int, batches: list[list[int]], in_flight: int
) -> None:
    buffer = FeatureBuffer(slots)
    model = Model(slots)
    table = np.full(slots, -1)
    held: list[list[int]] = []
    for batch in batches:
        while held and (
            len(held) >= in_flight
            or len({n for b in [*held, batch] for n in b}) > slots
        ):
            done = held.pop(0)
            buffer.release(np.array(done, dtype=np.int64))
            model.release(done)
        ids = np.array(batch, dtype=np.int64)
        if len(set(batch)) > slots:
            with pytest.raises(BudgetError):
                buffer.acquire(ids)
            continue
        got = buffer.acquire(ids, timeout_s=5)
        assert got.load.tolist() == model.acquire(batch)
        assert len(got.waiting) == 0
        table[got.load_slots] = ids[got.load]
        buffer.publish(got.load_slots)
        buffer.wait(got, timeout_s=5)
        assert table[got.alias].tolist() == batch
        counts = buffer.counts
        found = (
            counts["hits"] + counts["shared"],
            counts["misses"],
            counts["evictions"],
        )
        assert found == (model.hits, model.misses, model.evictions)
        held.append(batch)
    assert buffer.counts["unused"] == slots - len(model.references)


def test_the_least_recently_released_row_goes_first() -> None:
    buffer = FeatureBuffer(3)
    for node in (1, 2, 3):
        buffer.publish(buffer.acquire(np.array([node])).load_slots)
    for node in (2, 1, 3):
        buffer.release(np.array([node]))
    buffer.acquire(np.array([2]))  # used again
    buffer.release(np.array([2]))
    buffer.publish(buffer.acquire(np.array([9])).load_slots)  # takes the place of 1
    assert len(buffer.acquire(np.array([2, 3])).load) == 0
    assert buffer.counts["evictions"] == 1


def test_memory_follows_slots_not_nodes() -> None:
    buffer = FeatureBuffer(1000)
    ids = np.arange(1000) * 10**15 + 7  # of a graph of 10^18 nodes
    buffer.publish(buffer.acquire(ids).load_slots)
    assert FeatureBuffer.plan_bytes(1000) < 64_000


def test_a_batch_larger_than_the_buffer_raises_at_once() -> None:
    buffer = FeatureBuffer(4)
    with pytest.raises(BudgetError, match=r"4 slots.*5 nodes"):
        buffer.acquire(np.arange(5))
    assert (
        len(buffer.acquire(np.array([1, 1, 2, 3, 4, 4])).load) == 4
    )  # four unique nodes do fit


def test_waiting_for_slots_ends_with_a_release_or_a_timeout() -> None:
    buffer = FeatureBuffer(4)
    first = buffer.acquire(np.arange(4))
    buffer.publish(first.load_slots)
    with pytest.raises(FeatureBufferTimeout):
        buffer.acquire(np.array([9]), timeout_s=0.05)
    later = threading.Timer(0.1, lambda: buffer.release(np.arange(4)))
    later.start()
    assert len(buffer.acquire(np.array([9]), timeout_s=10).load) == 1
    later.join()


def test_a_waiter_sees_the_row_only_once_it_is_published() -> None:
    buffer = FeatureBuffer(4)
    table = np.zeros(4)
    loader = buffer.acquire(np.array([5]))
    waiter = buffer.acquire(np.array([5]))
    assert len(waiter.load) == 0
    assert waiter.waiting.tolist() == waiter.alias.tolist()
    with pytest.raises(FeatureBufferTimeout):
        buffer.wait(waiter, timeout_s=0.05)

    def load() -> None:
        time.sleep(0.1)
        table[loader.load_slots] = 5
        buffer.publish(loader.load_slots)

    thread = threading.Thread(target=load)
    thread.start()
    buffer.wait(waiter, timeout_s=10)
    assert table[waiter.alias].tolist() == [5]
    thread.join()


def test_a_failed_loader_wakes_its_waiters_with_its_error() -> None:
    buffer = FeatureBuffer(4)
    loader = buffer.acquire(np.array([5, 6]))
    waiter = buffer.acquire(np.array([6, 7]))
    buffer.publish(loader.load_slots[:1])
    reported: list[str] = []

    def wait() -> None:
        try:
            buffer.wait(waiter, timeout_s=10)
        except LoaderFailed as error:
            reported.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    buffer.fail(loader, OSError("disk is gone"))
    thread.join()
    assert reported
    assert "disk is gone" in reported[0]
    buffer.fail(waiter, "gave up too")
    buffer.release(np.array([5, 6]))
    buffer.release(np.array([6, 7]))
    assert buffer.counts["unused"] == 4
    # The published row stays, the rows that failed are loaded anew.
    again = buffer.acquire(np.array([5, 6, 7]))
    assert again.load.tolist() == [1, 2]


def test_close_wakes_everyone() -> None:
    buffer = FeatureBuffer(2)
    buffer.acquire(np.array([1, 2]))
    waiter = buffer.acquire(np.array([1]))
    ended: list[str] = []

    def expect(call: object) -> None:
        try:
            call()  # type: ignore[operator]
        except BufferClosed:
            ended.append("closed")

    threads = [
        threading.Thread(target=expect, args=(lambda: buffer.acquire(np.array([3])),)),
        threading.Thread(target=expect, args=(lambda: buffer.acquire(np.array([4])),)),
        threading.Thread(target=expect, args=(lambda: buffer.wait(waiter),)),
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    buffer.close()
    for thread in threads:
        thread.join(timeout=10)
    assert ended == ["closed"] * 3


def test_misuse_is_a_bug_that_raises() -> None:
    buffer = FeatureBuffer(2)
    got = buffer.acquire(np.array([1]))
    buffer.publish(got.load_slots)
    with pytest.raises(RuntimeError):
        buffer.publish(got.load_slots)
    buffer.release_slots(got.alias)
    with pytest.raises(RuntimeError):
        buffer.release_slots(got.alias)
    with pytest.raises(RuntimeError):
        buffer.release(np.array([77]))
    with pytest.raises(IndexError):
        buffer.publish(np.array([2]))


@pytest.mark.parametrize("extractors", [2, 4])
def test_no_stale_row_under_delayed_completions(extractors: int) -> None:
    """Loads end late and in any order; each batch still gathers exactly its own rows,
    and no thread starves."""
    nodes = 300
    largest = 40
    rounds = 60
    slots = extractors * largest
    buffer = FeatureBuffer(slots)
    table = np.full((slots, 2), -1)
    wrong: list[object] = []
    inside = threading.Semaphore(extractors)

    def extract(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(rounds):
                ids = np.array(rng.sample(range(nodes), rng.randint(1, largest)))
                with inside:
                    got = buffer.acquire(ids, timeout_s=20)
                    rest = list(got.load)
                    rng.shuffle(rest)
                    while rest:
                        part = np.array(
                            [
                                rest.pop()
                                for _ in range(min(len(rest), rng.randint(1, 10)))
                            ]
                        )
                        table[got.alias[part]] = -1  # a premature read would see this
                        time.sleep(rng.random() * 0.002)
                        table[got.alias[part], 0] = ids[part]
                        table[got.alias[part], 1] = ids[part]
                        buffer.publish(got.alias[part])
                    buffer.wait(got, timeout_s=20)
                    if not (table[got.alias] == ids[:, None]).all():
                        wrong.append((seed, ids))
                    time.sleep(rng.random() * 0.001)  # training
                    if not (table[got.alias] == ids[:, None]).all():
                        wrong.append(("reused while held", seed))
                    buffer.release(ids)
        except BaseException as error:
            wrong.append(error)

    threads = [
        threading.Thread(target=extract, args=(seed,)) for seed in range(2 * extractors)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert wrong == []
    assert buffer.counts["unused"] == slots
    assert buffer.counts["hits"] > 0
    assert buffer.counts["evictions"] > 0
