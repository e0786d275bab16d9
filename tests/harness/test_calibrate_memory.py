"""Memory that a calibration measures: everything charged except pages of files,
whichever process read them first."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cache import Cache
from harness.isolation.base import Limits
from harness.run.calibrate import (
    GateMemory,
    calibrate,
    compiled,
    copy_kernels,
    device_budget,
    kernels_of,
)
from harness.wire.protocol import Gate
from harness.worker.build import KERNELS
from tests.harness.cap_tools import CAPPING, MIB, cold_file, needs_cap, on_disk, python
from tests.harness.records import make_record
from workloads.errors import InputError

# Stops at the gates as a calibration does; the first step reads a file, as a first step
# loads code.
WORKER = """
import os, sys
def gate(name):
    print(name, flush=True)
    sys.stdin.readline()
def read(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
def step():
    held = bytearray(b"x") * (24 << 20)
    return len(held)
if sys.argv[1] == "cold":
    read(sys.argv[2])
early = bytearray(b"x") * (int(sys.argv[4]) << 20)
del early
gate("imports")
module = bytearray(b"x") * (5 << 20)
gate("module")
library = bytearray(b"x") * (12 << 20)
gate("libraries")
model = bytearray(b"x") * (20 << 20)
gate("floor")
log = bytearray(b"x") * (6 << 20)
gate("log")
gate("before step")
step()
read(sys.argv[2])
if sys.argv[3] == "twice":
    gate("step again")
    step()
gate("after step")
"""


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    yield from on_disk()


def to_the_end(argv: list[str], readings: Callable[[Gate], None]) -> None:
    """Run a worker whose gates `readings` opens."""
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line in child.stdout:
            readings(Gate(at=line.strip()))
            child.stdin.write("\n")
            child.stdin.flush()
    assert child.returncode == 0


@needs_cap
@pytest.mark.parametrize("early", [0, 120])
@pytest.mark.parametrize("steps", ["once", "twice"])
def test_a_peak_that_the_kernel_cannot_reset_is_of_the_step_only_if_the_step_raised_it(
    disk: Path, early: int, steps: str
) -> None:
    file = cold_file(disk, 8 * MIB)
    with CAPPING[0]().create("calibrate-test", Limits()) as cap:
        cap.reset_peak = lambda: False  # type: ignore[method-assign]  # as a kernel before 6.12
        readings = GateMemory(cap)
        to_the_end(
            cap.command(python(WORKER, "cold", str(file), steps, str(early))), readings
        )
    training = readings.after - readings.before
    assert readings.peak_is_of_step is (early == 0)
    assert (training > 40 * MIB) is (early > 0), "an upper bound"


@needs_cap
def test_memory_at_the_imports_and_memory_of_libraries_are_two_numbers(
    disk: Path,
) -> None:
    file = cold_file(disk, MIB)
    with CAPPING[0]().create("calibrate-test", Limits()) as cap:
        readings = GateMemory(cap)
        foreign = GateMemory(cap, features=file)

        def both(event: Gate) -> None:
            readings(event)
            if event.at not in (
                "module",
                "libraries",
                "log",
            ):  # a foreign worker has no such gates
                foreign(event)

        to_the_end(cap.command(python(WORKER, "cold", str(file), "once", "0")), both)
    assert readings.at_imports is not None
    assert readings.at_imports > MIB
    assert 16 * MIB < readings.of_libraries < 19 * MIB
    assert readings.of_constructor is None
    assert foreign.at_imports == readings.at_imports
    assert foreign.of_libraries == foreign.of_module == 0
    assert foreign.of_constructor == readings.floor - readings.at_imports


@needs_cap
@pytest.mark.parametrize("read_first", ["cold", "warm"])
@pytest.mark.parametrize("steps", ["once", "twice"])
def test_pages_of_files_are_no_floor_and_no_step(
    disk: Path, read_first: str, steps: str
) -> None:
    file = cold_file(disk, 48 * MIB)
    with CAPPING[0]().create("calibrate-test", Limits()) as cap:
        readings = GateMemory(cap)
        argv = cap.command(python(WORKER, read_first, str(file), steps, "0"))
        to_the_end(argv, readings)
        assert readings.peak_is_of_step
        assert cap.memory().page_cache > 40 * MIB
    assert 37 * MIB < readings.floor < 49 * MIB
    assert 16 * MIB < readings.of_libraries < 19 * MIB
    assert 4 * MIB < readings.of_module < 7 * MIB
    assert 5 * MIB < readings.of_log < 8 * MIB
    training = readings.after - readings.before
    if steps == "twice":
        assert 22 * MIB < training < 28 * MIB
    else:  # without a second step, the peak above the pages read meanwhile
        assert 0 <= training < 28 * MIB


def test_device_memory_that_training_took_is_subtracted_from_the_runs(
    tmp_path: Path,
) -> None:
    step = {
        "training_bytes": 2,
        "training_device_bytes": 3 * MIB,
        "device_context_bytes": 4 * MIB,
    }
    held = {
        "floor": {"built_bytes": 1, "libraries": []},
        "step": {**step, "log_bytes": 5},
        "training": {},
    }
    cache = SimpleNamespace(get=lambda kind, key, *age: held[kind])
    series: Any = SimpleNamespace(cache=cache, isolation=SimpleNamespace(describe=dict))
    config = make_record("gnndrive", [1.0]).config
    spec: Any = SimpleNamespace(config=config, bounds=None)
    measured = calibrate(series, spec, tmp_path)
    assert measured.memory == {**step, "floor_bytes": 6}
    assert (
        device_budget(
            config.model_copy(update={"device_memory_bytes": 10 * MIB}), measured
        )
        == 7 * MIB
    )
    with pytest.raises(InputError, match=r"training takes 3\.0 MiB"):
        device_budget(
            config.model_copy(update={"device_memory_bytes": 3 * MIB}), measured
        )


def test_kernels_of_a_calibration_come_back_for_later_runs_and_are_known_code(
    tmp_path: Path,
) -> None:
    cache = Cache(tmp_path / "cache")
    artefacts = tmp_path / "artefacts"
    copy_kernels(artefacts, kernels_of(cache, "a"))  # nothing was compiled
    file = artefacts / KERNELS / "ABC" / "launch.so"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"compiled")
    assert not compiled(cache, str(file))
    copy_kernels(artefacts, kernels_of(cache, "a"))
    shutil.rmtree(artefacts)  # as before every run
    copy_kernels(kernels_of(cache, "a"), artefacts)
    assert file.read_bytes() == b"compiled"
    assert compiled(cache, str(file))
    file.write_bytes(b"replaced")
    assert not compiled(cache, str(file))
    assert not compiled(cache, str(tmp_path / "elsewhere.so"))
