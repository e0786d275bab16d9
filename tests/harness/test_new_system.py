"""`outcore new-system`, and systems outside the tree: those of installed packages and
of the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from systems import registry
from tests.harness.run_tools import REPOSITORY
from workloads.errors import InputError


def written(home: Path) -> Path:
    """Write a package for the system `hot+rows` and return its folder."""
    with pytest.raises(SystemExit) as ended:
        main(["new-system", "hot+rows", "--folder", str(home / "here" / "hot")])
    assert ended.value.code == 0
    return home / "here" / "hot"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forget the package's module after each test: a new system may not have the name
    of a module that is there."""
    yield
    sys.modules.pop("hot_plus_rows", None)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Package for tests that import it, which compiles its modules."""
    return written(tmp_path_factory.mktemp("new"))


def test_a_package_with_a_system_its_test_and_an_experiment_is_written(
    tmp_path: Path,
) -> None:
    package = written(tmp_path)
    files = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file()
    }
    assert files == {
        "pyproject.toml",
        "experiment.yaml",
        "hot_plus_rows/__init__.py",
        "tests/test_hot_plus_rows.py",
    }
    for path in files:
        text = (package / path).read_text()
        assert "hot+rows" in text
        assert "new" not in text.casefold()
    code = (package / "hot_plus_rows" / "__init__.py").read_text()
    assert "class HotPlusRows(outcore.PathSystem):" in code
    assert "systems.engine" not in code
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    assert list(package.parent.iterdir()) == [package]


def test_it_is_found_by_name_in_its_folder(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(package.parent)  # restores the path at the end
    monkeypatch.chdir(package)
    assert registry.load("hot+rows").info.name == "hot+rows"
    monkeypatch.chdir(package.parent)
    with pytest.raises(InputError, match=r"there is no system 'hot\+rows'"):
        registry.load("hot+rows")


def test_an_installed_one_is_found_by_its_entry_point_in_any_folder(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "site" / "outcore_hot-0.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: outcore-hot\nVersion: 0.1\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[outcore.systems]\nhot+rows = hot_plus_rows:HotPlusRows\n"
    )
    monkeypatch.chdir(tmp_path)
    for path in (package, tmp_path / "site"):
        monkeypatch.syspath_prepend(path)
    assert {"hot+rows", "in-memory"} <= set(registry.names())
    assert registry.load("hot+rows").info.name == "hot+rows"


@pytest.mark.slow(
    "harness/check", "outcore/template", "systems/interface.py", "systems/engine/io"
)
def test_the_systems_own_test_passes(package: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=package,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gnndrive",), "there is a system 'gnndrive' already"),
        (("Hot Rows",), "'Hot Rows' is no name of a system"),
        (("json",), "there is a Python module 'json' already"),
        (("class",), "there is a Python module 'class' already"),
        (("unheard-of", "--folder", "taken"), "taken exists already"),
        (("unheard-of", "--folder", "file/new"), "file/new cannot be written"),
    ],
)
def test_a_name_or_folder_that_cannot_be_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["new-system", *arguments])
    reported = capsys.readouterr().err
    assert (
        ended.value.code == 2 and message in reported and reported.count("\n") == 1
    ), reported
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]


def test_a_class_without_a_description_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"has no `info`; give it `info = outcore.SystemInfo"
    ):
        registry.load("systems.interface:System")
