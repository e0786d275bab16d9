"""`pagraph`: size of the cache, hits, loaded bytes; pipelining overlaps stages and
changes no counter."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest

from systems.engine.rank import ranking
from systems.interface import Counters, MemoryBudget, System
from systems.parts.options import RankingName
from tests.support import make_tiny
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.dataset import Dataset
from workloads.errors import DataIOError
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.workload import Workload

pytestmark = pytest.mark.timeout(60)
ROW = 64  # bytes of a row of the tiny dataset
DEVICES = ["cpu", "emulated:instant"]


def order_of(
    dataset: Dataset, method: RankingName, workload: Workload
) -> npt.NDArray[np.int64]:
    """Return all nodes, highest first, by NumPy alone where that is easy."""
    indices = dataset.load("indices")
    indptr = dataset.load("indptr")
    out = np.bincount(indices, minlength=dataset.num_nodes)
    if method == "out-degree":
        return np.lexsort((np.arange(len(out)), -out))
    if method == "aligraph":
        return np.lexsort(
            (np.arange(len(out)), -(out / np.maximum(1, np.diff(indptr))))
        )
    return ranking.top(ranking.scores(workload, method), dataset.num_nodes)


def expected_hits(
    workload: Workload, cached: npt.NDArray[np.int64], epoch: int, first: int = 0
) -> tuple[int, int]:
    """Count rows of an epoch's mini-batches from `first` on that are in `cached`, and
    rows of all its mini-batches."""
    sampler = make_sampler(workload)
    hits = 0
    rows = 0
    for index, seeds in enumerate(make_seed_plan(workload).batches(epoch)):
        nodes = sampler.sample(epoch, index, seeds).nodes
        rows += len(nodes)
        hits += int(np.isin(nodes, cached).sum()) if index >= first else 0
    return hits, rows


def counters_of(system: System, epochs: int = 2) -> Counters:
    """Run epochs; return the counters of the last."""
    for epoch in range(epochs):
        run(system, epoch)
    return system.counters()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pipeline", [True, False])
def test_mini_batches_are_the_oracles_before_and_after_the_cache_is_filled(
    tiny_dataset: Dataset, device: str, pipeline: bool
) -> None:
    workload = workload_of(tiny_dataset)
    with running(
        "pagraph", workload, device=device, device_bytes=1 << 19, pipeline=pipeline
    ) as system:
        for epoch in range(2):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(20))


@pytest.mark.parametrize("device", DEVICES)
def test_without_a_cache_nothing_hits_and_every_row_is_loaded(
    tiny_dataset: Dataset, device: str
) -> None:
    with running(
        "pagraph", workload_of(tiny_dataset), device=device, cache="0x"
    ) as system:
        counters = counters_of(system)
    assert counters.hits == {"device": 0, "host": counters.rows}
    assert counters.bytes_loaded == counters.rows * ROW


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", get_args(RankingName))
def test_hits_are_what_the_ranking_predicts(
    tiny_dataset: Dataset, device: str, method: RankingName
) -> None:
    workload = workload_of(tiny_dataset)
    cached = order_of(tiny_dataset, method, workload)[:200]
    with running(
        "pagraph", workload, device=device, cache="0.1x", ranking=method
    ) as system:
        run(system, 0)
        # The cache is sized by the memory free after the first mini-batch, so nothing
        # is cached for that one.
        assert (
            system.counters().hits["device"]
            == expected_hits(workload, cached, 0, first=1)[0]
        )
        run(system, 1)
        hits, rows = expected_hits(workload, cached, 1)
        counters = system.counters()
    assert counters.rows == rows
    assert counters.hits == {"device": hits, "host": rows - hits}
    assert counters.bytes_loaded == (rows - hits) * ROW


def test_rankings_cache_different_rows_and_degree_beats_chance(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    hits = {}
    for method in get_args(RankingName):
        with running("pagraph", workload, cache="0.1x", ranking=method) as system:
            hits[method] = counters_of(system).hits["device"]
    assert len(set(hits.values())) == len(hits)
    assert hits["out-degree"] > 1.5 * hits["random"]


def test_the_cache_takes_what_the_device_has_left_after_the_first_mini_batch(
    tiny_dataset: Dataset,
) -> None:
    size = 1 << 17
    with running(
        "pagraph",
        workload_of(tiny_dataset),
        device="emulated:instant",
        device_bytes=size,
        reserve="16KiB",
        device_buffers=1,
    ) as system:
        accelerator = system.runtime.accelerator
        assert isinstance(accelerator, EmulatedAccelerator)
        batches = system.epoch(0)
        first = next(batches)
        before = accelerator.pool.used_bytes
        assert (
            system.plan().total("device") > before
        )  # the cache is planned but not allocated yet
        first.release()
        second = next(batches)
        after = accelerator.pool.used_bytes
        assert size - after - (16 << 10) in range(-4096, 4096 + ROW)
        assert after <= system.plan().total("device") <= size
        assert (
            f"{(after - before) // ROW} of 2000 rows" in system.notes()["device_cache"]
        )
        second.release()
        batches.close()  # type: ignore[attr-defined]


def test_a_reserve_makes_the_cache_smaller_by_as_much(tiny_dataset: Dataset) -> None:
    rows = []
    for reserve in ("0KiB", "32KiB"):
        with running(
            "pagraph",
            workload_of(tiny_dataset),
            device="emulated:instant",
            device_bytes=1 << 17,
            reserve=reserve,
        ) as system:
            run(system)
            rows.append(int(system.notes()["device_cache"].split()[0]))
    assert rows[0] - rows[1] == (32 << 10) // ROW


def loaded_early(system: System, epoch: int) -> int:
    """Count the mini-batches whose loading began while the previous one was held, as
    during training."""
    released = []
    system.clock.drain()
    for batch in system.epoch(epoch):
        time.sleep(0.03)  # long enough for a loader on a busy machine to begin
        released.append(time.monotonic())
        batch.release()
    begun = {
        span.batch: span.start
        for span in system.clock.drain()
        if span.stage == "extract"
    }
    return sum(
        begun[number + 1] < moment for number, moment in enumerate(released[:-1])
    )


@pytest.mark.parametrize("device", DEVICES)
def test_pipelining_overlaps_loading_with_training_and_changes_no_counter(
    tiny_dataset: Dataset, device: str
) -> None:
    found = {}
    for pipeline in (False, True):
        with running(
            "pagraph",
            workload_of(tiny_dataset),
            device=device,
            cache="0.1x",
            pipeline=pipeline,
        ) as system:
            run(system, 0)
            early = loaded_early(system, 1)
            found[pipeline] = (early, system.counters().as_dict())
    assert found[False][0] == 0
    assert found[True][0] == 19
    assert found[False][1] == found[True][1]


@pytest.mark.parametrize("device", DEVICES)
def test_mapped_rows_run_in_a_budget_smaller_than_they_are(
    tmp_path: Path, device: str
) -> None:
    dataset = make_tiny(
        tmp_path / "wide", nodes=20_000, edges=100_000, dim=128, train_fraction=0.01
    )
    workload = workload_of(dataset)
    budget = MemoryBudget(5 << 20)
    with running(
        "pagraph",
        workload,
        device=device,
        device_bytes=2 << 20,
        budget=budget,
        host_store="mapped",
    ) as system:
        assert system.plan().total("host") <= 5 << 20 < dataset.feature_bytes
        assert run(system)[:2] == reference(workload)
        assert run(system, 1)[:2] == reference(workload, 1)
        counters = system.counters()
        assert counters.hits["page_cache"] + counters.hits["device"] == counters.rows
        assert counters.hits["device"] > 0


def test_truncated_mapped_rows_are_an_error_that_ends_the_epoch(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "copy"
    shutil.copytree(tiny_dataset.path, path)
    dataset = Dataset.open(path)
    with running(
        "pagraph", workload_of(dataset), host_store="mapped", cache="0.1x"
    ) as system:
        run(system, 0)
        os.truncate(dataset.file("features"), dataset.data_offset("features") + 100)
        with pytest.raises(DataIOError, match=r"features.npy ends at offset"):
            run(system, 1)


def test_host_memory_too_small_is_refused_by_the_plan(tiny_dataset: Dataset) -> None:
    least = tiny_dataset.feature_bytes + tiny_dataset.topology_bytes
    assert_refused(
        "or set host_store=mapped",
        "pagraph",
        workload_of(tiny_dataset),
        budget=MemoryBudget(least),
    )


def test_a_small_device_holds_one_mini_batch_beside_the_cache_and_a_large_one_two(
    tiny_dataset: Dataset,
) -> None:
    found = {}
    for size in (1 << 16, 1 << 20):
        with running(
            "pagraph",
            workload_of(tiny_dataset),
            device="emulated:instant",
            device_bytes=size,
            prepare=False,
        ) as system:
            found[size] = next(
                item.bytes
                for item in system.plan().items
                if item.name == "device buffers"
            )
    assert found[1 << 20] == 2 * found[1 << 16]


def test_a_device_too_small_is_refused_by_the_part_that_does_not_fit(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    small = {"device": "emulated:instant", "device_bytes": 4096}
    assert_refused("device buffers need", "pagraph", workload, **small)
    assert_refused(
        "device cache needs",
        "pagraph",
        workload,
        device="emulated:instant",
        device_bytes=1 << 16,
        cache="1x",
    )


@pytest.mark.parametrize(
    "options",
    [{"cache": "2x"}, {"cache": "lots"}, {"reserve": "some"}, {"ranking": "luck"}],
)
def test_wrong_options_are_refused(
    tiny_dataset: Dataset, options: dict[str, str]
) -> None:
    with (
        pytest.raises(ValueError),
        running("pagraph", workload_of(tiny_dataset), **options),
    ):
        pass


def test_the_order_of_a_ranking_is_prepared_once(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    def prepared(**options: str) -> str:
        with running(
            "pagraph", workload_of(tiny_dataset), root=tmp_path, **options
        ) as system:
            return system.notes()["prepared"]

    assert [prepared(), prepared(), prepared(ranking="random"), prepared()] == [
        "made",
        "reused",
        "made",
        "reused",
    ]
