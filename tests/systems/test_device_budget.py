"""Every system gives back what it pins, and holds no more device memory than it
planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.check.case import Case
from harness.check.stage import make_dataset
from systems.interface import MemoryBudget
from systems.registry import load, names
from tests.systems.pinning import AheadDevice, PinningDevice
from tests.systems.support_systems import reference, run, running, workload_of
from workloads.dataset import Dataset

pytestmark = pytest.mark.timeout(300)
MIB = 1 << 20
# DGL's systems differ from PaGraph in sampler and gather, and some hosts lack its
# library.
SYSTEMS = [
    name
    for name in names()
    if "emulated" in load(name).info.devices and not name.startswith("dgl")
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(
        tmp_path_factory.mktemp("budget"),
        Case("budget", nodes=3000, edges=30000, train=300, dim=127),
    )


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_system_holds_more_device_memory_than_it_planned_nor_keeps_memory_pinned(
    name: str, dataset: Dataset
) -> None:
    device = PinningDevice(2 * MIB)
    workload = workload_of(dataset, batch_size=10)
    with running(
        name, workload, device=device, budget=MemoryBudget(64 * MIB, 2 * MIB), epochs=2
    ) as system:
        planned = system.plan().total("device")
        for epoch in range(2):
            found = run(system, epoch)
            if system.info.faithful:
                assert found[:2] == reference(workload, epoch)
        assert device.peak_bytes <= planned <= 2 * MIB
        system.close()
        assert device.driver.nbytes == 0
        assert device.used_bytes == 0


@pytest.mark.slow("workloads/accelerators", "systems/diskgnn", seconds=6)
def test_host_memory_is_flat_over_thirty_episodes_of_pinned_staging(
    dataset: Dataset, tmp_path: Path
) -> None:
    device = PinningDevice(320 << 10)
    workload = workload_of(dataset, batch_size=10, max_batches=4)
    held = psutil.Process()
    pinned = []
    resident = []
    options: dict[str, Any] = {"episode": 1, "host_cache": "1MiB"}
    with running(
        "diskgnn", workload, root=tmp_path, device=device, epochs=30, **options
    ) as system:
        for epoch in range(30):
            run(system, epoch)
            pinned.append(device.driver.nbytes)
            resident.append(held.memory_info().rss)
    assert min(pinned) > 0
    assert device.driver.most_bytes < 2 * max(pinned)
    assert max(pinned[1:]) - min(pinned[1:]) <= MIB
    # Pinned until the end, twenty more episodes of at least a megabyte would hold
    # twenty megabytes more.
    assert resident[-1] - resident[9] < 12 * MIB


@pytest.mark.parametrize("name", ["uva", "data-tiering"])
@pytest.mark.parametrize("reorder", [True, False])
def test_rows_gathered_ahead_are_the_oracles(
    name: str, reorder: bool, dataset: Dataset
) -> None:
    device = AheadDevice(4 * MIB)
    workload = workload_of(dataset, batch_size=10)
    options: dict[str, Any] = (
        {"cache": "0.1x", "reorder": reorder} if name == "data-tiering" else {}
    )
    with running(name, workload, device=device, **options) as system:
        largest = system.plan().bytes_of("device buffers", "device")
        assert largest > 0
        for epoch in range(2):
            assert run(system, epoch)[:2] == reference(workload, epoch)
        assert device.peak_bytes <= system.plan().total("device")
        for batch in system.epoch(2):
            assert batch.rows is None
            assert batch.ready is not None
            batch.release()
