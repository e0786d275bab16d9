"""The seed plan: every training node once an epoch, divided over the ranks, in an order
that never changes."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tests.workloads import sampling_reference as reference
from workloads import _native
from workloads.errors import InputError
from workloads.sampling.seeds import PartitionPlan, SeedPlan

TRAIN = np.random.default_rng(0).permutation(5_000)[:1_003]


def reference_order(train: list[int], seed: int, epoch: int) -> list[int]:
    order = list(train)
    words = reference.stream(seed, epoch, 0, 63, 0)
    for last in range(len(order), 1, -1):
        other = reference.below(words, last)
        order[last - 1], order[other] = order[other], order[last - 1]
    return order


@pytest.mark.parametrize("epoch", [0, 1, 65535])
def test_the_order_is_that_of_the_plain_reference(epoch: int) -> None:
    batches = SeedPlan(TRAIN, 100, seed=12345678901).batches(epoch)
    assert np.concatenate(batches).tolist() == reference_order(
        TRAIN.tolist(), 12345678901, epoch
    )


def test_the_order_is_the_same_for_ever() -> None:
    assert SeedPlan(np.arange(12), 12, seed=7).batches(0)[0].tolist() == [
        7,
        9,
        1,
        6,
        3,
        0,
        4,
        11,
        2,
        5,
        8,
        10,
    ]


def test_every_order_is_equally_likely() -> None:
    from scipy import stats  # it takes seconds to import

    index = {order: i for i, order in enumerate(permutations(range(4)))}
    counts = np.zeros(24)
    for epoch in range(24_000):
        values = np.arange(4)
        _native.shuffle(values, 3, epoch)
        counts[index[tuple(values.tolist())]] += 1
    assert stats.chisquare(counts).pvalue > 1e-3


def test_each_epoch_has_every_training_node_once_in_an_order_of_its_own() -> None:
    plan = SeedPlan(TRAIN, 100, seed=1)
    orders = [np.concatenate(plan.batches(epoch)) for epoch in range(3)]
    assert all(np.array_equal(np.sort(order), np.sort(TRAIN)) for order in orders)
    assert len({order.tobytes() for order in orders}) == 3
    assert [len(batch) for batch in plan.batches(0)] == [100] * 10 + [3]
    assert plan.num_batches == 11


def test_without_shuffle_the_order_is_the_datasets() -> None:
    plan = SeedPlan(TRAIN, 100, seed=1, shuffle=False)
    assert np.array_equal(np.concatenate(plan.batches(5)), TRAIN)


@pytest.mark.parametrize(
    ("nodes", "world"), [(1003, 2), (1003, 3), (1000, 4), (201, 2), (7, 3)]
)
def test_ranks_part_the_steps_of_one_order_evenly(nodes: int, world: int) -> None:
    plans = [
        SeedPlan(TRAIN[:nodes], 50, seed=9, rank=rank, world=world)
        for rank in range(world)
    ]
    ranks = [plan.batches(2) for plan in plans]
    assert (
        len({len(batches) for batches in ranks} | {plan.num_batches for plan in plans})
        == 1
    )
    for step in zip(*ranks, strict=True):
        sizes = [len(batch) for batch in step]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1
    drawn = np.concatenate(
        [batch for step in zip(*ranks, strict=True) for batch in step]
    )
    whole = np.concatenate(SeedPlan(TRAIN[:nodes], 50, seed=9).batches(2))
    assert np.array_equal(drawn, whole[: len(drawn)])
    assert len(whole) - len(drawn) < world


def test_max_batches_takes_the_first_ones() -> None:
    some = SeedPlan(TRAIN, 100, seed=1, max_batches=3)
    assert some.num_batches == 3
    assert all(
        np.array_equal(a, b)
        for a, b in zip(
            some.batches(4), SeedPlan(TRAIN, 100, seed=1).batches(4)[:3], strict=True
        )
    )
    assert SeedPlan(TRAIN, 100, seed=1, max_batches=99).num_batches == 11


def test_a_callers_change_of_a_batch_changes_no_other() -> None:
    train = TRAIN.copy()
    plan = SeedPlan(train, 100, seed=1, shuffle=False)
    train[:] = 0
    plan.batches(0)[0][:] = -1
    assert np.array_equal(np.concatenate(plan.batches(0)), TRAIN)


@pytest.mark.parametrize(
    ("change", "epoch"),
    [
        ({"batch_size": 0}, 0),
        ({"max_batches": -1}, 0),
        ({"rank": 2, "world": 2}, 0),
        ({"train": TRAIN[:0]}, 0),
        ({"train": TRAIN[:3], "world": 4}, 0),
        ({"seed": -1}, 0),
        ({}, 1 << 16),
        ({}, -1),
    ],
)
def test_impossible_plans_are_refused(change: dict[str, object], epoch: int) -> None:
    arguments = {"train": TRAIN, "batch_size": 10, "seed": 0, **change}
    with pytest.raises(InputError):
        SeedPlan(**arguments).batches(epoch)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(100, 100), (130, 70), (51, 49)])
def test_partitions_step_together_and_lose_no_node(sizes: tuple[int, int]) -> None:
    """Ranks with unequal parts have equally many mini-batches, none above the batch
    size; every node occurs once."""
    partition_of = np.repeat([0, 1], sizes)
    partition_of = partition_of[np.random.default_rng(0).permutation(len(partition_of))]
    train = TRAIN[: sum(sizes)]
    plans = [
        PartitionPlan(train, partition_of, 20, seed=3, rank=rank, world=2)
        for rank in range(2)
    ]
    assert plans[0].num_batches == plans[1].num_batches == -(-max(sizes) // 20)
    for rank, plan in enumerate(plans):
        batches = plan.batches(1)
        assert len(batches) == plan.num_batches
        assert max(map(len, batches)) <= 20
        assert sorted(np.concatenate(batches).tolist()) == sorted(
            train[partition_of == rank].tolist()
        )
        assert not np.array_equal(
            np.concatenate(batches), np.concatenate(plan.batches(2))
        )
    short = PartitionPlan(
        train, partition_of, 20, seed=3, rank=0, world=2, max_batches=2
    )
    assert [batch.tolist() for batch in short.batches(1)] == [
        batch.tolist() for batch in plans[0].batches(1)[:2]
    ]


def test_a_partition_of_another_dataset_or_other_ranks_is_refused() -> None:
    with pytest.raises(InputError, match="covers 3 training nodes"):
        PartitionPlan(
            TRAIN[:4], np.zeros(3, dtype=np.int64), 2, seed=0, rank=0, world=1
        )
    with pytest.raises(InputError, match="3 parts for 2 ranks"):
        PartitionPlan(TRAIN[:4], np.array([0, 1, 2, 0]), 2, seed=0, rank=0, world=2)
    with pytest.raises(InputError, match="1 training nodes for 3 mini-batches"):
        PartitionPlan(TRAIN[:4], np.array([0, 0, 0, 1]), 1, seed=0, rank=0, world=2)
