"""A run in a container has the digests, counters and endings of one outside; its record
names the differences."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.isolation import select
from harness.isolation.docker.backend import _trial
from harness.isolation.walls import syscalls
from harness.plan.experiment import PlannedRun, resolve
from harness.records.record import Record
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings
from tests.harness.isolation.docker_tools import containers, needs_docker
from tests.harness.run_tools import config, left_behind, share_cache
from tests.support import make_tiny
from workloads.dataset import Dataset

pytestmark = [needs_docker, pytest.mark.usefixtures("engine_alone")]
SOURCES = (
    "containers",
    "harness/isolation/docker",
    "harness/run/launch.py",
    "harness/worker/main.py",
)
ENDING = pytest.mark.slow(*SOURCES, seconds=6)
SMALL: dict[str, Any] = {
    "dataset": "tiny",
    "fanout": [5, 5],
    "batch_size": 100,
    "max_batches": 6,
    "epochs": 2,
    "warmup": 1,
    "hidden": 16,
    "memory": "+64MiB",
    "timeout": 100.0,
    "verify": True,
}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("docker")
    make_tiny(root / "data" / "tiny", nodes=20_000, edges=100_000, dim=64)
    share_cache(root / "results", tmp_path_factory)
    return root / "results", root / "data"


@pytest.fixture(autouse=True)
def profiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the device profile: a tiny dataset may beat it, and measuring it again takes
    longer than the run."""
    monkeypatch.setattr(Series, "measure_again", lambda *_: False)


@pytest.fixture(scope="module")
def series(roots: tuple[Path, Path]) -> Iterator[Series]:
    with Series(*roots, isolation="docker") as opened:
        opened.prepare([config(opened)], Dataset.open(roots[1] / "tiny"))
        yield opened
    assert containers() == []


def run(series: Series, system: str | None = None, **changes: Any) -> Record:
    if system is None:
        wanted = config(series, **changes)
    else:
        settings = RunSettings.model_validate({**SMALL, **changes})
        wanted = resolve(
            PlannedRun(system, settings), series.data_root, series.isolation.name
        )
    record = execute(series, wanted, Dataset.open(series.data_root / "tiny"))
    assert left_behind(series) == []
    assert containers(record.run_id.replace("-", ".")[:20]) == []
    return record


def beside(roots: tuple[Path, Path], folder: Path) -> Path:
    """Make another results root with the same cache: a root takes one orchestrator at a
    time."""
    (folder / "results").mkdir()
    (folder / "results" / "cache").symlink_to(roots[0] / "cache")
    return folder / "results"


@pytest.mark.slow(
    "harness/isolation",
    "harness/run/launch.py",
    "harness/worker/main.py",
    "containers",
    seconds=90,
)
def test_digests_losses_and_counters_are_those_of_the_process_backend(
    series: Series, roots: tuple[Path, Path], tmp_path: Path
) -> None:
    systems = ["gnndrive", "pyg+", "ginex"]
    inside = [
        run(series, system, keep_order=system == "gnndrive") for system in systems
    ]
    with Series(
        beside(roots, tmp_path), roots[1], isolation=select("auto").backend.name
    ) as outside_series:
        data = Dataset.open(roots[1] / "tiny")
        outside = []
        for system in systems:
            settings = RunSettings.model_validate(
                {**SMALL, "keep_order": system == "gnndrive"}
            )
            wanted = resolve(
                PlannedRun(system, settings), roots[1], outside_series.isolation.name
            )
            outside.append(execute(outside_series, wanted, data))
    for one, other in zip(inside, outside, strict=True):
        assert one.status == other.status == "ok", (one.reason, other.reason)
        assert (one.config.isolation, other.config.isolation) == (
            "docker",
            select("auto").backend.name,
        )
        for mine, theirs in zip(one.epochs, other.epochs, strict=True):
            assert mine.digest == theirs.digest
            assert mine.feature_digest == theirs.feature_digest
            assert mine.feature_digest is not None
            assert mine.loss == theirs.loss
            assert mine.batches == theirs.batches
            assert mine.counters["rows"] == theirs.counters["rows"] > 0
            if one.system == "ginex":
                # Ginex's counters follow from its plan; the others' depend on the order
                # in which reads complete.
                assert mine.counters == theirs.counters
        assert one.memory.floor_bytes == pytest.approx(
            other.memory.floor_bytes, rel=0.1
        )
        assert (
            one.preprocess.reused == other.preprocess.reused or one.system != "gnndrive"
        )


def test_the_record_names_engine_and_image(series: Series) -> None:
    record = run(series)
    assert record.status == "ok", record.reason
    held = record.environment["container"]
    assert held["engine"]
    assert held["image"].startswith("outcore-host:")
    assert held["image_id"].startswith("sha256:")
    assert held["io_uring"] == "allowed"
    assert record.memory.peak_bytes > 0
    assert record.memory.cap_bytes is None


@ENDING
def test_an_emulated_devices_memory_is_not_charged_to_the_container(
    series: Series,
) -> None:
    record = run(series, device_memory="96MiB", memory="+40MiB")
    assert record.status == "ok", record.reason
    assert (
        record.memory.peak_bytes
        < record.memory.floor_bytes + record.memory.training_bytes + (41 << 20)
    )


def test_out_of_memory_in_the_container_is_oom(series: Series) -> None:
    record = run(series, memory="+64MiB", options={"behaviour": "hog"})
    assert record.status == "oom"
    assert "out of memory under the cap" in record.reason
    assert record.memory.oom_kills >= 1
    assert record.memory.peak_bytes <= (record.memory.cap_bytes or 0)


@pytest.mark.parametrize(
    ("behaviour", "status", "reason"),
    [
        pytest.param("sigkill", "failed", "ended by SIGKILL", marks=ENDING),
        pytest.param("nonsense", "failed", "sent what is no event", marks=ENDING),
        pytest.param("flood", "failed", "a line of more than", marks=ENDING),
        ("bug", "failed", "see worker.log"),
    ],
)
def test_a_worker_that_misbehaves_ends_as_it_would_outside(
    series: Series, behaviour: str, status: str, reason: str
) -> None:
    record = run(series, options={"behaviour": behaviour})
    assert record.status == status
    assert reason in record.reason


@pytest.mark.slow(*SOURCES, seconds=55)
def test_a_run_that_hangs_is_ended_with_its_container(series: Series) -> None:
    record = run(series, options={"behaviour": "hang"}, timeout=8.0)
    assert record.status == "timeout"


@ENDING
def test_a_container_killed_from_outside_fails_its_run_and_states_so(
    series: Series,
) -> None:
    killed = threading.Event()

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not killed.is_set() and time.monotonic() < deadline:
            for container in containers("misbehaving"):
                if container.status == "running":
                    time.sleep(2.0)  # until the worker has started
                    container.kill()
                    killed.set()
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    record = run(series, options={"behaviour": "hang"}, timeout=60.0)
    killer.join()
    assert killed.is_set()
    assert record.status == "failed"
    assert "container was ended from outside" in record.reason


@pytest.mark.slow(
    "harness/isolation", "harness/worker/ranks.py", "containers", seconds=40
)
def test_ranks_share_one_container(series: Series) -> None:
    record = run(series, ranks=2, device="cpu", device_memory=None)
    assert record.status == "ok", record.reason
    assert all(epoch.batches == 8 for epoch in record.epochs)


@pytest.mark.slow(*SOURCES)
def test_where_io_uring_is_denied_the_reader_falls_back_and_the_verdict_states_so(
    roots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied_calls = {
        **syscalls.REFUSED,
        "rings, as on a kernel without them": "io_uring_setup",
    }
    monkeypatch.setattr(syscalls, "REFUSED", denied_calls)
    _trial.cache_clear()
    try:
        with Series(beside(roots, tmp_path), roots[1], isolation="docker") as denied:
            assert "Operation not permitted" in denied.availability.reason
            record = run(denied, "gnndrive")
    finally:
        _trial.cache_clear()
    assert record.status == "ok", record.reason
    assert record.notes["io"].startswith("pread pool")
    assert record.verdict != "VALID"
    broken = {rule.name: rule.detail for rule in record.verdict_rules if not rule.ok}
    assert any("pread pool" in detail for detail in broken.values()), broken
    assert any("containers get no io_uring" in caveat for caveat in record.caveats)
