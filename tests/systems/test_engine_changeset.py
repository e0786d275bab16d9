"""The changeset planner: Belady's misses, correct slots, memory and errors as
documented."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems import _native
from systems.engine.cache.changeset import NO_NODE, Changeset, ChangesetPlan, copy_rows
from tests.systems.policy_models import belady_misses
from workloads.errors import DataIOError

Ids = npt.NDArray[np.int64]


def plan_of(
    batches: list[Ids], num_nodes: int, capacity: int, **options: object
) -> tuple[list[int], list[Changeset]]:
    """Plan a superbatch; return the initial cache by slot, and all changesets."""
    sizes = np.array([len(batch) for batch in batches], dtype=np.int64)
    plan = ChangesetPlan(
        lambda i: batches[i],
        sizes,
        num_nodes=num_nodes,
        capacity=capacity,
        **options,  # type: ignore[arg-type]
    )
    plan.look_ahead()
    read = [
        pair
        for nodes, slots in plan.initial(3)
        for pair in zip(nodes.tolist(), slots.tolist(), strict=True)
    ]
    assert [slot for _, slot in read] == list(range(plan.filled))
    initial = [node for node, _ in read]
    return initial, list(plan.changesets())


def belady(batches: list[Ids], capacity: int, initial: set[int]) -> list[int]:
    """Count each batch's misses by plain Belady: of cached and new nodes those used
    again soonest stay."""
    cache = initial
    misses = []
    for i, batch in enumerate(batches):
        misses.append(sum(node not in cache for node in batch.tolist()))

        def next_use(node: int, after: int = i) -> int:
            later = (j for j in range(after + 1, len(batches)) if node in batches[j])
            return next(later, len(batches))

        used_again = [
            node
            for node in cache | set(batch.tolist())
            if next_use(node) < len(batches)
        ]
        cache = set(sorted(used_again, key=next_use)[:capacity])
    return misses


def execute(
    initial: list[int], batches: list[Ids], changesets: list[Changeset], capacity: int
) -> list[int]:
    """Apply the changesets to a cache of nodes by slot; return the misses of each
    batch."""
    return execute_on(dict(enumerate(initial)), batches, changesets, capacity)


def execute_on(
    cache: dict[int, int],
    batches: list[Ids],
    changesets: list[Changeset],
    capacity: int,
) -> list[int]:
    """Apply the changesets to `cache`, node by slot, in place; return the misses of
    each batch."""
    misses = []
    for batch, change in zip(batches, changesets, strict=True):
        missed = 0
        for node, slot in zip(batch.tolist(), change.slots.tolist(), strict=True):
            if slot >= 0:
                assert cache[slot] == node  # a hit finds its own row
            else:
                missed += 1
        assert change.hits == len(batch) - missed
        assert len(set(change.in_slots.tolist())) == len(change.in_slots)
        for position, slot in zip(
            change.in_positions.tolist(), change.in_slots.tolist(), strict=True
        ):
            assert change.slots[position] == -1
            assert 0 <= slot < capacity
            cache[slot] = int(batch[position])
        misses.append(missed)
    return misses


@st.composite
def traces(draw: st.DrawFn) -> tuple[list[Ids], int, int]:
    num_nodes = draw(st.integers(1, 25))
    batches = draw(
        st.lists(
            st.lists(st.integers(0, num_nodes - 1), unique=True, max_size=12),
            max_size=14,
        )
    )
    return (
        [np.array(batch, dtype=np.int64) for batch in batches],
        num_nodes,
        draw(st.integers(0, 14)),
    )


@given(traces())
@settings(max_examples=250, deadline=None)
def test_misses_are_those_of_belady(trace: tuple[list[Ids], int, int]) -> None:
    batches, num_nodes, capacity = trace
    initial, changesets = plan_of(batches, num_nodes, capacity)
    firsts = list(dict.fromkeys(node for batch in batches for node in batch.tolist()))
    assert initial == sorted(firsts[:capacity])  # the rows that appear first, by node
    assert execute(initial, batches, changesets, capacity) == belady(
        batches, capacity, set(initial)
    )


@given(traces())
@settings(max_examples=100, deadline=None)
def test_misses_from_an_empty_cache_are_those_of_the_simple_model(
    trace: tuple[list[Ids], int, int],
) -> None:
    batches, num_nodes, capacity = trace
    initial, changesets = plan_of(
        batches, num_nodes, capacity, prefill=False, threads=2
    )
    assert initial == []
    misses = execute(initial, batches, changesets, capacity)
    assert misses == belady_misses(batches, capacity)
    # A cache filled beforehand has fewer misses by exactly the number of rows filled
    # in.
    filled, others = plan_of(batches, num_nodes, capacity)
    assert sum(execute(filled, batches, others, capacity)) + len(filled) == sum(misses)


@given(traces(), traces(), st.integers(0, 14))
@settings(max_examples=200, deadline=None)
def test_resident_rows_are_not_read_again_and_change_no_miss(
    first: tuple[list[Ids], int, int], second: tuple[list[Ids], int, int], kept: int
) -> None:
    """Of two plans in sequence the second begins with the first `kept` slots as the
    first left them."""
    num_nodes = max(first[1], second[1])
    capacity = first[2]
    there = np.empty(0, dtype=np.uint32)
    cache: dict[int, int] = {}
    for batches, _, _ in (first, second):
        sizes = np.array([len(batch) for batch in batches], dtype=np.int64)
        plan = ChangesetPlan(
            lambda i, batches=batches: batches[i],
            sizes,
            num_nodes=num_nodes,
            capacity=capacity,
            resident=there,
        )  # type: ignore[misc]
        plan.look_ahead()
        read = [
            pair
            for nodes, slots in plan.initial(3)
            for pair in zip(nodes.tolist(), slots.tolist(), strict=True)
        ]
        assert read == sorted(read)
        wanted = set(
            list(dict.fromkeys(n for b in batches for n in b.tolist()))[:capacity]
        )
        assert {node for node, _ in read} == wanted - set(there.tolist())
        cache |= {slot: node for node, slot in read}
        changes = list(plan.changesets())
        assert execute_on(cache, batches, changes, capacity) == belady(
            batches, capacity, wanted
        )
        there = plan.contents(kept, 3)
        for slot, node in enumerate(there.tolist()):
            assert node == NO_NODE or cache[slot] == node
        cache = {slot: cache[slot] for slot in range(len(there)) if slot in cache}


def zipf(batches: int, size: int, nodes: int, seed: int = 0) -> list[Ids]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(batches):
        some = np.unique((nodes * rng.random(2 * size) ** 4).astype(np.int64))
        found.append(rng.permutation(some)[:size])
    return found


def test_threads_and_large_batches_change_nothing() -> None:
    """Plans of batches of several chunks are equal on one thread and on four."""
    batches = zipf(12, 60_000, 400_000)
    one = plan_of(batches, 400_000, 50_000, threads=1)
    four = plan_of(batches, 400_000, 50_000, threads=4)
    assert one[0] == four[0]
    for mine, other in zip(one[1], four[1], strict=True):
        assert np.array_equal(mine.slots, other.slots)
        assert np.array_equal(mine.in_slots, other.in_slots)
    misses = [len(b) - c.hits for b, c in zip(batches, one[1], strict=True)]
    assert sum(misses) + len(one[0]) == sum(belady_misses(batches, 50_000))


@pytest.mark.slow("systems/native")
def test_more_than_65534_batches_take_the_wide_path() -> None:
    rng = np.random.default_rng(3)
    batches = list(rng.integers(0, 50, (66_000, 1)))
    initial, changesets = plan_of(batches, 50, 10)
    assert sum(1 - c.hits for c in changesets) + len(initial) == sum(
        belady_misses(batches, 10)
    )


def test_a_row_that_is_not_used_again_never_enters() -> None:
    batches = [np.array([0, 1]), np.array([2]), np.array([0, 1])]
    initial, changesets = plan_of(batches, 3, 2)
    assert initial == [0, 1]
    assert changesets[1].in_slots.tolist() == []  # bypassed
    assert [len(b) - c.hits for b, c in zip(batches, changesets, strict=True)] == [
        0,
        1,
        0,
    ]


def test_memory_is_as_planned() -> None:
    batches = zipf(50, 2000, 30_000)
    sizes = np.array([len(batch) for batch in batches])
    plan = ChangesetPlan(lambda i: batches[i], sizes, num_nodes=30_000, capacity=5000)
    plan.look_ahead()
    for _ in plan.changesets():
        pass
    planned = ChangesetPlan.plan_bytes(
        num_nodes=30_000, capacity=5000, batches=50, max_nodes=int(sizes.max())
    )
    assert plan.memory_bytes <= planned
    assert plan.memory_bytes <= 8 * sizes.sum() + 12 * 30_000


def test_an_error_while_reading_is_raised_and_no_thread_stays() -> None:
    batches = zipf(20, 100, 1000)

    def nodes(i: int) -> Ids:
        if i == 7:
            raise DataIOError("batch 7 is damaged")
        return batches[i]

    plan = ChangesetPlan(
        nodes, np.array([len(b) for b in batches]), num_nodes=1000, capacity=100
    )
    with pytest.raises(DataIOError, match="batch 7"):
        plan.look_ahead()
    assert not [t for t in threading.enumerate() if t.name.startswith("changeset-read")]
    plan = ChangesetPlan(
        lambda i: batches[i],
        np.array([len(b) for b in batches]),
        num_nodes=1000,
        capacity=100,
    )
    with pytest.raises(InterruptedError):
        plan.look_ahead(stop=lambda: True)


def test_wrong_batches_are_refused() -> None:
    def planner() -> _native.ChangesetPlanner:
        return _native.ChangesetPlanner(10, 4, np.array([2, 2]), 1)

    with pytest.raises(ValueError, match="out of turn"):
        planner().look_back(0, np.array([1, 2]))
    with pytest.raises(ValueError, match="another size"):
        planner().look_back(1, np.array([1]))
    with pytest.raises(IndexError, match="not in the graph"):
        planner().look_back(1, np.array([1, 10]))
    with pytest.raises(IndexError, match="not in the graph"):
        planner().look_back(1, np.array([1, -1]))
    with pytest.raises(ValueError, match="twice"):
        planner().look_back(1, np.array([3, 3]))
    with pytest.raises(ValueError, match="out of turn"):
        planner().advance(0, np.array([1, 2]))


@pytest.mark.parametrize("other", [[2, 1], [1, 1], [3, 4], [1, 10], [1, -1]])
def test_later_passes_take_the_nodes_that_were_looked_back_at_and_no_others(
    other: list[int],
) -> None:
    """With other nodes the links between uses would be wrong: slots freed twice,
    accesses outside the arrays."""
    planner = _native.ChangesetPlanner(10, 4, np.array([2, 2]), 1)
    batches = np.array([[1, 2], [2, 3]])
    for number in (1, 0):
        planner.look_back(number, batches[number])
    with pytest.raises(ValueError, match="other nodes"):
        planner.fill(0, np.array(other))
    planner.fill(0, batches[0])
    planner.begin()
    with pytest.raises(ValueError, match="other nodes"):
        planner.advance(0, np.array(other))
    assert [planner.advance(number, batches[number])[3] for number in (0, 1)] == [
        2,
        1,
    ], "a refusal changes nothing"


@pytest.mark.parametrize("row_bytes", [1, 7, 512, 5000])
def test_rows_are_copied_between_tables(row_bytes: int) -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(0, 256, (300, row_bytes)).astype(np.uint8)
    target = np.zeros((400, row_bytes), dtype=np.uint8)
    rows = rng.integers(0, 300, 350).astype(np.int32)
    places = rng.permutation(400)[:350].astype(np.int32)
    expected = target.copy()
    expected[places] = source[rows]
    copy_rows(source, rows, target, places, 3)
    assert np.array_equal(target, expected)
    for wrong in (-1, 300):
        with pytest.raises(IndexError):
            copy_rows(
                source,
                np.array([wrong], dtype=np.int32),
                target,
                np.array([0], dtype=np.int32),
                1,
            )
