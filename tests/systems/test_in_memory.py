"""`in-memory`: the oracle's digests, and plans of a host or device too small
refused."""

from __future__ import annotations

import pytest

from systems.interface import MemoryBudget
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.dataset import Dataset

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("device", ["cpu", "emulated:instant"])
def test_mini_batches_are_the_oracles_in_order(
    tiny_dataset: Dataset, device: str
) -> None:
    workload = workload_of(tiny_dataset)
    with running("in-memory", workload, device=device) as system:
        for epoch in range(2):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(20))
        counters = system.counters()
        assert counters.hits == {"host": counters.rows}
        assert counters.misses == 0


def test_a_host_budget_too_small_is_refused_by_the_plan(tiny_dataset: Dataset) -> None:
    budget = MemoryBudget(tiny_dataset.feature_bytes + tiny_dataset.topology_bytes)
    assert_refused(
        "features needs", "in-memory", workload_of(tiny_dataset), budget=budget
    )


def test_a_device_too_small_for_one_mini_batch_is_refused(
    tiny_dataset: Dataset,
) -> None:
    assert_refused(
        "device feature table",
        "in-memory",
        workload_of(tiny_dataset),
        device="emulated:instant",
        device_bytes=4096,
    )
