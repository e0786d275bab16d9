"""Salt of generated features: equal salts give equal bytes, other salts the same workload, and no text reveals one."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from workloads.dataset import Dataset
from workloads.errors import DatasetError, InputError
from workloads.making.importing import ImportSpec, import_dataset
from workloads.making.make import MakeSpec, make_dataset
from workloads.making.node_data import FeatureSource
from workloads.making.salt import FOLDER, Salt

SPEC = MakeSpec("kronecker", nodes=3000, edges=20_000, dim=6, classes=3)
ONE, TWO = Salt(b"1" * 32), Salt(b"2" * 32)


def test_equal_salts_give_equal_bytes_in_any_data_root(tmp_path: Path) -> None:
    here = make_dataset(tmp_path / "here" / "a", SPEC)
    file = tmp_path / "here" / FOLDER / "salt"
    there = make_dataset(tmp_path / "there" / "b", SPEC, salt=Salt.given(str(file)))
    assert here.manifest.files == there.manifest.files and here.content == there.content
    assert here.salt == there.salt == Salt.of_root(tmp_path / "here").digest
    again = make_dataset(tmp_path / "here" / "c", SPEC)
    assert again.content == here.content, "a data root has one salt"


def test_each_data_root_draws_its_own_salt_and_the_workload_is_the_same(tmp_path: Path) -> None:
    here, there = (make_dataset(tmp_path / root / "a", SPEC) for root in ("here", "there"))
    assert here.salt != there.salt and here.content != there.content
    assert here.fingerprint == there.fingerprint
    differing = [part for part in here.manifest.parts if here.manifest.files[part] != there.manifest.files[part]]
    assert differing == ["features"]
    assert here.manifest.settings == there.manifest.settings


def test_other_settings_of_features_are_another_workload(tmp_path: Path) -> None:
    made = make_dataset(tmp_path / "a", SPEC, salt=ONE)
    for number, changed in enumerate(({"features": "random"}, {"dtype": "float16"}, {"seed": 1})):
        spec = MakeSpec(**{**SPEC.__dict__, **changed})
        assert make_dataset(tmp_path / f"{number}", spec, salt=ONE).fingerprint != made.fingerprint


@pytest.mark.parametrize("features", ["learnable", "random"])
def test_a_row_needs_the_salt(tmp_path: Path, features: str) -> None:
    spec = MakeSpec(**{**SPEC.__dict__, "features": features})
    table = make_dataset(tmp_path / "a", spec, salt=ONE).load("features")
    labels, ids = Dataset.open(tmp_path / "a").load("labels"), np.arange(3000)

    def rows(salt: Salt | None) -> np.ndarray:
        if features == "random":
            return FeatureSource.random(3000, 6, salt=salt).rows(ids)
        return FeatureSource.of_classes(labels, 3, 6, salt=salt).rows(ids)

    np.testing.assert_array_equal(rows(ONE), table)
    for other in (None, TWO):
        assert not (rows(other) == table).all(axis=1).any()


def test_an_import_is_salted_where_features_are_generated_alone(tmp_path: Path) -> None:
    source = tmp_path / "g.npz"
    graph = {"edge_index": np.array([[0, 1], [1, 2]]), "y": np.array([0, 1, 1]), "train_mask": np.ones(3, bool)}
    np.savez(source, **graph, x=np.ones((3, 2)))
    own = import_dataset(source, tmp_path / "own" / "g", ImportSpec("pyg"))
    assert own.salt == "" and own.fingerprint == own.content and not (tmp_path / "own" / FOLDER).exists()
    (tmp_path / "e.txt").write_text("0 1\n1 2\n")
    made = [
        import_dataset(tmp_path / "e.txt", tmp_path / "d" / f"{one.digest}", ImportSpec("snap"), salt=one)
        for one in (ONE, TWO)
    ]
    assert [one.salt for one in made] == [ONE.digest, TWO.digest]
    assert made[0].fingerprint == made[1].fingerprint and made[0].content != made[1].content
    assert not (tmp_path / "d" / FOLDER).exists(), "a given salt is not kept"


def test_a_name_of_a_source_is_no_part_of_the_workload(tmp_path: Path) -> None:
    made = []
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("0 1\n1 2\n")
        made.append(import_dataset(tmp_path / name, tmp_path / f"{name}-set", ImportSpec("snap")))
    assert made[0].fingerprint == made[1].fingerprint


def test_an_older_dataset_without_a_salt_keeps_its_fingerprint(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path / "a", SPEC).path
    raw = json.loads((folder / "dataset.json").read_text())
    del raw["recipe"]["salt"]
    (folder / "dataset.json").write_text(json.dumps(raw))
    older = Dataset.open(folder)
    assert older.salt == "none" and older.fingerprint == older.content and older.verify() == []


def test_a_salt_is_readable_by_its_owner_alone_and_no_text_shows_it(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "a", SPEC)
    file = tmp_path / FOLDER / "salt"
    secret = file.read_text().strip()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert len(secret) == 64 and secret not in (dataset.path / "dataset.json").read_text()
    assert secret not in repr(Salt.given(secret)) and Salt.given(secret) == Salt.given(str(file))


def test_makers_at_one_time_use_one_salt(tmp_path: Path) -> None:
    found: list[Salt] = []
    threads = [threading.Thread(target=lambda: found.append(Salt.of_root(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1


@pytest.mark.parametrize("content", ["", "secret words", "ab" * 15, "ab" * 65, "é" * 32])
def test_a_text_or_file_without_a_salt_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    with pytest.raises(InputError, match="the file of --salt holds no salt; give 32 to 128 hexadecimal digits"):
        Salt.given(str(file))
    with pytest.raises(InputError, match="--salt is no salt and no readable file"):
        Salt.given(f"{content}!")
    kept = tmp_path / FOLDER / "salt"
    kept.parent.mkdir()
    kept.write_text(content)
    with pytest.raises(DatasetError, match="holds no salt; remove it"):
        make_dataset(tmp_path / "a", SPEC)
    assert not (tmp_path / "a").exists()
