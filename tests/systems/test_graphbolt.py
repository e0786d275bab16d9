"""`graphbolt` and chains of demand caches: the oracle's mini-batches, and counters that
follow from the trace alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from systems import _native
from systems.engine.cache.policies import RowTrace, simulate
from systems.forecast import Trace
from systems.interface import Counters, MemoryBudget
from systems.parts.kinds.demand import POLICIES
from tests.support import make_tiny
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError, InputError
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

pytestmark = pytest.mark.timeout(60)
NODES = 4000
DIM = 127
ROW = 4 * DIM
Ids = npt.NDArray[np.int64]
HERE = "tests.systems.demand_systems"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny(
        tmp_path_factory.mktemp("demand") / "d", nodes=NODES, edges=60_000, dim=DIM
    )


def batches_of(workload: Workload, epochs: int) -> list[Ids]:
    """Return the nodes of the mini-batches of these epochs."""
    sampler = make_sampler(workload)
    plan = make_seed_plan(workload)
    wanted = [
        (epoch, *batch)
        for epoch in range(epochs)
        for batch in enumerate(plan.batches(epoch))
    ]
    return [sampler.sample(*one).nodes for one in wanted]


def misses_by_epoch(
    workload: Workload, policy: str, capacity: int, epochs: int
) -> list[int]:
    """Return the policy's misses in each epoch, from an empty cache before the
    first."""
    batches = batches_of(workload, epochs)
    each = len(batches) // epochs
    upto = [
        RowTrace.of(batches[: each * (epoch + 1)], NODES) for epoch in range(epochs)
    ]
    total = [int(simulate(trace, policy, [capacity]).misses[0]) for trace in upto]
    return [after - before for before, after in pairwise([0, *total])]


def rows_in(nbytes: int, policy: str) -> int:
    slot_bytes, _ = _native.DemandCache.bytes(policy)
    return nbytes // (ROW + slot_bytes)


def counted(
    system: str, workload: Workload, epochs: int, **options: object
) -> Iterator[Counters]:
    """Run epochs, check their mini-batches, and yield the counters of each."""
    with running(system, workload, **options) as opened:  # type: ignore[arg-type]
        for epoch in range(epochs):
            structure, features, order = run(opened, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(len(order)))
            yield opened.counters()


@pytest.mark.parametrize("device", ["cpu", "emulated:instant"])
@pytest.mark.parametrize("policy", POLICIES)
def test_misses_of_every_epoch_are_those_of_the_policy_on_the_trace(
    dataset: Dataset, policy: str, device: str
) -> None:
    workload = workload_of(dataset)
    cache = 1_600_000
    found = list(
        counted(
            "graphbolt",
            workload,
            3,
            device=device,
            policy=policy,
            cache=str(cache),
            extractors=4,
        )
    )
    assert [one.misses for one in found] == misses_by_epoch(
        workload, policy, rows_in(cache, policy), 3
    )
    for one in found:
        assert one.hits == {"host": one.rows - one.misses}
        assert one.bytes_useful == ROW * one.misses


@pytest.mark.parametrize("policy", POLICIES)
def test_the_forecast_of_the_second_epoch_is_what_it_misses(
    dataset: Dataset, policy: str
) -> None:
    workload = workload_of(dataset)
    batches = batches_of(workload, 2)
    trace = Trace(
        workload,
        workload,
        len(batches) // 2,
        nodes=[nodes.astype(np.uint32) for nodes in batches],
    )
    with running("graphbolt", workload, policy=policy, cache="1600000") as system:
        foreseen = system.forecast(trace, 0)
        run(system, 0)
        run(system, 1)
        misses = system.counters().misses
    assert foreseen is not None
    assert sum(foreseen.reads.values()) == misses


def test_a_cache_of_all_rows_reads_each_row_once(dataset: Dataset) -> None:
    workload = workload_of(dataset)
    first, second = counted("graphbolt", workload, 2, cache="1x", extractors=3)
    touched = np.unique(np.concatenate(batches_of(workload, 2)))
    assert first.misses + second.misses == len(touched)


def test_waves_read_a_block_or_two_of_4096_bytes_for_each_row(dataset: Dataset) -> None:
    workload = workload_of(dataset)
    (found,) = counted(
        "graphbolt", workload, 1, cache="1600000", waves=True, io_depth=7
    )
    assert set(found.requests_by_size) <= {4096, 8192}
    assert found.io_requests == found.misses
    assert found.queue_depth == 2 * 256


def test_a_stopped_epoch_leaves_no_wrong_row_behind(dataset: Dataset) -> None:
    """Mini-batches that were looked up, but not read, must not count as cached in the
    next epoch."""
    workload = workload_of(dataset)
    with running("graphbolt", workload, cache="1x", extractors=4) as system:
        for wanted in (1, 3, 0):
            epoch = system.epoch(0)
            for _ in range(wanted):
                next(epoch).release()
            epoch.close()  # type: ignore[attr-defined]
        assert run(system, 1)[:2] == reference(workload, 1)
        assert run(system, 0)[:2] == reference(workload, 0)


def test_a_cache_below_two_mini_batches_is_refused_with_the_size_to_give(
    dataset: Dataset,
) -> None:
    workload = workload_of(dataset)
    with (
        pytest.raises(BudgetError) as refused,
        running("graphbolt", workload, cache="100KiB", prepare=False),
    ):
        pass
    found = re.search(r"raise cache to ([0-9.]+) KiB", str(refused.value))
    assert found is not None
    more = f"{float(found[1]) + 1:.0f}KiB"
    with running("graphbolt", workload, cache=more, prepare=False) as system:
        others = system.plan().total("host") - system.plan().bytes_of("feature cache")
    budget = MemoryBudget(others + (400 << 10))
    assert_refused(
        "feature cache.*it holds 2 mini-batches at least",
        "graphbolt",
        workload,
        budget=budget,
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_the_plan_holds_rows_and_bookkeeping_of_the_cache(
    dataset: Dataset, policy: str
) -> None:
    slot_bytes, row_bytes = _native.DemandCache.bytes(policy)
    with running(
        "graphbolt", workload_of(dataset), cache="0.5x", policy=policy, prepare=False
    ) as system:
        plan = system.plan()
    assert plan.bytes_of("feature cache") == NODES // 2 * (ROW + slot_bytes)
    assert plan.bytes_of("feature cache map") == NODES * row_bytes


def test_more_memory_is_never_more_misses(dataset: Dataset) -> None:
    workload = workload_of(dataset)
    with running("graphbolt", workload, cache="1x", prepare=False) as system:
        whole = system.plan().bytes_of("feature cache")
        others = system.plan().total("host") - whole
    misses = []
    for share in (0.35, 0.5, 0.75, 1.0):
        budget = MemoryBudget(others + int(share * whole))
        (found,) = counted("graphbolt", workload, 1, budget=budget, policy="lru")
        misses.append(found.misses)
    assert misses == sorted(misses, reverse=True)
    assert misses[0] > misses[-1]


def test_a_damaged_file_is_named(dataset: Dataset, tmp_path: object) -> None:
    with running("graphbolt", workload_of(dataset)) as system:
        path = dataset.file("features")
        whole = path.read_bytes()
        try:
            path.write_bytes(whole[: len(whole) // 2])
            with pytest.raises(DataIOError, match="features"):
                run(system)
        finally:
            path.write_bytes(whole)


def test_an_unknown_policy_is_refused(dataset: Dataset) -> None:
    with (
        pytest.raises(InputError, match=r"no policy 'magic'.*sieve"),
        running(
            f"{HERE}:TwoDemandTiers",
            workload_of(dataset),
            policy="magic",
            prepare=False,
        ),
    ):
        pass


@pytest.mark.parametrize("device", ["cpu", "emulated:instant"])
def test_of_two_tiers_the_second_sees_what_the_first_misses(
    dataset: Dataset, device: str
) -> None:
    workload = workload_of(dataset)
    near = _native.DemandCache.make("fifo", NODES, rows_in(100 << 10, "fifo"))
    far = _native.DemandCache.make("lru", NODES, rows_in(400 << 10, "lru"))
    missed = 0
    for nodes in batches_of(workload, 1):
        left = nodes[near.look_up(nodes)[2]]
        missed += len(far.look_up(left)[2])
    (found,) = counted(f"{HERE}:TwoDemandTiers", workload, 1, device=device)
    assert found.misses == missed < found.rows
    assert found.hits == {"host": found.rows - missed}


def test_a_demand_cache_stands_behind_a_static_one_on_the_device(
    dataset: Dataset,
) -> None:
    workload = workload_of(dataset)
    arguments = {"device": "emulated:instant", "device_bytes": 8 << 20, "far": "1MiB"}
    found = list(counted(f"{HERE}:DeviceAndHost", workload, 2, **arguments))
    for one in found:
        assert min(one.hits["device"], one.hits["host"], one.misses) > 0
        assert sum(one.hits.values()) + one.misses == one.rows
        assert one.bytes_loaded == ROW * (one.rows - one.hits["device"])
    with (
        pytest.raises(InputError, match="as the first tier"),
        running(f"{HERE}:DeviceBehindHost", workload, prepare=False),
    ):
        pass
