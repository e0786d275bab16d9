"""Runs of two labelled hosts stand beside each other in every view, by label, and are
never averaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.compare.comparable import comparable
from harness.drives.compare import compare
from harness.drives.whatif import device_from
from harness.records.hosts import host_name
from harness.records.record import Record
from harness.results.newest import without_replaced
from harness.results.store import RUNS, short_ids
from harness.run.orchestrator import new_run_id
from harness.ssd.drive import save_drive
from tests.harness.records import make_record, save
from tests.harness.run_tools import outcore_here
from tests.harness.ssd.drives import counted, make_drive

SECONDS = {"alpha": 0.116, "beta": 0.0819}
DRIVE = make_drive()
HARDWARE: dict[str, Any] = {
    "cpu": {"model": "one", "usable": 2},
    "disk": {
        "model": DRIVE.identity.model,
        "size_bytes": DRIVE.identity.capacity_bytes,
    },
}


def on(record: Record, label: str) -> Record:
    """Return the record as a host of this label would have made it."""
    return record.model_copy(update={"environment": {**HARDWARE, "host_label": label}})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a results root with one run of one cell by each host."""
    for label, seconds in SECONDS.items():
        save(tmp_path, on(counted("ginex", seconds, disk_class="none"), label))
    return tmp_path


def shown(
    capsys: pytest.CaptureFixture[str], root: Path, *arguments: str
) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(printed(capsys, root, *arguments, "--json"))
    return content


def printed(capsys: pytest.CaptureFixture[str], root: Path, *arguments: str) -> str:
    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--results-root", str(root)])
    return capsys.readouterr().out


def test_run_ids_of_two_hosts_in_one_millisecond_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.run.orchestrator.time.time", lambda: 1.0)
    config = make_record("ginex", [1.0]).config
    one, other = (new_run_id(config, digits) for digits in ("a1b2c3d4", "0f0f0f0f"))
    assert one != other
    assert new_run_id(config, "a1b2c3d4") == one


def test_a_short_id_names_the_host_where_hosts_share_a_configuration(
    tmp_path: Path,
) -> None:
    config = make_record("ginex", [1.0]).config
    ids = [new_run_id(config, digits) for digits in ("a1b2c3", "0f0f0f")]
    for run in ids:
        (tmp_path / RUNS / run).mkdir(parents=True)
        (tmp_path / RUNS / run / "record.json").write_text("{}")
    configured = f"{config.config_hash[:8]}-r0"
    assert set(short_ids(tmp_path).values()) == {
        f"a1b2c3-{configured}",
        f"0f0f0f-{configured}",
    }


def test_lists_of_runs_name_the_label_of_each(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = printed(capsys, root, "results", "list")
    assert all(label in table for label in SECONDS)
    runs = shown(capsys, root, "results", "list")["runs"]
    assert [run["host"].partition(" ")[0] for run in runs] == ["alpha", "beta"]


def test_a_run_is_shown_with_its_label(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "host beta (" in printed(capsys, root, "results", "show", "latest")


def test_the_settings_of_two_labels_are_two_and_named_after_them(root: Path) -> None:
    records = [
        on(make_record("ginex", [seconds]), label).to_json()
        for label, seconds in SECONDS.items()
    ]
    hosts = [setting["host"] for setting, _ in comparable(records)]
    assert [host.partition(" ")[0] for host in hosts] == ["alpha", "beta"]
    assert len(without_replaced(records)) == 2


def test_one_drive_by_its_model_is_shown_once_for_each_host_that_ran_on_it() -> None:
    records = [
        on(counted("ginex", seconds, disk_class="none"), label)
        for label, seconds in SECONDS.items()
    ]
    found = compare([device_from(DRIVE)], records)
    assert {cell.device: cell.epoch_s for cell in found.cells} == {
        f"{DRIVE.name} on {host_name(record.environment)}": record.measured[0].seconds
        for record in records
    }


def test_profiles_of_two_labels_get_the_runs_of_their_own_label(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for label in SECONDS:
        profile = {"name": f"of-{label}", "host_label": label}
        save_drive(root, DRIVE.model_copy(update=profile))
    content = shown(capsys, root, "ssd", "compare", "of-alpha", "of-beta")
    assert {cell["device"]: cell["epoch_s"] for cell in content["epochs"]} == {
        f"of-{label}": seconds for label, seconds in SECONDS.items()
    }
    assert not any(cell["predicted"] for cell in content["epochs"])


def test_a_prediction_stands_beside_the_runs_of_each_host_on_its_own(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_drive(root, DRIVE)
    entries = shown(capsys, root, "ssd", "predict", DRIVE.name)["epochs"]
    measured = {entry["device"].split()[2]: entry["measured_s"] for entry in entries}
    assert measured == SECONDS


def test_a_profile_has_a_label_that_a_host_can_have(tmp_path: Path) -> None:
    place = ("ssd", "profile", str(tmp_path), "--host-label", "al pha")
    done = outcore_here(*place, data=tmp_path, results=tmp_path)
    assert done.returncode == 2
    assert "--host-label: 'al pha' is no label of a host" in done.stderr
