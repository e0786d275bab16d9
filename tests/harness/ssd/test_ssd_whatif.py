"""Predictions for drives that are not at hand, from counters and profiles, labelled as
predictions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.drives.whatif import (
    behind,
    class_profile,
    counts_for,
    device_from,
    device_of,
    forecasts,
    left_out,
)
from harness.judge.predict import at_depth
from harness.ssd.classes import parse_disk_class
from harness.ssd.drive import read_drive, save_drive, saved_drives
from systems.interface import DiskPoint, DiskProfile
from tests.harness.records import save
from tests.harness.ssd.drives import counted, make_drive
from workloads.errors import InputError


def test_a_class_gives_what_its_limits_allow_at_each_size() -> None:
    disk_class = parse_disk_class("aws-gp3")
    assert disk_class is not None
    profile = class_profile(disk_class)
    assert 1 / profile.request_seconds(512) == pytest.approx(16_000)
    assert 1 / profile.request_seconds(65536) == pytest.approx(16_000)
    assert 1 / profile.request_seconds(1 << 20) == pytest.approx(2.5e9 / (1 << 20))
    # 16,000 requests take a second; the large ones among them need half of its
    # bandwidth and no further time.
    mixed = {512: 16_000 - 1192, 1 << 20: 1192}
    assert profile.seconds(mixed) == pytest.approx(1.0, rel=0.01)
    assert (
        sum(count * profile.request_seconds(size) for size, count in mixed.items())
        > 1.4
    )
    assert profile.seconds({512: 16_000}) == pytest.approx(1.0)
    bare = dataclasses.replace(profile, limited=None)
    assert bare.seconds(mixed) == pytest.approx(
        sum(n * bare.request_seconds(size) for size, n in mixed.items())
    )
    assert profile.sequential_bytes_per_s() == 2.5e9


def test_few_reads_in_flight_are_slower_where_the_profile_knows() -> None:
    profile = DiskProfile(
        tuple(
            DiskPoint(4096, depth, iops, 4096 * iops)
            for depth, iops in ((1, 10e3), (16, 90e3), (256, 80e3))
        )
    )
    rates = [
        1 / at_depth(profile, depth).request_seconds(4096)
        for depth in (1, 2, 4, 16, 64, 256)
    ]
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(10e3)
    assert rates[3] == pytest.approx(90e3)
    assert rates[2] == pytest.approx(40e3)  # four reads in the time of one alone
    assert rates[5] == pytest.approx(90e3)


def test_few_reads_in_flight_wait_for_the_device_behind_a_class() -> None:
    disk_class = parse_disk_class("aws-nvme/16")
    assert disk_class is not None
    bare = DiskProfile(
        (DiskPoint(4096, 1, 5e3, 4096 * 5e3), DiskPoint(4096, 256, 8e4, 4096 * 8e4))
    )
    found = class_profile(disk_class, bare)
    assert 1 / at_depth(found, 2).request_seconds(4096) == pytest.approx(10e3)
    assert at_depth(found, 256).request_seconds(4096) == class_profile(
        disk_class
    ).request_seconds(4096)


def test_a_profile_that_was_measured_deep_only_stays_as_it_is() -> None:
    deep = DiskProfile(
        (
            DiskPoint(4096, 256, 80e3, 4096 * 80e3),
            DiskPoint(1 << 20, 8, 100.0, 1e8, "sequential"),
        )
    )
    assert at_depth(deep, 4).request_seconds(4096) == deep.request_seconds(4096)
    assert at_depth(deep, 4).sequential_bytes_per_s() == 1e8


def test_an_epoch_on_another_class_follows_its_iops() -> None:
    record = counted("ginex", 2.6, reads=100_000, size=512)
    (near,) = forecasts([record], device_of("aws-nvme/16", Path("/nowhere")))
    (far,) = forecasts([record], device_of("aws-gp3/16", Path("/nowhere")))
    assert near.seconds == pytest.approx(100_000 / 39_062)
    assert far.seconds == pytest.approx(100.0)
    assert near.measured_s == 2.6
    assert near.error == pytest.approx(100_000 / 39_062 / 2.6 - 1)
    assert far.measured_s is None
    assert far.error is None
    assert (far.bound, far.counted_on, far.runs) == (
        "device",
        ("aws-nvme/16",),
        (record.run_id,),
    )


def test_on_a_fast_enough_drive_training_is_what_is_left() -> None:
    record = counted("ginex", 2.6, reads=100_000, size=512, train_s=0.5)
    drive = make_drive(iops=1e6)
    (found,) = forecasts([record], device_from(drive))
    assert (found.seconds, found.bound) == (0.5, "training")
    assert found.device_s == pytest.approx(0.1)


def test_a_system_with_few_reads_in_flight_gets_what_the_drive_gives_to_few(
    tmp_path: Path,
) -> None:
    drive = make_drive(iops=100_000)
    deep, shallow = (
        forecasts(
            [counted("pyg+", 9.0, reads=100_000, depth=depth)], device_from(drive)
        )[0].seconds
        for depth in (256, 1)
    )
    assert deep == pytest.approx(1.0)
    assert shallow == pytest.approx(10.0)


def test_what_reads_by_the_device_is_foretold_for_the_class_that_it_ran_on_only() -> (
    None
):
    records = [
        counted("outcore", 2.6, reads=100_000, size=512),
        counted("ginex", 2.6, reads=100_000, size=512),
    ]
    same = device_of("aws-nvme/16", Path("/nowhere"))
    other = device_of("aws-gp3/16", Path("/nowhere"))
    assert {entry.system for entry in forecasts(records, same)} == {"outcore", "ginex"}
    assert {entry.system for entry in forecasts(records, other)} == {"ginex"}
    assert left_out(records, same) == []
    assert left_out(records, other) == ["outcore"]
    assert not counts_for(records[0], device_from(make_drive()))
    unknown = records[0].model_copy(update={"system": "no-such-system"})
    assert counts_for(unknown, device_from(make_drive()))


def test_runs_that_state_nothing_of_the_disk_are_not_counted_on() -> None:
    device = device_of("aws-gp3", Path("/nowhere"))
    failed = counted("ginex", 1.0).model_copy(update={"status": "oom"})
    invalid = counted("ginex", 1.0).model_copy(update={"verdict": "INVALID"})
    uncapped = counted("ginex", 1.0, memory="none")
    assert forecasts([failed, invalid, uncapped], device) == []


def test_a_drive_is_found_by_name_by_file_and_by_class(tmp_path: Path) -> None:
    path = save_drive(tmp_path, make_drive("Lab drive/2"))
    for text in ("Lab drive/2", "Lab-drive-2", str(path)):
        assert device_of(text, tmp_path).name == "Lab drive/2"
    assert device_of("aws-gp3/4", tmp_path).source == "limits"
    save_drive(
        tmp_path, make_drive("aws-gp3/4").model_copy(update={"disk_class": "aws-gp3/4"})
    )
    assert device_of("aws-gp3/4", tmp_path).source == "profile"
    with pytest.raises(InputError, match="Lab drive/2"):
        device_of("fasst", tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        device_of("gone.json", tmp_path)


def test_a_saved_profile_is_read_as_it_was_and_a_damaged_one_is_reported(
    tmp_path: Path,
) -> None:
    drive = make_drive()
    path = save_drive(tmp_path, drive)
    assert read_drive(path) == drive
    whole = path.read_text()
    for text, message in (
        (whole[:100], "is not a drive profile"),
        ("[]", "is not a drive profile"),
        (whole.replace('"schema": 2', '"schema": 9'), "newer than this Outcore"),
        (whole.replace('"fill"', '"full"', 1), "condition"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_drive(path)
        assert saved_drives(tmp_path)[0] == []
        assert len(saved_drives(tmp_path)[1]) == 1


def test_predict_states_that_nothing_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(
        tmp_path,
        counted("ginex", 2.6),
        counted("diskgnn", 0.5, reads=100, size=1 << 20),
    )
    with pytest.raises(SystemExit) as ended:
        main(["ssd", "predict", "aws-gp3/16", "--results-root", str(tmp_path)])
    out = capsys.readouterr().out
    assert not ended.value.code
    assert "PREDICTED for aws-gp3/16" in out
    assert "nothing of this was measured" in out
    with pytest.raises(SystemExit):
        main(
            [
                "ssd",
                "predict",
                "aws-gp3/16",
                "--results-root",
                str(tmp_path),
                "--system",
                "ginex",
                "--json",
            ]
        )
    found = json.loads(capsys.readouterr().out)
    assert found["prediction"] is True
    assert found["known_by"] == "limits"
    assert [entry["system"] for entry in found["epochs"]] == ["ginex"]
    assert found["epochs"][0]["seconds"] == pytest.approx(100.0)


def test_without_runs_there_is_nothing_to_predict_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ssd", "predict", "aws-gp3", "--results-root", str(tmp_path)])
    assert ended.value.code == 2
    assert "outcore run" in capsys.readouterr().err


def test_few_reads_in_flight_of_a_class_are_as_slow_as_on_the_device_of_the_runs() -> (
    None
):
    bare = {
        "points": [
            {
                "block_bytes": 4096,
                "depth": 1,
                "iops": 5e3,
                "bytes_per_s": 5e3 * 4096,
                "pattern": "random",
            }
        ]
    }
    slow = {"points": [{**bare["points"][0], "iops": 1e3, "bytes_per_s": 1e3 * 4096}]}
    run = counted("pyg+", 9.0, reads=100_000, depth=1)
    here = run.model_copy(
        update={"disk": {"bare": bare}, "environment": {"cpu": {"model": "a"}}}
    )
    moment = here.model_copy(update={"disk": {"bare": slow}})
    elsewhere = run.model_copy(
        update={"disk": {"bare": slow}, "environment": {"cpu": {"model": "b"}}}
    )
    alone = device_of("aws-nvme/16", Path("/nowhere"))
    found = behind(alone, [elsewhere, moment, here])
    assert (alone.source, found.source) == ("limits", "limits, runs")
    assert forecasts([run], alone)[0].seconds == pytest.approx(100_000 / 39_062)
    assert forecasts([run], found)[0].seconds == pytest.approx(20.0)
    deep = counted("ginex", 9.0, reads=100_000, depth=256)
    assert forecasts([deep], found)[0].seconds == pytest.approx(100_000 / 39_062)
    assert behind(alone, [run]) is alone
    measured = device_from(make_drive())
    assert behind(measured, [here]) is measured
