"""`uva` and `data-tiering`: placement of rows, bytes saved by hot rows, and equal
results without hot rows."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from systems.engine.rank import ranking
from systems.interface import System
from systems.parts.options import RankingName
from tests.systems.support_systems import (
    assert_refused,
    reference,
    run,
    running,
    workload_of,
)
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.dataset import Dataset
from workloads.feature_table import SplitTable
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.training import Trainer

pytestmark = pytest.mark.timeout(60)
ROW = 64
DEVICES = ["cpu", "emulated:instant"]


@pytest.mark.parametrize("name", ["uva", "data-tiering"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("store", ["memory", "mapped"])
def test_mini_batches_are_the_oracles(
    tiny_dataset: Dataset, name: str, device: str, store: str
) -> None:
    workload = workload_of(tiny_dataset)
    with running(
        name, workload, device=device, device_bytes=1 << 16, host_store=store
    ) as system:
        for epoch in range(2):
            structure, features, order = run(system, epoch)
            assert (structure, features) == reference(workload, epoch)
            assert order == list(range(20))


def parts(system: System, epoch: int = 1) -> set[tuple[int, int]]:
    """Return the numbers of rows in the device's and the host's part of the epoch's
    tables."""
    found = set()
    for batch in system.epoch(epoch):
        assert isinstance(batch.table, SplitTable)
        found.add((len(batch.table.device), len(batch.table.host)))
        batch.release()
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_uva_has_nothing_on_the_device(tiny_dataset: Dataset, device: str) -> None:
    with running("uva", workload_of(tiny_dataset), device=device) as system:
        assert system.plan().total("device") == 0
        assert parts(system) == {(0, 2000)}
        counters = system.counters()
        assert counters.hits == {"device": 0, "host": counters.rows}
        assert counters.bytes_loaded == counters.rows * ROW


@pytest.mark.parametrize("device", DEVICES)
def test_data_tiering_without_hot_rows_is_uva(
    tiny_dataset: Dataset, device: str
) -> None:
    found = []
    for name, options in (("uva", {}), ("data-tiering", {"cache": "0x"})):
        with running(
            name, workload_of(tiny_dataset), device=device, **options
        ) as system:
            digests = run(system, 1)
            found.append(
                (
                    digests,
                    system.counters().as_dict(),
                    [item.bytes for item in system.plan().items],
                )
            )
    assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", get_args(RankingName))
@pytest.mark.parametrize("reorder", [True, False])
def test_hot_rows_are_those_of_highest_score(
    tiny_dataset: Dataset, device: str, method: RankingName, reorder: bool
) -> None:
    workload = workload_of(tiny_dataset)
    hot = ranking.top(ranking.scores(workload, method), 200)
    sampler = make_sampler(workload)
    rows = 0
    hits = 0
    for index, seeds in enumerate(make_seed_plan(workload).batches(1)):
        nodes = sampler.sample(1, index, seeds).nodes
        rows = rows + len(nodes)
        hits = hits + int(np.isin(nodes, hot).sum())
    with running(
        "data-tiering",
        workload,
        device=device,
        cache="0.1x",
        ranking=method,
        reorder=reorder,
    ) as system:
        assert run(system, 0)[:2] == reference(workload)
        # In a reordered graph an id indexes the two parts together; else the host's
        # part has every row at its id.
        assert parts(system) == {(200, 1800 if reorder else 2000)}
        counters = system.counters()
    assert counters.hits == {"device": hits, "host": rows - hits}
    assert counters.bytes_loaded == (rows - hits) * ROW


def test_a_modelled_step_reads_hot_rows_from_the_device_and_cold_ones_over_the_bus(
    tiny_dataset: Dataset,
) -> None:
    workload = workload_of(tiny_dataset)
    seconds = {}
    split = []
    for name, options in (("uva", {}), ("data-tiering", {"cache": "0.5x"})):
        with running(name, workload, device="emulated:a10g", **options) as system:
            run(system, 0)
            accelerator = system.runtime.accelerator
            assert isinstance(accelerator, EmulatedAccelerator)
            trainer = Trainer(workload.model, 16, 5, accelerator)
            seconds[name] = 0.0
            for batch in system.epoch(1):
                assert isinstance(batch.table, SplitTable)
                assert batch.rows is not None
                seconds[name] += (
                    trainer.modelled_seconds(batch.sampled, batch.table, batch.rows)
                    or 0.0
                )
                split.append(batch.table.split(batch.rows))
                batch.release()
            assert (
                sum(hot for hot, _ in split[-20:]) == system.counters().hits["device"]
            )
    reading = [sum(accelerator.read_seconds(hot, cold, ROW)) for hot, cold in split]
    assert all(hot == 0 for hot, _ in split[:20])
    assert all(hot > 0 for hot, _ in split[20:])
    assert seconds["uva"] - seconds["data-tiering"] == pytest.approx(
        sum(reading[:20]) - sum(reading[20:])
    )


def test_hot_rows_take_the_device_but_for_the_reserve(tiny_dataset: Dataset) -> None:
    with running(
        "data-tiering",
        workload_of(tiny_dataset),
        device="emulated:instant",
        device_bytes=1 << 16,
        reserve="16KiB",
    ) as system:
        run(system)
        hot = (48 << 10) // ROW
        assert parts(system) == {(hot, 2000 - hot)}


def test_the_reordered_graph_needs_no_map_and_is_kept_on_disk(
    tiny_dataset: Dataset,
) -> None:
    found = {}
    for reorder in (True, False):
        with running(
            "data-tiering", workload_of(tiny_dataset), cache="0.1x", reorder=reorder
        ) as system:
            plan = system.plan()
            found[reorder] = {
                item.name: item.bytes for item in plan.items if item.bytes
            }
            files = {file.name for file in system.files()}
            assert ("indices.npy" in files) == reorder
            assert system.notes()["prepared"] == "made"
    assert "cache map" not in found[True]
    assert "cache map" in found[False]
    assert found[True]["reordered dataset"] >= tiny_dataset.total_bytes
    assert "reordered dataset" not in found[False]


def test_more_hot_rows_than_the_device_holds_are_refused(tiny_dataset: Dataset) -> None:
    assert_refused(
        "device cache needs",
        "data-tiering",
        workload_of(tiny_dataset),
        device="emulated:instant",
        device_bytes=1 << 16,
        cache="1x",
    )
