"""The row ring: pieces never overlap, wait for room, and become free in order."""

from __future__ import annotations

import threading
from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.engine.pipeline import Stopped, TableRing


@given(
    rows=st.integers(1, 20),
    sizes=st.lists(st.integers(1, 20), max_size=60),
    data=st.data(),
)
@settings(max_examples=100, deadline=None)
def test_pieces_that_are_held_never_overlap(
    rows: int, sizes: list[int], data: st.DataObject
) -> None:
    table = torch.full((rows, 3), -1)
    ring = TableRing(table)
    held: deque[tuple[int, torch.Tensor]] = deque()
    for number, size in enumerate(min(size, rows) for size in sizes):
        while held and (ring._place(size) is None or data.draw(st.booleans())):
            stamp, piece = held.popleft()
            assert bool((piece == stamp).all())  # no later piece wrote into it
            ring.give_back_piece(piece)
        piece = ring.take_piece(size)
        piece[:] = number
        held.append((number, piece))


def test_a_piece_given_back_early_waits_for_those_before_it() -> None:
    ring = TableRing(torch.zeros(4, 1))
    first = ring.take_piece(2)
    second = ring.take_piece(2)
    ring.give_back_piece(second)
    assert ring._place(2) is None
    ring.give_back_piece(first)
    assert len(ring.take_piece(4)) == 4


def test_a_waiter_is_woken_by_free_room_and_by_the_end() -> None:
    ring = TableRing(torch.zeros(4, 1))
    piece = ring.take_piece(3)
    got: list[object] = []

    def work() -> None:
        got.append(ring.take_piece(4).shape[0])
        try:
            ring.take_piece(1)
        except Stopped:
            got.append("stopped")

    thread = threading.Thread(target=work)
    thread.start()
    ring.give_back_piece(piece)
    while not got:
        pass
    ring.stop()
    thread.join(5)
    assert got == [4, "stopped"]
    with pytest.raises(ValueError, match="5 rows of a ring of 4"):
        ring.take_piece(5)


def test_an_empty_piece_takes_no_room() -> None:
    ring = TableRing(torch.zeros(4, 1))
    for size in (2, 0, 2):
        ring.give_back_piece(ring.take_piece(size))
    assert len(ring.take_piece(4)) == 4
