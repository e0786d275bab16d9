"""Exit codes of the gate in processes of their own: 1 means regressed, and nothing
else does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import FAULT
from harness.results.store import write_run
from tests.harness.regress.git_made import commit, git, repository
from tests.harness.regress.samples_made import session
from tests.harness.run_tools import command, environment

POSIX = {"LC_ALL": "POSIX"}
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN = {"PYTHONIOENCODING": "latin-1"}


# Other terminals and readers of the same decisions.
LIKE = pytest.mark.slow("harness/regress", "harness/cli", seconds=10)
DECISIONS = [("same", 0), pytest.param("slow", 1, marks=LIKE)]
TERMINALS = [POSIX, pytest.param(ASCII, marks=LIKE), pytest.param(LATIN, marks=LIKE)]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make results roots of a base, of the same again, and of one that is slower."""
    root = tmp_path_factory.mktemp("exit")
    for name, epoch, seed in (("base", 1.0, 1), ("same", 1.0, 2), ("slow", 1.2, 3)):
        for number, run in enumerate(session(6, epoch=epoch, seed=seed)):
            run.run_id = f"20260101-{number:06d}-000-diskgnn-r0"
            write_run(root / name, run, {})
    return root


def _compare(roots: Path, name: str, *more: str, **how: object):
    words = command("regress", "compare", "--base", str(roots / "base"), *more)
    given = {"capture_output": True, **how}
    around = environment(roots / "data", roots / name)
    given["env"] = around | dict(given.pop("variables", {}))  # type: ignore[call-overload]
    return subprocess.run(words, check=False, cwd=roots, **given)  # type: ignore[call-overload]


@pytest.mark.parametrize(("name", "code"), DECISIONS)
@pytest.mark.parametrize("terminal", TERMINALS, ids=str)
def test_a_terminal_of_any_encoding_shows_the_decision(
    roots: Path, name: str, code: int, terminal: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "out.md"
    done = _compare(roots, name, "-o", f"markdown={file}", variables=terminal)
    assert done.returncode == code, done.stderr
    assert b"decision: " in done.stdout
    assert b"Traceback" not in done.stderr
    assert "\u2717 regressed" in file.read_text("utf-8") or code == 0


@pytest.mark.parametrize(("name", "code"), DECISIONS)
@pytest.mark.parametrize("more", [(), pytest.param(("--json",), marks=LIKE)], ids=str)
def test_a_reader_that_leaves_changes_no_decision(
    roots: Path, name: str, code: int, more: tuple[str, ...], tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    file = tmp_path / "out.json"
    streams = {"capture_output": False, "stdout": writer, "stderr": subprocess.PIPE}
    done = _compare(roots, name, "-o", f"json={file}", *more, **streams)
    os.close(writer)
    assert done.returncode == code
    assert b"not all was printed" in done.stderr
    assert json.loads(file.read_text())["decision"] in ("same", "regressed")


@pytest.mark.parametrize(("name", "code"), DECISIONS)
def test_a_full_device_for_the_output_changes_no_decision(
    roots: Path, name: str, code: int
) -> None:
    with open("/dev/full", "wb") as full:
        streams = {"capture_output": False, "stdout": full, "stderr": subprocess.PIPE}
        done = _compare(roots, name, **streams)
    assert done.returncode == code
    assert b"not all was printed" in done.stderr


def test_an_output_that_cannot_be_written_costs_neither_the_decision_nor_the_others(
    roots: Path, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    kept = tmp_path / "kept.json"
    outputs = ("-o", f"markdown={blocked}/out.md", "-o", f"json={kept}")
    regressed = _compare(roots, "slow", *outputs)
    assert regressed.returncode == 1
    assert b"decision: regressed" in regressed.stdout
    assert str(blocked).encode() in regressed.stderr
    assert json.loads(kept.read_text())["decision"] == "regressed"
    same = _compare(roots, "same", *outputs)
    assert same.returncode == 2
    assert b"decision: " in same.stdout


def test_a_fault_ends_with_its_own_code_after_the_decision_was_written(
    roots: Path, tmp_path: Path
) -> None:
    file = tmp_path / "out.json"
    broken = (
        "import harness.cli.regress as verbs; from harness.cli import main; "
        "verbs.print_comparison = lambda found: found.nothing; main()"
    )
    words = ["regress", "compare", "--base", str(roots / "base"), "-o", f"json={file}"]
    done = subprocess.run(
        [sys.executable, "-c", broken, *words],
        capture_output=True,
        env=environment(roots / "data", roots / "slow"),
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert done.returncode == FAULT
    assert b"AttributeError" in done.stderr
    assert json.loads(file.read_text())["decision"] == "regressed"


def test_wrong_input_has_its_code(roots: Path) -> None:
    assert _compare(roots, "nothing").returncode == 2
    assert _compare(roots, "same", "-o", "pdf=x").returncode == 2


@pytest.mark.parametrize(
    "terminal", [pytest.param({}, marks=LIKE), *TERMINALS], ids=str
)
def test_a_subject_that_is_not_utf8_is_kept_with_a_replacement(
    tmp_path: Path, terminal: dict[str, str]
) -> None:
    folder = repository(tmp_path / "r")
    (tmp_path / "message").write_bytes(b"gr\xf6\xdfer \xd7")
    git(folder, "commit", "-q", "--allow-empty", "-F", str(tmp_path / "message"))
    head = git(folder, "rev-parse", "HEAD")
    for number, run in enumerate(session(1, commit=head)):
        run.run_id = f"20260101-{number:06d}-000-diskgnn-r0"
        write_run(tmp_path / "results", run, {})
    around = environment(tmp_path / "data", tmp_path / "results") | terminal
    words = command("regress", "record", "--repository", str(folder))
    done = subprocess.run(words, capture_output=True, env=around, check=False)
    assert done.returncode == 0, done.stderr
    (entry,) = (tmp_path / "results" / "baselines").rglob("*.json")
    subject = json.loads(entry.read_text())["subject"]
    assert subject.startswith("gr")
    assert subject.isprintable()


def test_commits_between_two_are_listed_newest_first(tmp_path: Path) -> None:
    from harness.regress.git import Repository

    folder = repository(tmp_path / "r")
    base = git(folder, "rev-parse", "HEAD")
    later = [commit(folder, f"change {number}") for number in range(3)]
    assert Repository(folder).between(base, "HEAD") == later[::-1]
