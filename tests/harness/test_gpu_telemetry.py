"""Telemetry of GPUs over stub drivers: the run's devices by UUID, in CUDA's order; slices; counters; errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness.cap_tools import MIB
from tests.harness.driver_stubs import Drivers, built_drivers, drivers, slice_uuid, uuid

__all__ = ["built_drivers", "drivers"]

GIB = 1024 * MIB
READ = """
import json, sys
from dataclasses import asdict
from harness.telemetry.gpu import GpuSource, cuda_uuids
uuids = cuda_uuids()
source = GpuSource(uuids if sys.argv[1] == "all" else uuids[int(sys.argv[1]) :][:1])
first, second = source.read(), source.read()
print(json.dumps([source.present, first and asdict(first), second and asdict(second)]))
source.close()
"""


def read(drivers: Drivers, which: str = "all", **how: Any) -> tuple[bool, dict[str, Any], dict[str, Any]]:
    """Read twice the GPUs that CUDA shows, all of them or the one of this number."""
    done = drivers.python(READ, which, **how)
    assert done.returncode == 0, done.stderr
    present, first, second = json.loads(done.stdout)
    return present, first or {}, second or {}


@pytest.mark.parametrize(
    ("how", "number", "device"),
    [
        ({}, 1, 1),
        ({"order": "2,0,1"}, 0, 2),  # CUDA puts the fastest device first
        ({"order": "2,0,1", "visible": "1"}, 0, 0),
        ({"visible": "2,0"}, 0, 2),
        ({"visible": "2,0"}, 1, 0),
        ({"visible": uuid(2)}, 0, 2),
        ({"visible": f"{uuid(1)},{uuid(0)}"}, 1, 0),
    ],
)
def test_the_device_of_a_rank_is_the_one_that_cuda_shows_it(
    drivers: Drivers, how: dict[str, Any], number: int, device: int
) -> None:
    present, first, second = read(drivers, str(number), devices=3, **how)
    assert present and first["kernel_percent"] == 10 * (device + 1) and first["memory_bytes"] == (device + 1) * GIB
    assert second["energy_j"] - first["energy_j"] == 1000 * (device + 1)


def test_several_devices_are_summed_or_averaged(drivers: Drivers) -> None:
    _, first, second = read(drivers, devices=3)
    assert first["kernel_percent"] == 20 and first["memory_bytes"] == 6 * GIB
    assert second["energy_j"] - first["energy_j"] == 6000
    # Metric m of device d is m + 100 d in the stub: busy multiprocessors are 2, bytes to and from it 21 and 20.
    assert second["sm_percent"] == 2 + 100
    assert second["pcie_in"] == (3 * 21 + 300) * MIB and second["pcie_out"] == (3 * 20 + 300) * MIB


def test_a_slice_tells_its_memory_and_hides_its_utilisation(drivers: Drivers) -> None:
    present, first, _ = read(drivers, devices=2, cut=1, visible=slice_uuid(1, 1))
    assert present and first["kernel_percent"] is None and first["memory_bytes"] == 200 * MIB


@pytest.mark.parametrize(
    "fail", ["nvmlDeviceGetUtilizationRates=3", "nvmlDeviceGetTotalEnergyConsumption=3", "nvmlGpmQueryDeviceSupport=3"]
)
def test_a_reading_that_a_device_refuses_is_unknown_and_the_others_stay(drivers: Drivers, fail: str) -> None:
    present, _, second = read(drivers, devices=2, fail=fail)
    unknown = {name for name, value in second.items() if value is None}
    wanted = {"Utilization": {"kernel_percent"}, "Energy": {"energy_j"}, "Gpm": {"sm_percent", "pcie_in", "pcie_out"}}
    assert present and unknown == next(names for part, names in wanted.items() if part in fail)


@pytest.mark.parametrize(
    "how",
    [
        {"devices": 0},
        {"devices": 2, "visible": ""},
        {"fail": "cuInit=999"},
        {"fail": "cuDeviceGetUuid_v2=1"},
        {"fail": "nvmlInit=9"},
        {"fail": "nvmlDeviceGetHandleByUUID=999"},
    ],
)
def test_no_device_is_unknown_and_not_idle(drivers: Drivers, how: dict[str, Any]) -> None:
    assert read(drivers, **how) == (False, {}, {})
