"""Slow tests run where their sources are touched, up to a budget; what is left out is
named."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT, above_budget, concerns

SETTINGS = "[pytest]\nmarkers =\n  slow(*sources, seconds=15): x\n  alone: x\n"


def named_sources(test: Path) -> list[str]:
    """Return the texts that a test file passes to `pytest.mark.slow`."""
    calls = [
        node
        for node in ast.walk(ast.parse(test.read_text()))
        if isinstance(node, ast.Call)
    ]
    slow = [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "slow"
    ]
    return [
        text.value
        for call in slow
        for text in call.args
        if isinstance(text, ast.Constant)
    ]


def test_sources_of_slow_tests_exist() -> None:
    named = {test: named_sources(test) for test in (ROOT / "tests").rglob("test_*.py")}
    assert sum(map(bool, named.values())) >= 5
    gone = [
        f"{test.name}: {name}"
        for test, names in named.items()
        for name in names
        if not (ROOT / name).exists()
    ]
    assert gone == []


def test_a_slow_test_concerns_its_own_file_and_what_lies_at_its_sources() -> None:
    item = SimpleNamespace(path=ROOT / "tests" / "test_x.py")
    for file, depth in {
        "harness/ssd/fio.py": 2,
        "harness/ssd.py": 0,
        "harness/run.py": 2,
        "harness/cli/run.py": 3,
        "tests/test_x.py": 99,
        "x.py": 0,
    }.items():
        places = ("harness/ssd", "harness/run.py", "harness/cli/run.py")
        assert concerns(places, item, [file]) == depth, file  # type: ignore[arg-type]
    assert (
        concerns(("harness", "harness/ssd"), item, ["harness/ssd/fio.py", "x.py"]) == 2
    )  # type: ignore[arg-type]


def test_a_budget_takes_the_most_specific_first_and_gives_each_of_the_rest_a_turn() -> (
    None
):
    costs = {
        "own": (99, 50.0),
        "long": (3, 200.0),
        **{f"test {number}": (2, 30.0) for number in range(6)},
    }
    assert above_budget(costs, 1000.0, "a") == []
    assert set(above_budget(costs, 0.0, "a")) == set(costs)
    turns = [
        set(costs) - set(above_budget(costs, 120.0, f"commit {number}"))
        for number in range(40)
    ]
    assert all(
        "own" in taken and "long" not in taken and len(taken) == 3 for taken in turns
    )
    assert set().union(*turns) == set(costs) - {"long"}
    assert above_budget({"long": (3, 200.0), "short": (2, 1.0)}, 120.0, "a") == [
        "short"
    ]
    assert above_budget(costs, 120.0, "a") == above_budget(
        dict(reversed(costs.items())), 120.0, "a"
    )


def small_suite(folder: Path) -> None:
    """Write all of a test suite but its tests: our conftest, markers and
    `scripts/test`."""
    for name in (
        "tests/conftest.py",
        "tests/support.py",
        "tests/__init__.py",
        "scripts/test",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "pytest.ini").write_text(SETTINGS)


@pytest.mark.parametrize(
    ("half", "outcome", "left_out"),
    [
        ("not alone", "2 passed, 1 skipped, 3 deselected", "long"),
        ("alone", "1 passed, 1 skipped, 4 deselected", "alone_"),
    ],
)
def test_slow_tests_above_the_budget_are_skipped_by_name_with_the_command_that_runs_them(
    tmp_path: Path, half: str, outcome: str, left_out: str
) -> None:
    """Run a small suite with our conftest and a change set of one file; `alone` tests
    have a fourth of the budget."""
    small_suite(tmp_path)
    (tmp_path / "scripts" / "touched").write_text("#!/bin/sh\necho harness/run.py\n")
    (tmp_path / "scripts" / "touched").chmod(0o755)
    marks = {
        "deep": '"harness/run.py", seconds=50',
        "flat": '"harness"',
        "other": '"systems"',
        "long": '"harness", seconds=90',
        "alone_a": '"harness", seconds=10',
        "alone_b": '"harness", seconds=10',
    }
    tests = [
        f"@pytest.mark.slow({mark})\n"
        f"{'@pytest.mark.alone' * name.startswith('alone')}\ndef test_{name}(): pass\n"
        for name, mark in marks.items()
    ]
    (tmp_path / "tests" / "test_some.py").write_text("import pytest\n" + "".join(tests))

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-ra",
            "-p",
            "no:cacheprovider",
            "--slow",
            "touched",
            "--slow-budget",
            "1.2",
            "-m",
            half,
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert outcome in done.stdout
    assert "test_other" not in done.stdout
    assert (
        f"run it: scripts/test --slow all 'tests/test_some.py::test_{left_out}"
        in done.stdout
    )


def test_a_test_is_marked_alone_in_its_own_file() -> None:
    """Files without these words are not imported for the tests that run alone."""
    marking = [
        path.name
        for path in (ROOT / "tests").rglob("*.py")
        if "mark.alone" in path.read_text()
    ]
    assert [name for name in marking if not name.startswith("test_")] == ["conftest.py"]


def test_touched_files_are_those_of_the_last_day_of_a_base_and_of_the_working_tree(
    tmp_path: Path,
) -> None:
    def git(*arguments: str, when: str = "2026-01-10T12:00:00") -> None:
        who = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in {"NAME": "a", "EMAIL": "a@b", "DATE": when}.items()
        }
        subprocess.run(
            ["git", *arguments],
            cwd=tmp_path,
            env={**os.environ, **who},
            check=True,
            capture_output=True,
        )

    def touched(**more: str) -> set[str]:
        done = subprocess.run(
            [tmp_path / "scripts" / "touched"],
            env={**os.environ, **more},
            check=True,
            capture_output=True,
            text=True,
        )
        return set(done.stdout.split())

    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "touched"
    script.write_bytes((ROOT / "scripts" / "touched").read_bytes())
    script.chmod(0o755)
    (tmp_path / "before").touch()
    assert touched(GIT_CEILING_DIRECTORIES=str(tmp_path.parent)) == {
        "scripts/touched",
        "before",
    }, "no repository"
    (tmp_path / "before").unlink()
    git("init", "-q")
    git("add", "scripts")
    for name, when in {
        "old": "2026-01-01T12:00:00",
        "yesterday": "2026-01-09T18:00:00",
        "last": "2026-01-10T12:00:00",
    }.items():
        (tmp_path / name).touch()
        git("add", name)
        git("commit", "-q", "-m", name, when=when)
    (tmp_path / "new").touch()
    assert touched() == {"yesterday", "last", "new"}
    assert touched(OUTCORE_CI_BASE="HEAD~1") == {"last", "new"}
    assert touched(OUTCORE_CI_BASE=40 * "0") == touched()
