"""`outcore results`: each verb says the same in JSON and in the terminal; an unreadable
record hides no other."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness import cli
from harness.figures.base import catalogue
from harness.judge import judged_anew
from harness.judge.metrics import summarised_anew
from harness.records.record import Code, OfflineWork, PlannedBuffer, Preprocess, Record
from harness.results import store as results
from harness.results.gc import counts_as_much, doomed
from tests.harness.records import make_record, save

HOSTILE = "[red]<script>alert(1)</script>\x1b[2J"


class Answer:
    """Output of one call of `outcore results`."""

    def __init__(
        self, root: Path, capsys: pytest.CaptureFixture[str], *arguments: str
    ) -> None:
        with pytest.raises(SystemExit) as end:
            cli.main(["results", *arguments, "--results-root", str(root)])
        self.code = end.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def fill(root: Path) -> list[Record]:
    records = [
        make_record("gnndrive", [1.0, 1.2], experiment="quick"),
        make_record("pyg+", [2.0, 2.2], experiment="quick", verdict="INVALID"),
        make_record("pyg+", [4.0], dim=256),
        make_record("in-memory", [], status="oom"),
    ]
    save(root, *records)
    return records


def damage(root: Path) -> str:
    folder = results.runs_folder(root) / "20270101-000000-cut"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text('{"schema": 1, "run_')
    return folder.name


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ((), [0, 1, 2, 3]),
        (("--system", "pyg+"), [1, 2]),
        (("--status", "oom"), [3]),
        (("--dataset", "kron-d128-d256"), [2]),
        (("--verdict", "INVALID"), [1]),
        (("--experiment", "quick"), [0, 1]),
        (("--experiment", "quick", "--system", "pyg+"), [1]),
        (("--system", "none"), []),
    ],
)
def test_filters_choose_runs_of_list_and_export_alike(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    kept: list[int],
) -> None:
    ids = [record.run_id for record in fill(tmp_path)]
    wanted = [ids[number] for number in kept]
    listed = Answer(tmp_path, capsys, "list", "--json", *options)
    assert [run["run_id"] for run in listed.json["runs"]] == wanted
    assert listed.code == 0
    table = Answer(tmp_path, capsys, "list", *options)
    assert [name for name in ids if name in table.out] == wanted
    exported = Answer(tmp_path, capsys, "export", "--json", *options)
    assert [run["run_id"] for run in exported.json["runs"]] == wanted


@pytest.mark.parametrize("wide", [(), ("--wide",)])
@pytest.mark.parametrize(
    ("setting", "values", "shown"),
    [
        (
            "disk_class",
            ("none", "aws-gp3", "aws-nvme/16"),
            ("disk_class none", "aws-gp3", "aws-nvme/16"),
        ),
        ("fanout", ([10, 10], [5, 5], [4]), ("fanout 10,10", "fanout 5,5", "fanout 4")),
        (
            "batch_size",
            (10, 20, 30),
            ("batch_size 10", "batch_size 20", "batch_size 30"),
        ),
        (
            "device_memory_bytes",
            (2**20, 2**21, None),
            ("1.0 MiB", "2.0 MiB", "device_memory none"),
        ),
        ("seed", (1, 2, 3), ("seed 1", "seed 2", "seed 3")),
        (
            "keep_order",
            (True, False, False),
            ("keep_order true", "mostly keep_order false"),
        ),
        ("options", ({"a": 1}, {"a": 2}, {"a": 3}), ("a=1", "a=2", "a=3")),
    ],
)
def test_runs_that_differ_in_one_setting_differ_in_their_rows(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    values: tuple[Any, ...],
    shown: tuple[str, ...],
    wide: tuple[str, ...],
) -> None:
    save(
        tmp_path, *(make_record("pyg+", [1.0], **{setting: value}) for value in values)
    )
    monkeypatch.setenv("COLUMNS", "300")
    out = Answer(tmp_path, capsys, "list", *wide).out
    assert [text for text in shown if text not in out] == []


def test_runs_on_other_contents_or_another_host_differ_in_their_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, far = (make_record("pyg+", [1.0]) for _ in range(3))
    other.config.dataset.fingerprint = "xxh3:0123456789abcdef"
    far = far.model_copy(update={"environment": {"cpu": {"model": "B", "usable": 2}}})
    save(tmp_path, one, other, far)
    monkeypatch.setenv("COLUMNS", "300")
    rows = Answer(tmp_path, capsys, "list").out.splitlines()
    assert "pyg+; contents of kron-d128 89abcdef" in rows[3]
    assert "pyg+; host " in rows[4]
    runs = Answer(tmp_path, capsys, "list", "--json").json["runs"]
    assert [run["settings"]["contents of kron-d128"] for run in runs] == [
        "f128",
        "89abcdef",
        "f128",
    ]


def test_datasets_of_other_names_have_no_other_column_than_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(
        tmp_path,
        make_record("pyg+", [1.0], dim=64),
        make_record("pyg+", [1.0], dim=256),
    )
    runs = Answer(tmp_path, capsys, "list", "--json").json["runs"]
    assert [run["settings"] for run in runs] == [{}, {}]


def test_a_filter_that_cannot_be_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, value, near in (
        ("--status", "oomm", "'oom'"),
        ("--verdict", "VALLID", "'VALID'"),
    ):
        message = Answer(tmp_path, capsys, "list", option, value)
        assert message.code == 2
        assert near in message.err
        assert message.err.count("\n") == 1


def test_a_damaged_record_is_named_and_the_others_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [record.run_id for record in fill(tmp_path)]
    cut = damage(tmp_path)
    listed = Answer(tmp_path, capsys, "list", "--json")
    assert [run["run_id"] for run in listed.json["runs"]] == ids
    assert [Path(entry["path"]).name for entry in listed.json["not_read"]] == [cut]
    for verb in (("list",), ("export",), ("export", "--out", str(tmp_path / "x.csv"))):
        message = Answer(tmp_path, capsys, *verb)
        assert message.code == 0
        assert message.err.count("not read") == 1
        assert cut in message.err


def test_show_has_the_stages_shares_and_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = make_record("gnndrive", [2.0, 4.0], sample_s=1.5)
    record.memory.budget_bytes = 64 * 2**20
    record.memory.plan = [
        PlannedBuffer(name="small", bytes=2**20),
        PlannedBuffer(name="feature buffer", bytes=16 * 2**20, tier="device"),
        PlannedBuffer(name="staging", bytes=8 * 2**20),
    ]
    save(tmp_path, record)
    out = Answer(tmp_path, capsys, "show", "latest").out
    rows = {line.split("  ")[0]: line for line in out.splitlines()}
    # The measured epochs' medians: 1.5 of 3 s sampling, 0.9 of each epoch extracting.
    assert "50.0 %" in rows["sample"]
    assert "90.0 %" in rows["extract"]
    assert "13.3 %" in rows["train"]
    assert "12.5 %" in rows["staging"]
    assert "1.6 %" in rows["small"]
    assert "50.0 %" in rows["feature buffer"]
    assert "9.0 MiB of 64.0 MiB" in rows["all of host"]
    assert out.index("staging") < out.index("small") < out.index("feature buffer"), (
        "largest first, tier by tier"
    )
    assert Answer(tmp_path, capsys, "show", "latest", "--json").json == json.loads(
        json.dumps(judged_anew(record, "").to_json())
    )


def test_compare_states_what_differs_beside_the_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = make_record("gnndrive", [1.0], options={"a": 1, "own": 1})
    other = make_record("pyg+", [2.0], batch_size=25, options={"a": 2, "its": 3})
    other = other.model_copy(
        update={"environment": {"cpu": {"model": "B", "usable": 2}}}
    )
    save(tmp_path, one, other)
    rows = Answer(tmp_path, capsys, "compare", one.run_id, other.run_id, "--json").json[
        "runs"
    ]
    assert [row["speedup"] for row in rows] == [1.0, 0.5]
    assert rows[0]["differs_in"] == []
    assert set(rows[1]["differs_in"]) == {
        "system",
        "batch_size",
        "options.a",
        "on.host",
    }
    assert "0.50" in Answer(tmp_path, capsys, "compare", one.run_id, other.run_id).out


def test_compare_has_the_seconds_of_every_table_of_runs_with_all_work_of_an_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = make_record("diskgnn", [1.0, 1.0, 4.0], epochs=4)
    packed.preprocess = Preprocess(
        seconds=12.0, offline=OfflineWork(epochs=4, seconds=12.0)
    )
    packed.summary = summarised_anew(packed)
    short = make_record("pyg+", [2.5], epochs=2)
    invalid = make_record("ginex", [0.1], verdict="INVALID")
    save(tmp_path, packed, short, invalid)
    ids = [packed.run_id, short.run_id, invalid.run_id]
    rows = Answer(tmp_path, capsys, "compare", *ids, "--json").json["runs"]
    assert [row["epoch_s"] for row in rows] == [
        pytest.approx(5.0),
        pytest.approx(2.5),
        None,
    ]
    assert [row["speedup"] for row in rows] == [1.0, pytest.approx(2.0), None]
    assert " invalid " in Answer(tmp_path, capsys, "compare", *ids).out


def test_runs_of_different_length_train_on_the_same_batches_if_their_common_epochs_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long, short, other = (make_record("gnndrive", [1.0] * count) for count in (3, 1, 1))
    for record, text in ((long, "same"), (short, "same"), (other, "other")):
        record.epochs = [
            epoch.model_copy(update={"digest": f"{text}{epoch.epoch}"})
            for epoch in record.epochs
        ]
    save(tmp_path, long, short, other)
    rows = Answer(
        tmp_path, capsys, "compare", long.run_id, short.run_id, other.run_id, "--json"
    ).json["runs"]
    assert [row["same_batches"] for row in rows] == [True, True, False]


def test_tables_come_out_as_csv_json_and_parquet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [record.run_id for record in fill(tmp_path)]
    damage(tmp_path)
    for kind in ("csv", "json", "parquet"):
        message = Answer(
            tmp_path, capsys, "export", "--out", str(tmp_path / f"x.{kind}"), "--json"
        )
        assert message.json["runs"] == 4
        assert len(message.json["not_read"]) == 1
    frames = [pd.read_csv(tmp_path / "x.csv"), pd.read_parquet(tmp_path / "x.parquet")]
    frames.append(pd.read_csv(io.StringIO(Answer(tmp_path, capsys, "export").out)))
    for frame in frames:
        assert list(frame["run_id"]) == ids
        assert list(frame["config.dataset.dim"]) == [128, 128, 256, 128]
        assert json.loads(frame["config.fanout"][0]) == [10, 10, 10]
        assert frame["summary.epoch_s.median"].isna().tolist() == [
            False,
            False,
            False,
            True,
        ]
    assert [
        entry["run_id"] for entry in json.loads((tmp_path / "x.json").read_text())
    ] == ids
    for name in ("x.xlsx", "x"):
        assert (
            Answer(tmp_path, capsys, "export", "--out", str(tmp_path / name)).code == 2
        )
    assert Answer(tmp_path, capsys, "export", "--runs").code == 2
    assert not list(tmp_path.glob(".*"))


def test_runs_travel_as_an_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [record.run_id for record in fill(tmp_path / "a")]
    packed = str(tmp_path / "x.tar.gz")
    message = Answer(
        tmp_path / "a",
        capsys,
        "export",
        "--runs",
        "--out",
        packed,
        "--system",
        "pyg+",
        "--json",
    )
    assert message.json == {"file": packed, "runs": 2, "studies": 0, "not_read": []}
    taken = Answer(tmp_path / "b", capsys, "import", packed, "--json")
    assert taken.json["runs"] == ids[1:3]
    assert (
        "imported 2 runs"
        in Answer(tmp_path / "b", capsys, "import", str(tmp_path / "a")).out
    )
    assert [
        entry["run_id"]
        for entry in Answer(tmp_path / "b", capsys, "list", "--json").json["runs"]
    ] == ids
    message = Answer(tmp_path / "b", capsys, "import", str(tmp_path / "nothing.zip"))
    assert message.code == 2
    assert message.err.count("\n") == 1


def test_names_in_records_are_text_and_no_commands_of_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = make_record("gnndrive", [1.0])
    record.config.dataset.name = HOSTILE
    record.caveats = [HOSTILE]
    record.notes = {HOSTILE: HOSTILE}
    record.reason = HOSTILE
    save(tmp_path, record)
    for verb in (("list",), ("show", "latest"), ("compare", "latest", "latest")):
        message = Answer(tmp_path, capsys, *verb)
        assert message.code == 0
        assert "\x1b[2J" not in message.out
    assert "[red]" in Answer(tmp_path, capsys, "show", "latest").out


def test_gc_removes_what_is_replaced_on_the_same_host_and_states_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = make_record("gnndrive", [1.0])
    new = make_record("gnndrive", [1.1])
    other_round = make_record("gnndrive", [1.2], round=1)
    elsewhere = make_record("gnndrive", [1.3]).model_copy(
        update={"environment": {"cpu": {"model": "B"}}}
    )
    failed = make_record("gnndrive", [], status="failed")
    save(tmp_path, old, new, other_round, elsewhere, failed)
    cut = damage(tmp_path)
    newer = results.runs_folder(tmp_path) / "20270101-000001-new"
    newer.mkdir()
    (newer / "record.json").write_text('{"schema": 9}')
    partial = results.runs_folder(tmp_path) / ".partial-x"
    partial.mkdir()
    before = sorted(path.name for path in results.runs_folder(tmp_path).iterdir())
    message = Answer(tmp_path, capsys, "gc", "--dry-run", "--json").json
    assert message["removed"] == [".partial-x", old.run_id]
    assert message["dry_run"]
    assert (
        sorted(path.name for path in results.runs_folder(tmp_path).iterdir()) == before
    )
    out = Answer(tmp_path, capsys, "gc").out
    assert f"removed runs/{old.run_id}: replaced by {new.run_id}" in out
    assert "half-written" in out
    assert Answer(tmp_path, capsys, "gc", "--json").json["removed"] == []
    assert Answer(tmp_path, capsys, "gc", "--failed", "--damaged", "--json").json[
        "removed"
    ] == [failed.run_id, cut]
    left = {path.name for path in results.runs_folder(tmp_path).iterdir()}
    assert left == {new.run_id, other_round.run_id, elsewhere.run_id, newer.name}


@pytest.mark.parametrize(
    ("old", "new", "replaced"),
    [
        ({"verdict": "VALID"}, {"verdict": "SPOILT"}, False),
        ({"verdict": "SPOILT"}, {"verdict": "INVALID"}, False),
        ({"status": "ok"}, {"status": "oom"}, False),
        (
            {"status": "ok", "verdict": "SPOILT"},
            {"status": "timeout", "verdict": "VALID"},
            False,
        ),
        ({"verdict": "SPOILT"}, {"verdict": "VALID"}, True),
        ({"verdict": "CAVEATS"}, {"verdict": "CAVEATS"}, True),
        ({"status": "timeout"}, {"status": "ok"}, True),
        ({"status": "ok", "code": "other"}, {"status": "ok"}, False),
    ],
)
def test_gc_replaces_a_run_only_by_one_of_its_code_that_counts_at_least_as_much(
    tmp_path: Path, old: dict[str, str], new: dict[str, str], replaced: bool
) -> None:
    made = []
    for changes in (old, new):
        plain = {name: value for name, value in changes.items() if name != "code"}
        code = Code(harness=changes.get("code", "ours"), system="s")
        made.append(
            make_record("gnndrive", [1.0], **plain).model_copy(update={"code": code})
        )
    save(tmp_path, *made)
    found = {entry.path.name for entry in doomed(tmp_path, catalogue())}
    assert found == ({made[0].run_id} if replaced else set())


def test_a_run_with_caveats_counts_less_than_a_valid_one() -> None:
    valid, caveats = (
        make_record("gnndrive", [1.0], verdict=verdict)
        for verdict in ("VALID", "CAVEATS")
    )
    assert counts_as_much(valid, caveats)
    assert not counts_as_much(caveats, valid)


def test_gc_keeps_the_run_that_counts_when_a_spoilt_one_lies_between_two(
    tmp_path: Path,
) -> None:
    first, spoilt, last = (
        make_record("gnndrive", [1.0], verdict=verdict)
        for verdict in ("VALID", "SPOILT", "VALID")
    )
    save(tmp_path, first, spoilt, last)
    assert {entry.path.name for entry in doomed(tmp_path, catalogue())} == {
        first.run_id,
        spoilt.run_id,
    }


def test_gc_removes_files_of_figures_that_are_no_more_and_leaves_a_users_own(
    tmp_path: Path,
) -> None:
    figures = tmp_path / "figures"
    figures.mkdir()
    for name, files in (
        ("gone-fig1", ["gone-fig1.png", "../runs"]),
        ("gnndrive-fig9", ["gnndrive-fig9.png"]),
    ):
        (figures / f"{name}.json").write_text(
            json.dumps({"id": name, "status": "drawn", "files": files})
        )
        (figures / f"{name}.png").write_bytes(b"x")
    for name in ("notes.md", "mine.png", "mine.json"):
        (figures / name).write_text("{}")
    assert sorted(entry.path.name for entry in doomed(tmp_path, catalogue())) == [
        "gone-fig1.json",
        "gone-fig1.png",
    ]


def test_gc_removes_what_systems_prepared_only_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data" / ".outcore" / "artefacts" / "ginex" / "order-0123"
    folder.mkdir(parents=True)
    (folder / "part").write_bytes(bytes(8192))
    data = ("--data-root", str(tmp_path / "data"), "--json")
    assert Answer(tmp_path / "r", capsys, "gc", *data).json["artefacts"] == []
    assert Answer(tmp_path / "r", capsys, "gc", "--keep", "1MiB", *data).code == 2
    assert (
        Answer(
            tmp_path / "r", capsys, "gc", "--artefacts", "--keep", "1MiB", *data
        ).json["artefacts"]
        == []
    )
    listed = [{"system": "ginex", "name": "order-0123", "bytes": 8192}]
    assert (
        Answer(tmp_path / "r", capsys, "gc", "--artefacts", "--dry-run", *data).json[
            "artefacts"
        ]
        == listed
    )
    assert folder.is_dir()
    assert (
        Answer(tmp_path / "r", capsys, "gc", "--artefacts", *data).json["artefacts"]
        == listed
    )
    assert not folder.exists()


def test_gc_leaves_an_import_under_way_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from workloads.tempfolder import temporary_prefix, try_lock

    for name in ("alive", "dead"):
        (tmp_path / f"{temporary_prefix('import')}{name}").mkdir()
    handle = os.open(tmp_path / f"{temporary_prefix('import')}alive", os.O_RDONLY)
    try:
        assert try_lock(handle)
        assert Answer(tmp_path, capsys, "gc").code == 0
        assert [path.name for path in tmp_path.iterdir()] == [
            f"{temporary_prefix('import')}alive"
        ]
    finally:
        os.close(handle)


def test_compare_judges_the_batches_of_common_epochs_and_counts_all_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three = make_record("ginex", [2.0, 2.0])
    four = make_record("diskgnn", [1.0, 1.0, 1.0])
    four.preprocess.seconds = 12.0
    four.preprocess.offline = OfflineWork(epochs=4, seconds=12.0)
    none = make_record("in-memory", [], status="oom")
    own = make_record("mariusgnn", [1.0])
    own.epochs[1].digest = "xxh3:own"
    save(tmp_path, three, four, none, own)
    runs = [record.run_id for record in (three, four, none, own)]
    rows = Answer(tmp_path, capsys, "compare", *runs, "--json").json["runs"]
    assert [row["same_batches"] for row in rows] == [True, True, None, False]
    assert [row["epoch_s"] for row in rows] == [2.0, 4.0, None, 1.0]
    assert rows[1]["speedup"] == 0.5
