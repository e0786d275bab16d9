"""`outcore trace --fio`: the requests of a run as a job that plain fio replays, request
by request."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.cache import Cache
from harness.drives.requests import Stream, requests_of, write_replay
from harness.records.latency import rows
from harness.results.store import read_record, run_folders
from harness.ssd.fio import best_engine, fio_path
from tests.harness.records import make_record
from tests.harness.run_tools import outcore_here, profile_briefly, share_cache
from tests.support import make_tiny
from workloads.errors import InputError

ARGUMENTS = (
    *("--dataset", "tiny", "--isolation", "none", "--memory", "+64MiB"),
    *("--device", "emulated:null", "--device-memory", "1MiB", "--epochs", "2"),
    *("--fanout", "3,3", "--batch-size", "40", "--max-batches", "4"),
)


def blocks_read() -> int:
    """Return the blocks of 512 bytes that ended children read from devices."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock


def replayed(job: Path) -> dict[str, Any]:
    """Replay a job with fio and return its group's numbers."""
    command = ["fio", job.name, "--output-format=json"]
    done = subprocess.run(
        command, cwd=job.parent, capture_output=True, text=True, check=True, timeout=60
    )
    report = json.loads(done.stdout[done.stdout.index("{") :])
    (group,) = report["jobs"]
    return dict(group)


@pytest.mark.skipif(fio_path() is None, reason="needs fio")
@pytest.mark.parametrize("system", ["ginex", "diskgnn"])
def test_fio_replays_each_request_of_a_run(
    system: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if best_engine() != "io_uring":
        pytest.skip("needs io_uring")
    data = tmp_path / "data"
    results = tmp_path / "results"
    make_tiny(data / "tiny")
    share_cache(results, tmp_path_factory)
    profile_briefly(data / "tiny" / "features.npy", results / "cache")
    roots: dict[str, Path] = {"data": data, "results": results}
    done = outcore_here("run", system, *ARGUMENTS, **roots)
    assert done.returncode == 0, done.stderr
    (folder,) = run_folders(results)
    out = tmp_path / "replay"
    traced = outcore_here(
        "trace", folder.name, "--fio", "--out", str(out), "--json", **roots
    )
    assert traced.returncode == 0, traced.stderr
    found = json.loads(traced.stdout)
    (epoch,) = read_record(folder).measured
    assert found["requests"] == sum(row.requests for row in rows(epoch.latencies))
    before = blocks_read()
    group = replayed(Path(found["file"]))
    sides = [group["read"], group["write"]]
    assert not group["error"]
    assert sum(side["total_ios"] for side in sides) == found["requests"]
    # By the kernel's count: fio leaves out the bytes of the last requests of a log.
    assert 512 * (blocks_read() - before) >= found["bytes"]


def test_a_log_has_the_requests_in_order(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_bytes(bytes(1 << 20))
    requests = np.array([[8192, 4096, 0], [0, 512, 0]], dtype=np.uint64)
    job = write_replay([Stream(table, 64, requests)], tmp_path / "out")
    assert "iodepth=64\n" in job.read_text("utf-8")
    log = (tmp_path / "out" / "stream-0.log").read_text("utf-8")
    assert log.splitlines() == [
        "fio version 2 iolog",
        f"{table} add",
        f"{table} open",
        f"{table} read 8192 4096",
        f"{table} read 0 512",
        f"{table} close",
    ]


@pytest.mark.parametrize("name", ["gone", "white space"])
def test_a_file_that_fio_cannot_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "white space").write_bytes(b"0")
    stream = Stream(tmp_path / name, 1, np.zeros((1, 3), dtype=np.uint64))
    with pytest.raises(InputError, match=name):
        write_replay([stream], tmp_path / "out")


def test_a_run_without_requests_of_its_own_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    record = make_record("pyg+", [1.0])
    for epoch in record.epochs:
        epoch.counters = {"observed": {"major_faults": 5.0}}
    with pytest.raises(InputError, match="pages fault"):
        requests_of(record, tmp_path, Cache(tmp_path / "cache"))
