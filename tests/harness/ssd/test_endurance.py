"""Wear of a drive: what each system writes once and for an epoch, against a rating."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.drives.endurance import Rating, Use, wear_rows
from harness.judge.metrics import summarise
from harness.judge.registry import context_of
from harness.judge.wear import Wear
from harness.records.record import OfflineWork, Preprocess, Record
from harness.ssd.drive import save_drive
from tests.harness.records import save
from tests.harness.ssd.drives import counted, make_drive

GB = 10**9


def run_command(arguments: list[str]) -> None:
    """Run a command that ends well."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def writing(once: int, offline: int, epoch: int, epochs: int = 2) -> Record:
    """Make a run that writes `once`, `offline` for `epochs` epochs, `epoch` in each."""
    run = counted("diskgnn", 1.0, disk_class="aws-nvme/16")
    work = OfflineWork(epochs=epochs, bytes_written=offline // 2)
    work.made_bytes_written = offline - offline // 2
    run.preprocess = Preprocess(
        bytes_written=once + work.bytes_written,
        made_bytes_written=work.made_bytes_written,
        offline=work,
    )
    for one in run.epochs:
        one.device_written_bytes = epoch
    run.summary, _ = summarise(run, context_of(run))
    return run


def test_a_training_writes_its_preparation_once_and_its_epochs_each_time() -> None:
    run = writing(once=100, offline=60, epoch=7)
    wear = Wear.of(run)
    assert wear == Wear(once_bytes=100, each_bytes=30, epoch_bytes=7)
    assert wear.training_bytes(10) == 100 + 10 * 37
    summary = run.summary.model_dump()
    assert summary["prepared_written_bytes"] == 100
    assert summary["epoch_written_bytes"] == 37


def test_offline_work_within_an_epoch_counts_once() -> None:
    run = counted("diskgnn", 1.0)
    for epoch in run.epochs:
        epoch.device_written_bytes = 90
        epoch.offline = OfflineWork(epochs=1, bytes_written=80)
    assert Wear.of(run) == Wear(once_bytes=0, each_bytes=80, epoch_bytes=10)


def test_drive_writes_a_day_are_held_against_the_rating() -> None:
    run = writing(once=GB, offline=0, epoch=GB)
    use = Use(epochs=99, trainings_a_day=20)
    (row,) = wear_rows([run], use, Rating(1000 * GB, 0.5))
    assert row.training_bytes == 100 * GB
    assert row.drive_writes_a_day == pytest.approx(2.0)
    assert row.share_of_rating == pytest.approx(4.0)
    (row,) = wear_rows([run], use, Rating(None, 0.5))
    assert row.drive_writes_a_day is None
    assert row.share_of_rating is None


def test_the_verb_takes_the_capacity_of_the_profile_and_shows_smart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive = make_drive("mine", capacity_bytes=1000 * GB)
    drive.condition.health = {"data_written_bytes": 5e12, "percentage_used": 3}
    save_drive(tmp_path, drive)
    save(tmp_path, writing(once=GB, offline=0, epoch=GB))
    asked = ["ssd", "endurance", "mine", "--epochs", "99", "--trainings", "20"]
    asked += ["--rating", "0.5", "--results-root", str(tmp_path)]
    run_command(asked)
    text = capsys.readouterr().out
    assert "400 %" in text
    assert "SMART: 5 TB written so far, 3 % of its life used" in text
    run_command([*asked, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["systems"][0]["drive_writes_a_day"] == pytest.approx(2.0)


def test_a_class_has_no_smart_and_needs_a_capacity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, writing(once=GB, offline=0, epoch=GB))
    asked = ["ssd", "endurance", "aws-nvme/16", "--results-root", str(tmp_path)]
    run_command(asked)
    text = capsys.readouterr().out
    assert "give --capacity" in text
    assert "SMART: – (a class is no drive)" in text
