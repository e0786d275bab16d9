"""The study `fio-grid`, on the disk of the test's own folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.ssd.device import direct_block_bytes
from harness.ssd.fio import fio_path
from harness.studies.base import StudyNeed, find_record, make_study

SMALL = {
    "file_bytes": 8 << 20,
    "threads": [2],
    "depths": [16],
    "wide_blocks": [4096],
    "sequential_bytes": 1 << 20,
    "seconds": 0.2,
}


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "probe").write_bytes(b"0" * 4096)
    if fio_path() is None:
        pytest.skip("fio is not installed")
    if direct_block_bytes(tmp_path / "probe") is None:
        pytest.skip(f"{tmp_path} allows no direct I/O")
    return tmp_path


def test_every_point_of_the_grid_is_measured_and_the_file_is_gone(disk: Path) -> None:
    need = StudyNeed("fio-grid", SMALL)
    record = make_study(need, disk / "data", disk / "results")
    points = record.result["points"]
    assert len(points) == 2 * (1 + 1) + 1 + 1
    assert {(p["engine"], p["direct"]) for p in points} == {
        (engine, direct) for engine in ("sync", "async") for direct in (True, False)
    }
    assert all(p["iops"] > 0 and p["mean_latency_s"] > 0 for p in points)
    assert all(
        p["bytes_per_s"] == pytest.approx(p["iops"] * p["block_bytes"]) for p in points
    )
    assert [p["pattern"] for p in points].count("sequential") == 1
    assert not list((disk / "data").rglob("*.bin"))
    assert find_record(need, disk / "data", disk / "results") == record
