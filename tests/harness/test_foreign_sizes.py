"""Sizes of mini-batches: our own sampler's pass whatever its seed; wrong draws do not, at a stated rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.check.case import Case
from harness.check.sizes import FALSE_ALARMS, odd_sizes, simulated
from harness.check.stage import make_dataset
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import ModelSpec, SamplerSpec, Workload

CASE = Case("sizes", nodes=20_000, edges=200_000, train=2_000, dim=4)
FANOUT = (5, 5)


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    folder: Path = tmp_path_factory.mktemp("sizes")
    sampler = SamplerSpec(fanout=FANOUT, batch_size=500)
    return Workload(make_dataset(folder, CASE), sampler, ModelSpec(layers=2, hidden=16))


def epochs(workload: Workload, number: int) -> Iterator[tuple[int, int]]:
    """Yield the sizes of epochs that our sampler draws, by seeds that the test's simulation does not use."""
    for seed in range(1_000, 1_000 + number):
        drawn = replace(workload, seed=seed)
        sampler = make_sampler(drawn)
        found = [sampler.sample(7, *one) for one in enumerate(make_seed_plan(drawn).batches(7))]
        yield sum(one.num_nodes for one in found), sum(one.num_edges for one in found)


def test_our_own_sampler_passes_whatever_its_seed(workload: Workload) -> None:
    assert FALSE_ALARMS <= 1e-6
    assert odd_sizes(workload, "all", list(epochs(workload, 60))) == []


@pytest.mark.parametrize(
    ("change", "size"),
    [
        (lambda sampler: replace(sampler, fanout=(5, 4)), "edges"),
        (lambda sampler: replace(sampler, fanout=(4, 5)), "edges"),
        (lambda sampler: replace(sampler, fanout=(5,)), "edges"),
        (lambda sampler: replace(sampler, replace=True), "nodes"),
    ],
    ids=["smaller last fan-out", "smaller first fan-out", "dropped hop", "with replacement"],
)
def test_wrong_draws_fail(workload: Workload, change: Callable[[SamplerSpec], SamplerSpec], size: str) -> None:
    wrong = replace(workload, sampler=change(workload.sampler))
    told = odd_sizes(workload, "all", list(epochs(wrong, 5)))
    found = {int(text.split()[1]) for text in told if size in text}
    assert found == set(range(5)), told


@pytest.mark.slow("harness/check", "harness/foreign", "harness/judge", seconds=6)
def test_a_sampler_that_expands_a_node_once_is_another_one(workload: Workload) -> None:
    both = [next(simulated(workload, "new", [5_000])), *epochs(workload, 1)]
    for expands, odd in (("new", "epoch 1 "), ("all", "epoch 0 ")):
        told = odd_sizes(workload, expands, both)  # type: ignore[arg-type]
        assert told and all(text.startswith(odd) for text in told), told
