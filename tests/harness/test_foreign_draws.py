"""Draws of mini-batches: our own sampler's pass whatever its seed; wrong draws do not,
at a stated rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.check.case import Case
from harness.check.draws import FALSE_ALARMS, KEPT, SHAPES, Draws, Measured
from harness.check.stage import make_dataset
from workloads.sampling.once import Drawn, Expands, drawn_batches
from workloads.workload import ModelSpec, SamplerSpec, Workload

CASE = Case("draws", nodes=20_000, edges=200_000, train=2_000, dim=4)
FANOUT = (5, 3)


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    folder: Path = tmp_path_factory.mktemp("draws")
    sampler = SamplerSpec(fanout=FANOUT, batch_size=110)
    return Workload(make_dataset(folder, CASE), sampler, ModelSpec(layers=2, hidden=16))


@pytest.fixture(scope="module")
def draws(workload: Workload) -> Draws:
    return Draws(workload, "all", 3)


def batches(workload: Workload, seed: int, expands: Expands = "all") -> list[Drawn]:
    """Draw an epoch by a seed that the simulation does not use."""
    arrays = workload.dataset.load("indptr"), workload.dataset.load("indices")
    return list(
        drawn_batches(replace(workload, seed=1_000 + seed), 7, expands, *arrays)
    )


def measured(draws: Draws, workload: Workload, number: int) -> list[Measured]:
    return [draws.measure(batches(workload, seed)) for seed in range(number)]


def sizes(epochs: Sequence[Measured]) -> list[tuple[int, int]]:
    return [(int(one.values["nodes"]), int(one.values["edges"])) for one in epochs]


def test_our_own_sampler_passes_whatever_its_seed(
    draws: Draws, workload: Workload
) -> None:
    assert FALSE_ALARMS <= 1e-6
    epochs = measured(draws, workload, 30)
    assert draws.odd_sizes(sizes(epochs)) == []
    assert draws.odd_shapes(epochs) == []
    assert not any(draws.strange(batch) for batch in batches(workload, 0))


@pytest.mark.parametrize(
    ("change", "size"),
    [
        (lambda sampler: replace(sampler, fanout=(5, 2)), "edges"),
        (lambda sampler: replace(sampler, fanout=(4, 3)), "edges"),
        (lambda sampler: replace(sampler, fanout=(3, 5)), "edges"),
        (lambda sampler: replace(sampler, fanout=(5,)), "edges"),
        (lambda sampler: replace(sampler, replace=True), "nodes"),
    ],
    ids=[
        "smaller last fan-out",
        "smaller first fan-out",
        "fan-outs in reverse",
        "dropped hop",
        "with replacement",
    ],
)
def test_wrong_sizes_fail(
    draws: Draws,
    workload: Workload,
    change: Callable[[SamplerSpec], SamplerSpec],
    size: str,
) -> None:
    wrong = replace(workload, sampler=change(workload.sampler))
    reported = draws.odd_sizes(sizes(measured(draws, wrong, 3)))
    assert {int(text.split()[1]) for text in reported if size in text} == set(
        range(3)
    ), reported


def test_draws_kept_for_another_epoch_fail_though_its_sizes_are_right(
    draws: Draws, workload: Workload
) -> None:
    first, second = measured(draws, workload, 2)
    assert draws.odd_shapes([first, second]) == []
    (reported,) = draws.odd_shapes([first, second, first])
    assert KEPT in reported
    assert reported.startswith("epoch 0 beside 2")


@pytest.mark.parametrize(("width", "shape"), [(1, ""), (2, SHAPES[4])])
def test_neighbours_drawn_side_by_side_fail(
    draws: Draws, workload: Workload, width: int, shape: str
) -> None:
    """Two of one hop are drawn at each list: anywhere, or one beside the other."""
    one_hop = replace(workload, sampler=SamplerSpec(fanout=(2,), batch_size=110))
    indptr = workload.dataset.load("indptr")
    indices = workload.dataset.load("indices")
    random = np.random.default_rng(0)
    found = []
    for batch in batches(one_hop, 0):
        lists = [indices[indptr[v] : indptr[v + 1]] for v in batch.seeds]
        taken = [
            one
            if len(one) < 3
            else random.choice(one, 2, replace=False)
            if width == 1
            else np.roll(one, at)[:2]
            for one, at in zip(
                lists, random.integers(0, 1 << 30, len(lists)), strict=True
            )
        ]
        found.append(
            Drawn(
                np.unique(np.concatenate([batch.seeds, *taken])),
                batch.edges,
                batch.seeds,
            )
        )
    reported = Draws(one_hop, "all", 1).odd_shapes([draws.measure(found)])
    assert (reported == []) if not shape else any(shape in text for text in reported), (
        reported
    )


def test_nodes_that_no_in_edge_leads_to_are_named(
    draws: Draws, workload: Workload
) -> None:
    seeds = np.array([0, 1])
    nodes = np.arange(20_000)
    indptr = workload.dataset.load("indptr")
    indices = workload.dataset.load("indices")
    never = np.setdiff1d(nodes, indices)[0]
    lists = np.unique(
        np.concatenate([seeds, *(indices[indptr[v] : indptr[v + 1]] for v in seeds)])
    )
    for wrong, message in (
        (lists, ""),
        (np.append(lists, 20_000), "node 20000 of a graph of 20000"),
        (np.append(lists, lists[-1]), "a node twice"),
        (lists[lists != 1], "its own seed node 1"),
        (np.append(lists, never), "in-neighbours of none"),
    ):
        reported = draws.strange(Drawn(wrong.astype(np.int64), 9, seeds))
        assert message in reported and bool(message) == bool(reported), reported


@pytest.mark.slow("harness/check", "harness/foreign", "harness/judge", seconds=6)
def test_a_sampler_that_expands_a_node_once_is_another_one(
    draws: Draws, workload: Workload
) -> None:
    both = {
        expands: draws.measure(batches(workload, 5, expands))
        for expands in ("new", "all")
    }
    for expands, odd in (("new", "all"), ("all", "new")):
        judge = Draws(workload, expands, 1)  # type: ignore[arg-type]
        assert judge.odd_sizes(sizes([both[expands]])) == []
        assert judge.odd_sizes(sizes([both[odd]]))
