"""Salt of generated features: equal salts give equal bytes, other salts the same
workload, and no text reveals one."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.make import MakeSpec, make_dataset
from workloads.making.node_data import FeatureSource
from workloads.making.salt import FOLDER, Salt

SPEC = MakeSpec("kronecker", nodes=3000, edges=20_000, dim=6, classes=3)
ONE = Salt(b"1" * 32)
TWO = Salt(b"2" * 32)


def kept_in(root: Path) -> Path:
    return root / FOLDER / "salt"


def edge_list(path: Path) -> Path:
    path.write_text("0 1\n1 2\n")
    return path


def test_equal_salts_give_equal_bytes_in_any_data_root(tmp_path: Path) -> None:
    here = make_dataset(tmp_path / "here" / "a", SPEC)
    salt = Salt.given(str(kept_in(tmp_path / "here")))
    there = make_dataset(tmp_path / "there" / "b", SPEC, salt=salt)
    assert here.manifest.files == there.manifest.files
    assert here.content == there.content
    assert here.salt == there.salt == salt.digest


def test_a_data_root_has_one_salt(tmp_path: Path) -> None:
    first = make_dataset(tmp_path / "a", SPEC)
    second = make_dataset(tmp_path / "b", SPEC)
    assert first.content == second.content


def test_each_data_root_draws_its_own_salt_and_the_workload_is_the_same(
    tmp_path: Path,
) -> None:
    here = make_dataset(tmp_path / "here" / "a", SPEC)
    there = make_dataset(tmp_path / "there" / "a", SPEC)
    assert here.salt != there.salt
    assert here.content != there.content
    assert here.fingerprint == there.fingerprint
    assert here.manifest.settings == there.manifest.settings
    files = here.manifest.files
    others = there.manifest.files
    assert [part for part in files if files[part] != others[part]] == ["features"]


@pytest.mark.parametrize(
    "changed", [{"features": "random"}, {"dtype": "float16"}, {"seed": 1}]
)
def test_other_settings_of_features_are_another_workload(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    made = make_dataset(tmp_path / "a", SPEC, salt=ONE)
    other = make_dataset(tmp_path / "b", replace(SPEC, **changed), salt=ONE)
    assert other.fingerprint != made.fingerprint


def test_an_expansion_of_a_salted_base_is_one_workload_for_every_salt(
    tmp_path: Path,
) -> None:
    expansion = replace(SPEC, base="base", nodes=0, edges=0, classes=0, expand=2)
    made = []
    for salt in (ONE, TWO):
        root = tmp_path / salt.digest
        make_dataset(root / "base", SPEC, salt=salt)
        made.append(
            make_dataset(root / "expanded", expansion, data_root=root, salt=salt)
        )
    assert made[0].fingerprint == made[1].fingerprint
    assert made[0].content != made[1].content


@pytest.mark.parametrize("features", ["learnable", "random"])
def test_a_row_needs_the_salt(tmp_path: Path, features: str) -> None:
    dataset = make_dataset(tmp_path / "a", replace(SPEC, features=features), salt=ONE)
    labels = dataset.load("labels")
    table = dataset.load("features")

    def rows(salt: Salt | None) -> npt.NDArray[Any]:
        if features == "random":
            source = FeatureSource.random(len(labels), 6, salt=salt)
        else:
            source = FeatureSource.of_classes(labels, 3, 6, salt=salt)
        return source.rows(np.arange(len(labels)))

    np.testing.assert_array_equal(rows(ONE), table)
    for other in (None, TWO):
        equal = rows(other) == table
        assert not equal.all(axis=1).any()


def test_an_import_of_given_features_has_no_salt(tmp_path: Path) -> None:
    arrays = {
        "edge_index": np.array([[0, 1], [1, 2]]),
        "x": np.ones((3, 2)),
        "y": np.array([0, 1, 1]),
    }
    np.savez(tmp_path / "g.npz", **arrays, train_mask=np.ones(3, bool))
    dataset = import_dataset(
        tmp_path / "g.npz", tmp_path / "data" / "g", ImportSpec("pyg")
    )
    assert dataset.salt == ""
    assert dataset.fingerprint == dataset.content
    assert not (tmp_path / "data" / FOLDER).exists()


def test_features_generated_for_an_import_are_salted_and_a_given_salt_is_not_kept(
    tmp_path: Path,
) -> None:
    source = edge_list(tmp_path / "edges.txt")
    one = import_dataset(
        source, tmp_path / "data" / "one", ImportSpec("snap"), salt=ONE
    )
    two = import_dataset(
        source, tmp_path / "data" / "two", ImportSpec("snap"), salt=TWO
    )
    assert (one.salt, two.salt) == (ONE.digest, TWO.digest)
    assert one.fingerprint == two.fingerprint
    assert one.content != two.content
    assert not (tmp_path / "data" / FOLDER).exists()


def test_the_name_of_a_source_is_no_part_of_the_workload(tmp_path: Path) -> None:
    one = import_dataset(
        edge_list(tmp_path / "a.txt"), tmp_path / "one", ImportSpec("snap")
    )
    two = import_dataset(
        edge_list(tmp_path / "b.txt"), tmp_path / "two", ImportSpec("snap")
    )
    assert one.fingerprint == two.fingerprint


def test_an_older_dataset_without_a_salt_keeps_its_fingerprint(tmp_path: Path) -> None:
    manifest = make_dataset(tmp_path / "a", SPEC).path / "dataset.json"
    raw = json.loads(manifest.read_text())
    del raw["recipe"]["salt"]
    manifest.write_text(json.dumps(raw))
    older = Dataset.open(tmp_path / "a")
    assert older.salt == "none"
    assert older.fingerprint == older.content
    assert older.verify() == []


def test_a_salt_is_readable_by_its_owner_alone_and_no_text_shows_it(
    tmp_path: Path,
) -> None:
    dataset = make_dataset(tmp_path / "a", SPEC)
    file = kept_in(tmp_path)
    secret = file.read_text().strip()
    assert len(secret) == 64
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert secret not in (dataset.path / "dataset.json").read_text()
    assert secret not in repr(Salt.given(secret))
    assert Salt.given(secret) == Salt.given(str(file))


def test_makers_at_one_time_use_one_salt(tmp_path: Path) -> None:
    found: list[Salt] = []
    threads = [
        threading.Thread(target=lambda: found.append(Salt.of_root(tmp_path)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    "content", ["", "secret words", "ab" * 15, "ab" * 65, "é" * 32]
)
def test_a_text_or_file_without_a_salt_is_refused_and_not_shown(
    tmp_path: Path, content: str
) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    with pytest.raises(
        InputError,
        match="the file of --salt holds no salt; give 32 to 128 hexadecimal digits",
    ):
        Salt.given(str(file))
    with pytest.raises(
        InputError, match=r"--salt is no salt and no readable file: .*; "
    ):
        Salt.given(f"{content}!")
    kept_in(tmp_path).parent.mkdir()
    kept_in(tmp_path).write_text(content)
    with pytest.raises(DatasetError, match="holds no salt; remove it"):
        make_dataset(tmp_path / "a", SPEC)
    assert not (tmp_path / "a").exists()
