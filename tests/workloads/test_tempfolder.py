"""Temporary folders: nested, removed after a kill, never another writer's."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.support import make_tiny
from workloads.exporters import export_dataset
from workloads.tempfolder import TemporaryFolder, into_place


@pytest.mark.timeout(60)
def test_datasets_and_exports_are_made_in_a_temporary_folder(tmp_path: Path) -> None:
    with TemporaryFolder(tmp_path, "outer") as outer:
        dataset = make_tiny(outer / "graph", nodes=100, edges=300)
        assert export_dataset(dataset, outer / "out", "dgl").path.is_dir()
        with TemporaryFolder(outer, "inner") as inner:
            assert inner.parent == outer
        assert sorted(path.name for path in outer.iterdir()) == ["graph", "out"]
    assert list(tmp_path.iterdir()) == []


def _lives(root: Path, count: int) -> int:
    lived = 0
    for number in range(count):
        with TemporaryFolder(root, "made") as folder:
            (folder / "file").write_text(str(number))
            lived += (folder / "file").read_text() == str(number)
    return lived


@pytest.mark.timeout(60)
def test_no_writer_takes_anothers_new_folder_for_stale(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as pool:
        lived = [pool.submit(_lives, tmp_path, 200) for _ in range(4)]
        assert [one.result() for one in lived] == [200] * 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "a folder", "a file"])
def test_a_finished_folder_takes_nobodys_place(tmp_path: Path, there: str) -> None:
    folder = tmp_path / "folder"
    target = tmp_path / "target"
    folder.mkdir()
    (folder / "new").touch()
    if there == "a file":
        target.write_text("kept")
    elif there != "nothing":
        target.mkdir()
        if there == "a folder":
            (target / "kept").touch()
    placed = into_place(folder, target)
    assert placed == (there in ("nothing", "an empty folder"))
    assert (target / "new").exists() == placed
    assert folder.exists() != placed
    assert there != "a file" or target.read_text() == "kept"
