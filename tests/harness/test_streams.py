"""Printing never fails a command: any encoding, and closed or broken standard
streams."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.run_tools import command, environment
from tests.harness.test_golden_records import GOLDEN
from tests.support import make_tiny

PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
TERMINALS = [PLAIN, {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}]


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("streams")
    make_tiny(root / "data" / "tiny")
    shutil.copytree(GOLDEN, root / "results")
    return environment(root / "data", root / "results") | {"COLUMNS": "120"}


@pytest.mark.parametrize("words", ["results list", "results show a956b513-r0"])
@pytest.mark.parametrize("terminal", TERMINALS)
def test_a_terminal_without_our_characters_shows_others(
    words: str, terminal: dict[str, str], around: dict[str, str]
) -> None:
    done = subprocess.run(
        command(*words.split()), capture_output=True, env=around | terminal, check=False
    )
    usual = subprocess.run(
        command(*words.split()), capture_output=True, env=around, check=False
    )
    assert done.returncode == usual.returncode
    assert b"Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) == len(usual.stdout.splitlines())


def test_json_is_ascii_whatever_the_terminal(around: dict[str, str]) -> None:
    words = command("results", "show", "1e0c5b47-r0", "--json")
    found = [
        subprocess.run(
            words, capture_output=True, env=around | terminal, check=True
        ).stdout
        for terminal in ({}, *TERMINALS)
    ]
    assert all(
        json.loads(text.decode("ascii")) == json.loads(found[0]) for text in found
    )


def test_an_error_is_shown_by_a_terminal_without_its_characters(
    around: dict[str, str],
) -> None:
    words = command("run", "größe×", "--dataset", "tiny")
    done = subprocess.run(
        words,
        capture_output=True,
        env=around | {"PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 2
    assert b"gr??e?" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_exit_code_and_no_file(
    closed: str, around: dict[str, str], tmp_path: Path
) -> None:
    words = command(
        "data", "export", "tiny", "--format", "ginex", "--out", str(tmp_path / "closed")
    )
    done = subprocess.run(
        ["bash", "-c", f'"$@" {closed}', "-", *words],
        capture_output=True,
        env=around,
        check=False,
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    usual = command(
        "data", "export", "tiny", "--format", "ginex", "--out", str(tmp_path / "usual")
    )
    subprocess.run(usual, capture_output=True, env=around, check=True)
    found = {file.name: file.read_bytes() for file in (tmp_path / "closed").iterdir()}
    assert found == {
        file.name: file.read_bytes() for file in (tmp_path / "usual").iterdir()
    }


@pytest.mark.parametrize("stream", ["broken", "full"])
def test_text_that_is_left_for_a_stream_changes_no_exit_code(stream: str) -> None:
    code = (
        "import sys\nfrom harness.cli import main\nfrom harness.progress import "
        "Progress\n"
        "Progress().keep('a line')\nsys.stderr.write('without an "
        "end')\nmain(['rules', '9'])"
    )
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    stderr = {"broken": writer, "full": full}[stream]
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=buffered,
        check=False,
    )
    os.close(writer)
    os.close(full)
    assert done.returncode == 0
    assert b"rule 9" in done.stdout.lower()


def test_progress_that_nobody_reads_does_not_end_the_work(
    around: dict[str, str], tmp_path: Path
) -> None:
    words = command(
        "data", "import", "broken", str(tmp_path / "e.txt"), "--format", "snap"
    )
    (tmp_path / "e.txt").write_text("0 1\n1 2\n2 0\n")
    script = 'exec 2> >(exec true); sleep 0.3; "$@"'
    done = subprocess.run(
        ["bash", "-c", script, "-", *words],
        stdout=subprocess.PIPE,
        env=around,
        check=False,
    )
    assert done.returncode in (0, 128 + signal.SIGPIPE)
    assert (Path(around["OUTCORE_DATA"]) / "broken" / "dataset.json").is_file()
