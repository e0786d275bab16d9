"""Data parallelism: N ranks under one cap take the steps that one process takes, and
all end when one does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.records.record import PlannedBuffer, Record
from harness.results import store as results
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.wire.protocol import Planned
from harness.worker.epoch_report import summed
from harness.worker.ranks import _report
from systems.engine.rank.partition import Partitioning
from tests.harness.run_tools import (
    MISBEHAVING,
    caps_of,
    config,
    left_behind,
    share_cache,
    workers_of,
)
from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.errors import InputError

#: Sources that every run of several ranks uses.
SOURCES = ("harness/worker/ranks.py", "harness/wire/protocol.py", "workloads/ranks.py")


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    root = tmp_path_factory.mktemp("ranks")
    dataset = make_tiny(root / "data" / "tiny", nodes=20_000, edges=100_000, dim=64)
    share_cache(root / "results", tmp_path_factory)
    with Series(root / "results", root / "data") as opened:
        opened.prepare([config(opened), config(opened, "gnndrive")], dataset)
        yield opened
    assert not workers_of(root)


def run(series: Series, system: str, **changes: Any) -> Record:
    record = execute(
        series,
        config(series, system, **changes),
        Dataset.open(series.data_root / "tiny"),
    )
    assert left_behind(series) == []
    return record


REAL: dict[str, Any] = {
    "device": "cpu",
    "device_memory": None,
    "memory": "+32MiB",
    "keep_order": True,
    "epochs": 3,
    "verify": True,
    "options": {"extractors": 2, "samplers": 1},
}


@pytest.mark.slow(*SOURCES, "systems/gnndrive", "workloads/training.py", seconds=75)
def test_two_ranks_learn_what_one_process_with_their_seed_nodes_does(
    series: Series,
) -> None:
    """Same steps, same draws: the loss of every epoch is that of one process with
    mini-batches twice as large."""
    alone = run(series, "gnndrive", batch_size=40, **REAL)
    together = run(series, "gnndrive", batch_size=20, ranks=2, **REAL)
    assert (alone.status, together.status) == ("ok", "ok"), (
        alone.reason,
        together.reason,
    )
    for one, two in zip(alone.epochs, together.epochs, strict=True):
        assert two.batches == 2 * one.batches
        assert two.loss == pytest.approx(one.loss, rel=1e-5)
        assert two.accuracy == pytest.approx(one.accuracy)
        assert (
            sum(two.counters["hits"].values()) + two.counters["misses"]
            == two.counters["rows"]
        )
    assert not [
        rule for rule in together.verdict_rules if rule.rule == "18" and not rule.ok
    ]
    assert together.notes["ranks"] == "2, one feature buffer"


@pytest.mark.slow(*SOURCES, "systems/gnndrive", seconds=55)
def test_ranks_on_devices_have_a_feature_buffer_each(series: Series) -> None:
    record = run(
        series,
        "gnndrive",
        batch_size=20,
        ranks=2,
        memory="+48MiB",
        options={"extractors": 1, "samplers": 1},
    )
    assert record.status == "ok", record.reason
    assert record.notes["ranks"] == "2, a feature buffer each, one staging buffer"
    device = next(item for item in record.memory.plan if item.tier == "device")
    slots = int(record.notes["feature_buffer"].split()[0])
    assert device.bytes == 2 * (-(-slots * 64 * 4 // 4096) * 4096)


@pytest.mark.slow(*SOURCES, seconds=55)
@pytest.mark.parametrize("behaviour", ["good", "io"])
def test_no_rank_ends_its_interpreter_in_the_group(
    series: Series, behaviour: str
) -> None:
    """An interpreter that ends while gloo's threads run is ended by SIGABRT now and
    then, so a rank leaves without."""
    record = run(
        series, MISBEHAVING, ranks=2, options={"behaviour": behaviour, "rank": 1}
    )
    assert record.status == ("ok" if behaviour == "good" else "failed"), record.reason
    log = (results.find(series.results_root, record.run_id) / "worker.log").read_text()
    assert "still in the group" not in log
    assert "terminate called" not in log


STAGED: dict[str, Any] = {
    "device": "emulated:a10g",
    "device_memory": "2MiB",
    "batch_size": 20,
    "max_batches": 8,
    "memory": "+48MiB",
    "ranks": 2,
    "verify": True,
}


@pytest.mark.slow(
    *SOURCES,
    "systems/gnndrive",
    "systems/gnndrive/buffers.py",
    "systems/native",
    seconds=120,
)
def test_ranks_on_devices_share_one_staging_buffer(series: Series) -> None:
    """Idle portions are lent and staged rows are found: both show in the counters,
    neither in the mini-batches."""
    few = {"extractors": 2, "samplers": 1}
    small = {**few, "staging_bytes": 4096}
    records = {
        name: run(series, "gnndrive", **STAGED, options=options)
        for name, options in (
            ("scarce", small),
            ("kept apart", {**small, "borrow_staging": False}),
            ("plenty", few),
            ("read by each", {**few, "share_staged_rows": False}),
        )
    }
    for record in records.values():
        assert record.status == "ok", record.reason
        assert record.notes["ranks"] == "2, a feature buffer each, one staging buffer"
        assert not [
            rule for rule in record.verdict_rules if rule.rule == "18" and not rule.ok
        ]
        assert [epoch.feature_digest for epoch in record.epochs] == [
            epoch.feature_digest for epoch in records["scarce"].epochs
        ]
        for epoch in record.epochs:
            assert (
                sum(epoch.counters["hits"].values()) + epoch.counters["misses"]
                == epoch.counters["rows"]
            )
    seen = {
        name: record.epochs[0].counters["observed"] for name, record in records.items()
    }
    assert seen["scarce"]["staging_borrowed_segments"] > 0
    assert seen["kept apart"]["staging_borrowed_segments"] == 0
    assert seen["plenty"]["staging_found_rows"] > 0
    assert seen["read by each"]["staging_found_rows"] == 0
    planned = {item.name: item.bytes for item in records["scarce"].memory.plan}
    assert planned["staging buffer"] == 2 * 2 * 4096, (
        "each rank counts its part, so that the whole is counted once"
    )


@pytest.mark.slow(
    *SOURCES, "systems/gnndrive", "systems/native", "harness/run/launch.py", seconds=70
)
def test_a_rank_killed_while_others_wait_for_staging_ends_all(series: Series) -> None:
    """Rank 1 is killed inside its extraction: the other ranks, which share buffers with
    it, do not hang."""
    for device in ("emulated:null", "cpu"):
        memory = None if device == "cpu" else "2MiB"
        record = run(
            series,
            "tests.harness.killed_rank:KilledRank",
            **{**STAGED, "device": device, "device_memory": memory},
            options={"extractors": 2, "samplers": 1, "killed_at": 3},
        )
        assert record.status == "failed"
        assert record.reason.startswith(
            "rank 1 of 2 was ended by SIGKILL, and the others with it"
        ), record.reason
        assert record.duration_s < 60
        assert not workers_of(series.results_root, holders=False)


@pytest.mark.slow(*SOURCES, "harness/run/launch.py")
def test_when_a_rank_is_killed_all_end_and_one_sentence_states_so(
    series: Series,
) -> None:
    record = run(
        series, MISBEHAVING, ranks=3, options={"behaviour": "sigkill", "rank": 1}
    )
    assert record.status == "failed"
    assert record.reason.startswith(
        "rank 1 of 3 was ended by SIGKILL, and the others with it"
    )
    assert not caps_of(record.run_id.replace("-", ".")[:20])
    assert not workers_of(series.results_root, holders=False)
    assert record.duration_s < 60


@pytest.mark.parametrize(
    ("failures", "reported"),
    [
        (
            {0: (1, 5), 1: (-9, 7)},
            "rank 1 of 3 was ended by SIGKILL",
        ),  # rank 0 ended because rank 1 did
        ({0: (-15, 5), 2: (-11, 7)}, "rank 2 of 3 was ended by SIGSEGV"),
        ({0: (-9, 8), 1: (-6, 7)}, "rank 1 of 3 was ended by SIGABRT"),
        ({1: (-15, 5)}, "rank 1 of 3 was ended by SIGTERM"),
        ({0: (1, 5)}, ""),
    ],
)
def test_the_rank_that_was_ended_first_is_reported(
    tmp_path: Path, failures: dict[int, tuple[int, int]], reported: str
) -> None:
    found = {
        rank: SimpleNamespace(exitcode=code, timestamp=at)
        for rank, (code, at) in failures.items()
    }
    pipe = tmp_path / "events"
    pipe.touch()
    _report(pipe, 3, SimpleNamespace(failures=found))
    assert reported in pipe.read_text()
    assert bool(pipe.read_text()) == bool(reported)


@pytest.mark.slow("harness/worker/ranks.py", "harness/wire", "workloads/ranks.py")
def test_what_one_rank_states_of_its_failure_is_what_is_reported(
    series: Series,
) -> None:
    record = run(series, MISBEHAVING, ranks=2, options={"behaviour": "io", "rank": 1})
    assert record.status == "failed"
    assert "Connection" not in record.reason
    assert "another process" not in record.reason
    assert record.reason == "the file ended early"


def test_plans_and_counters_of_ranks_add_up() -> None:
    buffers = [
        PlannedBuffer(name="cache", bytes=3, tier="host"),
        PlannedBuffer(name="cache", bytes=5, tier="device"),
    ]
    assert [
        (item.tier, item.bytes) for item in Planned.joined([buffers, buffers]).items
    ] == [("host", 6), ("device", 10)]
    first = {"rows": 3, "hits": {"host": 1}, "observed": {"a": 1.0}, "none": None}
    second = {"rows": 4, "hits": {"host": 2, "device": 7}, "observed": {}, "none": None}
    assert summed([first, second]) == {
        "rows": 7,
        "hits": {"host": 3, "device": 7},
        "observed": {"a": 1.0},
        "none": None,
    }


@pytest.mark.slow(
    *SOURCES,
    "systems/pagraph",
    "systems/engine/rank/partition.py",
    "harness/run/spec.py",
    seconds=100,
)
def test_pagraph_trains_self_reliant_partitions(series: Series) -> None:
    """Each rank trains its own partition's nodes, all of them once, and every digest is
    the workload's."""
    settings: dict[str, Any] = {
        "device_memory": "1MiB",
        "batch_size": 100,
        "max_batches": 0,
        "options": {},
    }
    cache = series.results_root / "cache"  # with partitions of other tests
    before = set(cache.glob("partition-*.npz"))
    record = run(series, "pagraph", ranks=2, partition="self-reliant", **settings)
    assert record.status == "ok", record.reason
    assert not [
        rule for rule in record.verdict_rules if rule.rule == "18" and not rule.ok
    ]
    (file,) = set(cache.glob("partition-*.npz")) - before
    partitioning = Partitioning.load(file)
    assert partitioning.num_partitions == 2
    assert partitioning.train_balance <= 1.01
    batches = results.table(results.find(series.results_root, record.run_id), "batches")
    seeds = batches[batches["epoch"] == 1].groupby(batches["batch"] % 2)["seeds"].sum()
    assert seeds.tolist() == [len(partitioning.train_nodes(rank)) for rank in range(2)]
    spent = json.loads(file.with_suffix(".json").read_text())["seconds"]
    assert record.notes["partition"].startswith("self-reliant, made in ")
    assert "for this run" in record.notes["partition"]
    assert record.preprocess.seconds > spent > 0
    again = run(series, "pagraph", ranks=2, partition="self-reliant", **settings)
    assert "by an earlier run" in again.notes["partition"]
    assert again.preprocess.made_s >= spent, (
        "the cost is recorded, whichever run paid it"
    )
    shared = run(series, "pagraph", ranks=2, **settings)
    assert shared.epochs[0].digest != record.epochs[0].digest, (
        "other seed nodes, other mini-batches"
    )


def test_a_partition_needs_ranks(series: Series) -> None:
    with pytest.raises(InputError, match="one rank trains all nodes"):
        config(series, "pagraph", partition="self-reliant")
