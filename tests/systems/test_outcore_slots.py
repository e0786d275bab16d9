"""The slot plan: no other choice of kept rows reads fewer rows, and every row is in its
planned slot."""

from __future__ import annotations

import numpy as np
import pytest

from systems import _native

pytestmark = pytest.mark.timeout(60)
Batches = list[np.ndarray]
Recent = list[tuple[np.ndarray, np.ndarray]]


def trace(seed: int, batches: int, nodes: int, size: int) -> Batches:
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, nodes + 1)
    return [
        rng.choice(
            nodes,
            size=int(rng.integers(1, size)),
            replace=False,
            p=weights / weights.sum(),
        )
        for _ in range(batches)
    ]


def plan(
    planner: _native.SlotPlanner, batches: Batches
) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
    nodes = np.concatenate(batches).astype(np.uint32)
    offsets = np.concatenate([[0], np.cumsum([len(b) for b in batches])]).astype(
        np.int64
    )
    # All nodes are passed as seed nodes, which need not be in ascending order.
    planner.plan(nodes, offsets, np.array([len(b) for b in batches], dtype=np.int64))
    return [planner.slots(i) for i in range(len(batches))], [
        planner.misses(i) for i in range(len(batches))
    ]


def replay(
    table: np.ndarray,
    batches: Batches,
    planned: tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]],
    window: int,
    recent: Recent,
) -> None:
    """Execute the plan, and check that rows of mini-batches not yet released are left
    alone."""
    for nodes, slots, (ids, to) in zip(batches, *planned, strict=True):
        in_use = (
            [used for _, used in recent[len(recent) - window + 1 :]]
            if window > 1
            else []
        )
        assert len(set(to.tolist())) == len(to)
        assert not set(to.tolist()) & set(
            np.concatenate([np.empty(0, int), *in_use]).tolist()
        )
        table[to] = ids
        assert np.array_equal(table[slots], nodes)
        recent.append((nodes, slots))


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("slots", [60, 90, 400])
@pytest.mark.parametrize("keep", [True, False])
def test_rows_are_in_their_slots_and_stay_until_released(
    window: int, slots: int, keep: bool
) -> None:
    planner = _native.SlotPlanner(slots, window, keep)
    table = np.full(slots, -1)
    recent: Recent = []
    for epoch in range(4):
        batches = trace(epoch, 12, 300, 20)
        replay(table, batches, plan(planner, batches), window, recent)


def fewest_misses(batches: Batches, slots: int) -> int:
    """Count the misses of Belady with bypass: of rows in memory and rows just used keep
    those used next."""
    following: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for t in reversed(range(len(batches))):
        for node in batches[t].tolist():
            following[t, node] = last.get(node, 1 << 30)
            last[node] = t
    held: dict[int, int] = {}
    misses = 0
    for t, nodes in enumerate(batches):
        misses += sum(node not in held for node in nodes.tolist())
        held |= {node: following[t, node] for node in nodes.tolist()}
        # The next mini-batch's rows need room too; only rows that fit beside them are
        # kept.
        room = slots - (len(batches[t + 1]) if t + 1 < len(batches) else 0)
        wanted = batches[t + 1].tolist() if t + 1 < len(batches) else []
        kept = {node: held[node] for node in wanted if node in held}
        others = sorted(
            (use, node)
            for node, use in held.items()
            if node not in kept and use < 1 << 30
        )
        held = kept | {node: use for use, node in others[:room]}
    return misses


@pytest.mark.parametrize("slots", [20, 35, 60, 120])
@pytest.mark.parametrize("seed", range(4))
def test_no_choice_reads_fewer_rows(slots: int, seed: int) -> None:
    batches = trace(seed, 25, 200, 20)
    planner = _native.SlotPlanner(slots, 1, True)
    _, misses = plan(planner, batches)
    assert sum(len(ids) for ids, _ in misses) == fewest_misses(batches, slots)
    assert planner.hits == sum(map(len, batches)) - fewest_misses(batches, slots)


def test_the_next_call_finds_rows_of_the_last_one() -> None:
    planner = _native.SlotPlanner(150, 2, True)
    for epoch in range(2):
        plan(planner, trace(epoch, 10, 200, 20))
    assert planner.carried > 0
    alone = _native.SlotPlanner(150, 2, True)
    plan(alone, trace(1, 10, 200, 20))
    assert planner.hits > alone.hits
    assert alone.carried == 0


def test_rows_that_do_not_fit_are_reported_and_change_nothing() -> None:
    planner = _native.SlotPlanner(10, 2, True)
    with pytest.raises(ValueError, match="there are 10 slots"):
        plan(planner, [np.arange(8), np.arange(8, 16)])
    slots, _ = plan(planner, [np.arange(8), np.arange(2, 10)])
    assert all(len(s) == 8 for s in slots)


PINNED = np.array([7, 0, 250], dtype=np.uint32)


def plan_directly(
    planner: _native.SlotPlanner, batches: Batches, table: np.ndarray
) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
    """Plan with rows for unused slots beforehand, and put these into the table."""
    nodes = np.concatenate(batches).astype(np.uint32)
    offsets = np.cumsum([0, *map(len, batches)], dtype=np.int64)
    counts = np.array([len(batch) for batch in batches], dtype=np.int64)
    planner.plan(nodes, offsets, counts, direct=True)
    ids, to = planner.direct()
    assert (table[to] == -1).all(), "only unused slots are filled beforehand"
    assert len(set(to.tolist())) == len(to)
    assert (np.diff(ids) > 0).all()
    table[to] = ids
    return [planner.slots(i) for i in range(len(batches))], [
        planner.misses(i) for i in range(len(batches))
    ]


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("slots", [64, 100, 400])
@pytest.mark.parametrize("pinned", [PINNED[:0], PINNED])
def test_rows_for_unused_slots_are_read_beforehand(
    window: int, slots: int, pinned: np.ndarray
) -> None:
    planner = _native.SlotPlanner(slots, window, True)
    if len(pinned):
        planner.pin(pinned)
    table = np.full(slots, -1)
    recent: Recent = []
    for epoch in range(4):
        batches = trace(epoch, 12, 300, 20)
        planned = plan_directly(planner, batches, table)
        replay(table, batches, planned, window, recent)
        assert np.array_equal(table[: len(pinned)], pinned)
        missed = int(planner.miss_counts().sum())
        uses = sum(map(len, batches))
        assert planner.hits + missed + planner.direct_uses(slots) == uses
        if epoch == 0:
            used = np.unique(np.concatenate(batches))
            ids, _ = planner.direct()
            assert len(ids) >= min(slots, len(used))
            assert planner.direct_uses(slots) == len(np.intersect1d(ids, used))
            assert planner.direct_uses(0) == 0


def test_pinned_rows_are_read_once_and_stay() -> None:
    planner = _native.SlotPlanner(90, 2, True)
    planner.pin(PINNED)
    table = np.full(90, -1)
    table[:3] = PINNED
    recent: Recent = []
    for epoch in range(5):
        batches = trace(epoch, 12, 300, 20)
        planned = plan(planner, batches)
        replay(table, batches, planned, 2, recent)
        read = np.concatenate([ids for ids, _ in planned[1]])
        assert not set(read.tolist()) & set(PINNED.tolist())
        assert planner.direct()[0].tolist() == ([0, 7, 250] if epoch == 0 else [])


def test_pins_that_no_table_can_hold_are_refused() -> None:
    planner = _native.SlotPlanner(4, 1, True)
    with pytest.raises(ValueError, match="5 rows to pin, there are 4 slots"):
        planner.pin(np.arange(5, dtype=np.uint32))
    with pytest.raises(ValueError, match="twice"):
        planner.pin(np.array([1, 1], dtype=np.uint32))
    planner.pin(np.arange(3, dtype=np.uint32))
    with pytest.raises(ValueError, match="use 2 rows at a time, there are 1 slots"):
        plan(planner, [np.array([8, 9])])
    with pytest.raises(ValueError, match="pinned once"):
        planner.pin(np.arange(1, dtype=np.uint32))


def test_rows_are_split_between_a_device_and_the_host_however_few_are_staged() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 255, (50, 24), dtype=np.uint8)
    to = rng.permutation(60)[:50].astype(np.int32)
    whole = np.zeros((60, 24), np.uint8)
    host = np.zeros((40, 24), np.uint8)
    staging = np.zeros((3, 24), np.uint8)
    done = 0
    while done < 50:
        done, staged = _native.split_rows(rows, to, done, 20, host, staging)
        assert len(staged) <= 3
        assert staged.dtype == np.int64
        assert (staged < 20).all()
        whole[staged] = staging[: len(staged)]
    whole[20:] = host
    assert np.array_equal(whole[to], rows)
    assert not whole[np.setdiff1d(np.arange(60), to)].any()
    for bad in (-1, 60):
        with pytest.raises(IndexError, match=f"row {bad}"):
            _native.split_rows(rows, np.array([bad], np.int32), 0, 20, host, staging)
    with pytest.raises(IndexError, match="more places"):
        _native.split_rows(rows[:1], to, 0, 20, host, staging)
