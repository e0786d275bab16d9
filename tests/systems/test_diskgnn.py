"""`diskgnn`: faithful on every level, each mechanism visible in its counters, reads as
simulated, budgets kept."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.check.case import Case
from harness.check.stage import make_dataset
from systems.diskgnn.episode import reading_the_graph
from systems.diskgnn.options import DiskGnnOptions
from systems.diskgnn.system import DiskGnn
from systems.engine.io.reader import ReadStats
from systems.interface import MemoryBudget
from tests.systems.support_systems import reference, run, running, workload_of
from workloads.accelerator import Event
from workloads.dataset import Dataset
from workloads.errors import BudgetError
from workloads.feature_table import SplitTable
from workloads.workload import Workload

# Rows of 508 bytes straddle blocks and pages.
CASE = Case("diskgnn", nodes=3000, edges=30000, train=300, dim=127)
NO_CACHES = {"device_cache": "off", "host_cache": "off"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("diskgnn"), CASE)


@pytest.fixture(scope="module")
def workload(dataset: Dataset) -> Workload:
    return workload_of(dataset, batch_size=10)


def prepared(
    workload: Workload, root: Path, *, device_bytes: int = 320 << 10, **arguments: Any
) -> AbstractContextManager[DiskGnn]:
    return running(
        "diskgnn", workload, root=root, device_bytes=device_bytes, **arguments
    )  # type: ignore[return-value]


def predicted_reads(system: DiskGnn, epoch: int) -> ReadStats:
    """Predict the reads of an epoch of the current episode from its plan alone."""
    loader = system._loader
    assert loader is not None
    kept = loader.ready.facts["single_reads"][str(epoch)]
    by_size = {int(size): count for size, count in kept["requests_by_size"].items()}
    total = ReadStats(**{**kept, "requests_by_size": by_size})
    batches = range(loader.ready.num_batches)
    chunks = [loader.ready.chunk(epoch, batch) for batch in batches]
    total.add(loader.reader.simulate(chunks))
    return total


ABLATION: dict[str, dict[str, Any]] = {
    "naive": {**NO_CACHES, "packing": "off", "disk_cache": "off"},
    "+device cache": {"host_cache": "off", "packing": "off", "disk_cache": "off"},
    "+host cache": {"host_cache": "64KiB", "packing": "off", "disk_cache": "off"},
    "+packing": {"host_cache": "64KiB", "disk_cache": "off"},
    "+disk cache": {"host_cache": "64KiB", "disk_limit": "1.8x"},
    "packed one by one": {"host_cache": "64KiB", "packing": "individual"},
    "without pipeline": {"host_cache": "64KiB", "pipeline": False},
}


@pytest.mark.parametrize("device", ["cpu", "emulated:instant"])
@pytest.mark.parametrize("name", ABLATION)
def test_every_level_of_the_ablation_is_faithful_and_reads_as_simulated(
    name: str, device: str, workload: Workload, tmp_path: Path
) -> None:
    with prepared(
        workload, tmp_path, device=device, epochs=2, **ABLATION[name]
    ) as system:
        for epoch in range(2):
            assert run(system, epoch)[:2] == reference(workload, epoch)
            counters = system.counters()
            simulated = predicted_reads(system, epoch)
            assert counters.io_requests == simulated.requests
            assert counters.bytes_read == simulated.bytes_read
            assert counters.requests_by_size == simulated.requests_by_size
            assert sum(counters.hits.values()) + counters.misses == counters.rows


def test_each_level_shows_in_its_counter(workload: Workload, tmp_path: Path) -> None:
    seen = {}
    for name, options in ABLATION.items():
        with prepared(
            workload, tmp_path, device="emulated:instant", epochs=2, **options
        ) as system:
            run(system)
            seen[name] = system.counters()
    naive = seen["naive"]
    device = seen["+device cache"]
    host = seen["+host cache"]
    packing = seen["+packing"]
    disk = seen["+disk cache"]
    assert naive.hits == {"device": 0, "host": 0}
    assert naive.misses == naive.rows
    assert device.hits["device"] > 0
    assert device.hits["host"] == 0
    assert host.hits["host"] > 0
    assert host.bytes_read < device.bytes_read < naive.bytes_read
    # Packing changes how rows are read, not which rows.
    assert packing.misses == host.misses
    assert packing.io_requests < host.io_requests / 10
    assert packing.bytes_read < host.bytes_read
    assert packing.hits["disk_cache"] == 0 < disk.hits["disk_cache"]
    assert disk.misses + disk.hits["disk_cache"] == packing.misses
    assert disk.bytes_useful == packing.bytes_useful
    # Neither the way of packing nor overlapping stages changes any read.
    assert seen["packed one by one"] == packing
    assert (
        seen["without pipeline"].misses <= packing.misses
    )  # fewer buffers leave more rows to the caches


def test_caches_hold_the_rows_that_are_asked_for_most(
    workload: Workload, tmp_path: Path
) -> None:
    with prepared(workload, tmp_path, epochs=1, host_cache="64KiB") as system:
        times: dict[int, int] = {}
        for batch in system.epoch(0):
            assert batch.rows is not None
            for node in batch.sampled.nodes.tolist():
                times[node] = times.get(node, 0) + 1
            batch.release()
        cached = (64 << 10) // 508
        best = sum(sorted(times.values(), reverse=True)[:cached])
        assert system.counters().hits["host"] == best


def test_the_device_reads_the_host_caches_rows_itself_and_only_rows_from_disk_are_copied(
    workload: Workload, tmp_path: Path
) -> None:
    with prepared(
        workload, tmp_path, device="emulated:instant", epochs=1, host_cache="64KiB"
    ) as system:
        copied = []
        copy = system.runtime.accelerator.copy

        def counted(
            dst: torch.Tensor, src: torch.Tensor, *rest: Any, **named: Any
        ) -> Event:
            copied.append(len(src))
            return copy(dst, src, *rest, **named)

        system.runtime.accelerator.copy = counted  # type: ignore[method-assign]
        by_zero_copy = 0
        for batch in system.epoch(0):
            assert isinstance(batch.table, SplitTable)
            assert batch.rows is not None
            by_zero_copy += batch.table.split(batch.rows)[1]
            batch.release()
        counters = system.counters()
        assert by_zero_copy == counters.hits["host"] > 0
        assert sum(copied) == counters.misses + counters.hits["disk_cache"] > 0


def test_minhash_order_reads_less_than_the_order_of_ids(
    workload: Workload, tmp_path: Path
) -> None:
    read = {}
    for hashes in (0, 2):
        with prepared(
            workload,
            tmp_path,
            epochs=1,
            **NO_CACHES,
            segment=5,
            hashes=hashes,
            io_granularity="4096",
        ) as system:
            assert run(system)[:2] == reference(workload)
            read[hashes] = system.counters().bytes_read
    assert read[2] < read[0]


def test_replayed_samples_repeat_one_epoch_and_the_notes_state_so(
    workload: Workload, tmp_path: Path
) -> None:
    assert DiskGnn.is_faithful(DiskGnnOptions())
    for every, drawn in ((2, [0, 0, 2]), (0, [0, 0, 0])):
        options = DiskGnnOptions(resample_every=every)
        assert not DiskGnn.is_faithful(options)
        with prepared(workload, tmp_path, epochs=3, resample_every=every) as system:
            nodes = []
            for epoch in range(3):
                batches = []
                for batch in system.epoch(epoch):
                    assert batch.sampled.epoch == epoch
                    batches.append(batch.sampled.nodes.copy())
                    batch.release()
                nodes.append(b"".join(part.tobytes() for part in batches))
            assert [nodes.index(nodes[drawn[epoch]]) for epoch in range(3)] == [
                drawn.index(d) for d in drawn
            ]
            assert "not faithful" in system.notes()["samples"]


def test_an_unannounced_epoch_is_prepared_when_it_comes(
    workload: Workload, tmp_path: Path
) -> None:
    with prepared(workload, tmp_path, host_cache="64KiB") as system:
        assert system.notes()["epochs_prepared"] == "0"
        system.clock.drain()
        assert run(system, 0)[:2] == reference(workload, 0)
        assert {span.stage for span in system.clock.drain()} == {
            "load_graph",
            "extract",
            "assemble",
        }
        assert run(system, 1)[:2] == reference(workload, 1)
        stages = {span.stage for span in system.clock.drain()}
        assert {"sample", "inspect", "pack", "switch"} < stages
    with prepared(workload, tmp_path, epochs=3) as system:
        assert system.notes()["epochs_prepared"] == "0, 1, 2"
        system.clock.drain()
        assert run(system, 2)[:2] == reference(workload, 2)
        assert "pack" not in {span.stage for span in system.clock.drain()}


def test_a_run_within_a_small_budget_is_faithful_and_plans_within_it(
    workload: Workload, tmp_path: Path
) -> None:
    host = 8 << 20
    budget = MemoryBudget(host, 320 << 10)
    for device in ("cpu", "emulated:instant"):
        with prepared(
            workload, tmp_path, device=device, budget=budget, epochs=2
        ) as system:
            assert system.plan().total("host") <= host
            assert run(system, 1)[:2] == reference(workload, 1)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (
            "samplers|access counts|sampled mini-batches|threads",
            {"budget": MemoryBudget(100_000)},
        ),
        ("device table", {"device": "emulated:instant", "device_bytes": 4096}),
        (
            "device_cache of 310KiB",
            {"device": "emulated:instant", "device_cache": "310KiB"},
        ),
        ("host_cache of 1GiB", {"budget": MemoryBudget(8 << 20), "host_cache": "1GiB"}),
        (
            "partition and chunk buffers",
            {"budget": MemoryBudget(8 << 20), "packing_memory": "1GiB"},
        ),
    ],
)
def test_the_part_that_does_not_fit_is_named(
    message: str, arguments: dict[str, Any], workload: Workload, tmp_path: Path
) -> None:
    with (
        pytest.raises(BudgetError, match=message),
        prepared(workload, tmp_path, **arguments),
    ):
        pass


def _packed(
    workload: Workload, root: Path, epochs: int, **options: Any
) -> list[tuple[int, int]]:
    """Return epochs served and bytes of the packed files of each episode."""
    found = []
    with prepared(workload, root, epochs=epochs, prepare=False, **options) as system:
        system.prepare()
        assert system.files() == [], (
            "work of single epochs is no part of what is prepared once"
        )
        epoch = 0
        while epoch < epochs:
            served = system.prepare_epochs(epoch)
            found.append((served, sum(path.stat().st_size for path in system.files())))
            epoch += served
    return found


def test_every_epoch_is_prepared_for_itself_whatever_their_number(
    workload: Workload, tmp_path: Path
) -> None:
    two = _packed(workload, tmp_path / "two", 2, episode=1, host_cache="64KiB")
    four = _packed(workload, tmp_path / "four", 4, episode=1, host_cache="64KiB")
    assert [served for served, _ in four] == [1, 1, 1, 1]
    assert [size for _, size in four[:2]] == pytest.approx(
        [size for _, size in two], abs=64
    ), "but for recorded times"
    assert [
        served
        for served, _ in _packed(workload, tmp_path / "whole", 4, host_cache="64KiB")
    ] == [4]


def test_epochs_of_an_episode_share_a_pass_and_those_of_set_length_nothing(
    workload: Workload, tmp_path: Path
) -> None:
    with prepared(
        workload, tmp_path / "whole", epochs=4, prepare=False, host_cache="64KiB"
    ) as system:
        system.prepare()
        began = time.monotonic()
        assert system.prepare_epochs(0) == 4
        assert system.facts().pack_s is not None
        assert system.facts().pack_s / 8 < system.shared_s() < time.monotonic() - began
    with prepared(
        workload,
        tmp_path / "one",
        epochs=4,
        prepare=False,
        episode=1,
        host_cache="64KiB",
    ) as system:
        system.prepare()
        assert system.prepare_epochs(0) == 1
        assert system.shared_s() == 0.0


def test_sampling_that_reads_the_graph_is_reported_from_sampling_itself() -> None:
    """Two epochs of four mini-batches: the first three take 1 s each, the others 0.25
    s."""
    seconds = np.cumsum([1.0, 1.0, 1.0, 0.25, 0.25, 0.25, 0.25, 0.25]).tolist()
    assert reading_the_graph(seconds, 2) == pytest.approx(4.25 - 8 * 0.25)
    assert reading_the_graph(seconds[:4], 1) == 0.0
    assert reading_the_graph([1.0, 1.5], 2) == 0.0


def test_a_replay_is_prepared_once(workload: Workload, tmp_path: Path) -> None:
    with prepared(
        workload,
        tmp_path,
        epochs=4,
        prepare=False,
        resample_every=0,
        host_cache="64KiB",
    ) as system:
        system.prepare()
        assert system.files()
        assert system.prepare_epochs(0) == 0
        assert system.facts().samples_reused
