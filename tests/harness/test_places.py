"""Scratch files and artefacts can be put elsewhere than under the data root, which may
then be read-only."""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.doctor import diagnose
from harness.run.places import Places
from harness.run.series import Series
from tests.harness.cap_tools import needs_root, on_disk
from tests.harness.run_tools import outcore_here
from tests.support import make_tiny
from workloads.direct_files import io_failed
from workloads.errors import InputError


@pytest.fixture()
def read_only() -> Iterator[Path]:
    """Yield a data root with a dataset, on a file system that is mounted read-only."""
    for folder in on_disk():
        root = folder / "data"
        make_tiny(root / "tiny")
        Places.below(root).scratch_folder()
        subprocess.run(["mount", "--bind", str(root), str(root)], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(root)], check=True)
            yield root
        finally:
            subprocess.run(["umount", str(root)], check=True)


RUN = (
    "gnndrive --dataset tiny --fanout 3,3 --batch-size 40 --max-batches 2 --epochs 2 "
    "--hidden 8 --memory none --device-memory 1MiB"
)


@needs_root
def test_a_read_only_data_root_is_refused_with_the_option_that_helps(
    read_only: Path, tmp_path: Path
) -> None:
    done = outcore_here(
        "run",
        *RUN.split(),
        "--device",
        "emulated:null",
        data=read_only,
        results=tmp_path / "r",
    )
    assert done.returncode == 2
    assert "Read-only file system" in done.stderr
    assert "--scratch" in done.stderr
    assert "free some space" not in done.stderr
    (found,) = [finding for finding in diagnose(read_only) if finding.name == "folders"]
    assert found.status == "missing"
    assert "--scratch" in found.fix


@needs_root
def test_runs_read_datasets_of_a_read_only_data_root(
    read_only: Path, tmp_path: Path
) -> None:
    folders = [read_only.parent / name for name in ("scratch", "artefacts")]
    places = ["--scratch", str(folders[0]), "--artefacts", str(folders[1]), "--json"]
    asked = [*RUN.split(), "--device", "emulated:null", *places]
    done = outcore_here("run", *asked, data=read_only, results=tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "ok"
    assert folders[0].is_dir()
    assert not list(folders[0].iterdir())
    assert (folders[1] / "gnndrive").is_dir()
    (found,) = [
        f
        for f in diagnose(read_only, Places.of(read_only, *folders))
        if f.name == "folders"
    ]
    assert found.status == "ok"


def test_environment_variables_name_the_folders_and_options_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Places.of(tmp_path) == Places.below(tmp_path)
    monkeypatch.setenv("OUTCORE_SCRATCH", str(tmp_path / "s"))
    monkeypatch.setenv("OUTCORE_ARTEFACTS", str(tmp_path / "a"))
    assert Places.of(tmp_path) == Places(tmp_path / "s", tmp_path / "a")
    assert Places.of(tmp_path, artefacts=tmp_path / "b") == Places(
        tmp_path / "s", tmp_path / "b"
    )
    with Series(
        tmp_path / "r", tmp_path / "d", isolation="none", places=Places.of(tmp_path)
    ) as series:
        assert series.artefacts("pkg:System") == tmp_path / "a" / "pkg-System"
        with series.scratch() as folder:
            assert folder.parent == tmp_path / "s"


def test_a_folder_that_cannot_be_made_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        InputError, match=r"artefacts cannot be written to .*file.*--artefacts"
    ):
        Places.of(tmp_path, artefacts=tmp_path / "file").artefacts_of("ginex")


def test_a_full_disk_is_no_full_results_folder(tmp_path: Path) -> None:
    error = io_failed(tmp_path / "packed", 4096, errno.ENOSPC, writing=True)
    assert "results" not in str(error)
    assert "free some space there" in error.fix
