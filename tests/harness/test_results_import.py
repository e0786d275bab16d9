"""Results of several hosts become one root, whole or not at all, and hostile archives
do no harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.records.record import SCHEMA
from harness.records.study import StudyRecord, write_study
from harness.results import archive as results_archive
from harness.results import store as results
from harness.results.archive import RUN_ID, pack
from harness.results.incoming import check_table, merge
from harness.results.table import load
from tests.harness.records import make_record, save
from workloads.errors import DataIOError, InputError

KEY = "0123456789abcdef"


def study(result: int = 1, key: str = KEY) -> StudyRecord:
    return StudyRecord(
        study="device_classes",
        version=1,
        key=key,
        params={},
        started_at="2026",
        seconds=1.0,
        environment={},
        result={"value": result},
    )


def host(root: Path, systems: tuple[str, ...] = ("gnndrive", "pyg+")) -> list[str]:
    """Make a results root of one host and return the runs' ids."""
    for system in systems:
        save(root, make_record(system, [1.0]))
    write_study(root, study())
    (root / "figures").mkdir(exist_ok=True)
    (root / "figures" / "x.png").write_bytes(b"x")
    return [folder.name for folder in results.run_folders(root)]


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def archive(root: Path, out: Path) -> Path:
    pack(
        root, results.run_folders(root), sorted((root / "studies").glob("*.json")), out
    )
    return out


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar.xz", ".tar", ".zip", ""])
def test_what_two_hosts_measured_becomes_one_root(tmp_path: Path, suffix: str) -> None:
    own = host(tmp_path / "a")
    other = host(tmp_path / "b", ("diskgnn",))
    source = (
        archive(tmp_path / "b", tmp_path / f"b{suffix}") if suffix else tmp_path / "b"
    )
    merged = merge([source], tmp_path / "a")
    assert (merged.runs, merged.studies, merged.kept) == (other, [], [])
    assert len(merged.skipped) == 1
    assert list(load(tmp_path / "a")["run_id"]) == sorted(own + other)
    place = f"runs/{other[0]}"
    assert tree(tmp_path / "a" / place) == tree(tmp_path / "b" / place)
    again = merge([source, tmp_path / "b" / place], tmp_path / "a")
    assert again.runs == []
    assert again.skipped == [*other, f"device_classes-{KEY}.json", *other]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "figures",
        "runs",
        "studies",
    ]
    assert sorted((tmp_path / "a" / "figures").iterdir()) == [
        tmp_path / "a" / "figures" / "x.png"
    ]


def test_a_folder_that_an_archiver_made_of_a_whole_root_is_taken_too(
    tmp_path: Path,
) -> None:
    runs = host(tmp_path / "results")
    with tarfile.open(tmp_path / "x.tgz", "w:gz") as packed:
        packed.add(tmp_path / "results", "./some/results")
    assert merge([tmp_path / "x.tgz"], tmp_path / "new").runs == runs


def test_an_archive_names_no_user_and_is_the_same_each_time(tmp_path: Path) -> None:
    host(tmp_path / "a")
    first = archive(tmp_path / "a", tmp_path / "1.tar.gz")
    second = archive(tmp_path / "a", tmp_path / "2.tar.gz")
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as packed:
        assert {(info.uid, info.gid, info.uname, info.gname) for info in packed} == {
            (0, 0, "", "")
        }


def test_another_content_under_a_known_id_is_refused_and_nothing_is_taken(
    tmp_path: Path,
) -> None:
    host(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    save(tmp_path / "b", make_record("diskgnn", [2.0]))
    changed = results.run_folders(tmp_path / "b")[0] / "record.json"
    changed.write_text(changed.read_text().replace('"seconds": 1.0', '"seconds": 0.1'))
    before = tree(tmp_path / "a")
    with pytest.raises(
        InputError, match=f"{changed.parent.name} .* has another content"
    ):
        merge([tmp_path / "b"], tmp_path / "a")
    assert tree(tmp_path / "a") == before
    with pytest.raises(InputError, match="has another content"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_study_that_stands_here_stays_and_is_named(tmp_path: Path) -> None:
    host(tmp_path / "a")
    write_study(tmp_path / "b", study(2))
    write_study(tmp_path / "b", study(3, "f" * 16))
    merged = merge([tmp_path / "b"], tmp_path / "a")
    assert (merged.studies, merged.kept) == (
        ["device_classes-ffffffffffffffff.json"],
        [f"device_classes-{KEY}.json"],
    )
    assert json.loads(
        (tmp_path / "a" / "studies" / f"device_classes-{KEY}.json").read_text()
    )["result"] == {"value": 1}


def test_a_rename_that_fails_half_way_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(tmp_path / "a")
    host(tmp_path / "b")
    before = tree(tmp_path / "a")
    rename = Path.rename
    count = iter(range(100))

    def fails_once(self: Path, target: Path) -> Path:
        if next(count) == 1:
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_once)
    with pytest.raises(DataIOError, match="No space left"):
        merge([tmp_path / "b"], tmp_path / "a")
    assert tree(tmp_path / "a") == before


# --- archives from unknown hands


class Packed:
    """Archive that is written member by member, beside one good run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        save(root / "good", make_record("gnndrive", [1.0]))
        self.run = results.run_folders(root / "good")[0]
        self.file = root / "bad.tar.gz"

    def tar(self, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
        with tarfile.open(self.file, "w:gz") as archive:
            archive.add(self.run, f"runs/{self.run.name}")
            for info, data in members:
                info.size = info.size or len(data)
                archive.addfile(info, io.BytesIO(data))
        return self.file


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    return info


RUN = "runs/20260101-000000-x"
HOSTILE: dict[str, tuple[tarfile.TarInfo, str]] = {
    "absolute": (member("/etc/record.json"), "leads out of it"),
    "up": (member(f"{RUN}/../../../record.json"), "leads out of it"),
    "backslash": (member("runs\\..\\record.json"), "leads out of it"),
    "symlink": (
        member(f"{RUN}/record.json", tarfile.SYMTYPE, "/etc/passwd"),
        "is a link",
    ),
    "symlinked folder": (member("runs", tarfile.SYMTYPE, "/etc"), "is a link"),
    "hard link": (member(f"{RUN}/record.json", tarfile.LNKTYPE, "runs/x"), "is a link"),
    "device": (member(f"{RUN}/record.json", tarfile.CHRTYPE), "is a device"),
    "pipe": (member(f"{RUN}/record.json", tarfile.FIFOTYPE), "is a device"),
    "no id": (member("runs/<b>x/record.json"), "has no run's id"),
    "no study": (member("studies/X Y.json"), "no study's"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_member_refuses_the_whole_archive(tmp_path: Path, kind: str) -> None:
    packed = Packed(tmp_path)
    info, fault = HOSTILE[kind]
    with pytest.raises(InputError, match=fault) as error:
        merge([packed.tar((info, b""))], tmp_path / "new")
    assert "\n" not in error.value.message
    assert list((tmp_path / "new").iterdir()) == []


def test_links_in_a_folder_are_never_followed(tmp_path: Path) -> None:
    host(tmp_path / "b")
    folder = results.run_folders(tmp_path / "b")[0]
    (folder / "worker.log").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="is a link"):
        merge([tmp_path / "b"], tmp_path / "new")
    (folder / "worker.log").unlink()
    os.mkfifo(folder / "worker.log")
    with pytest.raises(InputError, match="device or pipe"):
        merge([tmp_path / "b"], tmp_path / "new")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "runs").symlink_to(tmp_path / "b" / "runs")
    with pytest.raises(InputError, match="is a link"):
        merge([tmp_path / "c"], tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_what_is_larger_than_a_run_can_be_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(results_archive.RUN_FILES, "worker.log", 1000)
    packed = Packed(tmp_path)
    log = f"runs/{packed.run.name}/worker.log"
    with pytest.raises(InputError, match="is the limit"):
        merge([packed.tar((member(log), b"x" * 1001))], tmp_path / "new")
    # A header that claims a terabyte, in a file of a few bytes.
    huge = member("other/thing")
    huge.size = 2**40
    with gzip.open(packed.file, "wb") as file:
        file.write(huge.tobuf(tarfile.PAX_FORMAT))
    with pytest.raises(InputError, match="or 64\\.0 GiB"):
        merge([packed.file], tmp_path / "new")
    # A name of 100 MiB, which tarfile would read into memory.
    name = member("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    name.size = 100 * 2**20
    with gzip.open(packed.file, "wb") as file:
        file.write(name.tobuf(tarfile.GNU_FORMAT))
        file.write(bytes(name.size))
    with pytest.raises(InputError, match="a header of"):
        merge([packed.file], tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_zip_with_a_link_or_a_way_out_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo(f"{RUN}/record.json")
    link.external_attr = 0o120777 << 16
    for info, fault in (
        (link, "is a link"),
        (zipfile.ZipInfo("../runs/x/record.json"), "leads out"),
    ):
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
            packed.writestr(info, "/etc/passwd")
        with pytest.raises(InputError, match=fault):
            merge([tmp_path / "x.zip"], tmp_path / "new")


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar", ".zip"])
def test_an_archive_cut_off_anywhere_is_a_sentence_and_takes_nothing(
    tmp_path: Path, suffix: str
) -> None:
    host(tmp_path / "a", ("gnndrive",))
    whole = archive(tmp_path / "a", tmp_path / f"whole{suffix}").read_bytes()
    cut = tmp_path / f"cut{suffix}"
    refused = 0
    size = len(whole.rstrip(bytes(1)))
    for share in range(0, 10):
        cut.write_bytes(whole[: size * share // 10])
        with pytest.raises(InputError) as error:
            merge([cut], tmp_path / "new")
        refused += 1
        assert "\n" not in error.value.message
    assert refused == 10
    assert list((tmp_path / "new").iterdir()) == []


def test_a_tar_cut_off_between_two_files_or_in_a_header_is_not_taken_for_whole(
    tmp_path: Path,
) -> None:
    host(tmp_path / "a", ("gnndrive",))
    whole = archive(tmp_path / "a", tmp_path / "whole.tar")
    with tarfile.open(whole) as packed:
        begins = [info.offset for info in packed][1:]
    for place in [begin + within for begin in begins for within in (0, 64, 511)]:
        (tmp_path / "cut.tar").write_bytes(whole.read_bytes()[:place])
        with pytest.raises(InputError, match="no end mark"):
            merge([tmp_path / "cut.tar"], tmp_path / "new")


def test_what_is_no_source_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.tar.gz").write_text("not an archive")
    for source, fault in (
        ("empty", "no run and no study"),
        ("text.tar.gz", "no archive"),
        ("none.zip", "cannot be read"),
    ):
        with pytest.raises(InputError, match=fault):
            merge([tmp_path / source], tmp_path / "new")


def test_a_record_that_is_none_refuses_the_whole(tmp_path: Path) -> None:
    host(tmp_path / "b")
    record = results.run_folders(tmp_path / "b")[1] / "record.json"
    whole = record.read_text()
    for text, fault in (
        (whole[:100], "cut off"),
        (whole.replace(f'"schema": {SCHEMA}', '"schema": 7'), "schema 7"),
        (whole.replace('"run_id": "2', '"run_id": "3'), "under the name"),
    ):
        record.write_text(text)
        with pytest.raises(InputError, match=fault):
            merge([tmp_path / "b"], tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


class Evil:
    """Object that runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch /tmp/outcore-was-here",)


class Opaque(pa.ExtensionType):  # type: ignore[misc]
    """A column type that a reader would have to load code for."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "arrow.py_extension_type")

    def __arrow_ext_serialize__(self) -> bytes:
        return pickle.dumps(Evil())

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, data: bytes) -> Opaque:
        raise AssertionError("an extension type was built from a file")


def stage_columns(**changes: pa.Array) -> pa.Table:
    columns = {
        "epoch": pa.array([0]),
        "batch": pa.array([0]),
        "stage": pa.array(["sample"]),
        "thread": pa.array(["t"]),
        "start": pa.array([0.0]),
        "end": pa.array([1.0]),
    }
    return pa.table({**columns, **changes})


TABLES: dict[str, Callable[[], pa.Table]] = {
    "pickled objects": lambda: stage_columns(
        stage=pa.array([pickle.dumps(Evil())], pa.binary())
    ),
    "extension type": lambda: stage_columns(
        batch=pa.ExtensionArray.from_storage(Opaque(), pa.array([1]))
    ),
    "lists": lambda: stage_columns(batch=pa.array([[1]])),
    "mappings": lambda: stage_columns(batch=pa.array([{"a": 1}])),
    "text for a number": lambda: stage_columns(start=pa.array(["<script>"])),
    "number for a text": lambda: stage_columns(stage=pa.array([1])),
    "one column more": lambda: stage_columns(extra=pa.array([1])),
    "one column less": lambda: stage_columns().drop_columns(["end"]),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_flat_numbers_and_text_or_is_refused(
    tmp_path: Path, kind: str
) -> None:
    save(tmp_path / "b", make_record("gnndrive", [1.0]))
    path = results.run_folders(tmp_path / "b")[0] / "stages.parquet"
    pq.write_table(TABLES[kind](), path)
    with pytest.raises(InputError, match=r"stages of run .* (has|have)"):
        merge([tmp_path / "b"], tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
    assert not Path("/tmp/outcore-was-here").exists()
    pq.write_table(stage_columns(), path)
    assert len(merge([tmp_path / "b"], tmp_path / "new").runs) == 1


def test_the_tables_of_a_run_without_an_epoch_are_taken(tmp_path: Path) -> None:
    for columns in (results.STAGE_COLUMNS, results.BATCH_COLUMNS):
        name = "stages" if columns == results.STAGE_COLUMNS else "batches"
        pd.DataFrame([], columns=list(columns)).to_parquet(
            tmp_path / f"{name}.parquet", index=False
        )
        check_table(tmp_path / f"{name}.parquet", "x")
    (tmp_path / "telemetry.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="no parquet file"):
        check_table(tmp_path / "telemetry.parquet", "x")


def test_the_ids_that_runs_get_are_the_ids_that_are_taken() -> None:
    from harness.run.orchestrator import new_run_id

    for system in ("pyg+", "my.module:Some_System", "x" * 200):
        config = make_record(system, [1.0]).config
        assert RUN_ID.fullmatch(new_run_id(config, "0123456789ab"))
    for name in (
        "..",
        "20260101-000000-",
        "20260101-000000-a/b",
        "20260101-000000-<b>",
        "20260101-000000-a\n",
    ):
        assert not RUN_ID.fullmatch(name)
