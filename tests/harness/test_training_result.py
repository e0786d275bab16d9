"""The result of a training: a diverged one is shown as nan, and its test accuracy costs
the run no memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cli.run_tables import print_epochs, print_headline
from harness.isolation.cgroup1 import V1Readings
from harness.isolation.cgroup2 import V2Readings
from harness.records.record import Record
from harness.report.runs import details_of
from harness.run.orchestrator import execute
from harness.run.series import Series
from tests.harness.records import make_record
from tests.harness.run_tools import config, left_behind, share_cache
from tests.support import make_tiny
from workloads.dataset import Dataset

MIB = 1 << 20
TRAINED = {
    "device": "cpu",
    "device_memory": None,
    "fanout": [10, 10],
    "batch_size": 6000,
    "max_batches": 0,
}


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """A series over a graph with ten times as many test nodes as training nodes."""
    root = tmp_path_factory.mktemp("series")
    dataset = make_tiny(
        root / "data" / "tiny",
        nodes=60_000,
        edges=300_000,
        dim=512,
        train_fraction=0.01,
    )
    share_cache(root / "results", tmp_path_factory)
    with Series(root / "results", root / "data") as opened:
        opened.prepare([config(opened, "gnndrive", **TRAINED)], dataset)
        yield opened


def run(series: Series, **changes: Any) -> Record:
    wanted = config(series, "gnndrive", **{**TRAINED, "memory": "+40MiB", **changes})
    record = execute(series, wanted, Dataset.open(series.data_root / "tiny"))
    assert left_behind(series) == []
    return record


@pytest.mark.slow("harness/run", "harness/worker", seconds=25)
def test_a_test_accuracy_takes_no_memory_of_the_run(series: Series) -> None:
    record = run(series, test_nodes=6000)
    assert record.status == "ok", record.reason
    accuracies = [epoch.test_accuracy for epoch in record.epochs]
    assert len(accuracies) == 2
    assert all(one is not None and 0.2 < one <= 1 for one in accuracies)
    assert record.notes["test_accuracy"] == f"{accuracies[-1]:.6f}"
    # The rows of a mini-batch of all test nodes exceed all memory of the run but its
    # floor.
    memory = record.memory
    assert memory.cap_bytes is not None
    assert memory.cap_bytes - memory.floor_bytes < 25_000 * 512 * 4 + 10 * MIB


@pytest.mark.slow("harness/run", "harness/worker", "harness/judge", seconds=20)
def test_a_training_that_diverged_has_a_loss_of_nan_and_a_caveat(
    series: Series, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run(series, batch_size=200, learning_rate=1e25)
    assert record.status == "ok", record.reason
    assert all(
        epoch.loss is None and epoch.losses_not_finite > 0 for epoch in record.epochs
    )
    (rule,) = [one for one in record.verdict_rules if one.name == "loss_is_finite"]
    assert not rule.ok
    assert rule.detail.startswith("loss is not finite")
    assert record.verdict != "VALID"
    print_epochs(record, wide=False)
    assert " nan " in capsys.readouterr().out


def diverged() -> Record:
    record = make_record(
        "gnndrive", [1.0], device="cpu", device_memory_bytes=None, verdict="CAVEATS"
    )
    for epoch in record.epochs:
        epoch.losses_not_finite = 3
    return record


def test_a_diverged_training_is_visible_in_run_results_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = diverged()
    sound = make_record("pyg+", [2.0])
    print_epochs(record, wide=False)
    assert capsys.readouterr().out.count(" nan ") == 2
    print_headline([record, sound], "both", wide=False)
    shown = [
        line for line in capsys.readouterr().out.splitlines() if "loss nan" in line
    ]
    assert len(shown) == 1
    assert shown[0].startswith("gnndrive")
    for one, loss in ((record, "nan"), (sound, None)):
        page = details_of(one.to_json(), tmp_path, "")
        assert [epoch["loss"] for epoch in page["epochs"]] == [loss] * 2


def test_the_least_limit_of_the_groups_around_a_cap_is_read(tmp_path: Path) -> None:
    """Groups are folders; the kernel's files in them are text."""
    group = tmp_path / "pod" / "container" / "cap"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("4096\n")
    assert V2Readings(group).enclosing_bytes() is None
    (group.parent / "memory.max").write_text("max\n")
    (tmp_path / "pod" / "memory.max").write_text(f"{2 << 30}\n")
    (tmp_path / "memory.max").write_text(f"{4 << 30}\n")
    assert V2Readings(group).enclosing_bytes() == 2 << 30
    old = tmp_path / "v1" / "cap"
    old.mkdir(parents=True)
    (tmp_path / "memory.max").unlink()
    (tmp_path / "v1" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert V1Readings(old, None).enclosing_bytes() is None
