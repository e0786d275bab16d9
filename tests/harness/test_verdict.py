"""Each verdict rule holds for a sound run and is broken by a run that breaks it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

import numpy as np
import pytest

from harness.drives.whatif import class_profile
from harness.isolation.base import IoLimit
from harness.judge import judge, rules, spoilt
from harness.judge.context import Calibration, RunContext
from harness.judge.metrics import (
    best_rate,
    least_device_bytes,
    least_device_seconds,
    reading_seconds,
    storage_class,
    summarise,
)
from harness.judge.predict import device_seconds
from harness.judge.trace import EpochTrace, trace_epochs
from harness.records.record import (
    Code,
    DatasetConfig,
    EpochRecord,
    EvictionReading,
    FeatureCheck,
    GateReading,
    Memory,
    PlannedBuffer,
    Preprocess,
    RawReadings,
    Record,
    RunConfig,
    RunFacts,
)
from harness.ssd.classes import parse_disk_class
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


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workload, list[EpochTrace]]:
    dataset = make_tiny(tmp_path_factory.mktemp("verdict") / "tiny", dim=128)
    workload = Workload(dataset, SamplerSpec(fanout=(3, 3), batch_size=64), ModelSpec(layers=2))
    return workload, list(trace_epochs(workload, range(2)))


@pytest.fixture()
def sound(traced: tuple[Workload, list[EpochTrace]]) -> Run:
    """A run that keeps every rule."""
    workload, trace = traced
    dataset = workload.dataset
    rows = 1000
    epochs = [
        EpochRecord(
            epoch=k,
            warmup=k == 0,
            seconds=2.0,
            start_s=2.0 * k,
            batches=trace[k].steps,
            digest=trace[k].digest,
            stages_s={"sample": 0.1, "extract": 0.05, "train": 0.5},
            device_bytes=rows * 512,
            device_requests=rows,
            diskstats_bytes=rows * 512 + MIB,
            diskstats_requests=rows + 10,
            user_s=1.0,
            host_user_s=1.1,
            gate_s=2.001,
            reading_s=0.05,
            counters={
                "rows": 2 * rows,
                "hits": {"device": rows},
                "misses": rows,
                "io_requests": rows,
                "bytes_read": rows * 512,
                "bytes_useful": rows * 512,
                "requests_by_size": {"512": rows},
            },
        )
        for k in range(2)
    ]
    config = RunConfig(
        system="gnndrive",
        batch_size=64,
        fanout=[3, 3],
        layers=2,
        epochs=2,
        disk_class="aws-nvme/16",
        device="emulated:a10g",
        device_memory_bytes=100_000,
        dataset=DatasetConfig(
            name="tiny", fingerprint=dataset.fingerprint, num_nodes=2000, num_edges=20000, dim=128, dtype="float32"
        ),
    )
    record = Record(
        run_id="r",
        config_hash="c",
        system="gnndrive",
        status="ok",
        config=config,
        epochs=epochs,
        environment={
            "code": {"commit": "abc", "dirty": False},
            "versions": {"python": "3", "torch": "2"},
            "kernel": {"release": "6"},
            "disk": {"file_system": "ext4"},
            "cpu": {"usable": 2},
            "probe": {"page_cache_charged": True, "allocation_stopped": True, "escapes": []},
        },
        memory=Memory(
            cap_bytes=300 * MIB,
            floor_bytes=200 * MIB,
            training_bytes=10 * MIB,
            budget_bytes=100_000,
            peak_bytes=290 * MIB,
            demand_peak_bytes=220 * MIB,
            plan=[PlannedBuffer(name="x", bytes=MIB)],
        ),
        facts=RunFacts(io="io_uring registered"),
        preprocess=Preprocess(seconds=1.0, gate_s=1.1),
        code=Code(system="s", harness="h"),
        evidence=RawReadings(
            isolation="cgroup1",
            proves_memory=True,
            io_limited=True,
            rewritten=[],
            samples=40,
            limits=[300 * MIB],
            evictions=[EvictionReading(when="before", files=3, total_bytes=1000 * MIB, resident_bytes=0)],
            gates=[gate(at, k) for k, at in enumerate(GATES)],
            batches=trace[0].steps,
            digests={entry.epoch: entry.digest for entry in trace},
            least_bytes={0: 1000, 1: 1000},
            features=[FeatureCheck(epoch=k, batch=3, rows=128, ok=True) for k in range(2)],
        ),
    )
    probe = record.environment["probe"]
    context = RunContext(
        workload=workload,
        profile=PROFILE,
        bare_profile=PROFILE,
        limits=(IoLimit("1:0", 40_000),),
        io_limited=True,
        probe=probe,
        calibration=Calibration(1, 1, {1: 0.5}, {1: 0.6}),
        isolation="cgroup1",
        isolation_caveats=[],
        proves_memory=True,
    )
    record.summary, record.class_ = summarise(record, context)
    return record, context


GATES = ("prepared", "epoch 0 start", "epoch 0 end", "epoch 1 start", "epoch 1 end")


def gate(at: str, k: int) -> GateReading:
    return GateReading(
        at=at,
        reached_s=2.0 * (k // 2),
        opened_s=2.0 * (k // 2),
        io_bytes=512_000 * (k // 2),
        io_requests=1000 * (k // 2),
        disk_bytes=512_000 * (k // 2),
        disk_requests=1000 * (k // 2),
        page_cache_bytes=30 * MIB,
        resident_bytes=20 * MIB,
        limit_bytes=300 * MIB,
    )


def evidence(run: Run) -> RawReadings:
    assert run[0].evidence is not None
    return run[0].evidence


def warm(run: Run) -> None:
    evidence(run).evictions.append(EvictionReading(when="after_prepare", files=3, total_bytes=100, resident_bytes=50))


def warmed_by_another(run: Run) -> None:
    evidence(run).gates[3].resident_bytes = 40 * MIB


def swapped(run: Run) -> None:
    evidence(run).gates[2].swap_bytes = 30 * MIB


def read_too_little(run: Run) -> None:
    evidence(run).least_bytes[1] = 2 * (run[0].epochs[1].device_bytes or 0)


def fetched_between(run: Run) -> None:
    for reading in evidence(run).gates[3:]:
        reading.io_bytes = (reading.io_bytes or 0) + 20 * MIB


def left_its_cap(run: Run) -> None:
    evidence(run).outside.append("4711 (python worker)")


def free_memory(run: Run) -> None:
    evidence(run).free_device_memory = True


def raised_its_cap(run: Run) -> None:
    evidence(run).limits.append(900 * MIB)


def wrong_rows(run: Run) -> None:
    evidence(run).features.append(FeatureCheck(epoch=1, batch=2, rows=128, ok=False, detail="wrong"))


def rewrote_its_dataset(run: Run) -> None:
    evidence(run).rewritten = ["indices.npy"]


def unchecked_rows(run: Run) -> None:
    del evidence(run).features[1]


def another_clock(run: Run) -> None:
    run[0].epochs[1].gate_s = 4.0


def heard_late(run: Run) -> None:
    run[0].epochs[1].gate_s = 2.05


def worked_between(run: Run) -> None:
    for reading in evidence(run).gates[3:]:
        reading.reached_s += 5.0
        reading.opened_s += 5.0


def prepared_unseen(run: Run) -> None:
    run[0].preprocess.gate_s = 9.0


def retouched(run: Run) -> None:
    run[0].epochs[1].seconds = 1.9999


def many_digests(run: Run) -> None:
    run[0].epochs[1].checking_s = 1.0
    run[0].epochs[1].gate_s = 3.001


def nobodys_code(run: Run) -> None:
    run[0].code = Code()


def changed_afterwards(run: Run) -> None:
    run[1].unsealed = "record.json was changed after it was written"


def of_an_older_version(run: Run) -> None:
    run[0].evidence = None


def no_kernel_cap(run: Run) -> None:
    run[1].proves_memory = False


def above_the_cap(run: Run) -> None:
    run[0].memory.peak_bytes = 400 * MIB


def greedy(run: Run) -> None:
    run[0].memory.demand_peak_bytes = 280 * MIB


def killed_within_its_plan(run: Run) -> None:
    run[0].status, run[0].memory.budget_bytes = "oom", 2 * MIB


def escaped(run: Run) -> None:
    run[1].probe = {"page_cache_charged": True, "allocation_stopped": True, "escapes": ["managed memory"]}


def classless(run: Run) -> None:
    run[0].class_ = None


def graph_not_told(run: Run) -> None:
    run[0].summary.topology_over_budget = None


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
    run[0].facts = RunFacts(io="pread pool (io_uring forbidden: EPERM)")


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
    run[0].facts = RunFacts(test_clock="0.01 s added to every mini-batch")


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


def quicker_than_any_system(run: Run) -> None:
    # Rows of 1 MiB: some 2 GB an epoch, of which memory holds 17 MB, in 2 s of a device that reads 200 MiB/s.
    run[0].config.dataset.dim = 1 << 18


def timed_in_a_slow_moment(run: Run) -> None:
    run[0].summary.accelerator_utilisation = 1.2


def profiled_beside_others(run: Run) -> None:
    points = tuple(dataclasses.replace(point, others_disk=0.5, others_cpu=0.1) for point in PROFILE.points)
    run[1].bare_profile = dataclasses.replace(PROFILE, points=points)


def faster_again(run: Run) -> None:
    first = (DiskPoint(4096, 64, 10_000, 10_000 * 4096),)
    run[1].bare_profile = dataclasses.replace(PROFILE, first_read=first)


def on_a_cached_loop(run: Run) -> None:
    run[0].environment["disk"]["page_cached"] = ["loop0"]


def wrote_while_it_read(run: Run) -> None:
    # A second of reads and four of writes, of a budget for both, in 2 s.
    run[1].profile = dataclasses.replace(PROFILE, limited=(40_000.0, 200.0 * MIB))
    epoch = run[0].epochs[1]
    epoch.counters["bytes_written"] = 800 * MIB


BREAKS: dict[str, tuple[Callable[[Run], None], str]] = {
    "cap_is_a_kernel_cap": (no_kernel_cap, "CAVEATS"),
    "peak_within_cap": (above_the_cap, "INVALID"),
    "nothing_was_swapped": (swapped, "INVALID"),
    "started_cold": (warm, "INVALID"),
    "files_stayed_cold": (warmed_by_another, "INVALID"),
    "memory_as_asked": (greedy, "INVALID"),
    "plan_was_kept": (killed_within_its_plan, "INVALID"),
    "cap_was_proven": (escaped, "CAVEATS"),
    "class_is_known": (classless, "CAVEATS"),
    "topology_is_told": (graph_not_told, "CAVEATS"),
    "device_reads_cover_own_count": (read_from_nowhere, "INVALID"),
    "device_reads_cover_working_set": (read_too_little, "INVALID"),
    "nothing_was_read_between_epochs": (fetched_between, "INVALID"),
    "no_faster_than_the_device": (too_fast, "INVALID"),
    "within_the_class_at_every_moment": (in_bursts, "CAVEATS"),
    "device_profile_by_fio": (no_fio, "CAVEATS"),
    "device_profile_was_quiet": (profiled_beside_others, "CAVEATS"),
    "no_cache_below_the_kernel": (faster_again, "CAVEATS"),
    "disk_is_behind_no_page_cache": (on_a_cached_loop, "INVALID"),
    "disk_class_was_enforced": (unlimited, "CAVEATS"),
    "within_the_shared_budget": (wrote_while_it_read, "CAVEATS"),
    "reads_are_asynchronous": (fell_back, "CAVEATS"),
    "distance_is_below_one": (quicker_than_any_system, "INVALID"),
    "training_alone_is_shorter": (timed_in_a_slow_moment, "CAVEATS"),
    "run_ended_well": (failed, "INVALID"),
    "warmed_up": (no_warmup, "CAVEATS"),
    "every_batch_once": (lost_a_batch, "INVALID"),
    "digests_equal_the_workload": (other_batches, "INVALID"),
    "device_memory_is_not_free": (free_memory, "CAVEATS"),
    "emulated_is_not_accuracy": (pretends_accuracy, "CAVEATS"),
    "provenance_is_complete": (no_commit, "CAVEATS"),
    "code_is_committed": (changed_code, "CAVEATS"),
    "nothing_was_slowed_on_purpose": (slowed, "INVALID"),
    "host_keeps_its_promises": (host_caveat, "CAVEATS"),
    "disk_was_quiet": (beside_a_scan, "CAVEATS"),
    "disk_was_not_shared": (beside_many_scans, "SPOILT"),
    "processors_were_quiet": (beside_a_computation, "CAVEATS"),
    "worker_is_in_its_cap": (left_its_cap, "INVALID"),
    "limit_is_what_was_asked_for": (raised_its_cap, "INVALID"),
    "features_equal_the_dataset": (wrong_rows, "INVALID"),
    "features_were_checked": (unchecked_rows, "CAVEATS"),
    "dataset_stayed_the_same": (rewrote_its_dataset, "INVALID"),
    "clock_agrees_with_the_gates": (another_clock, "INVALID"),
    "clock_is_close_to_the_gates": (heard_late, "CAVEATS"),
    "nothing_was_done_between_epochs": (worked_between, "INVALID"),
    "preparation_took_what_it_says": (prepared_unseen, "INVALID"),
    "numbers_follow_from_their_parts": (retouched, "INVALID"),
    "checks_took_little": (many_digests, "CAVEATS"),
    "code_is_known": (nobodys_code, "CAVEATS"),
    "record_is_sealed": (changed_afterwards, "INVALID"),
    "evidence_is_kept": (of_an_older_version, "CAVEATS"),
}


def nothing_counted(run: Run) -> None:
    for epoch in run[0].epochs:
        epoch.device_bytes = epoch.diskstats_bytes = None


def no_gates(run: Run) -> None:
    evidence(run).gates, evidence(run).samples, evidence(run).limits = [], 0, []


def no_trace(run: Run) -> None:
    evidence(run).batches, evidence(run).digests, evidence(run).least_bytes = None, {}, {}
    run[1].workload = None


def no_profile(run: Run) -> None:
    run[1].profile = run[1].bare_profile = None
    run[0].summary.engine_efficiency = None


def no_times(run: Run) -> None:
    for epoch in run[0].epochs:
        epoch.gate_s = epoch.host_user_s = None
    run[0].preprocess.gate_s = None


def no_checks(run: Run) -> None:
    evidence(run).features = []


def no_evictions(run: Run) -> None:
    evidence(run).evictions = []


def nothing_timed(run: Run) -> None:
    run[0].summary.accelerator_utilisation = None


UNKNOWN: dict[str, Callable[[Run], None]] = {
    "device_reads_cover_own_count": nothing_counted,
    "device_reads_cover_working_set": no_trace,
    "nothing_was_read_between_epochs": no_gates,
    "worker_is_in_its_cap": no_gates,
    "limit_is_what_was_asked_for": no_gates,
    "files_stayed_cold": no_gates,
    "every_batch_once": no_trace,
    "digests_equal_the_workload": no_trace,
    "distance_is_below_one": no_profile,
    "no_faster_than_the_device": no_profile,
    "disk_was_quiet": no_profile,
    "disk_was_not_shared": no_profile,
    "clock_agrees_with_the_gates": no_times,
    "processors_were_quiet": no_times,
    "preparation_took_what_it_says": no_times,
    "nothing_was_done_between_epochs": no_gates,
    "features_equal_the_dataset": no_checks,
    "started_cold": no_evictions,
    "training_alone_is_shorter": nothing_timed,
}


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_a_rule_that_cannot_be_judged_is_a_caveat_by_its_name(name: str, sound: Run) -> None:
    UNKNOWN[name](sound)
    verdict, outcomes = judge(*sound)
    found = {outcome.name: outcome for outcome in outcomes}[name]
    assert not found.ok and not found.known and "could not be judged" in found.detail
    assert verdict == "CAVEATS"


def test_a_record_is_judged_by_what_it_holds_alone(sound: Run) -> None:
    record, context = sound
    record.disk = {
        "limited": dataclasses.asdict(PROFILE),
        "bare": dataclasses.asdict(PROFILE),
        "limits": [dataclasses.asdict(limit) for limit in context.limits],
    }
    assert context.calibration is not None
    record.compute = dataclasses.asdict(context.calibration)
    again = Record.model_validate_json(record.model_dump_json(by_alias=True))
    assert judge(again) == judge(record, context)
    assert judge(again)[0] == "VALID"


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


@pytest.mark.parametrize(("ratio", "verdict"), [(1.05, "CAVEATS"), (2.0, "CAVEATS"), (2.3, "INVALID")])
def test_a_run_is_held_to_what_others_left_of_the_device(sound: Run, ratio: float, verdict: str) -> None:
    """Half of the disk went to others while it was profiled: a quiet run may be twice as fast, and no more."""
    record, context = sound
    points = tuple(dataclasses.replace(point, others_disk=0.5, others_cpu=0.0) for point in PROFILE.points)
    context.profile = context.bare_profile = dataclasses.replace(PROFILE, points=points)
    context.limits = ()
    record.summary.engine_efficiency = ratio
    assert judge(record, context)[0] == verdict


def test_what_a_plan_refuses_is_a_result_and_no_fault(sound: Run) -> None:
    record, context = sound
    killed_within_its_plan(sound)
    record.memory.plan = []
    assert "plan_was_kept" not in {outcome.name for outcome in judge(record, context)[1]}


def test_a_rate_above_the_class_over_the_whole_epoch_is_invalid(sound: Run) -> None:
    record, context = sound
    for epoch in record.epochs:
        epoch.reading_s = 1.0
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
        epoch.seconds, epoch.reading_s = 0.2, 0.1
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
        epoch.seconds, epoch.reading_s = 1.0, 1.0
        epoch.counters["requests_by_size"] = {"512": 38_000, str(MIB): longer}
    record.summary, record.class_ = summarise(record, context)
    found = {outcome.name: outcome.ok for outcome in judge(record, context)[1]}
    assert found["no_faster_than_the_device"] is holds


def test_the_class_follows_working_set_over_memory() -> None:
    assert [storage_class(ratio) for ratio in (None, 0.9, 1.0, 1.5, 2.0, 10.0)] == [
        "cached",
        "cached",
        "cached",
        "mixed",
        "storage-bound",
        "storage-bound",
    ]


def test_the_least_device_time_is_what_memory_cannot_hold_at_the_best_rate_of_the_series(sound: Run) -> None:
    record, context = sound
    record.config.dataset.dim = 1 << 18
    assert context.workload is not None
    (trace,) = trace_epochs(context.workload, [1])
    # Budget and device, training, and a tenth of floor, training and plan.
    nbytes = trace.least_bytes(MIB, 2 * 100_000 + 10 * MIB + int(0.1 * 211 * MIB))
    assert least_device_bytes(record, context, 1) == nbytes > 10**9

    def seconds() -> float | None:
        return least_device_seconds(record, context, 1)

    assert seconds() == pytest.approx(nbytes / (200 * MIB))
    assert context.bare_profile is not None
    context.bare_profile = dataclasses.replace(
        PROFILE, points=(*PROFILE.points, DiskPoint(65536, 256, 6400, 400 * MIB))
    )
    assert seconds() == pytest.approx(nbytes / (400 * MIB))
    context.limits = (IoLimit("1:0", 40_000, 50 * MIB), IoLimit("1:1", 40_000, 50 * MIB))
    assert seconds() == pytest.approx(nbytes / (100 * MIB))
    context.io_limited = False
    assert seconds() == pytest.approx(nbytes / (400 * MIB))


@pytest.mark.parametrize("name", ["none", "aws-nvme/16", "aws-gp3", "samsung-pm883", "samsung-pm1725b/8"])
def test_no_mix_of_reads_and_writes_is_quicker_than_its_bytes_at_the_best_rate(sound: Run, name: str) -> None:
    """Rows one by one, gaps read with them, a scan, chunks written and read back: whatever the sizes."""
    _, context = sound
    rng = np.random.default_rng(3)
    disk_class = parse_disk_class(name)
    if disk_class is not None:
        context.profile = context.bare_profile = class_profile(disk_class)
        context.limits = (IoLimit("1:0", disk_class.read_iops, disk_class.read_bytes_per_s),)
    context.io_limited = disk_class is not None
    assert context.profile is not None
    for _ in range(300):
        sizes = {int(512 * 2 ** rng.uniform(0, 14)): float(rng.integers(1, 1000)) for _ in range(rng.integers(1, 6))}
        epoch = EpochRecord(epoch=0, warmup=False, seconds=1.0)
        epoch.counters["bytes_written"] = int(rng.integers(0, 2) * rng.integers(0, 10**9))
        least = sum(size * count for size, count in sizes.items()) / best_rate(context)
        assert device_seconds(context.profile, epoch, sizes) >= least * (1 - 1e-9)


def test_nothing_has_to_be_read_where_memory_is_not_bounded_and_nothing_is_known_of_other_mini_batches(
    sound: Run,
) -> None:
    record, context = sound
    record.config.dataset.dim = 1 << 18
    context.proves_memory = False
    assert least_device_bytes(record, context, 1) == 0
    context.proves_memory, record.config.stages = True, "sample"
    assert least_device_bytes(record, context, 1) == 0
    record.config.stages, context.faithful = "all", False
    assert least_device_bytes(record, context, 1) is None


def test_reads_are_held_to_the_stage_they_are_noted_to_happen_in(sound: Run) -> None:
    record, context = sound
    for epoch in record.epochs:
        epoch.stages_s["data_prep"] = 0.1
        epoch.reading_s = reading_seconds([], epoch, ["data_prep"])
    assert summarise(record, context)[0].engine_efficiency == pytest.approx(1000 / 40_000 / 0.1)


def test_what_a_system_writes_while_it_reads_keeps_the_device_busy_too(sound: Run) -> None:
    record, context = sound
    for epoch in record.epochs:
        epoch.counters["bytes_written"] = 10 * MIB
    assert summarise(record, context)[0].engine_efficiency == pytest.approx((1000 / 40_000 + 10 / 200) / 0.05)


def test_a_limiter_that_counts_writes_by_themselves_does_not_slow_reads(sound: Run) -> None:
    """Rule 9 is about what was possible here: the kernel lets both pass; the shared budget has a rule of its own."""
    record, context = sound
    wrote_while_it_read(sound)
    assert summarise(record, context)[0].engine_efficiency == pytest.approx(1000 / 40_000 / 0.05)
    names = {outcome.name: outcome.ok for outcome in judge(record, context)[1]}
    assert names["no_faster_than_the_device"] and not names["within_the_shared_budget"]
    assert context.profile is not None
    context.profile = dataclasses.replace(context.profile, write_cost=0.0)
    assert "within_the_shared_budget" not in {outcome.name for outcome in judge(record, context)[1]}


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
    assert judged() and record.verdict == "SPOILT"
    other_batches(sound)
    assert not judged() and record.verdict == "INVALID"


def test_without_the_caps_own_counters_it_is_not_known_what_others_read(sound: Run) -> None:
    beside_many_scans(sound)
    for epoch in sound[0].epochs:
        epoch.device_bytes = epoch.device_requests = None
    found = {outcome.name: outcome.known for outcome in judge(*sound)[1]}
    assert found["disk_was_quiet"] is found["disk_was_not_shared"] is False


def test_short_epochs_are_not_blamed(sound: Run) -> None:
    beside_many_scans(sound)
    for epoch in sound[0].epochs:
        epoch.seconds = 0.1
    evidence(sound).in_turns = True
    names = {outcome.name: outcome.ok for outcome in judge(*sound)[1]}
    assert "disk_was_not_shared" not in names
