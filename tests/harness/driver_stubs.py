"""Stub drivers of GPUs that are not there, built from `tests/native/stub_*.cpp` and
loaded by child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import made_once

SOURCES = Path(__file__).parents[1] / "native"
LIBRARIES = {"libcuda.so.1": "stub_cuda.cpp", "libnvidia-ml.so.1": "stub_nvml.cpp"}
COMPILER = os.environ.get("CXX", "c++")


def uuid(device: int, kind: str = "GPU") -> str:
    """Return the UUID of a stub device, as NVML and `CUDA_VISIBLE_DEVICES` write it."""
    return f"{kind}-abababab-abab-abab-abab-ababababab{device:02x}"


def slice_uuid(device: int, number: int) -> str:
    """Return the UUID of a slice of a device that is cut in slices."""
    return uuid(16 * (device + 1) + number, "MIG")


@dataclass(frozen=True)
class Drivers:
    """Folder of the built libraries, and the environment of a process that loads
    them."""

    folder: Path
    log: Path

    def environment(
        self,
        *,
        devices: int = 1,
        order: str = "",
        cut: int | None = None,
        fail: str = "",
        visible: str | None = None,
    ) -> dict[str, str]:
        """Return variables for a child process.

        Args:
            devices: devices of the host.
            order: NVML's indices in CUDA's order, as `2,0,1`; empty for the same order.
            cut: index of the device that is cut in two MIG slices.
            fail: functions that fail, with their codes, as `cuInit=100,nvmlInit=9`.
            visible: value of CUDA_VISIBLE_DEVICES.
        """
        found = {
            "LD_LIBRARY_PATH": str(self.folder),
            "STUB_DEVICES": str(devices),
            "STUB_LOG": str(self.log),
        }
        found |= {} if cut is None else {"STUB_MIG": str(cut)}
        found |= {
            name: value
            for name, value in (("STUB_FAIL", fail), ("STUB_ORDER", order))
            if value
        }
        return found | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})

    def python(
        self, code: str, *arguments: str, **how: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a Python program over the stub drivers, `how` as for `environment`."""
        variables = {
            name: value
            for name, value in os.environ.items()
            if name != "CUDA_VISIBLE_DEVICES"
        }
        variables |= {
            "PYTHONPATH": os.pathsep.join(sys.path),
            **self.environment(**how),
        }  # type: ignore[arg-type]
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def calls(self) -> list[tuple[str, int]]:
        """Return the calls so far, each with its number: a device or bytes."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(name, int(value)) for name, value in (line.split() for line in lines)]


@pytest.fixture(scope="session")
def built_drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both libraries once for all processes of the session."""

    def build(folder: Path) -> None:
        for library, source in LIBRARIES.items():
            command = [
                COMPILER,
                "-std=c++20",
                "-O1",
                "-shared",
                "-fPIC",
                "-Wall",
                "-Wextra",
                "-Werror",
            ]
            subprocess.run(
                [*command, "-o", str(folder / library), str(SOURCES / source)],
                check=True,
            )

    return made_once(tmp_path_factory, "drivers", build)


@pytest.fixture
def drivers(built_drivers: Path, tmp_path: Path) -> Drivers:
    """Return the stub drivers with a log of this test's calls."""
    return Drivers(built_drivers, tmp_path / "driver-calls")
