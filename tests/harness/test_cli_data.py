"""`outcore data`: what each verb prints, its JSON, its exit codes, its one-sentence
errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.cli import main
from tests.support import make_tiny
from workloads.dataset import Dataset

SMALL = (
    "--kind",
    "kronecker",
    "--nodes",
    "4k",
    "--edges",
    "4e4",
    "--dim",
    "8",
    "--classes",
    "3",
)

SNAP = "--format snap --dim 4 --classes 2 --train-fraction 0.5".split()


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        content = json.loads(self.out)
        assert isinstance(content, dict)
        return content


class Outcore:
    """Runner of `outcore data …` on its own data root."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(["data", *map(str, arguments), "--data-root", str(self.root)])
        captured = self._capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)


@pytest.fixture
def outcore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Outcore:
    return Outcore(tmp_path / "data", capsys)


def test_make_then_list_info_verify_rm(outcore: Outcore) -> None:
    made = outcore("make", "k", *SMALL, "--json")
    assert made.code == 0
    assert made.err == ""
    message = made.json["dataset"]
    assert made.json["reused"] is False
    assert (message["num_nodes"], message["dim"], message["num_classes"]) == (
        4000,
        8,
        3,
    )
    assert message["fingerprint"] == Dataset.open(outcore.root / "k").fingerprint

    assert [entry["name"] for entry in outcore("list", "--json").json["datasets"]] == [
        "k"
    ]
    assert "k " in outcore("list").out
    assert "kronecker" in outcore("list").out

    described = outcore("info", "k", "--json").json["dataset"]
    assert described["recipe"]["kind"] == "kronecker"
    assert set(described["stats"]["base"]) == set(described["stats"]["result"])
    shown = outcore("info", "k").out
    for words in (
        "fingerprint",
        "train / valid / test",
        "top1 degree share",
        "clustering",
        "homophily",
    ):
        assert words in shown
    header = next(line for line in shown.splitlines() if "result" in line)
    assert "base" in header  # side by side

    assert outcore("verify", "k", "--json").json == {
        "ok": True,
        "datasets": [{"dataset": "k", "ok": True, "faults": []}],
    }
    assert outcore("rm", "k", "--yes", "--json").json == {"removed": ["k"]}
    assert [path.name for path in outcore.root.iterdir()] == [".secret"]
    assert outcore("list", "--json").json == {"datasets": []}
    assert "outcore data make" in outcore("list").out


def test_the_same_recipe_is_reused_and_another_is_refused(outcore: Outcore) -> None:
    first = outcore("make", "k", *SMALL, "--json").json
    when = (outcore.root / "k").stat().st_mtime_ns
    again = outcore("make", "k", *SMALL, "--json")
    assert again.code == 0
    assert again.json["reused"] is True
    assert again.json["dataset"] == first["dataset"]
    assert (outcore.root / "k").stat().st_mtime_ns == when
    assert (
        "is there already, made by the same recipe" in outcore("make", "k", *SMALL).out
    )
    same_sizes = outcore(
        "make",
        "k",
        *SMALL[:3],
        "4000",
        "--edges",
        "40000",
        "--dim",
        "8",
        "--classes",
        "3",
        "--json",
    )
    assert same_sizes.json["reused"] is True

    other = outcore("make", "k", *SMALL, "--seed", "1", "--json")
    assert other.code == 2
    assert other.json["error"]["kind"] == "dataset"
    assert "exists already" in other.json["error"]["message"]
    assert "--force" in other.json["error"]["fix"]
    forced = outcore("make", "k", *SMALL, "--seed", "1", "--force", "--json")
    assert forced.code == 0
    assert forced.json["dataset"]["fingerprint"] != first["dataset"]["fingerprint"]


def test_a_given_salt_makes_the_same_dataset_and_another_is_refused(
    outcore: Outcore, tmp_path: Path
) -> None:
    first = outcore("make", "k", *SMALL, "--json").json["dataset"]
    file = outcore.root / ".secret" / "salt"
    assert first["salt"] == first["recipe"]["salt"]
    assert f"salt                  {first['salt']}" in outcore("info", "k").out
    other = Outcore(tmp_path / "other", outcore._capsys)
    equal = other("make", "k", *SMALL, "--salt", file, "--json").json["dataset"]
    assert equal["files"] == first["files"]
    assert equal["recipe"] == first["recipe"]
    assert (
        outcore("make", "k", *SMALL, "--salt", file.read_text().strip(), "--json").json[
            "reused"
        ]
        is True
    )
    refused = outcore("make", "k", *SMALL, "--salt", "ab" * 32, "--json")
    assert refused.code == 2
    assert "exists already" in refused.json["error"]["message"]
    forced = outcore(
        "make", "k", *SMALL, "--salt", "ab" * 32, "--force", "--json"
    ).json["dataset"]
    assert forced["fingerprint"] == first["fingerprint"]
    assert forced["salt"] != first["salt"]
    assert outcore("verify", "k").code == 0
    assert (
        outcore("make", "k", *SMALL, "--json").json["reused"] is True
    )  # no salt is asked for
    assert outcore("make", "j", *SMALL, "--salt", "ab").code == 2


def test_a_broken_dataset_is_not_reused(outcore: Outcore) -> None:
    outcore("make", "k", *SMALL)
    (outcore.root / "k" / "labels.npy").unlink()
    assert outcore("make", "k", *SMALL).code == 2
    assert outcore("make", "k", *SMALL, "--force").code == 0
    assert outcore("verify").code == 0


def test_original_ids_are_listed_and_an_older_import_without_them_is_not_reused(
    outcore: Outcore, tmp_path: Path
) -> None:
    source = tmp_path / "g.txt"
    source.write_text("10 20\n20 30\n30 10\n50 10\n")
    options = ("import", "g", source, *SNAP)
    made = outcore(*options, "--json").json["dataset"]
    assert made["files"]["ids"]["shape"] == [4]
    assert any("part ids holds the original ones" in note for note in made["notes"])
    text = outcore("info", "g", "-v").out
    assert re.search(r"original ids +ids\.npy", text)
    assert re.search(r"ids\.npy +" + made["files"]["ids"]["xxh3"], text)
    assert outcore("verify", "g").code == 0
    assert outcore(*options, "--json").json["reused"] is True
    # As an Outcore wrote it that kept no ids.
    manifest = outcore.root / "g" / "dataset.json"
    raw = json.loads(manifest.read_text())
    del raw["files"]["ids"]
    raw["notes"][0] = "ids numbered anew (47 unused up to 50)"
    manifest.write_text(json.dumps(raw))
    (outcore.root / "g" / "ids.npy").unlink()
    assert outcore("info", "g").code == 0
    assert outcore("verify", "g").code == 0
    refused = outcore(*options, "--json")
    assert refused.code == 2
    assert "exists already" in refused.json["error"]["message"]
    assert (
        outcore(*options, "--force", "--json").json["dataset"]["fingerprint"]
        == made["fingerprint"]
    )
    assert outcore("rm", "g", "--yes").code == 0


def test_import_states_what_it_generated_and_is_reused(
    outcore: Outcore, tmp_path: Path
) -> None:
    source = tmp_path / "g.txt"
    source.write_text("# comment\n1 2\n2 3\n3 1\n1 2\n5 1\n")
    options = ("import", "g", source, *SNAP)
    made = outcore(*options, "--symmetric", "--json")
    assert made.code == 0
    assert made.json["dataset"]["num_edges"] == 8
    notes = " ".join(made.json["dataset"]["notes"])
    assert "features generated" in notes
    assert "2 duplicate edges removed" in notes
    assert "both directions" in notes
    assert outcore(*options, "--symmetric", "--json").json["reused"] is True
    source.write_text("1 2\n2 3\n")
    assert outcore(*options, "--symmetric").code == 2  # other content, other recipe
    expanded = outcore(
        "make",
        "h",
        "--kind",
        "kronecker",
        "--base",
        "g",
        "--expand",
        "3",
        "--dim",
        "4",
        "--json",
    )
    assert expanded.json["dataset"]["num_nodes"] == 12


@pytest.mark.parametrize(
    ("name", "path", "root", "message"),
    [
        ("n" * 300, "g", "data", "use up to 200 letters"),
        ("n", "g" * 300, "data", "File name too long; check the path"),
        ("n", "g", "r" * 300, "File name too long; choose another --data-root"),
        ("n", "no", "data", "no; check the path"),
    ],
)
def test_names_too_long_for_the_disk_are_refused(
    outcore: Outcore, tmp_path: Path, name: str, path: str, root: str, message: str
) -> None:
    (tmp_path / "g").write_text("0 1\n")
    outcore.root = tmp_path / root
    ran = outcore("import", name, tmp_path / path, "--format", "snap")
    assert ran.code == 2
    assert message in ran.err
    assert list(tmp_path.iterdir()) == [tmp_path / "g"]


def test_labels_are_generated_for_an_unlabelled_graph_where_the_option_is_given(
    outcore: Outcore, tmp_path: Path
) -> None:
    np.savez(
        tmp_path / "g.npz",
        adj_indices=[1],
        adj_indptr=[0, 1, 1],
        adj_shape=[2, 2],
        labels=[-1, -1],
    )
    assert (
        "use --labels random"
        in outcore("import", "g", tmp_path / "g.npz", "--format", "npz").err
    )
    made = outcore(
        "import",
        "g",
        tmp_path / "g.npz",
        "--format",
        "npz",
        "--labels",
        "random",
        "--json",
    )
    assert made.code == 0
    assert "labels generated (random, 16 classes)" in made.json["dataset"]["notes"]


def test_a_graph_in_pygs_words_is_imported_whole_or_not_at_all(
    outcore: Outcore, tmp_path: Path
) -> None:
    names = {
        "x": np.ones((3, 2)),
        "y": np.array([0, 1, 1]),
        "train_mask": np.array([True, False, True]),
    }
    for edges, message in (
        ([[0, 1], [1, 3]], "an edge names node 3, but there are 3 nodes"),
        (None, "has no edge_index"),
    ):
        np.savez(
            tmp_path / "bad.npz",
            **names,
            **({} if edges is None else {"edge_index": edges}),
        )
        bad = outcore("import", "g", tmp_path / "bad.npz", "--format", "pyg")
        assert bad.code == 2
        assert message in bad.err.splitlines()[-1]
        assert "Traceback" not in bad.err
        assert list(outcore.root.iterdir()) == []
    np.savez(tmp_path / "g.npz", **names, edge_index=[[0, 1, 0], [1, 2, 1]])
    made = outcore("import", "g", tmp_path / "g.npz", "--format", "pyg", "--json")
    assert made.code == 0
    assert made.json["dataset"]["num_edges"] == 3
    assert made.json["dataset"]["num_train"] == 2
    assert (
        outcore("import", "g", tmp_path / "g.npz", "--format", "pyg", "--json").json[
            "reused"
        ]
        is True
    )


def test_a_folder_whose_labels_changed_is_not_there_already(
    outcore: Outcore, tmp_path: Path
) -> None:
    folder = tmp_path / "g"
    folder.mkdir()
    arrays = {
        "edge_index": np.array([[0, 1], [1, 2]]),
        "x": np.ones((3, 2)),
        "y": np.array([0, 1, 1]),
        "year": np.ones(3),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    options = ("import", "g", folder, "--format", "arrays")
    made = outcore(*options)
    assert made.code == 0
    assert "y.npy as labels" in made.out
    assert "files left out: year.npy" in made.out
    assert outcore(*options, "--json").json["reused"] is True
    kept = (folder / "y.npy").stat()
    np.save(folder / "y.npy", np.array([1, 0, 0]))
    os.utime(folder / "y.npy", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    again = outcore(*options)
    assert again.code == 2
    assert "'g' exists already" in again.err
    assert "--force" in again.err
    assert outcore(*options, "--force", "--json").json["reused"] is False
    assert Dataset.open(outcore.root / "g").load("labels").tolist() == [1, 0, 0]


def test_an_export_states_where_it_lies_and_is_imported_again(
    outcore: Outcore, tmp_path: Path
) -> None:
    dataset = make_tiny(outcore.root / "g", nodes=200, edges=900)
    made = outcore("export", "g", "--format", "pyg", "--json")
    assert made.code == 0
    assert made.json["export"]["path"] == str(outcore.root / "g-pyg")
    assert made.json["export"]["bytes"] == sum(
        file.stat().st_size for file in (outcore.root / "g-pyg").iterdir()
    )
    again = outcore(
        "import", "h", outcore.root / "g-pyg", "--format", "arrays", "--json"
    )
    assert again.json["dataset"]["fingerprint"] == dataset.fingerprint
    reported = outcore("export", "g", "--format", "ginex", "--out", tmp_path / "out")
    assert reported.code == 0
    assert str(tmp_path / "out") in reported.out
    assert "read back" in reported.out
    assert [row["name"] for row in outcore("list", "--json").json["datasets"]] == [
        "g",
        "h",
    ]
    for arguments, message in (
        (
            ("g", "--format", "ginex", "--out", tmp_path / "out"),
            "exists already; remove it",
        ),
        (("g", "--format", "csv"), "--format is 'csv'"),
        (("nobody", "--format", "pyg"), "there is no dataset 'nobody'"),
        (("n" * 300, "--format", "pyg"), "File name too long; choose another path"),
        (
            ("g", "--format", "pyg", "--out", "n" * 300),
            "File name too long; choose another --out",
        ),
        (
            ("g", "--format", "pyg", "--out", "-q"),
            "--out is '-q', which looks like an option",
        ),
        (
            ("g", "--format", "pyg", "--out", outcore.root / "h" / "new"),
            "would lie in the dataset 'h'",
        ),
    ):
        refused = outcore("export", *arguments)
        assert refused.code == 2
        assert message in refused.err
        assert refused.err.count("\n") == 1


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_verify_gives_one_line_for_each_fault_and_exit_code_1(outcore: Outcore) -> None:
    for name in ("a", "b", "c"):
        make_tiny(outcore.root / name, nodes=200, edges=1000)
    flip(outcore.root / "b" / "features.npy")
    flip(outcore.root / "b" / "train.npy")
    with (outcore.root / "c" / "indices.npy").open("r+b") as file:
        file.truncate(5000)
    (outcore.root / "c" / "test.npy").unlink()
    ran = outcore("verify")
    assert ran.code == 1
    faults = [
        line
        for line in ran.out.splitlines()
        if "every file is as it was written" not in line
    ]
    assert len(faults) == 4
    for fault, words in zip(
        faults,
        (
            "b/features.npy is corr",
            "b/train.npy is corr",
            "c/indices.npy is trunc",
            "c/test",
        ),
        strict=True,
    ):
        assert words in fault
    as_json = outcore("verify", "--json")
    assert as_json.code == 1
    assert [entry["ok"] for entry in as_json.json["datasets"]] == [True, False, False]
    assert outcore("verify", "a").code == 0
    assert outcore("verify", outcore.root / "c").code == 1
    assert outcore("verify", "nobody").code == 2


def test_rm_removes_broken_datasets_and_nothing_else(
    outcore: Outcore, tmp_path: Path
) -> None:
    make_tiny(outcore.root / "whole", nodes=100, edges=300)
    make_tiny(outcore.root / "broken", nodes=100, edges=300)
    (outcore.root / "broken" / "train.npy").unlink()
    make_tiny(outcore.root / "guarded", nodes=100, edges=300)
    (outcore.root / "guarded" / "thesis.tex").write_text("years of work")
    home = tmp_path / "home"
    home.mkdir()
    (home / "dataset.json").write_text('{"name": "of somebody else"}')

    assert outcore("rm", "whole").code == 2  # without a terminal to ask
    refused = outcore("rm", "whole", "guarded", "--yes", "--json")
    assert refused.code == 2
    assert "thesis.tex" in refused.json["error"]["message"]
    assert outcore("rm", home, "--yes").code == 2
    assert outcore("rm", tmp_path, "--yes").code == 2
    assert outcore("rm", "nobody", "--yes").code == 2
    (outcore.root / "link").symlink_to(outcore.root / "whole")
    assert outcore("rm", "link", "--yes").code == 2
    assert (home / "dataset.json").is_file()
    assert (outcore.root / "guarded" / "thesis.tex").is_file()
    assert (outcore.root / "whole" / "features.npy").is_file()

    assert outcore("rm", "whole", "broken", "--yes").code == 0
    assert sorted(path.name for path in outcore.root.iterdir()) == ["guarded", "link"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("make", "x", "--kind", "kroneker", "--nodes", "2M"),
            "did you mean kronecker",
        ),
        (
            ("make", "x", "--kind", "rmat", "--nodes", "2Q"),
            "'Q' is not a unit of counts",
        ),
        (("make", "x", "--kind", "rmat", "--nodes", "many"), "--nodes is 'many'"),
        (
            ("make", "x", "--kind", "rmat", "--nodes", "2M", "--max-memory", "4G"),
            "'G' is not a unit of bytes",
        ),
        (("make", "x", "--kind", "rmat"), "--nodes"),
        (
            ("make", "x", "--kind", "kronecker", "--base", "nobody", "--expand", "2"),
            "there is no dataset 'nobody'",
        ),
        (
            ("make", "../x", "--kind", "rmat", "--nodes", "10"),
            "cannot be a dataset's name",
        ),
        (
            ("make", "x", "--kind", "rmat", "--nodes", "10", "--train-fraction", "2"),
            "--train-fraction is 2",
        ),
        (("make", "x", "--kind", "rmat", "--nodes", "10", "--sead", "2"), "--sead"),
        (
            ("import", "x", "nowhere.npz", "--format", "npz"),
            "there is nothing at nowhere.npz",
        ),
        (("import", "x", "nowhere.npz", "--format", "csv"), "--format is 'csv'"),
        (
            ("import", "x", "nowhere", "--format", "ogb", "--labelled", "loader"),
            "--labelled loader is for IGB",
        ),
        (("info", "nobody"), "there is no dataset 'nobody'"),
    ],
)
def test_wrong_input_is_one_sentence_with_exit_code_2(
    outcore: Outcore, arguments: tuple[str, ...], message: str
) -> None:
    plain = outcore(*arguments)
    assert plain.code == 2
    assert plain.out == ""
    assert plain.err.startswith("outcore: ")
    assert message in plain.err
    assert plain.err.count("\n") == 1
    as_json = outcore(*arguments, "--json")
    assert as_json.code == 2
    assert set(as_json.json["error"]) == {"kind", "message", "fix"}
    assert not outcore.root.exists() or list(outcore.root.iterdir()) == []


def test_the_root_comes_from_the_environment_and_progress_goes_to_stderr(
    tmp_path: Path,
) -> None:
    code = "import sys; from harness.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "data", "make", "k", *SMALL, "--verbose"]
    done = subprocess.run(
        command,
        env={"OUTCORE_DATA": str(tmp_path / "root")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "root" / "k" / "features.npy", mmap_mode="r").shape == (
        4000,
        8,
    )
    assert "writing features" in done.stderr
    assert "writing features" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "4,000" in done.stdout


def test_a_removal_cut_short_is_finished_by_the_next_writer(outcore: Outcore) -> None:
    make_tiny(outcore.root / "a", nodes=100, edges=300)
    (outcore.root / "a").rename(outcore.root / ".a.outcore-tmp-removed")
    assert outcore("list", "--json").json == {"datasets": []}
    make_tiny(outcore.root / "a", nodes=100, edges=300)
    assert [path.name for path in outcore.root.iterdir()] == ["a"]
    (outcore.root / ".a.outcore-tmp-removed").mkdir()
    assert outcore("rm", "a", "--yes").code == 0
    assert list(outcore.root.iterdir()) == []
