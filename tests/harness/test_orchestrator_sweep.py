"""A sweep that is killed loses the run in flight and nothing else; whatever ends it,
nothing is left behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records import seal
from harness.results import store as results
from tests.harness.run_tools import (
    MISBEHAVING,
    SETTINGS,
    caps_of,
    command,
    environment,
    outcore,
    share_cache,
    workers_of,
)
from tests.support import make_tiny

pytestmark = pytest.mark.alone

EXPERIMENT = {
    "name": "killed",
    "run": {**SETTINGS, "options": {"extract_seconds": 0.2}},
    "systems": [MISBEHAVING],
    "rounds": 3,
}


class Sweep:
    """A bench in its own process, with its own data and results roots."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.results = root / "results"
        make_tiny(self.data / "tiny", nodes=20_000, edges=100_000, dim=64)
        self.file = root / "killed.yaml"
        self.file.write_text(json.dumps(EXPERIMENT))
        self.arguments = (
            "bench",
            str(self.file),
            "--figures",
            "none",
            "--no-retry",
            "--json",
        )

    def start(self) -> subprocess.Popen[bytes]:
        with (self.root / "progress.txt").open("wb") as progress:
            return subprocess.Popen(
                command(
                    *(word for word in self.arguments if word != "--json")
                ),  # which shows no progress
                env=environment(self.data, self.results),
                stdout=subprocess.DEVNULL,
                stderr=progress,
            )

    def finish(self) -> dict[str, Any]:
        done = outcore(*self.arguments, data=self.data, results=self.results)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def records(self) -> list[str]:
        return [path.name for path in results.run_folders(self.results)]

    def running(self) -> bool:
        """Return whether a worker runs; it is a measured run's once there is a record,
        for calibration comes first."""
        return any(
            b"harness.worker.main" in _line(pid) for pid in workers_of(self.data)
        )

    def leftovers(self) -> list[str]:
        scratch = self.data / ".outcore" / "scratch"
        found = [path.name for path in scratch.iterdir()] if scratch.is_dir() else []
        runs = self.results / "runs"
        return found + (
            [path.name for path in runs.glob(".partial-*")] if runs.is_dir() else []
        )


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    root = tmp_path_factory.mktemp("sweep")
    share_cache(root / "results", tmp_path_factory)
    yield Sweep(root)


@pytest.mark.slow(
    "harness/run/sweep.py", "harness/run/series.py", "harness/isolation", seconds=70
)
def test_a_sweep_killed_in_a_run_resumes_after_the_last_record(sweep: Sweep) -> None:
    caps_before = set(caps_of())
    process = sweep.start()
    wait_for(lambda: len(sweep.records()) == 1)
    wait_for(sweep.running)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # The kernel ends the worker with its parent; the holder's standard input closes.
    wait_for(lambda: not workers_of(sweep.data), 10.0)
    kept = sweep.records()
    assert len(kept) == 1
    done = sweep.finish()
    assert done["skipped"] == 1
    assert len(done["records"]) == 3
    assert all(record["status"] == "ok" for record in done["records"])
    assert len(sweep.records()) == 3
    assert sweep.records()[0] == kept[0]
    assert sweep.leftovers() == []
    assert not workers_of(sweep.data)
    assert set(caps_of()) <= caps_before
    assert [record["config"]["round"] for record in done["records"]] == [0, 1, 2]


@pytest.mark.slow("harness/run/sweep.py", "harness/compare", seconds=45)
def test_a_finished_sweep_runs_nothing_again(sweep: Sweep) -> None:
    sweep.finish()
    done = sweep.finish()
    assert done["skipped"] == 3
    assert len(sweep.records()) == 3
    dry = outcore(
        "bench",
        str(sweep.file),
        "--dry-run",
        "--json",
        "--figures",
        "none",
        "--no-retry",
        data=sweep.data,
        results=sweep.results,
    )
    assert json.loads(dry.stdout)["done"] == 3


@pytest.mark.slow("harness/run/sweep.py", "harness/judge", seconds=45)
def test_a_run_that_others_spoilt_is_made_again_unless_reported_not_to(
    sweep: Sweep,
) -> None:
    sweep.finish()
    file = results.run_folders(sweep.results)[0] / "record.json"
    kept = file.read_text()
    record = json.loads(kept)
    for eviction in record["evidence"]["evictions"]:
        eviction["resident_bytes"] = eviction["total_bytes"]
    file.write_text(json.dumps(seal.sealed(record, file.parent)))
    done = {}
    for retry in ("--retry", "--no-retry"):
        arguments = (
            "bench",
            str(sweep.file),
            "--dry-run",
            "--json",
            "--figures",
            "none",
            retry,
        )
        done[retry] = json.loads(
            outcore(*arguments, data=sweep.data, results=sweep.results).stdout
        )["done"]
    file.write_text(kept)
    assert done["--no-retry"] == 3
    assert done["--retry"] < 3


@pytest.mark.slow(
    "harness/run/sweep.py",
    "harness/run/series.py",
    "harness/isolation",
    "harness/cli",
    seconds=20,
)
def test_a_sweep_that_is_reported_to_end_cleans_up(sweep: Sweep) -> None:
    shutil.rmtree(sweep.results / "runs", ignore_errors=True)
    caps_before = set(caps_of())
    process = sweep.start()
    wait_for(sweep.running)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=15) == 128 + signal.SIGTERM
    message = (sweep.root / "progress.txt").read_text()
    assert "0 of 3 runs are done; the same command goes on" in message, message
    assert not workers_of(sweep.data)
    assert sweep.leftovers() == []
    assert set(caps_of()) <= caps_before
