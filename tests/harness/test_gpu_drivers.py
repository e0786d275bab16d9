"""Proof of the cap, and devices of the record, over stub drivers: pinned memory,
several devices, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.isolation import probe_child
from harness.isolation.probe import probe
from tests.harness.cap_tools import CAPPING, MIB, needs_cap, on_disk
from tests.harness.driver_stubs import Drivers, built_drivers, drivers

__all__ = ["built_drivers", "drivers"]
PROBE = Path(probe_child.__file__)
disk = pytest.fixture(on_disk)


def pin(
    drivers: Drivers, kind: str = "registered", **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run the program that pins 192 MiB, without a cap."""
    return subprocess.run(
        [sys.executable, "-S", "-E", str(PROBE), kind, str(192 * MIB)],
        input="g",
        env=drivers.environment(**how),
        capture_output=True,
        text=True,
        timeout=60,
    )


# The proof of the cap


@pytest.mark.slow("harness/telemetry", "workloads/accelerators", seconds=6)
def test_the_proof_pins_own_pages_as_runs_do(drivers: Drivers) -> None:
    done = pin(drivers)
    assert done.stdout.splitlines()[0] == "ready" and "escaped" in done.stdout, (
        done.stderr
    )
    pinned = [value for name, value in drivers.calls() if name == "cuMemHostRegister"]
    assert sum(pinned) >= 192 * MIB
    assert "cuMemHostAlloc" not in dict(drivers.calls())


@pytest.mark.parametrize(
    ("kind", "call"), [("pinned", "cuMemHostAlloc"), ("managed", "cuMemAllocManaged")]
)
def test_memory_that_cuda_allocates_is_tried_too(
    drivers: Drivers, kind: str, call: str
) -> None:
    assert "escaped" in pin(drivers, kind).stdout
    assert call in dict(drivers.calls())


def test_a_driver_that_refuses_to_pin_is_no_escape(drivers: Drivers) -> None:
    done = pin(drivers, fail="cuMemHostRegister=2")
    assert "refused" in done.stdout
    assert "escaped" not in done.stdout


@pytest.mark.parametrize(
    "how",
    [{"devices": 0}, {"fail": "cuInit=999"}, {"fail": "cuDevicePrimaryCtxRetain=2"}],
)
def test_a_proof_without_a_device_or_context_ends_before_it_is_ready(
    drivers: Drivers, how: dict[str, Any]
) -> None:
    done = pin(drivers, **how)
    assert done.returncode
    assert "ready" not in done.stdout
    assert "no CUDA" in done.stderr


@needs_cap
@pytest.mark.root
@pytest.mark.parametrize("backend", CAPPING, ids=lambda backend: backend.name)
def test_pinning_past_a_cap_is_stopped(
    drivers: Drivers, disk: Path, monkeypatch: pytest.MonkeyPatch, backend: Any
) -> None:
    for name, value in drivers.environment().items():
        monkeypatch.setenv(name, value)
    found = probe(backend(), disk, gpu=True)
    assert found.pinned_stopped is True and found.proven, found
    assert "cuMemHostRegister" in dict(drivers.calls())


@needs_cap
@pytest.mark.root
def test_a_host_without_a_device_proves_nothing_about_pinned_memory(
    drivers: Drivers, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in drivers.environment(devices=0).items():
        monkeypatch.setenv(name, value)
    found = probe(CAPPING[0](), disk, gpu=True)
    assert found.pinned_stopped is None
    assert found.proven


# The record

GPUS = (
    "import json; from harness.records.environment import gpus; "
    "print(json.dumps(gpus()))"
)


def test_every_device_is_in_the_record(drivers: Drivers) -> None:
    found = json.loads(drivers.python(GPUS, devices=2).stdout)
    assert [one["model"] for one in found] == ["Stub GPU 0", "Stub GPU 1"]
    assert {one["memory_bytes"] for one in found} == {80 << 30}
    assert {one["driver"] for one in found} == {"580.00.stub"}


@pytest.mark.parametrize(
    "fail", ["nvmlInit=9", "nvmlDeviceGetMemoryInfo=3", "nvmlDeviceGetCount=999"]
)
def test_a_failing_library_is_no_device(drivers: Drivers, fail: str) -> None:
    done = drivers.python(GPUS, devices=2, fail=fail)
    assert json.loads(done.stdout) == [], done.stderr
