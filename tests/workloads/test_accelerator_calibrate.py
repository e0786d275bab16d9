"""Calibration measures every coefficient and writes a valid profile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from workloads.accelerators.calibrate import (
    CalibrationSize,
    _beyond,
    calibrate,
    to_toml,
)
from workloads.accelerators.make import make_accelerator
from workloads.accelerators.profile import Profile, load_profile
from workloads.errors import HostError

SMALL = CalibrationSize(
    table_rows=20_000,
    rows=20_000,
    destinations=4000,
    degree=5,
    dim=32,
    hidden=64,
    launches=50,
    repeats=9,
)


def measure_here(attempts: int = 5) -> Profile:
    """Calibrate, and try again where other tests on the machine make the measurement
    too noisy."""
    for _ in range(attempts):
        try:
            return calibrate(make_accelerator("cpu"), "here", SMALL)
        except HostError:
            continue
    return calibrate(make_accelerator("cpu"), "here", SMALL)


def test_a_measurement_drowned_in_noise_is_refused_and_not_made_up() -> None:
    assert _beyond(3.0, 1.0) == 2.0
    with pytest.raises(HostError, match="too busy"):
        _beyond(1.0, 1.0)


def test_a_measured_profile_is_complete_and_reads_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    profile = measure_here()
    coefficients = profile.coefficients()
    assert not any(c.assumed for c in coefficients.values())
    # After the launches of a tiny step no time may be left for the rest.
    assert all(c.value > 0 for name, c in coefficients.items() if name != "step_s")
    assert 1e-8 < profile.kernel_s.value < 1e-2
    assert 1e6 < profile.bus_bytes_per_s.value < 1e13
    path = tmp_path / "here.toml"
    path.write_text(to_toml(profile))
    assert load_profile(str(path)) == profile
    device = make_accelerator(f"emulated:{path}", memory_bytes=1 << 20)
    assert device.name == "emulated:here"
