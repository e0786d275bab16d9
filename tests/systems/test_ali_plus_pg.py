"""`ali+pg`: the oracle's mini-batches from two static caches, reads as simulated, the
best split found and kept."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systems.ali_plus_pg import AliPlusPgOptions
from systems.ali_plus_pg.split import SPLITS, shares
from systems.engine.cache.split_tuner import (
    Candidate,
    SplitForecast,
    best,
    device_seconds,
    disk_class,
    forecast,
)
from systems.engine.io.row_reads import feature_reader
from systems.engine.rank.ranking import out_degrees
from systems.interface import Counters, DiskPoint, DiskProfile, MemoryBudget
from tests.support import make_tiny
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.dataset import Dataset
from workloads.errors import DataIOError, InputError
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

CACHES = "neighbour and feature caches"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_tiny(
        tmp_path_factory.mktemp("ali") / "d", nodes=4000, edges=60_000, dim=127
    )


def counted(workload: Workload, **options: Any) -> Counters:
    with running("ali+pg", workload, **options) as system:
        run(system, 0)
        return system.counters()


def simulated(
    workload: Workload, cache_bytes: int, **options: Any
) -> list[SplitForecast]:
    """Return the tuner's forecast of the first epoch for each split."""
    dataset = workload.dataset
    parts = [shares(workload, cache_bytes, split) for split in SPLITS]
    candidates = [
        Candidate(str(p.split), p.neighbours.list_bytes // 4, p.rows, 1 << 16)
        for p in parts
    ]
    sampler = make_sampler(workload)
    batches = (
        sampler.sample(0, i, seeds)
        for i, seeds in enumerate(make_seed_plan(workload).batches(0))
    )
    with feature_reader(workload, AliPlusPgOptions.model_validate(options)) as reader:
        return forecast(
            workload,
            candidates,
            batches,
            indptr=dataset.load("indptr"),
            degrees=out_degrees(workload),
            reader=reader,
            disk=DiskProfile(),
        )


@pytest.mark.parametrize("device", ["cpu", "emulated:instant"])
@pytest.mark.parametrize("split", ["auto", "0", "50", "100"])
def test_mini_batches_are_the_oracles_in_order(
    dataset: Dataset, device: str, split: str
) -> None:
    workload = workload_of(dataset)
    with running(
        "ali+pg", workload, device=device, split=split, extractors=3
    ) as system:
        for epoch in range(2):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(40))


@pytest.mark.parametrize(
    ("device", "merge"), [("cpu", True), ("cpu", False), ("emulated:instant", True)]
)
def test_executed_reads_are_the_simulated_ones(
    dataset: Dataset, device: str, merge: bool
) -> None:
    workload = workload_of(dataset)
    for foreseen in simulated(workload, 400_000, merge=merge):
        found = counted(
            workload, device=device, split=foreseen.name, cache="400000", merge=merge
        )
        assert (found.rows, found.misses) == (foreseen.rows, foreseen.row_misses)
        assert found.requests_by_size == foreseen.requests_by_size
        assert (found.bytes_read, found.bytes_useful) == (
            foreseen.bytes_read,
            127 * 4 * foreseen.row_misses,
        )
        assert found.observed == {
            "list_reads": foreseen.list_reads,
            "list_hits": foreseen.list_hits,
        }


def test_each_cache_can_be_switched_off(dataset: Dataset) -> None:
    workload = workload_of(dataset)
    rows_only, both, lists_only = (
        counted(workload, split=split, cache="400000") for split in ("0", "50", "100")
    )
    assert (
        rows_only.observed["list_hits"]
        == 0
        < both.observed["list_hits"]
        < lists_only.observed["list_hits"]
    )
    assert rows_only.hits["host"] > both.hits["host"] > lists_only.hits["host"] == 0


def test_rows_of_highest_out_degree_are_the_ones_cached(dataset: Dataset) -> None:
    """Hits equal those of PaGraph's static ranking by out-degree."""
    workload = workload_of(dataset)
    rows = shares(workload, 400_000, 0).rows
    order = np.lexsort(
        (np.arange(4000), -np.bincount(dataset.load("indices"), minlength=4000))
    )
    kept = set(order[:rows].tolist())
    sampler = make_sampler(workload)
    hits = sum(
        int(node) in kept
        for index, seeds in enumerate(make_seed_plan(workload).batches(0))
        for node in sampler.sample(0, index, seeds).nodes
    )
    assert counted(workload, split="0", cache="400000").hits == {"host": hits}


def test_joint_reads_can_be_switched_off(dataset: Dataset) -> None:
    workload = workload_of(dataset, batch_size=200)
    joint, single = (
        counted(workload, split="50", cache="400000", merge=merge)
        for merge in (True, False)
    )
    assert joint.io_requests < single.io_requests == single.misses == joint.misses


def test_counters_do_not_depend_on_threads(dataset: Dataset) -> None:
    workload = workload_of(dataset)
    found = [
        counted(
            workload,
            split="25",
            cache="400000",
            extractors=extractors,
            sampling_workers=workers,
            cores=cores,
        )
        for extractors, workers, cores in ((1, 1, 1), (2, 4, 2), (5, 2, 4))
    ]
    for other in found[1:]:
        assert {**other.as_dict(), "queue_depth": 0} == {
            **found[0].as_dict(),
            "queue_depth": 0,
        }


def prepared(
    workload: Workload, folder: Path, disk: DiskProfile, **options: Any
) -> dict[str, str]:
    with running(
        "ali+pg",
        workload,
        root=folder,
        disk=disk,
        budget=MemoryBudget(16 << 20),
        **options,
    ) as system:
        return system.notes()


def disk_of(small_iops: float, page_iops: float) -> DiskProfile:
    return DiskProfile(
        (DiskPoint(512, 256, small_iops, 0.0), DiskPoint(4096, 256, page_iops, 0.0))
    )


def test_the_split_is_found_once_for_a_setting_and_recorded(
    dataset: Dataset, tmp_path: Path
) -> None:
    workload = workload_of(dataset)
    first = prepared(workload, tmp_path, disk_of(1e5, 1e5), cache="400000")
    assert "auto; predicted 0:100" in first["split"]
    assert first["prepared"] == "made"
    again = prepared(workload, tmp_path, disk_of(1.1e5, 0.95e5), cache="400000")
    assert again["prepared"] == "reused"
    assert again["split"] == first["split"]
    assert (
        prepared(workload, tmp_path, disk_of(1e5, 1e5), cache="300000")["prepared"]
        == "made"
    )
    assert (
        prepared(workload, tmp_path, disk_of(1e6, 1e3), cache="400000")["prepared"]
        == "made"
    )


def test_the_choice_follows_what_reads_cost(dataset: Dataset, tmp_path: Path) -> None:
    """Where reads of rows cost nothing, neighbour lists are cached; where reads of
    pages cost nothing, rows are."""
    workload = workload_of(dataset)
    pages_dear = disk_of(1e9, 10)
    rows_dear = disk_of(10, 1e9)
    forecasts = simulated(workload, 400_000)
    for disk in (pages_dear, rows_dear):
        for entry in forecasts:
            # Rows of 508 bytes take requests of 512 and 1,024 bytes, pages 4,096.
            entry.seconds = device_seconds(entry, disk)
        chosen = forecasts[best(forecasts)]
        if disk is pages_dear:
            assert chosen.page_misses == min(entry.page_misses for entry in forecasts)
        else:
            assert chosen.name == "0"


def test_a_larger_page_cache_misses_fewer_pages(dataset: Dataset) -> None:
    workload = workload_of(dataset)
    sampler = make_sampler(workload)
    batches = [
        sampler.sample(0, i, seeds)
        for i, seeds in enumerate(make_seed_plan(workload).batches(0))
    ]
    with feature_reader(workload, AliPlusPgOptions.model_validate({})) as reader:
        found = forecast(
            workload,
            [Candidate(str(size), 0, 0, size) for size in (0, 1 << 17, 1 << 20)],
            batches,
            indptr=dataset.load("indptr"),
            degrees=out_degrees(workload),
            reader=reader,
            disk=DiskProfile(),
        )
        with pytest.raises(InputError, match="0 candidates"):
            forecast(
                workload,
                [],
                batches,
                indptr=dataset.load("indptr"),
                degrees=out_degrees(workload),
                reader=reader,
                disk=DiskProfile(),
            )
    assert (
        found[0].page_misses
        == found[0].page_accesses
        > found[1].page_misses
        > found[2].page_misses
        == 0
    )


def test_a_disk_measured_anew_is_the_same_disk() -> None:
    assert (
        disk_class(disk_of(1e5, 1e5))
        == disk_class(disk_of(1.2e5, 0.98e5))
        != disk_class(disk_of(3e5, 1e5))
    )
    assert disk_class(DiskProfile()) == []


def test_parts_that_do_not_fit_are_named(dataset: Dataset) -> None:
    workload = workload_of(dataset)
    assert_refused(
        r"ali\+pg: indptr needs", "ali+pg", workload, budget=MemoryBudget(1000)
    )
    fixed = {"extractors": 1, "list_threads": 1, "io_depth": 8}
    assert_refused(
        r"feature caches needs",
        "ali+pg",
        workload,
        budget=MemoryBudget(2 << 20),
        cache="1GiB",
        **fixed,
    )
    small = MemoryBudget(1 << 20)
    assert_refused(
        r"reader buffers|feature tables",
        "ali+pg",
        workload,
        budget=small,
        extractors=8,
        list_threads=1,
    )
    assert_refused(
        r"threads that share.*list_threads",
        "ali+pg",
        workload,
        budget=small,
        list_threads=8,
    )


def test_caches_take_what_the_budget_leaves(dataset: Dataset) -> None:
    workload = workload_of(dataset)
    with running(
        "ali+pg", workload, budget=MemoryBudget(16 << 20), prepare=False
    ) as system:
        parts = {item.name: item.bytes for item in system.plan().items}
        whole = dataset.topology_bytes + dataset.feature_bytes + 12 * dataset.num_nodes
        assert parts[CACHES] == min(
            whole, (16 << 20) - sum(parts.values()) + parts[CACHES]
        )
    with running("ali+pg", workload, prepare=False) as system:
        parts = {item.name: item.bytes for item in system.plan().items}
        assert parts[CACHES] < dataset.feature_bytes


def test_a_file_truncated_in_mid_epoch_is_an_error_and_ends_every_thread(
    tmp_path: Path,
) -> None:
    dataset = make_tiny(tmp_path / "d", nodes=4000, dim=64)
    with running("ali+pg", workload_of(dataset), split="0", cache="100000") as system:
        with pytest.raises(DataIOError, match=r"features\.npy") as caught:
            for batch in system.epoch(0):
                with dataset.file("features").open("r+b") as file:
                    file.truncate(8192)
                batch.release()
        assert caught.value.offset >= 0
    assert [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("ali+pg")
    ] == []
