"""The live demand cache: hit for hit its policy's model, and the rows that it returns
are those asked for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems import _native
from systems.engine.cache.policies import RowTrace, simulate
from systems.parts.kinds.demand import POLICIES
from tests.systems.policy_models import MODELS

NODES = 14
Ids = npt.NDArray[np.int64]
Batches = list[list[int]]


@st.composite
def traces(draw: st.DrawFn) -> Batches:
    batch = st.lists(st.integers(0, NODES - 1), unique=True, max_size=6)
    return draw(st.lists(batch, min_size=1, max_size=20))


def hubs(batches: int, nodes: int) -> Batches:
    """Return mini-batches in which a few nodes occur nearly always."""
    rng = np.random.default_rng(5)
    drawn = [
        np.unique((nodes * rng.random(25) ** 3).astype(np.int64))
        for _ in range(batches)
    ]
    return [rng.permutation(batch).tolist() for batch in drawn]


def model_hits(policy: str, batches: Batches, size: int) -> list[bool]:
    """Return whether each access hits: the misses of the accesses up to it are those
    without it."""
    rows = [row for batch in batches for row in batch]
    misses = [MODELS[policy]([rows[:end]], size) for end in range(len(rows) + 1)]
    return [after == before for before, after in pairwise(misses)]


class Live:
    """A cache with memory for its rows; a row's content is its id."""

    def __init__(self, policy: str, num_rows: int, capacity: int) -> None:
        self.slots = _native.DemandCache.make(policy, num_rows, capacity)
        self.memory = np.full(capacity, -1)

    def fetch(self, batch: list[int]) -> list[bool]:
        """Fetch a mini-batch, and check its rows; return whether each row was a hit."""
        ids = np.array(batch, dtype=np.int64)
        hits, hit_slots, misses, admitted, into = self.slots.look_up(ids)
        assert sorted([*hits, *misses]) == list(range(len(ids)))
        assert set(admitted) <= set(misses)
        assert len(set(into)) == len(into)
        out = np.full(len(ids), -2)
        out[misses] = ids[misses]
        out[hits] = self.memory[hit_slots]
        assert out.tolist() == batch
        self.memory[into] = out[admitted]
        is_hit: list[bool] = np.isin(np.arange(len(ids)), hits).tolist()
        return is_hit


@pytest.mark.parametrize("policy", POLICIES)
@given(
    batches=traces(), size=st.sampled_from([0, 1, 2, 5, NODES - 1, NODES, NODES + 3])
)
@settings(max_examples=60, deadline=None)
def test_the_cache_equals_its_model_hit_for_hit(
    policy: str, batches: Batches, size: int
) -> None:
    cache = Live(policy, NODES, size)
    found = [hit for batch in batches for hit in cache.fetch(batch)]
    assert found == model_hits(policy, batches, size)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", [0, 1, 9, 10, 40, 200, 300])
def test_the_cache_and_the_simulator_miss_the_same_rows_of_hubs(
    policy: str, size: int
) -> None:
    batches = hubs(150, 200)
    cache = Live(policy, 200, size)
    misses = sum(not hit for batch in batches for hit in cache.fetch(batch))
    trace = RowTrace.of([np.array(batch, dtype=np.int64) for batch in batches], 200)
    assert misses == simulate(trace, policy, [size]).misses[0]
    assert misses == MODELS[policy](batches, size)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_mini_batch_larger_than_the_cache_is_served(policy: str) -> None:
    cache = Live(policy, 100, 3)
    for _ in range(3):
        cache.fetch(list(range(50)))
        cache.fetch(list(range(99, 40, -1)))


def test_an_unknown_row_changes_nothing() -> None:
    cache = Live("lru", 10, 4)
    cache.fetch([1, 2])
    with pytest.raises(IndexError, match="row 10"):
        cache.slots.look_up(np.array([3, 10], dtype=np.int64))
    assert cache.fetch([1, 2, 3]) == [True, True, False]


def test_bookkeeping_bytes_are_known_for_every_policy() -> None:
    assert all(min(_native.DemandCache.bytes(policy)) >= 4 for policy in POLICIES)
    with pytest.raises(ValueError, match="no policy magic"):
        _native.DemandCache.bytes("magic")
