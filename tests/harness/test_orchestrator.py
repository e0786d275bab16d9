"""Every run ends with the right status and a complete record, and leaves nothing else
behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.isolation import select
from harness.records.record import Record, RunConfig
from harness.regress.slowdown import slowed
from harness.results import store as results
from harness.results.table import load
from harness.run import orchestrator
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.run.spec import TEST_CLOCK_VARIABLE
from harness.ssd.profile import better_of, forget, quick_profile, slower_than
from systems.interface import DiskPoint, DiskProfile
from tests.harness.records import make_record
from tests.harness.run_tools import (
    MISBEHAVING,
    caps_of,
    config,
    left_behind,
    outcore_here,
    share_cache,
    workers_of,
)
from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.errors import BudgetError, DataIOError, InputError

capped = pytest.mark.skipif(
    not select("auto").availability.proves_memory,
    reason="no memory cgroup on this host",
)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    root = tmp_path_factory.mktemp("series")
    make_tiny(root / "data" / "tiny", nodes=20_000, edges=100_000, dim=64)
    share_cache(root / "results", tmp_path_factory)
    with Series(root / "results", root / "data") as opened:
        opened.prepare([config(opened)], tiny(opened))
        yield opened
    assert not workers_of(root)


def tiny(series: Series) -> Dataset:
    return Dataset.open(series.data_root / "tiny")


def run(series: Series, **changes: Any) -> Record:
    wanted = config(series, **changes)
    record = execute(series, wanted, tiny(series))
    assert left_behind(series) == []
    assert caps_of(record.run_id.replace("-", ".")[:20]) == []
    return record


def misbehave(series: Series, behaviour: str, **changes: object) -> Record:
    return run(series, options={"behaviour": behaviour}, **changes)


def test_a_run_leaves_a_complete_record(series: Series) -> None:
    record = run(series, memory="+64MiB", verify=True)
    assert record.status == "ok", record.reason
    assert [epoch.warmup for epoch in record.epochs] == [True, False]
    for epoch in record.epochs:
        assert epoch.batches == 4
        assert epoch.digest.startswith("xxh3:")
        assert epoch.feature_digest
        assert {"sample", "extract", "train"} <= set(epoch.stages_s)
        assert (
            epoch.counters["rows"]
            == sum(epoch.counters["hits"].values()) + epoch.counters["misses"]
        )
    memory = record.memory
    assert memory.floor_bytes > 50 << 20
    assert memory.budget_bytes == 64 << 20
    assert memory.cap_bytes == pytest.approx(
        memory.floor_bytes + memory.training_bytes + (64 << 20), abs=4096
    )
    assert memory.resident_before_bytes < 0.01 * memory.evictable_bytes
    graph = 20_000 * 8 + 8 + 4 * record.config.dataset.num_edges
    assert record.summary.topology_over_budget == pytest.approx(graph / (64 << 20))
    assert record.notes["dataset"] == tiny(series).origin
    assert record.environment["versions"]["torch"]
    assert record.summary.epoch_s is not None
    folder = results.find(series.results_root, record.run_id)
    assert results.read_record(folder) == record
    batches = results.table(folder, "batches")
    assert list(batches.columns) == list(results.BATCH_COLUMNS)
    assert len(batches) == 8
    stages = results.table(folder, "stages")
    assert set(stages["epoch"]) == {0, 1}
    assert (stages["end"] >= stages["start"]).all()
    telemetry = results.table(folder, "telemetry")
    assert {"t", "epoch", "cpu_percent", "mem_usage", "disk_read_bytes"} <= set(
        telemetry.columns
    )
    assert (
        load(series.results_root)
        .query("run_id == @record.run_id")["summary.epoch_s.median"]
        .item()
        > 0
    )


@pytest.fixture(scope="module")
def plain(series: Series) -> Record:
    """Record of one run with the default settings, for tests that read it."""
    return run(series, options={"extract_seconds": 0.05})


def test_epoch_time_holds_every_stage_of_the_epoch(plain: Record) -> None:
    for epoch in plain.epochs:
        assert 4 * 0.05 <= epoch.stages_s["extract"] <= epoch.seconds
        assert epoch.seconds >= max(epoch.stages_s.values())


def test_a_run_with_a_clock_for_tests_is_invalid_whatever_its_system_states(
    series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_CLOCK_VARIABLE, slowed(0.2))
    record = misbehave(series, "hide")
    assert record.status == "ok"
    assert record.facts.test_clock == "harness.regress.slowdown:0.2"
    assert record.measured
    assert all(epoch.seconds >= 4 * 0.2 for epoch in record.measured)
    assert record.verdict == "INVALID"
    assert "nothing_was_slowed_on_purpose" in {
        rule.name for rule in record.verdict_rules if not rule.ok
    }


def test_feature_digests_are_taken_while_warming_up_only(plain: Record) -> None:
    assert [bool(epoch.feature_digest) for epoch in plain.epochs] == [True, False]


@pytest.mark.slow("harness/run", "harness/worker", seconds=6)
def test_sampling_only_trains_nothing(series: Series) -> None:
    record = run(series, stages="sample")
    assert record.status == "ok"
    assert all(
        "train" not in epoch.stages_s and epoch.feature_digest is None
        for epoch in record.epochs
    )
    assert record.memory.training_bytes == 0


def test_training_on_the_processor_learns_and_counts(series: Series) -> None:
    record = run(series, device="cpu", device_memory=None, memory="+64MiB")
    assert record.status == "ok", record.reason
    assert all(epoch.loss and epoch.accuracy is not None for epoch in record.epochs)
    assert record.memory.training_bytes > 0
    assert record.compute["train_s"]["1"] > 0


@capped
def test_out_of_memory_under_the_cap_is_oom(series: Series) -> None:
    record = misbehave(series, "hog", memory="+64MiB")
    assert record.status == "oom"
    assert record.memory.oom_kills > 0
    assert record.memory.peak_bytes <= (record.memory.cap_bytes or 0) + (1 << 20)
    assert len(record.epochs) == 1, "the epoch before it is in the record"
    assert record.reason.endswith(
        "its plan fitted and was not kept, which is a fault of the system's code"
    )
    assert record.verdict == "INVALID"
    assert not next(r for r in record.verdict_rules if r.name == "plan_was_kept").ok


def test_a_failed_allocation_is_oom(series: Series) -> None:
    assert misbehave(series, "no-memory").status == "oom"


def test_a_killed_worker_is_noticed(series: Series) -> None:
    record = misbehave(series, "sigkill")
    assert record.status == "failed"
    assert "SIGKILL" in record.reason
    assert record.verdict == "INVALID"


def test_a_worker_that_leaves_without_a_word_failed(series: Series) -> None:
    record = misbehave(series, "exit")
    assert record.status == "failed"
    assert "without an error" in record.reason


def test_a_hanging_run_is_ended_in_time(series: Series) -> None:
    record = misbehave(series, "hang", timeout=4.0)
    assert record.status == "timeout"
    assert record.duration_s < 20


def test_a_bug_in_a_system_stands_in_the_log(series: Series) -> None:
    record = misbehave(series, "bug")
    assert record.status == "failed"
    assert "ZeroDivisionError" in record.reason
    log = results.find(series.results_root, record.run_id) / results.WORKER_LOG
    assert "a bug in a system" in log.read_text()
    assert "Traceback" in log.read_text()


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(
            "nonsense", marks=pytest.mark.slow("harness/wire", "harness/run", seconds=4)
        ),
        "flood",
    ],
)
def test_nonsense_from_a_worker_is_refused(series: Series, behaviour: str) -> None:
    record = misbehave(series, behaviour)
    assert record.status == "failed"
    assert "the worker sent" in record.reason


def test_a_read_error_while_running_names_the_file(series: Series) -> None:
    record = misbehave(series, "io")
    assert record.status == "failed"
    assert "ended early" in record.reason


def test_a_plan_over_budget_is_reported_before_anything_runs(series: Series) -> None:
    wanted = config(series, options={"behaviour": "budget"}, memory="+64MiB")
    before = len(results.run_folders(series.results_root))
    with pytest.raises(BudgetError, match=r"features needs 1024\.0 TiB"):
        execute(series, wanted, tiny(series), refuse=True)
    assert len(results.run_folders(series.results_root)) == before
    assert execute(series, wanted, tiny(series)).status == "oom", (
        "a sweep records it and goes on"
    )


def test_a_cap_below_the_floor_names_the_floor(series: Series) -> None:
    with pytest.raises(InputError, match="an empty run takes"):
        execute(series, config(series, memory="20MiB"), tiny(series), refuse=True)


def test_a_system_of_one_process_refuses_two_ranks(series: Series) -> None:
    record = run(series, system="pyg+", ranks=2)
    assert record.status == "unsupported"
    assert record.reason == "pyg+ trains in one process"


def test_a_device_that_a_system_cannot_use_is_unsupported(series: Series) -> None:
    record = run(series, device="cuda", device_memory=None)
    assert record.status == "unsupported"
    assert "not on cuda" in record.reason


@pytest.mark.slow("harness/run", "systems/engine/io", "systems/pyg_plus", seconds=8)
def test_a_feature_file_truncated_while_running_fails_the_run(series: Series) -> None:
    dataset = make_tiny(series.data_root / "cut", nodes=20_000, edges=100_000, dim=64)
    features = dataset.file("features")
    wanted = config(
        series, "pyg+", dataset="cut", device="emulated:null", device_memory="4MiB"
    )

    def cut(text: str) -> None:
        if text.startswith("epoch 0"):
            os.truncate(features, features.stat().st_size // 2)

    record = execute(series, wanted, dataset, cut)
    assert record.status == "failed"
    assert "features.npy" in record.reason
    assert "truncated" in record.reason
    shutil.rmtree(dataset.path)


def test_a_full_disk_while_recording_leaves_nothing_half_written(
    series: Series, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a small file system")
    try:
        elsewhere = series.results_root
        series.results_root = small
        try:
            with pytest.raises(DataIOError, match="No space left on device"):
                execute(series, config(series), tiny(series))
        finally:
            series.results_root = elsewhere
        assert list((small / "runs").iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_second_orchestrator_is_refused(series: Series) -> None:
    done = outcore_here(
        "run",
        MISBEHAVING,
        "--dataset",
        "tiny",
        data=series.data_root,
        results=series.results_root,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "another outcore is running" in done.stderr


@pytest.mark.slow("harness/ssd", "harness/run/series.py", "harness/run/orchestrator.py")
def test_a_beaten_profile_is_measured_again_before_the_verdict(series: Series) -> None:
    """A profile taken in a slow moment must not make a sound run INVALID."""
    kept = series.bare_profile
    assert kept is not None
    slow = tuple(
        replace(point, iops=point.iops / 1000, bytes_per_s=point.bytes_per_s / 1000)
        for point in kept.points
    )
    series.bare_profile = replace(kept, points=slow)
    try:
        record = run(
            series, system="gnndrive", options={"extractors": 1}, device_memory="4MiB"
        )
        assert record.status == "ok", record.reason
        assert "measured again" in record.notes["device_profile"]
        assert record.disk["bare"]["points"][0]["iops"] > 10 * slow[0].iops
        beaten = next(
            rule
            for rule in record.verdict_rules
            if rule.name == "no_faster_than_the_device"
        )
        ratio = float(beaten.detail.split()[0])
        assert ratio < 20, "judged by the new profile"
    finally:
        series.bare_profile = kept


@pytest.mark.slow("harness/run/orchestrator.py", "harness/judge/io.py")
def test_a_slow_moment_that_lasts_is_waited_for(
    series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring again at once meets the same slow moment, so it is done up to three
    times before a run is INVALID."""
    kept = series.bare_profile
    assert kept is not None
    slow = replace(
        kept,
        points=tuple(replace(point, iops=point.iops / 1000) for point in kept.points),
    )
    times = []

    def still_slow_at_first(config: RunConfig) -> bool:
        times.append(config)
        series.bare_profile = kept if len(times) == 3 else slow
        return True

    monkeypatch.setattr(series, "measure_again", still_slow_at_first)
    monkeypatch.setattr(orchestrator, "_DOUBTS_S", (0.0, 0.0, 0.0))
    series.bare_profile = slow
    try:
        record = run(
            series, system="gnndrive", options={"extractors": 1}, device_memory="4MiB"
        )
        assert len(times) == 3
        assert "3 x" in record.notes["device_profile"]
        beaten = next(
            rule
            for rule in record.verdict_rules
            if rule.name == "no_faster_than_the_device"
        )
        assert float(beaten.detail.split()[0]) < 20, "judged by the last profile"
    finally:
        series.bare_profile = kept


def test_a_profile_that_was_beaten_is_not_kept(
    series: Series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PATH", "/nowhere"
    )  # fio takes most of a second to start each job
    features = tiny(series).file("features")
    held = quick_profile(
        features, depths=(8,), seconds=0.05, cache=tmp_path, held=series.bare_profile
    )
    assert quick_profile(features, depths=(8,), cache=tmp_path).points == held.points
    forget(features, tmp_path, (8,))
    assert list(tmp_path.iterdir()) == []


def profile(**rates: float) -> DiskProfile:
    return DiskProfile(
        tuple(DiskPoint(int(size[1:]), 8, rate, rate) for size, rate in rates.items())
    )


def test_the_better_rate_of_each_point_counts() -> None:
    best = better_of(
        profile(b512=10.0, b4096=5.0), profile(b512=8.0, b4096=7.0, b65536=1.0)
    )
    assert {point.block_bytes: point.iops for point in best.points} == {
        512: 10.0,
        4096: 7.0,
        65536: 1.0,
    }


def test_a_device_that_is_faster_under_limits_was_profiled_in_a_slow_moment() -> None:
    bare = profile(b512=100.0, b4096=50.0)
    assert slower_than(bare, profile(b512=10.0, b4096=56.0))
    assert not slower_than(bare, profile(b512=10.0, b4096=54.0, b65536=1000.0))
    deep = DiskProfile((DiskPoint(512, 8, 10.0, 1.0), DiskPoint(512, 256, 100.0, 1.0)))
    assert not slower_than(deep, profile(b512=60.0))


@pytest.mark.slow("harness/run/orchestrator.py", "harness/judge/io.py")
def test_a_doubted_profile_is_measured_again_and_the_better_rates_are_kept(
    series: Series,
) -> None:
    features = tiny(series).file("features")
    kept = series.bare_profile
    assert kept is not None
    doubted = replace(
        kept,
        points=tuple(
            replace(point, iops=1.0, bytes_per_s=1.0) for point in kept.points
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        found = quick_profile(
            features, depths=(8,), cache=Path(folder), seconds=0.1, held=doubted
        )
        assert all(point.iops > 1.0 for point in found.points if point.depth in (1, 8))
        assert (
            quick_profile(features, depths=(8,), cache=Path(folder)).points
            == found.points
        ), "kept for the next"


@pytest.mark.slow("harness/ssd", "harness/run/series.py")
def test_a_profile_under_limits_is_measured_again_too(
    series: Series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = series.bare_profile
    if not series.availability.io_limits or kept is None:
        pytest.skip("this host holds no device to limits")
    points = tuple(
        replace(point, iops=10.0, bytes_per_s=10.0 * point.block_bytes)
        for point in kept.points
    )

    def slow_at_first(
        *where: Any, held: DiskProfile | None = None, **how: Any
    ) -> DiskProfile:
        return (
            quick_profile(*where, held=held, **how)
            if held
            else replace(kept, points=points)
        )

    monkeypatch.setattr("harness.run.series.quick_profile", slow_at_first)
    limited = make_record(
        "gnndrive", [1.0], disk_class="aws-nvme/16", memory="none"
    ).config
    with Series(tmp_path, series.data_root) as other:
        other.prepare([limited], tiny(series))
        before = other.profile(limited)
        assert before is not None
        assert before.points == points
        assert other.measure_again(limited)
        found = other.profile(limited)
        allowed = other.limits(limited)[0].read_iops
    assert found is not None
    assert allowed is not None
    assert 10.0 < found.points[0].iops <= 1.1 * allowed
