"""Records are written whole or not at all, and read back as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from harness.judge import judged_anew
from harness.judge.metrics import summarised_anew
from harness.records import schema
from harness.records.record import DatasetConfig, EpochRecord, Record, RunConfig, spread
from harness.results import store as results
from harness.results.table import load
from workloads.errors import DataIOError, InputError

NOW = schema.SCHEMA


def record(run_id: str = "20260101-000000-000-s-00000000-r0") -> Record:
    dataset = DatasetConfig(
        name="d", fingerprint="f", num_nodes=9, num_edges=9, dim=4, dtype="float32"
    )
    config = RunConfig(system="s", dataset=dataset, options={"a": 1})
    epochs = [
        EpochRecord(epoch=0, warmup=True, seconds=2.0),
        EpochRecord(epoch=1, warmup=False, seconds=1.0),
    ]
    return Record(
        run_id=run_id,
        config_hash=config.config_hash,
        system="s",
        status="ok",
        config=config,
        epochs=epochs,
        class_="mixed",
    )


def read_again(written: Record) -> Record:
    """Return the record as it is read: with its cost, and judged anew."""
    written.summary = summarised_anew(written)
    return judged_anew(written, "")


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    table = pd.DataFrame({"epoch": [0], "batch": [1]})
    written = record()
    folder = results.write_run(tmp_path, written, {"batches": table})
    assert set(written.seal) == {"record", "batches.parquet"}
    assert results.read_record(folder) == read_again(written)
    pd.testing.assert_frame_equal(results.table(folder, "batches"), table)
    text = json.loads((folder / "record.json").read_text())
    assert text["schema"] == schema.SCHEMA
    assert text["class"] == "mixed"
    assert [entry.epoch for entry in record().measured] == [1]


def test_the_table_has_a_row_a_run_and_flat_columns(tmp_path: Path) -> None:
    assert load(tmp_path).empty
    for number in range(3):
        results.write_run(tmp_path, record(f"2026-r{number}"), {})
    frame = load(tmp_path)
    assert list(frame["run_id"]) == ["2026-r0", "2026-r1", "2026-r2"]
    assert list(frame["config.dataset.num_nodes"]) == [9, 9, 9]
    assert frame["record"][0]["config"]["options"] == {"a": 1}
    assert Path(frame["path"][0]).is_dir()


def test_half_written_runs_are_not_seen_and_are_swept(tmp_path: Path) -> None:
    results.write_run(tmp_path, record(), {})
    partial = results.runs_folder(tmp_path) / ".partial-x"
    partial.mkdir()
    (partial / "record.json").write_text("{")
    assert len(load(tmp_path)) == 1
    assert results.sweep_partial(tmp_path) == [".partial-x"]
    assert not partial.exists()


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    written = record()
    folder = results.write_run(tmp_path, written, {})
    before = sorted(path.name for path in folder.parent.iterdir())
    with pytest.raises(DataIOError, match="could not be recorded"):
        results.write_run(tmp_path, record(), {})
    assert sorted(path.name for path in folder.parent.iterdir()) == before
    assert results.read_record(folder) == read_again(written), "the first record stands"


@pytest.mark.parametrize(
    "damage", ["", "[]", "{", '{"schema": 99}', '{"schema": 1, "run_id": 3}']
)
def test_a_damaged_record_is_reported_in_a_sentence(
    tmp_path: Path, damage: str
) -> None:
    folder = results.write_run(tmp_path, record(), {})
    (folder / "record.json").write_text(damage)
    with pytest.raises(InputError) as error:
        results.read_record(folder)
    assert "record.json" in str(error.value)
    assert "\n" not in error.value.message


def test_what_cannot_be_read_is_named_and_hides_no_other_run(tmp_path: Path) -> None:
    whole = results.write_run(tmp_path, record("2026-whole"), {})
    text = (whole / "record.json").read_text()
    for name, content in (
        ("2026-cut", text[:200]),
        ("2026-new", text.replace(f'"schema": {NOW}', f'"schema": {NOW + 1}')),
    ):
        results.write_run(tmp_path, record(name), {})
        (results.runs_folder(tmp_path) / name / "record.json").write_text(content)
    (results.runs_folder(tmp_path) / "2026-empty").mkdir()
    (results.runs_folder(tmp_path) / "2026-copy").mkdir()
    (results.runs_folder(tmp_path) / "2026-copy" / "record.json").write_text(text)
    frame = load(tmp_path)
    bad: list[results.BadRecord] = frame.attrs["bad"]
    assert list(frame["run_id"]) == ["2026-whole"]
    assert all("\n" not in entry.reason for entry in bad)
    reasons = {Path(entry.path).name: entry.reason for entry in bad}
    assert set(reasons) == {"2026-cut", "2026-new", "2026-empty", "2026-copy"}
    assert "cut off" in reasons["2026-cut"]
    assert "another name" in reasons["2026-copy"]
    assert f"schema {NOW + 1}, this version reads schema {NOW}" in reasons["2026-new"]
    assert [entry.run_id for entry in results.records(tmp_path)] == ["2026-whole"]


def test_a_record_cut_off_anywhere_is_a_sentence(tmp_path: Path) -> None:
    folder = results.write_run(tmp_path, record(), {})
    text = (folder / "record.json").read_bytes().rstrip()
    for length in range(0, len(text), 41):
        (folder / "record.json").write_bytes(text[:length])
        with pytest.raises(InputError, match=r"record\.json"):
            results.read_record(folder)


def test_a_record_of_an_older_schema_is_brought_to_todays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = results.write_run(tmp_path, record(), {})
    old = json.loads((folder / "record.json").read_text())
    old |= {"schema": 0, "program": old.pop("system")}
    (folder / "record.json").write_text(json.dumps(old))
    with pytest.raises(InputError, match=rf"schema 0.* reads schema {NOW}"):
        results.read_record(folder)
    renamed = {"program": "system"}
    monkeypatch.setitem(
        schema.UPGRADES,
        0,
        lambda content: {renamed.get(key, key): content[key] for key in content},
    )
    assert results.read_record(folder).system == "s"


def test_facts_of_a_record_that_has_them_in_its_notes_are_read(tmp_path: Path) -> None:
    folder = results.write_run(tmp_path, record(), {})
    old = json.loads((folder / "record.json").read_text())
    notes = {
        "io": "io_uring registered",
        "reads_in": "load_graph+extract",
        "prepared": "made",
        "device_cache": "800 of 2000 rows, 390 KiB",
        "disk_bytes": "4096",
        "pack_s": "1.500",
    }
    del old["facts"]
    (folder / "record.json").write_text(json.dumps(old | {"schema": 2, "notes": notes}))
    facts = results.read_record(folder).facts
    assert facts.io == "io_uring registered"
    assert facts.reads_in == ("load_graph", "extract")
    assert facts.prepared_reused is False
    own = {"cached_rows": 800, "table_rows": 2000, "disk_bytes": 4096, "pack_s": 1.5}
    assert facts.model_extra == own


def test_runs_are_found_by_part_of_their_id(tmp_path: Path) -> None:
    for name in ("2026-a-r0", "2026-b-r0", "2027-b-r1"):
        results.write_run(tmp_path, record(name), {})
    assert results.find(tmp_path, "2027").name == "2027-b-r1"
    assert results.find(tmp_path, "a-r0").name == "2026-a-r0"
    assert results.find(tmp_path, "latest").name == "2027-b-r1"
    with pytest.raises(InputError, match="2 runs match"):
        results.find(tmp_path, "2026")
    with pytest.raises(InputError, match="no run"):
        results.find(tmp_path, "zzz")


def test_intervals_are_ranges_below_five_samples_and_bootstrapped_from_five_on() -> (
    None
):
    few = spread([3.0, 1.0, 2.0])
    assert (few.median, few.interval, few.interval_kind) == (2.0, (1.0, 3.0), "range")
    many = spread([1.0, 2.0, 3.0, 4.0, 100.0])
    assert many.interval_kind == "bootstrap95"
    assert many.median == 3.0
    assert 1.0 <= many.interval[0] <= 3.0 <= many.interval[1] <= 100.0
    assert many == spread([1.0, 2.0, 3.0, 4.0, 100.0]), (
        "the same samples give the same interval"
    )
