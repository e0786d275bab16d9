"""An epoch's accesses equal a plain count, and no schedule of reads gets below their
lower bound."""

from __future__ import annotations

import tracemalloc
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cache import Cache
from harness.judge.trace import EpochTrace, TraceFacts, trace_epochs
from harness.records.record import DatasetConfig, RunConfig
from tests.support import make_tiny
from tests.systems.policy_models import belady_misses
from workloads.making.make import MakeSpec, make_dataset
from workloads.making.salt import Salt
from workloads.sampling.digest import EpochDigest, structure_digest
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import ModelSpec, SamplerSpec, Workload

Batches = Sequence[frozenset[int]]


def small(
    path: Path, *, world: int = 1, batch_size: int = 16, max_batches: int = 0
) -> Workload:
    sampler = SamplerSpec(fanout=(3, 3), batch_size=batch_size, max_batches=max_batches)
    return Workload(make_tiny(path), sampler, ModelSpec(layers=2), world=world)


def facts_of(batches: Batches, ranks: int = 1) -> EpochTrace:
    counted = Counter(Counter(row for batch in batches for row in batch).values())
    return EpochTrace(
        0, len(batches) // ranks, ranks, tuple(sorted(counted.items())), 0, ""
    )


@pytest.mark.parametrize("world", [1, 2])
def test_an_epoch_is_counted_as_the_plainest_code_does(
    tmp_path: Path, world: int
) -> None:
    workload = small(tmp_path / "tiny", world=world)
    dataset = workload.dataset
    epochs = [0, 1]
    indptr = dataset.load("indptr")
    size = dataset.index_dtype.itemsize
    for epoch, found in zip(epochs, trace_epochs(workload, epochs), strict=True):
        rows: Counter[int] = Counter()
        digest = EpochDigest()
        pages = set()
        steps = 0
        for rank in range(world):
            own = Workload(
                dataset, workload.sampler, workload.model, rank=rank, world=world
            )
            sampler = make_sampler(own)
            for steps, seeds in enumerate(make_seed_plan(own).batches(epoch), 1):
                batch = sampler.sample(epoch, steps - 1, seeds)
                rows.update(batch.nodes.tolist())
                digest.add(structure_digest(batch))
                for node in batch.nodes[: batch.blocks[0].num_dst].tolist():
                    if indptr[node] < indptr[node + 1]:
                        pages |= {
                            int(indptr[node]) * size // 4096,
                            (int(indptr[node + 1]) * size - 1) // 4096,
                        }
        assert dict(found.uses) == Counter(rows.values())
        assert found.unique_rows == len(rows)
        assert (found.steps, found.ranks, found.digest) == (
            steps,
            world,
            digest.hexdigest(),
        )
        assert found.topology_pages == len(pages)


def test_memory_does_not_grow_with_mini_batches(tmp_path: Path) -> None:
    """Memory once grew with the mini-batches, and above 400 million rows there were no
    facts at all."""

    def peak(batches: int) -> int:
        workload = small(tmp_path / f"tiny{batches}", batch_size=4, max_batches=batches)
        tracemalloc.start()
        try:
            (found,) = trace_epochs(workload, [0])
            assert found.steps == batches
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Besides, the seed plan's arrays: the nodes of a mini-batch, and an array's
    # overhead.
    assert peak(100) < 1.1 * peak(10) + 90 * 256


def test_an_epoch_is_sampled_once_whatever_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = small(tmp_path / "tiny")
    asked: list[int] = []

    def sampled(workload: Workload, epochs: Sequence[int]) -> Iterator[EpochTrace]:
        asked.extend(epochs)
        return trace_epochs(workload, epochs)

    monkeypatch.setattr("harness.judge.trace.trace_epochs", sampled)
    dataset = DatasetConfig(
        name="tiny", fingerprint="", num_nodes=1, num_edges=1, dim=1, dtype="float32"
    )

    def facts(epochs: int) -> list[EpochTrace]:
        config = RunConfig(system="ginex", dataset=dataset, epochs=epochs)
        return TraceFacts(workload, config, Cache(tmp_path / "cache")).epochs()

    first = facts(2)
    assert facts(3)[:2] == first
    assert asked == [0, 1, 2]
    for file in (tmp_path / "cache").glob("trace-*.json"):
        file.write_text('{"epoch": 0}')
    assert facts(2) == first
    assert asked == [0, 1, 2, 0, 1]


def test_rows_of_another_salt_have_their_own_digest_in_the_same_workload(
    tmp_path: Path,
) -> None:
    made = MakeSpec("rmat", nodes=2000, edges=20_000, dim=4, fractions=(0.2, 0.1, 0.1))
    cache = Cache(tmp_path / "cache")
    digests = []
    traces = []
    for salt in (Salt(b"1" * 32), Salt(b"2" * 32)):
        dataset = make_dataset(
            tmp_path / "data" / "same", made, salt=salt, replace=True
        )
        workload = Workload(
            dataset, SamplerSpec(fanout=(3, 3), batch_size=16), ModelSpec(layers=2)
        )
        config = RunConfig(system="ginex", dataset=DatasetConfig.of(dataset), epochs=1)
        facts = TraceFacts(workload, config, cache)
        table = dataset.load("features")
        digests.append(
            facts.feature_digest(0, lambda nodes, rows=table: rows[nodes], 1 << 30)
        )  # type: ignore[misc]
        traces.append((config.config_hash, facts.epoch(0)))
    assert traces[0] == traces[1], "the experiment is the same"
    assert None not in digests
    assert digests[0] != digests[1]


def least_reads(batches: Batches, capacity: int, universe: Sequence[int]) -> int:
    """Return the fewest row reads with which all mini-batches are trained, by trying
    every schedule.

    A state holds the trained mini-batches, the rows that the current one still needs,
    and the rows in memory, which may be any at the start. A step begins a mini-batch,
    reads a row (to use it, keep it or neither), uses a row in memory, or drops one.
    """
    State = tuple[frozenset[int], frozenset[int], frozenset[int]]
    none: frozenset[int] = frozenset()
    best: dict[State, int] = {}
    queue: deque[tuple[int, State]] = deque(
        (0, (none, none, held)) for held in _subsets(universe, capacity)
    )
    while queue:
        cost, state = queue.popleft()
        if best.get(state, cost + 1) <= cost:
            continue
        best[state] = cost
        done, wanted, held = state
        if not wanted and len(done) == len(batches):
            return cost
        if not wanted:
            queue.extendleft(
                (cost, (done | {at}, batch, held))
                for at, batch in enumerate(batches)
                if at not in done
            )
        else:
            queue.extendleft(
                (cost, (done, wanted - {row}, held)) for row in wanted & held
            )
        queue.extendleft((cost, (done, wanted, held - {row})) for row in held)
        for row in universe:
            queue.append((cost + 1, (done, wanted - {row}, held)))
            if len(held) < capacity:
                queue.append((cost + 1, (done, wanted, held | {row})))
    raise AssertionError("no schedule trains them all")


def _subsets(rows: Sequence[int], most: int) -> set[frozenset[int]]:
    every = (
        frozenset(row for bit, row in enumerate(rows) if mask >> bit & 1)
        for mask in range(1 << len(rows))
    )
    return {subset for subset in every if len(subset) <= most}


ROWS = range(4)
TINY = st.lists(
    st.frozensets(st.sampled_from(ROWS), min_size=1), min_size=1, max_size=4
)


@pytest.mark.slow(
    "harness/judge/trace.py", "systems/engine/cache", "workloads/sampling", seconds=8
)
@given(TINY, st.integers(0, 3), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_no_schedule_of_reads_gets_below_the_bound(
    batches: Batches, capacity: int, ranks: int
) -> None:
    """Brute force over any order, any rows resident before, and any other reads in
    between."""
    assert facts_of(batches).least_bytes(7, 7 * capacity) <= 7 * least_reads(
        batches, capacity, ROWS
    )
    if len(batches) % ranks == 0:
        # Ranks that step together see each other's rows in one window.
        assert facts_of(batches, ranks).least_bytes(7, 7 * capacity) <= 7 * least_reads(
            batches, capacity, ROWS
        )


@pytest.mark.parametrize(
    ("batches", "capacity", "least"),
    [
        ([{0, 1}, {2, 3}], 1, 3),  # rows of the epoch less what memory holds
        (
            [{0, 1, 2}, {0, 1, 2}],
            1,
            4,
        ),  # a row that every mini-batch uses is read anew in each window, less memory
        ([{0, 1, 2}, {0, 1, 2}, {0, 1, 3}], 3, 1),
        ([{0, 1}] * 4, 2, 0),
    ],
)
def test_the_bound_is_reached(
    batches: list[set[int]], capacity: int, least: int
) -> None:
    sets = [frozenset(batch) for batch in batches]
    assert facts_of(sets).least_bytes(10, 10 * capacity) == 10 * least
    assert least_reads(sets, capacity, ROWS) == least


EPOCHS = st.lists(
    st.lists(
        st.frozensets(st.integers(0, 30), min_size=1, max_size=8),
        min_size=1,
        max_size=8,
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow(
    "harness/judge/trace.py", "systems/engine/cache", "workloads/sampling", seconds=6
)
@given(EPOCHS, st.integers(0, 20), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_no_strategy_gets_below_the_bound(
    epochs: list[Batches], capacity: int, random: object
) -> None:
    """Belady over all epochs at once, least recently used, single reads, one pass over
    the table, and packed rows."""
    order = [list(batches) for batches in epochs]
    for batches in order:
        random.shuffle(batches)  # type: ignore[attr-defined]
    belady = iter(
        belady_misses(
            [np.array(sorted(b)) for batches in order for b in batches], capacity
        )
    )
    held: OrderedDict[int, None] = OrderedDict()
    for batches in order:
        bound = facts_of(batches).least_bytes(1, capacity)
        uses = sum(map(len, batches))
        unique = frozenset[int]().union(*batches)
        misses = sum(next(belady) for _ in batches)
        recent = sum(_least_recently_used(held, batch, capacity) for batch in batches)
        a_pass = max(unique) - min(unique) + 1 + uses  # gaps read, chunks read back
        resident = set(
            sorted(unique)[:capacity]
        )  # packed beforehand, without the rows that stay in memory
        packed = sum(len(batch - resident) for batch in batches)
        assert bound <= min(misses, recent, uses, a_pass, packed)


def _least_recently_used(
    held: OrderedDict[int, None], batch: frozenset[int], capacity: int
) -> int:
    misses = len(batch - set(held))
    for row in sorted(batch):
        held.pop(row, None)
        held[row] = None
    while len(held) > capacity:
        held.popitem(last=False)
    return misses
