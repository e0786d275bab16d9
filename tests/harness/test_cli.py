"""The command: a mistake of input ends in one sentence, the fix and exit code 2; a bug
shows its traceback."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cli
from harness.cli.common import parse_options
from harness.records.environment import code
from harness.records.record import SCHEMA
from tests.harness.run_tools import (
    MISBEHAVING,
    REPOSITORY,
    command,
    environment,
    outcore,
    share_cache,
)
from tests.support import make_tiny
from workloads.errors import InputError


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("cli")
    make_tiny(root / "data" / "tiny")
    share_cache(root / "results", tmp_path_factory)
    return root / "data", root / "results"


@pytest.fixture
def own(
    roots: tuple[Path, Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Return the data root and a results root without runs."""
    share_cache(tmp_path / "results", tmp_path_factory)
    return roots[0], tmp_path / "results"


WRONG = [
    (["run", "gnn-drive", "--dataset", "tiny"], "did you mean 'gnndrive'"),
    (["run", "pyg+", "--dataset", "tinny"], "tinny"),
    (["run", "pyg+", "--dataset", "tiny", "--memory", "64M"], "not a unit of bytes"),
    (
        ["run", "pyg+", "--dataset", "tiny", "-o", "prefetchh=1"],
        "did you mean 'prefetch'",
    ),
    (
        ["run", "pyg+", "--dataset", "tiny", "-o", "prefetch"],
        "write it like -o key=value",
    ),
    (["run", "pyg+", "--dataset", "tiny", "-o", "prefetch=-1"], "prefetch"),
    (["run", "pyg+", "--dataset", "tiny", "--model", "sag"], "'sage'"),
    (["run", "pyg+", "--dataset", "tiny", "--fanout", "ten"], "fanout"),
    (["run", "pyg+", "--dataset", "tiny", "--batchsize", "9"], "--batchsize"),
    (["run", "pyg+"], "--dataset"),
    (["run", "no.such:System", "--dataset", "tiny"], "no module"),
    (
        ["run", "harness.records.record:Record", "--dataset", "tiny"],
        "not a System class",
    ),
    (["bench", "--profile", "quik"], "'quick'"),
    (["bench", "--profile", "smoke", "--figures", "gnndrive-fig88"], "gnndrive-fig8"),
    (["bench", "nothing.yaml"], "cannot be read"),
    (["run", "systems.interface:System", "--dataset", "tiny"], "has no `info`"),
    (["check", "systems.interface:System"], "has no `info`"),
    (["check", "gnndriv"], "did you mean 'gnndrive'"),
    (["check", "gnndrive", "-o", "extractor=2"], "extractors"),
    (["check", "nowhere:System"], "there is no module 'nowhere'"),
    (["systems", "systems.interface:System"], "has no `info`"),
    (["results", "show", "zzz"], "no run 'zzz'"),
    (["systems", "pyg"], "did you mean 'pyg+'"),
    (["rnu"], "rnu"),
]


@pytest.mark.parametrize(
    ("arguments", "part"), WRONG, ids=[" ".join(entry[0])[:50] for entry in WRONG]
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    part: str,
    roots: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTCORE_DATA", str(roots[0]))
    monkeypatch.setenv("OUTCORE_RESULTS", str(roots[1]))
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    message = capsys.readouterr()
    assert end.value.code == 2
    assert message.out == ""
    assert message.err.startswith("outcore: ")
    assert message.err.count("\n") == 1
    assert part in message.err
    with pytest.raises(SystemExit) as end:
        cli.main([*arguments, "--json"])
    message = capsys.readouterr()
    error = json.loads(message.out)["error"]
    assert end.value.code == 2
    assert set(error) == {"kind", "message", "fix"}
    assert error["fix"]


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("systems.registry.names", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["systems"])


@pytest.mark.parametrize(
    "arguments", ["results list", "results list --json", "data --help"], ids=str
)
def test_a_closed_pipe_ends_the_command_quietly(
    arguments: str, roots: tuple[Path, Path]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command(*arguments.split()),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(*roots),
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_the_version_names_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    message = capsys.readouterr().out
    commit = code()["commit"]
    assert end.value.code == 0
    assert message.startswith(f"outcore {importlib.metadata.version('outcore')}")
    assert commit is None or f"(commit {commit}" in message


@pytest.mark.parametrize(
    ("line", "found"), [("outcore res", "results"), ("outcore results sho", "show")]
)
def test_a_shell_completes_verbs(
    line: str, found: str, roots: tuple[Path, Path]
) -> None:
    asked = {
        "_OUTCORE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    done = subprocess.run(
        command(),
        env=environment(*roots) | asked,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert done.stdout.split() == [found]
    assert done.stderr == ""


def test_completion_is_installed_for_a_shell(
    roots: tuple[Path, Path], tmp_path: Path
) -> None:
    around = environment(*roots) | {"HOME": str(tmp_path), "SHELL": "/bin/bash"}
    # Typer looks for a shell among its parents; `exit` keeps this one from being
    # replaced by the command.
    line = f"{shlex.join(command('--install-completion', 'bash'))}; exit $?"
    done = subprocess.run(
        ["bash", "-c", line],
        env=around,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert "_OUTCORE_COMPLETE=complete_bash" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom harness import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'pandas', 'pyarrow', 'matplotlib', 'scipy') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    assert done.stdout.strip().endswith("[]")


@pytest.mark.slow("harness/worker", "harness/wire", "systems", "workloads", seconds=6)
def test_a_worker_imports_nothing_that_only_the_harness_needs() -> None:
    program = (
        "import sys, harness.worker.main, harness.wire.protocol, "
        "workloads.training, workloads.sampling.make\n"
        "import harness.worker.calibrate\nfrom systems.registry import load, names\n"
        "[load(name) for name in names()]\n"
        "print([m for m in ('pandas', 'pyarrow', 'matplotlib', 'typer', 'rich', "
        "'scipy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    assert done.stdout.strip() == "[]"


def test_systems_lists_all_of_them_with_their_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["systems", "--json"])
    assert end.value.code == 0
    listed = json.loads(capsys.readouterr().out)["systems"]
    assert {"in-memory", "pyg+", "gnndrive"} <= {entry["name"] for entry in listed}
    for entry in listed:
        assert {"name", "paper", "faithful", "devices", "options"} <= set(entry)
        assert all(option["description"] for option in entry["options"])


@pytest.mark.slow("harness/cli/run.py", "harness/run", "systems/registry.py")
def test_a_run_of_anyones_system_prints_its_record(own: tuple[Path, Path]) -> None:
    data, results = own
    arguments = [
        "run",
        MISBEHAVING,
        "--dataset",
        "tiny",
        "--fanout",
        "3,3",
        "--batch-size",
        "50",
        "--max-batches",
        "3",
        "--epochs",
        "2",
        "--hidden",
        "8",
        "-o",
        "extract_seconds=0.01",
    ]
    done = outcore(*arguments, "--json", data=data, results=results)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["schema"] == SCHEMA
    assert record["status"] == "ok"
    assert len(record["epochs"]) == 2
    options = {
        "behaviour": "good",
        "rank": -1,
        "prepare_seconds": 0.0,
        "extract_seconds": 0.01,
    }
    assert record["config"]["options"] == options
    shown = outcore("results", "show", "latest", "--json", data=data, results=results)
    assert json.loads(shown.stdout) == record
    listed = outcore("results", "list", "--json", data=data, results=results)
    assert [run["run_id"] for run in json.loads(listed.stdout)["runs"]] == [
        record["run_id"]
    ]
    compared = outcore(
        "results",
        "compare",
        "latest",
        record["run_id"],
        "--json",
        data=data,
        results=results,
    )
    assert [run["speedup"] for run in json.loads(compared.stdout)["runs"]] == [1.0, 1.0]
    exported = outcore("results", "export", data=data, results=results)
    header, row = exported.stdout.splitlines()
    assert "config.dataset.name" in header.split(",")
    assert record["run_id"] in row


@pytest.mark.slow("harness/cli/run.py", "harness/run/launch.py")
def test_a_failed_run_is_exit_code_1(own: tuple[Path, Path]) -> None:
    data, results = own
    done = outcore(
        "run",
        MISBEHAVING,
        "--dataset",
        "tiny",
        "--fanout",
        "3,3",
        "--batch-size",
        "50",
        "--max-batches",
        "3",
        "--epochs",
        "2",
        "--hidden",
        "8",
        "-o",
        "behaviour=sigkill",
        data=data,
        results=results,
    )
    assert done.returncode == 1
    assert "failed" in done.stdout
    assert "SIGKILL" in done.stdout


def test_option_values_read_as_yaml_would() -> None:
    read = parse_options(["a=1", "b=0.5", "c=true", "d=[1, 2]", "e=logical", "f=a=b"])
    assert read == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": [1, 2],
        "e": "logical",
        "f": "a=b",
    }
    with pytest.raises(InputError, match="has no value"):
        parse_options(["a"])
