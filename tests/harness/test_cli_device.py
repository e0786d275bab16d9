"""`outcore device` lists every coefficient with its source, and says in one sentence if
there is no CUDA device."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.harness.run_tools import outcore_here

Outcore = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def outcore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outcore:
    monkeypatch.chdir(tmp_path)
    return partial(outcore_here, data=tmp_path, results=tmp_path)


def test_list_names_profiles_sources_and_assumptions(outcore: Outcore) -> None:
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


def test_list_reads_as_a_table(outcore: Outcore) -> None:
    done = outcore("device", "list")
    assert done.returncode == 0
    assert "emulated:a10g" in done.stdout
    assert "zero_copy_bytes_per_s" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has CUDA")
def test_calibrate_without_cuda_exits_3_and_writes_nothing(
    outcore: Outcore, tmp_path: Path
) -> None:
    done = outcore("device", "calibrate", "mine", "--json")
    assert done.returncode == 3
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "host"
    assert "no CUDA device" in error["message"]
    assert list(tmp_path.iterdir()) == []


def test_calibrate_never_overwrites(outcore: Outcore, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("kept")
    done = outcore("device", "calibrate", "mine")
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert (tmp_path / "mine.toml").read_text() == "kept"
