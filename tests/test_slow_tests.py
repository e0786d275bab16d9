"""Slow tests are run where their sources are touched, so the sources that they name must exist."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

from tests.conftest import ROOT, concerns


def named_sources(test: Path) -> list[str]:
    """Return the texts that a test file passes to `pytest.mark.slow`."""
    calls = [node for node in ast.walk(ast.parse(test.read_text())) if isinstance(node, ast.Call)]
    slow = [call for call in calls if ast.unparse(call.func) == "pytest.mark.slow"]
    return [text.value for call in slow for text in call.args if isinstance(text, ast.Constant)]


def test_sources_of_slow_tests_exist() -> None:
    named = {test: named_sources(test) for test in (ROOT / "tests").rglob("test_*.py")}
    assert sum(map(bool, named.values())) >= 5
    gone = [f"{test.name}: {name}" for test, names in named.items() for name in names if not (ROOT / name).exists()]
    assert gone == []


def test_a_slow_test_concerns_its_own_file_and_what_lies_at_its_sources() -> None:
    item = SimpleNamespace(path=ROOT / "tests" / "test_x.py")
    for file, ours in {
        "harness/ssd/fio.py": True,
        "harness/ssd.py": False,
        "tests/test_x.py": True,
        "x.py": False,
    }.items():
        assert concerns(("harness/ssd",), item, [file]) is ours, file  # type: ignore[arg-type]


def test_touched_files_are_those_of_the_last_day_of_a_base_and_of_the_working_tree(tmp_path: Path) -> None:
    def git(*arguments: str, when: str = "2026-01-10T12:00:00") -> None:
        who = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in {"NAME": "a", "EMAIL": "a@b", "DATE": when}.items()
        }
        subprocess.run(["git", *arguments], cwd=tmp_path, env={**os.environ, **who}, check=True, capture_output=True)

    def touched(**more: str) -> set[str]:
        done = subprocess.run(
            [tmp_path / "scripts" / "touched"], env={**os.environ, **more}, check=True, capture_output=True, text=True
        )
        return set(done.stdout.split())

    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "touched"
    script.write_bytes((ROOT / "scripts" / "touched").read_bytes())
    script.chmod(0o755)
    (tmp_path / "before").touch()
    assert touched(GIT_CEILING_DIRECTORIES=str(tmp_path.parent)) == {"scripts/touched", "before"}, "no repository"
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
