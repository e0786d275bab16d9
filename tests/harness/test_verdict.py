"""Each verdict rule holds for a sound run and is broken by a run that breaks it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.context import Calibration, Eviction, RunContext
from harness.isolation.base import IoLimit, MemoryStats
from harness.metrics import least_device_seconds, needed_seconds, storage_class, summarise
from harness.record import DatasetConfig, EpochRecord, Memory, PlannedBuffer, Record, RunConfig
from harness.trace import trace_of
from harness.verdict import judge, rules, spoilt
from systems.interface import DiskPoint, DiskProfile
from tests.support import make_tiny
from workloads.workload import ModelSpec, SamplerSpec, Workload

MIB = 2**20
PROFILE = DiskProfile(
    points=(
        DiskPoint(512, 64, 40_000, 40_000 * 512),
        DiskPoint(4096, 64, 40_000, 40_000 * 4096),
        DiskPoint(65536, 64, 3_000, 3_000 * 65536),
        DiskPoint(MIB, 16, 200, 200 * MIB, "sequential"),
    ),
    tool="fio 3.33",
)
Run = tuple[Record, RunContext]


@pytest.fixture()
def sound(tmp_path: Path) -> Run:
    """A run that keeps every rule."""
    dataset = make_tiny(tmp_path / "tiny", dim=128)
    workload = Workload(dataset, SamplerSpec(fanout=(3, 3), batch_size=64), ModelSpec(layers=2))
    trace = trace_of(workload, 2)
    assert trace is not None
    batches = trace.epochs[0][2]
    rows = 1000
    epochs = [
        EpochRecord(
            epoch=k, warmup=k == 0, seconds=2.0, start_s=2.0 * k, batches=batches, digest=trace.digests[k],
            stages_s={"sample": 0.1, "extract": 0.05, "train": 0.5}, device_bytes=rows * 512, device_requests=rows,
            diskstats_bytes=rows * 512 + MIB, diskstats_requests=rows + 10, user_s=1.0, host_user_s=1.1,
            counters={"rows": 2 * rows, "hits": {"device": rows}, "misses": rows, "io_requests": rows,
                      "bytes_read": rows * 512, "bytes_useful": rows * 512, "requests_by_size": {"512": rows}},
        )
        for k in range(2)
    ]  # fmt: skip
    config = RunConfig(
        system="gnndrive", batch_size=64, fanout=[3, 3], layers=2, epochs=2, disk_class="aws-nvme/16",
        device="emulated:a10g", device_memory_bytes=100_000,
        dataset=DatasetConfig(name="tiny", fingerprint=dataset.fingerprint, num_nodes=2000, num_edges=20000, dim=128,
                              dtype="float32"),
    )  # fmt: skip
    record = Record(
        run_id="r", config_hash="c", system="gnndrive", status="ok", config=config, epochs=epochs,
        environment={"code": {"commit": "abc", "dirty": False}, "versions": {"python": "3", "torch": "2"},
                     "kernel": {"release": "6"}, "disk": {"file_system": "ext4"}},
        memory=Memory(cap_bytes=300 * MIB, floor_bytes=200 * MIB, training_bytes=10 * MIB, budget_bytes=100_000,
                      peak_bytes=290 * MIB, demand_peak_bytes=220 * MIB, plan=[PlannedBuffer(name="x", bytes=MIB)]),
        notes={"io": "io_uring registered"},
    )  # fmt: skip
    probe = SimpleNamespace(page_cache_charged=True, allocation_stopped=True, escapes=[])
    context = RunContext(
        workload=workload, profile=PROFILE, bare_profile=PROFILE, limits=(IoLimit("1:0", 40_000),),
        io_limited=True, probe=probe,
        calibration=Calibration(1, 1, {1: 0.5}, {1: 0.6}), telemetry=None, stages=None, batches=None, spans=[],
        boundaries=[], memory_end=MemoryStats(), evictions=[Eviction("before", 3, 1000 * MIB, 0)], isolation="cgroup1",
        isolation_caveats=[], proves_memory=True, environment={},
    )  # fmt: skip
    record.summary, record.class_ = summarise(record, context)
    return record, context


def warm(run: Run) -> None:
    run[1].evictions.append(Eviction("after_prepare", 3, 100, 50))


def no_kernel_cap(run: Run) -> None:
    run[1].proves_memory = False


def above_the_cap(run: Run) -> None:
    run[0].memory.peak_bytes = 400 * MIB


def greedy(run: Run) -> None:
    run[0].memory.demand_peak_bytes = 280 * MIB


def escaped(run: Run) -> None:
    run[1].probe = SimpleNamespace(page_cache_charged=True, allocation_stopped=True, escapes=["managed memory"])


def classless(run: Run) -> None:
    run[0].class_ = None


def read_from_nowhere(run: Run) -> None:
    run[0].epochs[1].device_bytes = 100


def too_fast(run: Run) -> None:
    run[1].limits = ()
    run[0].summary.engine_efficiency = 1.5


def in_bursts(run: Run) -> None:
    run[0].summary.engine_efficiency = 1.5


def no_fio(run: Run) -> None:
    run[1].profile = dataclasses.replace(PROFILE, tool="in-process")


def unlimited(run: Run) -> None:
    run[1].io_limited = False


def fell_back(run: Run) -> None:
    run[0].notes["io"] = "pread pool (io_uring forbidden: EPERM)"


def failed(run: Run) -> None:
    run[0].status = "failed"


def no_warmup(run: Run) -> None:
    run[0].epochs[0].warmup = False


def lost_a_batch(run: Run) -> None:
    run[0].epochs[1].batches -= 1


def other_batches(run: Run) -> None:
    run[0].epochs[1].digest = "xxh3:0000000000000000"


def pretends_accuracy(run: Run) -> None:
    run[0].epochs[1].accuracy = 0.9


def no_commit(run: Run) -> None:
    run[0].environment["code"]["commit"] = None


def changed_code(run: Run) -> None:
    run[0].environment["code"]["dirty"] = True


def slowed(run: Run) -> None:
    run[0].notes["test_extract_wait_s"] = "0.01"


def host_caveat(run: Run) -> None:
    run[1].isolation_caveats.append("swap could not be switched off")


def beside_a_scan(run: Run) -> None:
    epoch = run[0].epochs[1]
    epoch.diskstats_bytes = (epoch.device_bytes or 0) + 60 * MIB
    epoch.diskstats_requests = (epoch.device_requests or 0) + 60


def beside_many_scans(run: Run) -> None:
    epoch = run[0].epochs[1]
    epoch.diskstats_bytes = (epoch.device_bytes or 0) + 300 * MIB
    epoch.diskstats_requests = (epoch.device_requests or 0) + 300


def beside_a_computation(run: Run) -> None:
    epoch = run[0].epochs[1]
    epoch.user_s, epoch.host_user_s = 1.0, 1.0 + 0.5 * epoch.seconds * (os.cpu_count() or 1)


BREAKS: dict[str, tuple[Callable[[Run], None], str]] = {
    "cap_is_a_kernel_cap": (no_kernel_cap, "CAVEATS"),
    "peak_within_cap": (above_the_cap, "INVALID"),
    "started_cold": (warm, "INVALID"),
    "memory_as_asked": (greedy, "INVALID"),
    "cap_was_proven": (escaped, "CAVEATS"),
    "class_is_known": (classless, "CAVEATS"),
    "device_reads_cover_own_count": (read_from_nowhere, "INVALID"),
    "no_faster_than_the_device": (too_fast, "INVALID"),
    "within_the_class_at_every_moment": (in_bursts, "CAVEATS"),
    "device_profile_by_fio": (no_fio, "CAVEATS"),
    "disk_class_was_enforced": (unlimited, "CAVEATS"),
    "reads_are_asynchronous": (fell_back, "CAVEATS"),
    "run_ended_well": (failed, "INVALID"),
    "warmed_up": (no_warmup, "CAVEATS"),
    "every_batch_once": (lost_a_batch, "INVALID"),
    "digests_equal_the_workload": (other_batches, "INVALID"),
    "emulated_is_not_accuracy": (pretends_accuracy, "CAVEATS"),
    "provenance_is_complete": (no_commit, "CAVEATS"),
    "code_is_committed": (changed_code, "CAVEATS"),
    "nothing_was_slowed_on_purpose": (slowed, "INVALID"),
    "host_keeps_its_promises": (host_caveat, "CAVEATS"),
    "disk_was_quiet": (beside_a_scan, "CAVEATS"),
    "disk_was_not_shared": (beside_many_scans, "INVALID"),
    "processors_were_quiet": (beside_a_computation, "CAVEATS"),
}


def test_a_sound_run_is_valid(sound: Run) -> None:
    verdict, outcomes = judge(*sound)
    assert [outcome for outcome in outcomes if not outcome.ok] == []
    assert verdict == "VALID"


@pytest.mark.parametrize("name", [entry.name for entry in rules()])
def test_every_rule_is_broken_by_a_run_that_breaks_it(name: str, sound: Run) -> None:
    break_it, expected = BREAKS[name]
    break_it(sound)
    verdict, outcomes = judge(*sound)
    assert {outcome.name: outcome.ok for outcome in outcomes}[name] is False
    assert verdict == expected


@pytest.mark.parametrize("entry", rules(), ids=lambda entry: entry.name)
def test_every_rule_says_why(entry: object) -> None:
    assert len(entry.why) > 40  # type: ignore[attr-defined]


def test_a_rate_above_the_class_over_the_whole_epoch_is_invalid(sound: Run) -> None:
    record, context = sound
    for epoch in record.epochs:
        epoch.stages_s["extract"] = 1.0
        epoch.counters["requests_by_size"] = {"512": 100_000}
    record.summary, record.class_ = summarise(record, context)
    verdict, outcomes = judge(record, context)
    assert verdict == "INVALID"
    assert not {outcome.name: outcome.ok for outcome in outcomes}["no_faster_than_the_device"]


@pytest.mark.parametrize(("requests", "holds"), [(9_000, True), (15_000, False)])
def test_a_short_epoch_may_have_one_saved_up_slice_of_the_limiter(sound: Run, requests: int, holds: bool) -> None:
    record, context = sound
    context.bare_profile = dataclasses.replace(
        PROFILE,
        points=tuple(dataclasses.replace(p, iops=10 * p.iops, bytes_per_s=10 * p.bytes_per_s) for p in PROFILE.points),
    )
    # 0.2 s at 40,000 reads a second are 8,000; with the slice of 0.1 s saved up before, 12,000.
    for epoch in record.epochs:
        epoch.seconds, epoch.stages_s["extract"] = 0.2, 0.1
        epoch.counters["requests_by_size"] = {"512": requests}
    record.summary, record.class_ = summarise(record, context)
    found = {outcome.name: outcome.ok for outcome in judge(record, context)[1]}
    assert found["no_faster_than_the_device"] is holds
    assert found["within_the_class_at_every_moment"] is False


@pytest.mark.parametrize(("longer", "holds"), [(140, True), (280, False)])
def test_a_limiter_counts_requests_and_bytes_each_by_itself(sound: Run, longer: int, holds: bool) -> None:
    record, context = sound
    # In a second 38,000 of 40,000 requests, and beside them 140 or 280 MiB of 200.
    context.profile = dataclasses.replace(PROFILE, limited=(40_000.0, 200.0 * MIB))
    context.bare_profile = dataclasses.replace(
        PROFILE,
        points=tuple(dataclasses.replace(p, iops=10 * p.iops, bytes_per_s=10 * p.bytes_per_s) for p in PROFILE.points),
    )
    for epoch in record.epochs:
        epoch.seconds, epoch.stages_s["extract"] = 1.0, 1.0
        epoch.counters["requests_by_size"] = {"512": 38_000, str(MIB): longer}
    record.summary, record.class_ = summarise(record, context)
    found = {outcome.name: outcome.ok for outcome in judge(record, context)[1]}
    assert found["no_faster_than_the_device"] is holds


def test_the_class_follows_working_set_over_memory() -> None:
    assert [storage_class(ratio) for ratio in (None, 0.9, 1.0, 1.5, 2.0, 10.0)] == [
        "cached", "cached", "cached", "mixed", "storage-bound", "storage-bound",
    ]  # fmt: skip


def test_needed_seconds_counts_each_size_at_its_own_rate() -> None:
    assert needed_seconds(PROFILE, {"512": 40_000, "65536": 3_000}) == pytest.approx(2.0)


def test_the_least_device_time_takes_the_cheaper_of_random_and_scan() -> None:
    rate = 200 * MIB
    few = least_device_seconds(PROFILE, 400, 512, 0, 10**9)
    assert few == pytest.approx(400 / 40_000)
    many = least_device_seconds(PROFILE, 10**7, 512, rate, 10**9)
    assert many == pytest.approx((10**9 + 2 * 10**7 * 512) / rate + 1.0)


def test_reads_are_held_to_the_stage_they_are_noted_to_happen_in(sound: Run) -> None:
    record, context = sound
    for epoch in record.epochs:
        epoch.stages_s["data_prep"] = 0.1
    record.notes["reads_in"] = "data_prep"
    assert summarise(record, context)[0].engine_efficiency == pytest.approx(1000 / 40_000 / 0.1)


def test_what_a_system_writes_while_it_reads_keeps_the_device_busy_too(sound: Run) -> None:
    record, context = sound
    for epoch in record.epochs:
        epoch.counters["bytes_written"] = 10 * MIB
    assert summarise(record, context)[0].engine_efficiency == pytest.approx((1000 / 40_000 + 10 / 200) / 0.05)


def test_the_summary_follows_the_records_own_numbers(sound: Run) -> None:
    record, context = sound
    summary, kind = summarise(record, context)
    assert summary.epoch_s is not None and summary.epoch_s.median == 2.0
    assert summary.read_amplification == pytest.approx(1.0)
    assert summary.accelerator_utilisation == pytest.approx(0.25)
    assert summary.storage_efficiency == pytest.approx(0.3)
    assert summary.engine_efficiency == pytest.approx(1000 / 40_000 / 0.05)
    record.epochs[1].device_bytes = 2 * (record.epochs[1].device_bytes or 0)
    assert summarise(record, context)[0].read_amplification == pytest.approx(2.0)
    assert kind == "storage-bound"


def test_a_run_is_spoilt_by_its_moment_alone(sound: Run) -> None:
    record, context = sound

    def judged() -> bool:
        record.verdict, record.verdict_rules = judge(record, context)
        return spoilt(record)

    assert not judged()
    beside_many_scans(sound)
    assert judged() and record.verdict == "INVALID"
    other_batches(sound)
    assert not judged() and record.verdict == "INVALID"


def test_without_the_caps_own_counters_nothing_is_said_of_others(sound: Run) -> None:
    beside_many_scans(sound)
    for epoch in sound[0].epochs:
        epoch.device_bytes = epoch.device_requests = None
    assert not {"disk_was_quiet", "disk_was_not_shared"} & {outcome.name for outcome in judge(*sound)[1]}


def test_short_epochs_are_not_blamed(sound: Run) -> None:
    beside_many_scans(sound)
    for epoch in sound[0].epochs:
        epoch.seconds = 0.1
    names = {outcome.name: outcome.ok for outcome in judge(*sound)[1]}
    assert "disk_was_not_shared" not in names
