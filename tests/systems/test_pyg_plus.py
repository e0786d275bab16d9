"""`pyg+`: the oracle's digests from memory maps, faults counted, truncation reported,
several sampling threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from systems.engine.io.faults import FaultMeter
from systems.engine.io.memory import evict
from systems.interface import MemoryBudget
from tests.support import make_tiny
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.dataset import Dataset
from workloads.errors import DataIOError
from workloads.sampling.bounds import batch_bounds

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("device", ["cpu", "emulated:instant"])
@pytest.mark.parametrize("threads", [1, 8])
def test_mini_batches_are_the_oracles_in_order(
    tiny_dataset: Dataset, device: str, threads: int
) -> None:
    workload = workload_of(tiny_dataset)
    with running(
        "pyg+",
        workload,
        device=device,
        extract_threads=threads,
        sampling_workers=threads,
    ) as system:
        for epoch in range(2):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(20))
        counters = system.counters()
        assert counters.hits == {"page_cache": counters.rows}
        assert counters.io_requests == 0


def test_a_cold_epoch_takes_major_faults_and_a_warm_one_does_not(
    tmp_path: Path,
) -> None:
    dataset = make_tiny(tmp_path / "d", nodes=5000, dim=256)
    with running("pyg+", workload_of(dataset, batch_size=100)) as system:
        left = evict(dataset.file("features")) + evict(dataset.file("indices"))
        if left > 0.01 * dataset.total_bytes:
            pytest.skip(f"this file system keeps {left} bytes in memory")
        run(system, 0)
        cold = system.counters().observed
        run(system, 0)
        warm = system.counters().observed
    # Without read-ahead each page of the features is a separate fault; most of the
    # 5,000 rows are on separate pages.
    assert cold["major_faults_extract"] > 500
    assert 0 < cold["page_cache_miss_ratio"] <= 1.5
    assert warm["major_faults_extract"] < cold["major_faults_extract"] / 10


def test_faults_of_sampling_are_not_charged_to_extraction() -> None:
    meter = FaultMeter()
    assert meter.sample(lambda: 5) == 5
    meter.extracted(10)
    observed = meter.observed()
    assert (
        observed["major_faults"]
        >= observed["major_faults_sample"] + observed["major_faults_extract"]
    )


def test_faults_in_flight_are_not_bound_by_the_cores(tiny_dataset: Dataset) -> None:
    """128 threads gather, fewer where their stacks would take much of the budget; the
    plan includes the stacks."""
    workload = workload_of(tiny_dataset)
    for budget, cores, threads in (
        (None, 2, 128),
        (64 << 20, 2, 128),
        (32 << 20, 2, 64),
        (4 << 20, 2, 8),
        (4 << 20, 8, 16),
    ):
        with running(
            "pyg+", workload, prepare=False, cores=cores, budget=MemoryBudget(budget)
        ) as system:
            items = {item.name: item.bytes for item in system.plan().items}
            assert f"{threads} threads" in system.notes()["io"]
            assert items["threads that gather"] >= threads * 16 << 10
    before = len(list(Path("/proc/self/task").iterdir()))
    with running("pyg+", workload, extract_threads=50) as system:
        run(system, 0)
    assert len(list(Path("/proc/self/task").iterdir())) >= min(before + 49, 50)


def test_samplers_are_eight_where_they_take_an_eighth_of_memory_at_most(
    tiny_dataset: Dataset,
) -> None:
    """This holds without `-o sampling_workers`; there are never fewer samplers than the
    plan allows."""
    workload = workload_of(tiny_dataset, batch_size=40)

    def planned(host: int | None, **options: int) -> int:
        with running(
            "pyg+",
            workload,
            prepare=False,
            cores=2,
            budget=MemoryBudget(host),
            **options,
        ) as system:
            system.plan()
            return system.options.sampling_workers  # type: ignore[attr-defined,no-any-return]

    assert planned(None) == planned(1 << 30) == 8
    assert planned(1 << 30, sampling_workers=3) == 3
    bounds = batch_bounds(workload)
    each = bounds.scratch_bytes + 3 * bounds.sampled_bytes
    assert planned(8 * 5 * each) == 5
    assert planned(8 * each) == 2


def test_the_plan_leaves_the_rest_to_the_page_cache(tiny_dataset: Dataset) -> None:
    with running(
        "pyg+", workload_of(tiny_dataset), prepare=False, extract_threads=1
    ) as system:
        assert system.plan().total("host") < tiny_dataset.topology_bytes * 20
    assert_refused(
        r"pyg\+: indptr needs",
        "pyg+",
        workload_of(tiny_dataset),
        budget=MemoryBudget(1000),
    )


def test_a_file_truncated_in_mid_epoch_is_an_error_not_a_signal(tmp_path: Path) -> None:
    dataset = make_tiny(tmp_path / "d")
    with running("pyg+", workload_of(dataset)) as system:
        with pytest.raises(DataIOError, match=r"features\.npy") as caught:
            for batch in system.epoch(0):
                with dataset.file("features").open("r+b") as file:
                    file.truncate(8192)
                batch.release()
        assert caught.value.offset >= 0
    assert [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("pyg+")
    ] == []


def test_fewer_device_tables_where_two_do_not_fit(tiny_dataset: Dataset) -> None:
    workload = workload_of(tiny_dataset)
    with running("pyg+", workload, prepare=False) as system:
        one = system.plan().total("host")
    assert one > 0
    with running(
        "pyg+", workload, device="emulated:instant", device_bytes=64 * 1024
    ) as system:
        assert "1 on the device" in system.notes()["tables"]
        assert run(system)[:2] == reference(workload)
