"""examples/compare.py trains from memory and from disk with equal loss and accuracy,
and prints a row for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import make_tiny

REPOSITORY = Path(__file__).parents[2]
TINY = ["--epochs", "2", "--batch-size", "100", "--hidden", "16", "--memory", "24MiB"]


def compare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / "compare.py"), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OUTCORE_DATA": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def assert_equal_rows(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr[-2000:]
    head, memory, disk, numbers = done.stdout.splitlines()
    assert head.startswith("rows from  system")
    assert max(map(len, (head, memory, disk))) <= 80
    assert memory.startswith("memory")
    assert disk.startswith("disk")
    found = json.loads(numbers)
    assert found["disk"]["loss"] == pytest.approx(found["memory"]["loss"], rel=1e-3)
    assert found["disk"]["test"] == pytest.approx(found["memory"]["test"], abs=0.01)
    assert found["memory"]["bytes_read"] == 0 < found["disk"]["bytes_read"]
    assert found["disk"]["plan_bytes"] <= 24 << 20
    assert found["memory"]["test"] > 0.4  # of five classes or more


@pytest.mark.slow("systems/loading", "examples", seconds=15)
def test_a_dataset_is_trained_from_memory_and_from_disk_alike(tmp_path: Path) -> None:
    make_tiny(tmp_path / "mine", nodes=4000, edges=40_000, dim=256)
    before = sorted(tmp_path.iterdir())
    assert_equal_rows(compare(tmp_path, "mine", *TINY))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow("systems/loading", "examples", seconds=25)
def test_a_graph_is_generated_and_memory_too_small_is_one_sentence(
    tmp_path: Path,
) -> None:
    assert_equal_rows(compare(tmp_path, "--nodes", "6000", *TINY))
    refused = compare(tmp_path, "--nodes", "6000", *TINY, "--memory", "1MiB")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "MiB is the least that fits" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert list(tmp_path.iterdir()) == []
