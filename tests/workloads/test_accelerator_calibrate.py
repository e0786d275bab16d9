"""Calibration measures every coefficient, and what it writes is a profile again."""

from __future__ import annotations

from pathlib import Path

import torch

from workloads.accelerator import make_accelerator
from workloads.accelerators.calibrate import CalibrationSize, calibrate, to_toml
from workloads.accelerators.profile import load_profile

SMALL = CalibrationSize(
    table_rows=20_000, rows=20_000, destinations=4000, degree=5, dim=32, hidden=64, launches=50, repeats=9
)


def test_a_measured_profile_is_complete_and_reads_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    profile = calibrate(make_accelerator("cpu"), "here", SMALL)
    assert all(c.value > 0 and not c.assumed for c in profile.coefficients().values())
    assert 1e-8 < profile.kernel_s.value < 1e-2
    assert 1e6 < profile.bus_bytes_per_s.value < 1e13
    path = tmp_path / "here.toml"
    path.write_text(to_toml(profile))
    assert load_profile(str(path)) == profile
    device = make_accelerator(f"emulated:{path}", memory_bytes=1 << 20)
    assert device.name == "emulated:here"
