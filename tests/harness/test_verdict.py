"""Each verdict rule holds for a sound run and is broken by a run that breaks it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.cache import Cache
from harness.drives.whatif import class_profile
from harness.isolation.base import IoLimit
from harness.judge import judge, rules, spoilt
from harness.judge.metrics import (
    best_rate,
    least_device_bytes,
    least_device_seconds,
    reading_seconds,
    storage_class,
    summarise,
    unmerged,
)
from harness.judge.predict import device_seconds
from harness.judge.registry import Calibration, RunContext
from harness.judge.trace import EpochTrace, TraceFacts, trace_epochs
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
    Sandbox,
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
def traced(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Workload, list[EpochTrace]]:
    dataset = make_tiny(tmp_path_factory.mktemp("verdict") / "tiny", dim=128)
    workload = Workload(
        dataset, SamplerSpec(fanout=(3, 3), batch_size=64), ModelSpec(layers=2)
    )
    return workload, list(trace_epochs(workload, range(2)))


@pytest.fixture()
def sound(traced: tuple[Workload, list[EpochTrace]]) -> Run:
    """Make a run that keeps every rule."""
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
            waited_s=0.02,
            stolen_s=0.0,
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
            name="tiny",
            fingerprint=dataset.fingerprint,
            num_nodes=2000,
            num_edges=20000,
            dim=128,
            dtype="float32",
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
            "memory": {"total_bytes": 8192 * MIB},
            "probe": {
                "page_cache_charged": True,
                "allocation_stopped": True,
                "escapes": [],
            },
        },
        memory=Memory(
            cap_bytes=300 * MIB,
            floor_bytes=200 * MIB,
            training_bytes=10 * MIB,
            budget_bytes=100_000,
            peak_bytes=290 * MIB,
            demand_peak_bytes=220 * MIB,
            plan=[
                PlannedBuffer(name="x", bytes=MIB),
                PlannedBuffer(name="y", bytes=60_000, tier="device"),
            ],
            device_peak_bytes=[60_000],
        ),
        facts=RunFacts(io="io_uring registered"),
        preprocess=Preprocess(seconds=1.0, gate_s=1.1),
        code=Code(system="s", harness="h"),
        evidence=RawReadings(
            isolation="cgroup1",
            proves_memory=True,
            io_limited=True,
            samples=40,
            evictions=[
                EvictionReading(
                    when="before", files=3, total_bytes=1000 * MIB, resident_bytes=0
                )
            ],
            gates=[*(gate(at, k) for k, at in enumerate(GATES)), gate("floor", 0)],
            batches=trace[0].steps,
            digests={entry.epoch: entry.digest for entry in trace},
            least_bytes={0: 1000, 1: 1000},
            features=[
                FeatureCheck(epoch=k, batch=3, rows=128, ok=True) for k in range(2)
            ],
        ),
    )
    context = RunContext(
        trace=TraceFacts(
            workload, record.config, Cache(workload.dataset.path.parent / "cache")
        ),
        profile=PROFILE,
        bare_profile=PROFILE,
        limits=(IoLimit("1:0", 40_000),),
        calibration=Calibration(1, 1, {1: 0.5}, {1: 0.6}, built_bytes=200 * MIB),
    )
    record.summary, record.class_ = summarise(record, context)
    return record, context


def one_long_epoch(run: Run) -> None:
    """Add two measured epochs that do half of what the first does."""
    record, _ = run
    first = record.epochs[1]
    for number in (2, 3):
        less = {
            "epoch": number,
            "seconds": 0.8,
            "device_bytes": 100_000,
            "device_written_bytes": 0,
            "user_s": 0.3,
        }
        record.epochs.append(first.model_copy(update=less))
    first.device_bytes = 4 * MIB


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
        held_bytes=200 * MIB,
        page_cache_bytes=30 * MIB,
        resident_bytes=20 * MIB,
        limit_bytes=300 * MIB,
    )


def evidence(run: Run) -> RawReadings:
    assert run[0].evidence is not None
    return run[0].evidence


Change = dict[str, Any] | Callable[[Run], None]


def changed(run: Run, change: Change) -> None:
    """Apply a change: a function, or new values by path in the record (with `context.`
    in front: in the context)."""
    if callable(change):
        change(run)
        return
    for path, value in change.items():
        at: Any = {"context": run[1]} if path.startswith("context.") else run[0]
        *parts, last = path.split(".")
        for part in parts:
            at = (
                at[int(part)]
                if part.isdigit()
                else at[part]
                if isinstance(at, dict)
                else getattr(at, part)
            )
        if isinstance(at, dict):
            at[last] = value
        else:
            setattr(at, last, value)


def warm(run: Run) -> None:
    evidence(run).evictions.append(
        EvictionReading(
            when="after_prepare", files=3, total_bytes=100, resident_bytes=50
        )
    )


def read_too_little(run: Run) -> None:
    evidence(run).least_bytes[1] = 2 * (run[0].epochs[1].device_bytes or 0)


def fetched_between(run: Run) -> None:
    for reading in evidence(run).gates[3:]:
        reading.io_bytes = (reading.io_bytes or 0) + 20 * MIB


def wrong_rows(run: Run) -> None:
    evidence(run).features.append(
        FeatureCheck(epoch=1, batch=2, rows=128, ok=False, detail="wrong")
    )


def unchecked_rows(run: Run) -> None:
    del evidence(run).features[1]


def worked_between(run: Run) -> None:
    for reading in evidence(run).gates[3:]:
        reading.reached_s += 5.0
        reading.opened_s += 5.0


def lost_a_batch(run: Run) -> None:
    run[0].epochs[1].batches -= 1


def scans_beside(mib: int) -> Change:
    def change(run: Run) -> None:
        epoch = run[0].epochs[1]
        epoch.diskstats_bytes = (epoch.device_bytes or 0) + mib * MIB
        epoch.diskstats_requests = (epoch.device_requests or 0) + mib

    return change


def profiled_beside_others(run: Run) -> None:
    points = tuple(
        dataclasses.replace(point, others_disk=0.5, others_cpu=0.1)
        for point in PROFILE.points
    )
    run[1].bare_profile = dataclasses.replace(PROFILE, points=points)


def larger_floor(run: Run) -> None:
    run[1].calibration = Calibration(1, 1, {1: 0.5}, built_bytes=260 * MIB)


def loaded_beforehand(run: Run) -> None:
    run[0].system = "image:theirs"
    run[1].calibration = Calibration(1, 1, {1: 0.5}, feature_read_bytes=30 * MIB)


# A run of a foreign system that samples by itself.
DRAWN: dict[str, Any] = {
    "system": "image:theirs",
    "evidence.faithful": False,
    "evidence.seeds": 10_000,
    **{
        f"epochs.{k}.{name}": size
        for k in range(2)
        for name, size in {"nodes": 2000, "edges": 3000, "loss": 1.0}.items()
    },
}
BREAKS: dict[str, tuple[str, Change]] = {
    "cap_is_below_the_machines_memory": (
        "CAVEATS",
        {"environment.memory.total_bytes": 200 * MIB},
    ),
    "loss_is_finite": (
        "CAVEATS",
        {"config.device": "cpu", "epochs.0.loss": 1.0, "epochs.1.losses_not_finite": 3},
    ),
    "peak_within_cap": ("INVALID", {"memory.peak_bytes": 400 * MIB}),
    "memory_is_charged": ("INVALID", {"evidence.gates.3.uncharged_bytes": 40 * MIB}),
    "started_cold": ("INVALID", warm),
    "files_stayed_cold": ("INVALID", {"evidence.gates.3.resident_bytes": 40 * MIB}),
    "memory_as_asked": ("INVALID", {"memory.demand_peak_bytes": 280 * MIB}),
    "device_memory_as_asked": ("INVALID", {"memory.device_peak_bytes": [80_000]}),
    "libraries_are_small": (
        "CAVEATS",
        {"context.calibration": Calibration(1, 1, {1: 0.5}, module_bytes=9 * MIB)},
    ),
    "floor_is_of_the_run": ("INVALID", larger_floor),
    "training_peak_is_of_its_step": (
        "CAVEATS",
        {"context.calibration": Calibration(1, 1, {1: 0.5}, peak_is_of_step=False)},
    ),
    "plan_was_kept": ("INVALID", {"status": "oom", "memory.budget_bytes": 2 * MIB}),
    "cap_was_proven": ("CAVEATS", {"environment.probe.escapes": ["managed memory"]}),
    "class_is_known": ("CAVEATS", {"class_": None}),
    "device_reads_cover_own_count": ("INVALID", {"epochs.1.device_bytes": 100}),
    "device_reads_cover_working_set": ("INVALID", read_too_little),
    "nothing_was_read_between_epochs": ("INVALID", fetched_between),
    "no_faster_than_the_device": (
        "INVALID",
        {"context.limits": (), "summary.engine_efficiency": 1.5},
    ),
    "within_the_class_at_every_moment": ("CAVEATS", {"summary.engine_efficiency": 1.5}),
    "device_profile_by_fio": (
        "CAVEATS",
        {"context.profile": dataclasses.replace(PROFILE, tool="in-process")},
    ),
    "device_profile_was_quiet": ("CAVEATS", profiled_beside_others),
    "no_cache_below_the_kernel": (
        "CAVEATS",
        {
            "context.bare_profile": dataclasses.replace(
                PROFILE, first_read=(DiskPoint(4096, 64, 10_000, 10_000 * 4096),)
            )
        },
    ),
    "files_are_on_the_disk": (
        "INVALID",
        {"evidence.elsewhere": {"/mnt/zram/packed.bin": 30 * MIB}},
    ),
    "disk_is_behind_no_page_cache": (
        "INVALID",
        {"environment.disk.page_cached": ["loop0"]},
    ),
    "disk_class_was_enforced": ("CAVEATS", {"evidence.io_limited": False}),
    # One second of reads and four of writes, of a budget for both, in 2 s.
    "within_the_shared_budget": (
        "CAVEATS",
        {
            "context.profile": dataclasses.replace(
                PROFILE, limited=(40_000.0, 200.0 * MIB)
            ),
            "epochs.1.counters.bytes_written": 800 * MIB,
        },
    ),
    "reads_are_asynchronous": (
        "CAVEATS",
        {"facts": RunFacts(io="pread pool (io_uring forbidden: EPERM)")},
    ),
    # Rows of 1 MiB: some 2 GB an epoch, of which memory holds 17 MB, in 2 s of a device
    # that reads 200 MiB/s.
    "distance_is_below_one": ("INVALID", {"config.dataset.dim": 1 << 18}),
    "counters_add_up": (
        "INVALID",
        {"epochs.1.nodes": 2000, "epochs.1.counters.hits": {"device": 9000}},
    ),
    "measured_epochs_are_alike": ("INVALID", one_long_epoch),
    "reads_are_counted": ("INVALID", {"epochs.1.device_bytes": 40 * MIB}),
    "mini_batches_came_in_order": (
        "INVALID",
        {"config.keep_order": True, "epochs.1.in_order": False},
    ),
    "training_took_its_time": ("INVALID", {"epochs.1.compute_s": 0.2}),
    "training_alone_is_shorter": ("CAVEATS", {"summary.accelerator_utilisation": 1.2}),
    "run_ended_well": ("INVALID", {"status": "failed"}),
    "warmed_up": ("CAVEATS", {"epochs.0.warmup": False}),
    "every_batch_once": ("INVALID", lost_a_batch),
    "digests_equal_the_workload": (
        "INVALID",
        {"epochs.1.digest": "xxh3:0000000000000000"},
    ),
    "device_memory_is_not_free": ("CAVEATS", {"evidence.free_device_memory": True}),
    "emulated_is_not_accuracy": ("CAVEATS", {"epochs.1.accuracy": 0.9}),
    "provenance_is_complete": ("CAVEATS", {"environment.code.commit": None}),
    "code_is_committed": ("CAVEATS", {"environment.code.dirty": True}),
    "nothing_was_slowed_on_purpose": (
        "INVALID",
        {"facts": RunFacts(test_clock="0.01 s added to every mini-batch")},
    ),
    "host_keeps_its_promises": (
        "CAVEATS",
        {"caveats": ["swap could not be switched off"]},
    ),
    "disk_was_quiet": ("CAVEATS", scans_beside(30)),
    "disk_was_not_shared": ("SPOILT", scans_beside(300)),
    "processors_were_quiet": (
        "CAVEATS",
        {"epochs.1.user_s": 1.0, "epochs.1.host_user_s": 1.0 + (os.cpu_count() or 1)},
    ),
    "processors_were_not_shared": (
        "SPOILT",
        {"epochs.1.waited_s": 1.2, "epochs.1.user_s": 0.8, "epochs.1.host_user_s": 3.9},
    ),
    "worker_was_sandboxed": (
        "CAVEATS",
        {"evidence.sandbox": Sandbox(missing="bubblewrap is not installed")},
    ),
    "watched_throughout": ("SPOILT", {"evidence.unwatched_s": 0.4}),
    "processors_are_what_was_asked_for": (
        "INVALID",
        {"config.cores": 1, "epochs.1.user_s": 3.0},
    ),
    "rows_crossed_the_bus": (
        "INVALID",
        {
            "evidence.least_bus_s": {0: 0.5, 1: 0.5},
            "epochs.0.bus_s": 0.6,
            "epochs.1.bus_s": 0.4,
        },
    ),
    "features_equal_the_dataset": ("INVALID", wrong_rows),
    "mini_batches_equal_the_workload": ("CAVEATS", {"readings.faithful": False}),
    "training_is_the_workloads": ("CAVEATS", {"system": "image:theirs"}),
    "floor_and_training_hold_no_features": ("INVALID", loaded_beforehand),
    "sizes_are_as_drawn": (
        "INVALID",
        {
            **DRAWN,
            "evidence.drawn": {0: (2000, 3000, 9.0, 9.0), 1: (2000, 4000, 9.0, 9.0)},
        },
    ),
    "nothing_was_prepared_before": (
        "INVALID",
        {"evidence.from_before": {"/tmp/packed.bin": 30 * MIB}},
    ),
    "clock_agrees_with_the_gates": ("INVALID", {"epochs.1.gate_s": 4.0}),
    "clock_is_close_to_the_gates": ("CAVEATS", {"epochs.1.gate_s": 2.05}),
    "nothing_was_done_between_epochs": ("INVALID", worked_between),
    "little_was_done_between_epochs": ("CAVEATS", {"evidence.gates.3.user_s": 0.2}),
    "preparation_took_what_it_says": ("INVALID", {"preprocess.gate_s": 9.0}),
    "checks_took_little": (
        "CAVEATS",
        {"epochs.1.checking_s": 1.0, "epochs.1.gate_s": 3.001},
    ),
    "code_is_known": ("CAVEATS", {"code": Code()}),
    "record_is_sealed": (
        "INVALID",
        {"context.unsealed": "record.json was changed after it was written"},
    ),
    "evidence_is_kept": ("CAVEATS", {"evidence": None}),
}


def nothing_counted(run: Run) -> None:
    for epoch in run[0].epochs:
        epoch.device_bytes = epoch.diskstats_bytes = None


def no_times(run: Run) -> None:
    for epoch in run[0].epochs:
        epoch.gate_s = epoch.host_user_s = None
    run[0].preprocess.gate_s = None


NO_GATES: Change = {"evidence.gates": [], "evidence.samples": 0}
NO_TRACE: Change = {
    "evidence.batches": None,
    "evidence.digests": {},
    "evidence.least_bytes": {},
    "context.trace": None,
}
NO_PROFILE: Change = {
    "context.profile": None,
    "context.bare_profile": None,
    "summary.engine_efficiency": None,
}
UNKNOWN: dict[str, Change] = {
    "device_reads_cover_own_count": nothing_counted,
    "device_reads_cover_working_set": NO_TRACE,
    "nothing_was_read_between_epochs": NO_GATES,
    "files_stayed_cold": NO_GATES,
    "floor_is_of_the_run": NO_GATES,
    "every_batch_once": NO_TRACE,
    "digests_equal_the_workload": NO_TRACE,
    "distance_is_below_one": NO_PROFILE,
    "no_faster_than_the_device": NO_PROFILE,
    "disk_was_quiet": NO_PROFILE,
    "disk_was_not_shared": NO_PROFILE,
    "clock_agrees_with_the_gates": no_times,
    "processors_were_quiet": no_times,
    "processors_were_not_shared": {"epochs.1.waited_s": None},
    "preparation_took_what_it_says": no_times,
    "nothing_was_done_between_epochs": NO_GATES,
    "little_was_done_between_epochs": NO_GATES,
    "processors_are_what_was_asked_for": {"config.cores": 1, "epochs.1.user_s": None},
    "rows_crossed_the_bus": {"evidence.least_bus_s": {0: 0.5, 1: 0.5}},
    "features_equal_the_dataset": unchecked_rows,
    "sizes_are_as_drawn": DRAWN,
    "started_cold": {"evidence.evictions": []},
    "cap_is_below_the_machines_memory": {"environment.memory": {}},
    "training_alone_is_shorter": {"summary.accelerator_utilisation": None},
}


def breaks(run: Run, rule: str) -> None:
    """Make a run break a rule."""
    changed(run, BREAKS[rule][1])


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_a_rule_that_cannot_be_judged_is_a_caveat_by_its_name(
    name: str, sound: Run
) -> None:
    changed(sound, UNKNOWN[name])
    verdict, outcomes = judge(*sound)
    found = {outcome.name: outcome for outcome in outcomes}[name]
    assert not found.ok
    assert not found.known
    assert "could not be judged" in found.detail
    assert verdict == "CAVEATS", [one for one in outcomes if not one.ok]


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


@pytest.mark.parametrize(
    ("total", "enclosing", "whose"),
    [
        (8192, None, ""),
        (300, None, "machine"),
        (8192, 300, "groups"),
        (8192, 301, ""),
        (200, 250, "machine"),
    ],
)
def test_a_cap_that_the_kernel_never_enforces_is_a_caveat(
    sound: Run, total: int, enclosing: int | None, whose: str
) -> None:
    sound[0].environment["memory"]["total_bytes"] = total * MIB
    evidence(sound).enclosing_bytes = None if enclosing is None else enclosing * MIB
    verdict, outcomes = judge(*sound)
    broken = {outcome.name: outcome.detail for outcome in outcomes if not outcome.ok}
    assert verdict == ("CAVEATS" if whose else "VALID")
    assert whose in broken.get("cap_is_below_the_machines_memory", "")
    assert len(broken) == bool(whose)


def test_an_older_record_without_a_mean_loss_diverged_too(sound: Run) -> None:
    record, _ = sound
    record.config.device = "cpu"
    for epoch in record.epochs:
        epoch.loss = None
    found = {outcome.name: outcome for outcome in judge(*sound)[1]}["loss_is_finite"]
    assert not found.ok
    assert (
        f"nan in {record.epochs[0].batches} mini-batches of epoch 0, 2 of 2 epochs"
        in found.detail
    )


def test_work_after_the_preparation_belongs_to_no_number_either(sound: Run) -> None:
    for reading in evidence(sound).gates[1:]:
        reading.user_s = 2.0
        reading.io_bytes = (reading.io_bytes or 0) + 20 * MIB
    verdict, outcomes = judge(*sound)
    broken = {outcome.name: outcome.detail for outcome in outcomes if not outcome.ok}
    assert verdict == "INVALID"
    assert broken["nothing_was_done_between_epochs"] == "2.00 s before epoch 0"
    assert broken["nothing_was_read_between_epochs"] == "20.0 MiB before epoch 0"


def test_a_sound_run_is_valid(sound: Run) -> None:
    verdict, outcomes = judge(*sound)
    assert [outcome for outcome in outcomes if not outcome.ok] == []
    assert verdict == "VALID"


@pytest.mark.parametrize("name", [entry.name for entry in rules()])
def test_every_rule_is_broken_by_a_run_that_breaks_it(name: str, sound: Run) -> None:
    breaks(sound, name)
    verdict, outcomes = judge(*sound)
    assert {outcome.name: outcome.ok for outcome in outcomes}[name] is False
    assert verdict == BREAKS[name][0]


@pytest.mark.parametrize(
    ("first", "held"),
    [
        ({}, False),
        ({"nodes": 4000}, True),
        ({"device_bytes": 100_000, "device_written_bytes": 4 * MIB}, False),
        ({"device_bytes": 100_000, "user_s": 1.9, "host_user_s": 2.0}, False),
        ({"device_bytes": 100_000, "user_s": 1.9, "host_user_s": 3.8}, True),
    ],
    ids=[
        "reads for others",
        "fills a cache",
        "writes",
        "computes",
        "computes beside other programs",
    ],
)
def test_an_epoch_that_works_for_others_is_reported_from_a_cache_that_fills_and_from_noise(
    sound: Run, first: dict[str, Any], held: bool
) -> None:
    one_long_epoch(sound)
    changed(sound, {f"epochs.1.{name}": value for name, value in first.items()})
    outcomes = {outcome.name: outcome for outcome in judge(*sound)[1]}
    assert outcomes["measured_epochs_are_alike"].ok is held, outcomes[
        "measured_epochs_are_alike"
    ].detail


@pytest.mark.parametrize(("share", "held"), [(0.91, True), (0.89, False)])
def test_a_foreign_systems_reads_cover_what_a_sampler_like_it_needs(
    sound: Run, share: float, held: bool
) -> None:
    changed(sound, DRAWN)
    for epoch in sound[0].epochs:
        evidence(sound).least_bytes[epoch.epoch] = round(
            (epoch.device_bytes or 0) / share
        )
    outcomes = {outcome.name: outcome for outcome in judge(*sound)[1]}
    assert outcomes["device_reads_cover_working_set"].ok is held
    assert "distance_is_below_one" not in outcomes


@pytest.mark.parametrize(("least", "held"), [(2_200, True), (2_300, False)])
def test_a_foreign_systems_hits_are_no_more_than_memory_can_give(
    sound: Run, least: int, held: bool
) -> None:
    """2,000 rows are no hits in memory of 4,000, and 0.9 of `least` have to be read."""
    changed(sound, {**DRAWN, **{f"epochs.{k}.nodes": 4000 for k in range(2)}})
    for epoch in sound[0].epochs:
        epoch.counters |= {
            "rows": 4000,
            "hits": {"host": 1500, "device": 500},
            "misses": 2000,
        }
        evidence(sound).least_bytes[epoch.epoch] = least * 512
    outcomes = {outcome.name: outcome for outcome in judge(*sound)[1]}
    assert outcomes["counters_add_up"].ok is held, outcomes["counters_add_up"].detail


def test_memory_of_a_foreign_constructor_is_reported_and_mapped_pages_of_its_own_are_no_warm_start(
    sound: Run,
) -> None:
    changed(sound, DRAWN)
    evidence(sound).evictions.append(
        EvictionReading(
            when="after_prepare", files=1, total_bytes=80 * MIB, resident_bytes=60 * MIB
        )
    )
    for made, mapped, held in ((15 * MIB, 60 * MIB, True), (40 * MIB, 20 * MIB, False)):
        sound[1].calibration = Calibration(1, 1, {1: 0.5}, constructor_bytes=made)
        evidence(sound).gates[0].page_cache_bytes = mapped
        outcomes = {outcome.name: outcome for outcome in judge(*sound)[1]}
        assert outcomes["libraries_are_small"].ok is held
        assert outcomes["started_cold"].ok is held
    sound[0].system = "gnndrive"
    evidence(sound).gates[0].page_cache_bytes = 60 * MIB
    assert not {outcome.name: outcome for outcome in judge(*sound)[1]}[
        "started_cold"
    ].ok


@pytest.mark.parametrize(
    ("of_step", "training", "ok"),
    [(None, MIB, None), (True, MIB, True), (False, MIB, False), (False, 0, True)],
)
def test_a_training_peak_that_includes_earlier_use_is_a_caveat(
    sound: Run, of_step: bool | None, training: int, ok: bool | None
) -> None:
    sound[1].calibration = Calibration(1, training, {1: 0.5}, peak_is_of_step=of_step)
    verdict, found = judge(*sound)
    outcomes = {outcome.name: outcome.ok for outcome in found}
    assert outcomes.get("training_peak_is_of_its_step") is ok
    assert verdict == ("CAVEATS" if ok is False else "VALID")


@pytest.mark.parametrize(
    ("fanout", "spread", "judged"),
    [((3, 3), 10.0, True), ((3, 3), 1000.0, True), ((3, -1), 9.0, False)],
)
def test_sizes_of_foreign_mini_batches_may_spread_as_those_of_the_sampler(
    sound: Run, fanout: tuple[int, ...], spread: float, judged: bool
) -> None:
    changed(sound, {**DRAWN, "config.fanout": list(fanout)})
    evidence(sound).drawn = dict.fromkeys(range(2), (6000, 9000, spread, spread))
    outcomes = {outcome.name: outcome for outcome in judge(*sound)[1]}
    assert ("sizes_are_as_drawn" in outcomes) is judged
    if judged:
        assert outcomes["sizes_are_as_drawn"].ok is (spread > 100)


@pytest.mark.parametrize("entry", rules(), ids=lambda entry: entry.name)
def test_every_rule_states_why(entry: object) -> None:
    assert len(entry.check.__doc__) > 40  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.05, "CAVEATS"), (2.0, "CAVEATS"), (2.3, "INVALID")]
)
def test_a_run_is_held_to_what_others_left_of_the_device(
    sound: Run, ratio: float, verdict: str
) -> None:
    """Other processes used half of the disk while it was profiled: a quiet run may be
    twice as fast, and no more."""
    record, context = sound
    points = tuple(
        dataclasses.replace(point, others_disk=0.5, others_cpu=0.0)
        for point in PROFILE.points
    )
    context.profile = context.bare_profile = dataclasses.replace(PROFILE, points=points)
    context.limits = ()
    record.summary.engine_efficiency = ratio
    assert judge(record, context)[0] == verdict


@pytest.mark.parametrize(
    ("device", "given", "training", "held", "seen", "ok"),
    [
        ("emulated:a10g", 100_000, 0, [60_000], None, True),
        (
            "emulated:a10g",
            100_000,
            0,
            [60_000, 60_000],
            None,
            False,
        ),  # the plan is of both ranks
        ("emulated:a10g", 100_000, 0, [100_001], None, False),
        (
            "cuda",
            200 * MIB,
            80 * MIB,
            [110 * MIB],
            412,
            True,
        ),  # segments of torch's allocator
        ("cuda", 200 * MIB, 80 * MIB, [113 * MIB], 412, False),
        (
            "cuda",
            200 * MIB,
            80 * MIB,
            [110 * MIB],
            413,
            False,
        ),  # of NVML's count, 300 MiB are the contexts'
        ("cuda", 100 * MIB, 90 * MIB, [95 * MIB], 422, True),
        ("cuda", 100 * MIB, 90 * MIB, [101 * MIB], 400, False),
        ("cuda", None, 80 * MIB, [113 * MIB], 400, False),
        ("cuda", None, 80 * MIB, [80 * MIB, 80 * MIB], 520, True),
        ("cuda", None, 80 * MIB, [80 * MIB, 80 * MIB], 530, False),
        ("cuda", None, 80 * MIB, [80 * MIB], None, None),
        ("cpu", None, 0, [], None, None),
    ],
)
def test_device_memory_is_held_to_what_was_given_and_planned(
    device: str,
    given: int | None,
    training: int,
    held: list[int],
    seen: int | None,
    ok: bool | None,
    sound: Run,
) -> None:
    record, context = sound
    changed(sound, {"config.device": device, "config.device_memory_bytes": given})
    changed(
        sound,
        {"memory.training_device_bytes": training, "memory.device_peak_bytes": held},
    )
    changed(sound, {"memory.device_context_bytes": 300 * MIB})
    changed(sound, {"memory.device_seen_bytes": None if seen is None else seen * MIB})
    (entry,) = (rule for rule in rules() if rule.name == "device_memory_as_asked")
    outcome = entry.outcome(record, context)
    assert (outcome.ok if outcome is not None and outcome.known else None) == ok
    assert (outcome is None) == (
        device == "cpu"
    )  # a GPU whose processes nobody counted is a caveat


@pytest.mark.parametrize(
    ("share", "sampler", "holds"),
    [(1.05, "neighbor", True), (1.2, "neighbor", False), (1.2, "layerwise", True)],
)
def test_useful_bytes_are_bounded_by_what_mini_batches_need(
    sound: Run, share: float, sampler: str, holds: bool
) -> None:
    """A row of 512 bytes and 16 bytes of graph for each node, and 16 for each edge;
    other samplers read whole lists."""
    useful = int(share * (2000 * 528 + 3000 * 16))
    changed(
        sound,
        {"epochs.1.nodes": 2000, "epochs.1.edges": 3000, "config.sampler": sampler},
    )
    changed(
        sound,
        {
            "epochs.1.counters.bytes_useful": useful,
            "epochs.1.counters.bytes_read": useful,
        },
    )
    found = {outcome.name: outcome for outcome in judge(*sound)[1]}["counters_add_up"]
    assert found.ok is holds, found.detail


def test_code_that_is_in_no_fingerprint_is_a_caveat(sound: Run) -> None:
    changed(sound, {"evidence.unknown_code": ["/home/me/rows.so"]})
    verdict, outcomes = judge(*sound)
    assert verdict == "CAVEATS"
    assert [outcome.detail for outcome in outcomes if not outcome.ok] == [
        "in no fingerprint: /home/me/rows.so"
    ]


def test_the_first_term_has_every_epoch_of_the_warm_up_and_once_the_seconds_of_whichever_run_prepared(
    sound: Run,
) -> None:
    record, context = sound
    before = record.summary
    assert before.once_s is not None
    assert before.first_s is not None
    assert before.prepared_bytes is not None
    first, last = record.epochs
    second = first.model_copy(
        update={
            "epoch": 1,
            "seconds": first.seconds + 3.0,
            "device_bytes": 512_000 + 4096,
        }
    )
    record.epochs = [first, second, last.model_copy(update={"epoch": 2})]
    record.config.warmup = 2
    changed(sound, {"preprocess.made_s": 5.0, "preprocess.made_bytes_read": 1 << 20})
    after, _ = summarise(record, context)
    assert after.once_s == pytest.approx(before.once_s + 5.0)
    assert after.first_s == pytest.approx(before.first_s + 3.0)
    assert after.prepared_bytes == before.prepared_bytes + 4096 + (1 << 20)


def test_what_a_plan_refuses_is_a_result_and_no_fault(sound: Run) -> None:
    record, context = sound
    breaks(sound, "plan_was_kept")
    record.memory.plan = []
    assert "plan_was_kept" not in {
        outcome.name for outcome in judge(record, context)[1]
    }


def test_a_rate_above_the_class_over_the_whole_epoch_is_invalid(sound: Run) -> None:
    record, context = sound
    for epoch in record.epochs:
        epoch.reading_s = 1.0
        epoch.counters["requests_by_size"] = {"512": 100_000}
    record.summary, record.class_ = summarise(record, context)
    verdict, outcomes = judge(record, context)
    assert verdict == "INVALID"
    assert not {outcome.name: outcome.ok for outcome in outcomes}[
        "no_faster_than_the_device"
    ]


@pytest.mark.parametrize(("faster", "holds"), [(1.0, False), (1.16, True)])
def test_a_short_epoch_may_fall_into_a_better_moment_that_a_trial_of_fio_had_too(
    sound: Run, faster: float, holds: bool
) -> None:
    """As in an honest run of gnndrive that read for 0.15 s at 1.17 x the profile; a
    trial at 4 KiB had been as fast."""
    record, context = sound
    record.summary.engine_efficiency = 1.17
    context.limits = ()
    page = next(
        point
        for point in PROFILE.points
        if point.block_bytes == 4096 and point.depth > 1
    )
    trial = dataclasses.replace(page, iops=faster * page.iops)
    context.profile = context.bare_profile = dataclasses.replace(
        PROFILE, tried=(trial,)
    )
    found = {outcome.name: outcome.ok for outcome in judge(record, context)[1]}
    assert found["no_faster_than_the_device"] is holds


@pytest.mark.parametrize(("requests", "holds"), [(9_000, True), (15_000, False)])
def test_a_short_epoch_may_have_one_saved_up_slice_of_the_limiter(
    sound: Run, requests: int, holds: bool
) -> None:
    record, context = sound
    context.bare_profile = dataclasses.replace(
        PROFILE,
        points=tuple(
            dataclasses.replace(p, iops=10 * p.iops, bytes_per_s=10 * p.bytes_per_s)
            for p in PROFILE.points
        ),
    )
    # 0.2 s at 40,000 reads a second are 8,000; with the slice of 0.1 s saved up before,
    # 12,000.
    for epoch in record.epochs:
        epoch.seconds = 0.2
        epoch.reading_s = 0.1
        epoch.counters["requests_by_size"] = {"512": requests}
    record.summary, record.class_ = summarise(record, context)
    found = {outcome.name: outcome.ok for outcome in judge(record, context)[1]}
    assert found["no_faster_than_the_device"] is holds
    assert found["within_the_class_at_every_moment"] is False


@pytest.mark.parametrize(("longer", "holds"), [(140, True), (280, False)])
def test_a_limiter_counts_requests_and_bytes_each_by_itself(
    sound: Run, longer: int, holds: bool
) -> None:
    record, context = sound
    # In one second 38,000 of 40,000 requests, and 140 or 280 of 200 MiB.
    context.profile = dataclasses.replace(PROFILE, limited=(40_000.0, 200.0 * MIB))
    context.bare_profile = dataclasses.replace(
        PROFILE,
        points=tuple(
            dataclasses.replace(p, iops=10 * p.iops, bytes_per_s=10 * p.bytes_per_s)
            for p in PROFILE.points
        ),
    )
    for epoch in record.epochs:
        epoch.seconds = 1.0
        epoch.reading_s = 1.0
        epoch.counters["requests_by_size"] = {"512": 38_000, str(MIB): longer}
    record.summary, record.class_ = summarise(record, context)
    found = {outcome.name: outcome.ok for outcome in judge(record, context)[1]}
    assert found["no_faster_than_the_device"] is holds


def test_the_class_follows_working_set_over_memory() -> None:
    assert [storage_class(ratio) for ratio in (None, 0.9, 1.0, 1.5, 2.0, 10.0)] == [
        "fits memory",
        "fits memory",
        "fits memory",
        "mixed",
        "storage-bound",
        "storage-bound",
    ]


def test_the_least_device_time_is_what_memory_cannot_hold_at_the_best_rate_of_the_series(
    sound: Run,
) -> None:
    record, context = sound
    record.config.dataset.dim = 1 << 18
    assert context.trace is not None
    trace = context.trace.epoch(1)
    # Memory is budget, device, training, and a tenth of floor, training and plan.
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
    context.limits = (
        IoLimit("1:0", 40_000, 50 * MIB),
        IoLimit("1:1", 40_000, 50 * MIB),
    )
    assert seconds() == pytest.approx(nbytes / (100 * MIB))
    context.limits = ()
    assert seconds() == pytest.approx(nbytes / (400 * MIB))


@pytest.mark.parametrize(
    "name", ["none", "aws-nvme/16", "aws-gp3", "samsung-pm883", "samsung-pm1725b/8"]
)
def test_no_mix_of_reads_and_writes_is_quicker_than_its_bytes_at_the_best_rate(
    sound: Run, name: str
) -> None:
    """Sizes are those of single rows, rows with gaps, scans, and chunks that are
    written and read back."""
    _, context = sound
    rng = np.random.default_rng(3)
    disk_class = parse_disk_class(name)
    context.limits = ()
    if disk_class is not None:
        context.profile = context.bare_profile = class_profile(disk_class)
        context.limits = (
            IoLimit("1:0", disk_class.read_iops, disk_class.read_bytes_per_s),
        )
    assert context.profile is not None
    for _ in range(300):
        sizes = {
            int(512 * 2 ** rng.uniform(0, 14)): float(rng.integers(1, 1000))
            for _ in range(rng.integers(1, 6))
        }
        epoch = EpochRecord(epoch=0, warmup=False, seconds=1.0)
        epoch.counters["bytes_written"] = int(
            rng.integers(0, 2) * rng.integers(0, 10**9)
        )
        least = sum(size * count for size, count in sizes.items()) / best_rate(context)
        assert device_seconds(context.profile, epoch, sizes) >= least * (1 - 1e-9)


def test_nothing_has_to_be_read_where_memory_is_not_bounded_and_nothing_is_known_of_other_mini_batches(
    sound: Run,
) -> None:
    record, context = sound
    record.config.dataset.dim = 1 << 18
    evidence(sound).proves_memory = False
    assert least_device_bytes(record, context, 1) == 0
    evidence(sound).proves_memory = True
    record.config.stages = "sample"
    assert least_device_bytes(record, context, 1) == 0
    record.config.stages = "all"
    evidence(sound).faithful = False
    assert least_device_bytes(record, context, 1) is None


def test_reads_are_held_to_the_stage_they_are_noted_to_happen_in(sound: Run) -> None:
    record, context = sound
    for epoch in record.epochs:
        epoch.stages_s["data_prep"] = 0.1
        epoch.reading_s = reading_seconds([], epoch, ["data_prep"])
    assert summarise(record, context)[0].engine_efficiency == pytest.approx(
        1000 / 40_000 / 0.1
    )


def test_reads_that_the_kernel_merged_cost_the_device_once(sound: Run) -> None:
    """Rows of one file of 480 KB were read by 122,685 requests, which reached the disk
    as 63,368."""
    record, context = sound
    bare = dataclasses.replace(context, limits=())
    for epoch in record.epochs:
        epoch.diskstats_requests = 400
    assert summarise(record, bare)[0].engine_efficiency == pytest.approx(
        400 / 40_000 / 0.05
    )
    assert summarise(record, context)[0].engine_efficiency == pytest.approx(
        1000 / 40_000 / 0.05
    )
    assert unmerged({512: 100, 4096: 50}, 120) == {512: 70, 4096: 50}
    assert unmerged({512: 100, 4096: 50}, 30) == {512: 0, 4096: 30}
    assert (
        unmerged({512: 100, 4096: 50}, 400)
        == unmerged({512: 100, 4096: 50}, None)
        == {512: 100, 4096: 50}
    )


def test_what_a_system_writes_while_it_reads_keeps_the_device_busy_too(
    sound: Run,
) -> None:
    record, context = sound
    for epoch in record.epochs:
        epoch.counters["bytes_written"] = 10 * MIB
    assert summarise(record, context)[0].engine_efficiency == pytest.approx(
        (1000 / 40_000 + 10 / 200) / 0.05
    )


def test_a_limiter_that_counts_writes_by_themselves_does_not_slow_reads(
    sound: Run,
) -> None:
    """Rule 9 asks for what was possible here, where the kernel lets both pass; the
    shared budget has its own rule."""
    record, context = sound
    breaks(sound, "within_the_shared_budget")
    assert summarise(record, context)[0].engine_efficiency == pytest.approx(
        1000 / 40_000 / 0.05
    )
    names = {outcome.name: outcome.ok for outcome in judge(record, context)[1]}
    assert names["no_faster_than_the_device"]
    assert not names["within_the_shared_budget"]
    assert context.profile is not None
    context.profile = dataclasses.replace(context.profile, write_cost=0.0)
    assert "within_the_shared_budget" not in {
        outcome.name for outcome in judge(record, context)[1]
    }


def test_the_summary_follows_the_records_own_numbers(sound: Run) -> None:
    record, context = sound
    summary, kind = summarise(record, context)
    assert summary.epoch_s is not None
    assert summary.epoch_s.median == 2.0
    assert summary.read_amplification == pytest.approx(1.0)
    assert summary.accelerator_utilisation == pytest.approx(0.25)
    assert summary.storage_efficiency == pytest.approx(0.3)
    assert summary.engine_efficiency == pytest.approx(1000 / 40_000 / 0.05)
    record.epochs[1].device_bytes = 2 * (record.epochs[1].device_bytes or 0)
    assert summarise(record, context)[0].read_amplification == pytest.approx(2.0)
    assert kind == "storage-bound"


def test_a_run_is_spoilt_by_its_moment_alone(sound: Run) -> None:
    record, context = sound

    def judged() -> tuple[bool, str]:
        record.verdict, record.verdict_rules = judge(record, context)
        return spoilt(record), record.verdict

    assert judged() == (False, "VALID")
    breaks(sound, "disk_was_not_shared")
    assert judged() == (True, "SPOILT")
    breaks(sound, "digests_equal_the_workload")
    assert judged() == (False, "INVALID")


def test_without_the_caps_own_counters_it_is_not_known_what_others_read(
    sound: Run,
) -> None:
    breaks(sound, "disk_was_not_shared")
    for epoch in sound[0].epochs:
        epoch.device_bytes = epoch.device_requests = None
    found = {outcome.name: outcome.known for outcome in judge(*sound)[1]}
    assert found["disk_was_quiet"] is found["disk_was_not_shared"] is False


def _loaded(
    run: Run,
    *,
    seconds: float,
    waited: float,
    own: float,
    others: float,
    stolen: float = 0.0,
) -> str:
    """Return the verdict of a run whose epochs had these seconds; the others are shares
    of them."""
    for epoch in run[0].epochs:
        epoch.seconds = seconds
        epoch.gate_s = seconds + 0.001
        epoch.user_s = own * seconds
        epoch.host_user_s = (own + others) * seconds
        epoch.waited_s = waited * seconds
        epoch.stolen_s = stolen * seconds
    judged = {outcome.name: outcome for outcome in judge(*run)[1]}[
        "processors_were_not_shared"
    ]
    assert judged.known
    return "sound" if judged.ok else "spoilt"


@pytest.mark.parametrize("seconds", [0.15, 0.4, 2.0])
def test_a_run_that_waited_for_processors_of_others_is_spoilt_at_any_length_of_epoch(
    sound: Run, seconds: float
) -> None:
    assert _loaded(sound, seconds=seconds, waited=0.6, own=0.4, others=1.6) == "spoilt"
    # Its wake-ups alone came late: it computed little, and took ten times as long.
    assert _loaded(sound, seconds=seconds, waited=0.9, own=0.1, others=1.9) == "spoilt"
    assert (
        _loaded(sound, seconds=seconds, waited=0.4, own=0.6, others=0.0, stolen=0.4)
        == "spoilt"
    )


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("clock_agrees_with_the_gates", "SPOILT"),
        ("nothing_was_done_between_epochs", "SPOILT"),
        ("preparation_took_what_it_says", "SPOILT"),
        ("counters_add_up", "INVALID"),
        ("nothing_was_read_between_epochs", "INVALID"),
    ],
)
def test_clocks_that_waited_for_other_programs_spoil_a_run_and_all_else_invalidates_it(
    sound: Run, name: str, verdict: str
) -> None:
    """An orchestrator that got no processor hears of an epoch's end late, whatever the
    worker did."""
    breaks(sound, name)
    assert judge(*sound)[0] == "INVALID"
    assert (
        _loaded(
            sound, seconds=sound[0].epochs[0].seconds, waited=0.6, own=0.4, others=1.6
        )
        == "spoilt"
    )
    breaks(sound, name)
    found, outcomes = judge(*sound)
    assert name in {outcome.name for outcome in outcomes if not outcome.ok}
    assert found == verdict
    sound[0].verdict = found
    sound[0].verdict_rules = outcomes
    assert spoilt(sound[0]) is (verdict == "SPOILT")


def test_a_run_that_waited_for_a_reader_whose_time_is_the_kernels_is_spoilt(
    sound: Run,
) -> None:
    """A program that copies files through the page cache computes for a hundredth of a
    second in user mode."""
    for own, host, verdict in [
        (0.2, 0.9, "spoilt"),
        (0.2, 0.25, "sound"),
        (None, 0.9, "sound"),
        (None, None, "sound"),
    ]:
        for epoch in sound[0].epochs:
            epoch.system_s = own
            epoch.host_system_s = host
        assert _loaded(sound, seconds=1.0, waited=0.3, own=0.7, others=0.01) == verdict


@pytest.mark.parametrize(
    ("waited", "own", "others"),
    [
        (6.0, 1.9, 0.05),  # eight threads of its own on two processors, and nobody else
        (0.01, 1.0, 8.0),  # busy neighbours on processors that the run does not need
        (
            0.4,
            60.0,
            0.3,
        ),  # a large host: many threads, each of which waits for a moment, and the usual services
        (0.1, 0.5, 0.15),  # a little of both
    ],
)
def test_a_quiet_run_is_not_spoilt_by_its_own_threads(
    sound: Run, waited: float, own: float, others: float
) -> None:
    assert _loaded(sound, seconds=2.0, waited=waited, own=own, others=others) == "sound"


@pytest.mark.parametrize(
    ("seconds", "share", "verdict"),
    [
        (0.03, 0.15, "SPOILT"),
        (2.0, 0.15, "SPOILT"),
        (0.03, 0.07, "CAVEATS"),
        (2.0, 0.07, "CAVEATS"),
        (0.03, 0.02, "VALID"),
        (2.0, 0.02, "VALID"),
    ],
)
def test_readers_of_the_disk_spoil_a_run_at_any_length_of_epoch(
    sound: Run, seconds: float, share: float, verdict: str
) -> None:
    """Sequential reads of 1 MiB, of which the disk serves 200 a second."""
    names = {"disk_was_quiet", "disk_was_not_shared"}
    for epoch in sound[0].epochs:
        epoch.seconds = seconds
        epoch.diskstats_bytes = (epoch.device_bytes or 0) + int(
            share * seconds * 200 * MIB
        )
        epoch.diskstats_requests = epoch.device_requests
    outcomes = [outcome for outcome in judge(*sound)[1] if outcome.name in names]
    broken = {outcome.name for outcome in outcomes if not outcome.ok}
    expected = {"SPOILT": names, "CAVEATS": {"disk_was_quiet"}, "VALID": set()}
    assert broken == expected[verdict]


def test_a_burst_within_one_short_epoch_is_a_share_of_all_epochs(sound: Run) -> None:
    for epoch in sound[0].epochs:
        epoch.seconds = 0.1
        epoch.diskstats_bytes = epoch.device_bytes
        epoch.diskstats_requests = epoch.device_requests
    first = sound[0].epochs[0]
    first.diskstats_bytes = (first.device_bytes or 0) + int(0.15 * 0.1 * 200 * MIB)
    names = {outcome.name: outcome.ok for outcome in judge(*sound)[1]}
    assert names["disk_was_not_shared"]
    assert not names["disk_was_quiet"]
