"""The ring of rows beside a device cache: held runs never overlap, and no thread waits
for ever."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.engine.pipeline import RowRing, Stopped


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=60),
)
def test_held_runs_never_overlap(capacity: int, wanted: list[tuple[int, int]]) -> None:
    ring = RowRing(capacity)
    held = []
    for count, behind in wanted:
        count = min(count, capacity)
        # Runs are given back in order, as mini-batches are trained, or up to three
        # places out of order.
        while held and (ring._place(count) is None or len(held) > 5):
            ring.give_back(*held.pop(min(behind, len(held) - 1)))
        start = ring.take(count)
        assert start in range(capacity - count + 1)
        assert all(
            start + count <= other or other + length <= start
            for other, length in held
            if length and count
        )
        held.append((start, count))


def test_a_waiter_gets_rows_as_soon_as_they_are_given_back() -> None:
    ring = RowRing(10)
    got = []
    first = ring.take(7)
    thread = threading.Thread(target=lambda: got.append(ring.take(10)))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    ring.give_back(first, 7)
    thread.join(5)
    assert got == [0]


def test_stopping_a_ring_wakes_its_waiters() -> None:
    ring = RowRing(4)
    seen = []
    ring.take(4)

    def wait() -> None:
        with pytest.raises(Stopped):
            ring.take(1)
        seen.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    ring.stop()
    thread.join(5)
    assert seen == [True]


def test_more_rows_than_there_are_is_an_error_not_a_wait() -> None:
    with pytest.raises(ValueError, match="5 rows of a ring of 4"):
        RowRing(4).take(5)
