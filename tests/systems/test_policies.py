"""The trace simulator: every policy equals its simple model, and none misses fewer rows
than Belady's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.engine.cache.changeset import ChangesetPlan
from systems.engine.cache.policies import (
    DYNAMIC,
    POLICIES,
    RowTrace,
    compare,
    simulate,
    simulate_static,
)
from systems.engine.rank.ranking import out_degrees, top
from tests.support import make_tiny
from tests.systems.policy_models import MODELS, belady_misses
from tests.systems.support_systems import workload_of
from workloads.errors import InputError

NODES = 14
Batches = list[list[int]]


@st.composite
def traces(draw: st.DrawFn) -> Batches:
    batch = st.lists(st.integers(0, NODES - 1), unique=True, max_size=6)
    return draw(st.lists(batch, min_size=1, max_size=30))


def trace_of(batches: Batches, nodes: int = NODES) -> RowTrace:
    return RowTrace.of([np.array(batch, dtype=np.int64) for batch in batches], nodes)


@pytest.mark.parametrize("policy", DYNAMIC)
@given(batches=traces())
@settings(max_examples=120, deadline=None)
def test_every_policy_equals_its_model_at_every_size(
    policy: str, batches: Batches
) -> None:
    sizes = list(range(NODES + 3))
    found = simulate(trace_of(batches), policy, sizes, threads=2)
    assert found.misses.tolist() == [MODELS[policy](batches, size) for size in sizes]


@pytest.mark.parametrize("policy", DYNAMIC)
def test_long_skewed_traces_agree_with_the_models(policy: str) -> None:
    rng = np.random.default_rng(5)
    batches = [
        np.unique((60 * rng.random(25) ** 2).astype(np.int64)).tolist()
        for _ in range(120)
    ]
    for batch in batches:
        rng.shuffle(batch)
    sizes = [0, 1, 2, 9, 10, 11, 30, 59, 80]
    found = simulate(trace_of(batches, 60), policy, sizes)
    assert found.misses.tolist() == [MODELS[policy](batches, size) for size in sizes]


@given(batches=traces(), ranking=st.permutations(range(NODES)))
@settings(max_examples=100, deadline=None)
def test_belady_never_reads_more_than_any_other(
    batches: Batches, ranking: list[int]
) -> None:
    trace = trace_of(batches)
    sizes = list(range(NODES + 2))
    best = simulate(trace, "belady", sizes).reads
    for policy in DYNAMIC:
        assert (best <= simulate(trace, policy, sizes).reads).all(), policy
    assert (best <= simulate_static(trace, np.array(ranking), sizes).reads).all()
    uses = np.bincount([row for batch in batches for row in batch], minlength=NODES)
    assert (
        best <= simulate_static(trace, np.argsort(-uses, kind="stable"), sizes).reads
    ).all()


@pytest.mark.parametrize("prefill", [True, False])
@given(batches=traces(), size=st.integers(1, NODES + 1))
@settings(max_examples=40, deadline=None)
def test_ginex_changesets_never_read_more_than_any_policy(
    prefill: bool, batches: Batches, size: int
) -> None:
    """Within a superbatch, with initial fills counted, Ginex reads as many rows as
    Belady's policy."""
    parts = [np.array(batch, dtype=np.int64) for batch in batches]
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    plan = ChangesetPlan(
        lambda i: parts[i], lengths, num_nodes=NODES, capacity=size, prefill=prefill
    )
    plan.look_ahead()
    filled = plan.filled
    reads = filled + sum(
        len(part) - made.hits
        for part, made in zip(parts, plan.changesets(), strict=True)
    )
    trace = trace_of(batches)
    assert reads == simulate(trace, "belady", [size]).reads[0]
    for policy in DYNAMIC:
        assert reads <= simulate(trace, policy, [size]).reads[0], policy
    uses = np.bincount([row for batch in batches for row in batch], minlength=NODES)
    assert (
        reads
        <= simulate_static(trace, np.argsort(-uses, kind="stable"), [size]).reads[0]
    )


@given(batches=traces(), size=st.integers(0, NODES))
@settings(max_examples=100, deadline=None)
def test_the_methodologys_belady_is_the_same(batches: Batches, size: int) -> None:
    parts = [np.array(batch, dtype=np.int64) for batch in batches]
    assert simulate(trace_of(batches), "belady", [size]).misses[0] == sum(
        belady_misses(parts, size)
    )


@given(
    batches=traces(),
    ranking=st.permutations(range(NODES)),
    size=st.integers(0, NODES + 1),
)
@settings(max_examples=60, deadline=None)
def test_static_misses_are_counted_exactly(
    batches: Batches, ranking: list[int], size: int
) -> None:
    found = simulate_static(trace_of(batches), np.array(ranking), [size])
    kept = set(ranking[:size])
    assert found.misses[0] == sum(row not in kept for batch in batches for row in batch)
    assert found.fills[0] == len(kept)


@pytest.mark.parametrize("policy", ["belady", "lru"])
def test_one_pass_answers_for_many_times_reused_windows(policy: str) -> None:
    """The trace is long enough that LRU's timestamps are renumbered several times."""
    rng = np.random.default_rng(1)
    batches = [rng.permutation(3000)[:400] for _ in range(100)]
    trace = RowTrace.of(batches, 3000)
    plain = [
        MODELS[policy]([batch.tolist() for batch in batches], size)
        for size in (100, 1500)
    ]
    assert simulate(trace, policy, [100, 1500]).misses.tolist() == plain


def test_a_workloads_trace_is_its_mini_batches(tmp_path: Path) -> None:
    workload = workload_of(make_tiny(tmp_path / "d"))
    trace = RowTrace.record(workload, 2, threads=2)
    assert len(trace.begins) == 41
    assert trace.nodes[trace.rows[0]] < 2000
    found = compare(workload, trace, POLICIES, [0, 200, 2000])
    assert [entry.policy for entry in found] == list(POLICIES)
    for entry in found:
        assert entry.misses[0] == trace.accesses
        assert entry.misses[2] == (trace.num_rows if entry.policy != "degree" else 0)
        assert (np.diff(entry.misses) <= 0).all()
        assert entry.ratio[0] == 1.0
    by_degree = found[-1]
    kept = set(top(out_degrees(workload), 200).tolist())
    assert by_degree.misses[1] == sum(
        node not in kept for node in trace.nodes[trace.rows].tolist()
    )


def test_impossible_simulations_are_refused(tmp_path: Path) -> None:
    trace = trace_of([[1, 2], [2, 3]])
    with pytest.raises(InputError, match="no policy 'magic'"):
        simulate(trace, "magic", [1])
    with pytest.raises(InputError, match="-1 rows"):
        simulate(trace, "lru", [-1])
    with pytest.raises(InputError, match="does not fit"):
        RowTrace.of([np.array([99])], 10)
    with pytest.raises(InputError, match="no mini-batches"):
        RowTrace.of([], 10)
    with pytest.raises(ValueError, match="twice in a mini-batch"):
        simulate(trace_of([[1, 1]]), "lru", [1])


# Belady's rule at batch granularity, the reference for Ginex and changesets.
SETS = st.lists(
    st.sets(st.integers(0, 30), min_size=1, max_size=8), min_size=1, max_size=14
)


def as_arrays(batches: list[set[int]]) -> list[npt.NDArray[np.int64]]:
    return [np.array(sorted(batch), dtype=np.int64) for batch in batches]


def belady_reference(batches: list[set[int]], capacity: int) -> list[int]:
    cache: set[int] = set()
    misses = []
    for index, batch in enumerate(batches):
        misses.append(len(batch - cache))
        uses = {
            row: next(
                (k for k in range(index + 1, len(batches)) if row in batches[k]), None
            )
            for row in cache | batch
        }
        again = sorted((use, row) for row, use in uses.items() if use is not None)
        cache = {row for _, row in again[:capacity]}
    return misses


@given(SETS, st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_belady_equals_the_slow_reference_in_total(
    batches: list[set[int]], capacity: int
) -> None:
    assert sum(belady_misses(as_arrays(batches), capacity)) == sum(
        belady_reference(batches, capacity)
    )


def test_a_cache_that_holds_everything_misses_each_row_once() -> None:
    batches = as_arrays([{1, 2}, {2, 3}, {1, 3, 4}])
    assert belady_misses(batches, 100) == [2, 1, 1]


def test_no_cache_misses_every_access() -> None:
    assert belady_misses(as_arrays([{1, 2}, {1, 2}]), 0) == [2, 2]
