"""`outcore device` lists every coefficient with its source, and says in one sentence if there is no CUDA device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch


def outcore(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    code = "import sys; from harness.cli import main; main(sys.argv[1:])"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=cwd)


def test_list_names_profiles_sources_and_assumptions() -> None:
    done = outcore("device", "list", "--json")
    assert done.returncode == 0, done.stderr
    devices = {device["name"]: device for device in json.loads(done.stdout)["devices"]}
    assert devices["cpu"]["present"]
    bus = devices["emulated:a10g"]["coefficients"]["bus_bytes_per_s"]
    assert bus["value"] == 7e9
    assert "DiskGNN" in bus["source"]
    assert not bus["assumed"]
    assert devices["emulated:a10g"]["coefficients"]["edge_s"]["assumed"]
    assert "emulated:null" in devices


def test_list_reads_as_a_table() -> None:
    done = outcore("device", "list")
    assert done.returncode == 0
    assert "emulated:a10g" in done.stdout
    assert "zero_copy_bytes_per_s" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has CUDA")
def test_calibrate_without_cuda_exits_3_and_writes_nothing(tmp_path: Path) -> None:
    done = outcore("device", "calibrate", "mine", "--json", cwd=tmp_path)
    assert done.returncode == 3
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "host"
    assert "no CUDA device" in error["message"]
    assert list(tmp_path.iterdir()) == []


def test_calibrate_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("kept")
    done = outcore("device", "calibrate", "mine", cwd=tmp_path)
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert (tmp_path / "mine.toml").read_text() == "kept"
