"""Artefacts are listed with their last use and removed by age or size, never one that a
run uses or makes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from harness.results.gc import list_artefacts, remove_artefacts, stale
from harness.run.places import Places
from systems.engine.store import artefacts
from systems.engine.store.artefacts import Prepared, in_use, prepare, remove_unfinished


def make(nbytes: int) -> Callable[[Path], None]:
    return lambda folder: (folder / "rows").write_bytes(b"x" * nbytes) and None  # type: ignore[func-returns-value]


def root_of(data: Path, system: str = "diskgnn") -> Path:
    root = Places.below(data).artefacts / system
    root.mkdir(parents=True, exist_ok=True)
    return root


def aged(folder: Path, seconds: float) -> None:
    before = time.time() - seconds
    os.utime(folder / "artefact.json", (before, before))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Make three artefacts, last used 300, 200 and 100 seconds ago."""
    for number, system in enumerate(("diskgnn", "mariusgnn", "diskgnn")):
        aged(
            prepare(
                root_of(tmp_path, system), "packed", {"n": number}, make(100_000)
            ).path,
            300 - 100 * number,
        )
    return tmp_path


def test_artefacts_are_listed_by_last_use(data: Path) -> None:
    found = list_artefacts(Places.below(data).artefacts)
    assert [info.system for info in found] == ["diskgnn", "mariusgnn", "diskgnn"]
    assert all(100_000 <= info.bytes < 120_000 and info.complete for info in found)
    assert time.time() - found[0].last_used == pytest.approx(300, abs=10)
    again = prepare(root_of(data), "packed", {"n": 0}, make(1))
    assert again.reused
    last = list_artefacts(Places.below(data).artefacts)[-1]
    assert last.path == again.path and time.time() - last.last_used < 10, (
        "reuse updates the last use"
    )
    assert list_artefacts(data / "nowhere") == []


def test_what_was_left_beside_finished_artefacts_is_removed_unless_a_run_may_be_making_it(
    data: Path,
) -> None:
    root = root_of(data)
    finished = sorted(root.glob("packed-*"))
    (root / "mine.bin").write_bytes(b"x")
    (root / "half" / "made").mkdir(parents=True)
    (root / "elsewhere").symlink_to(data)
    with in_use(root):
        remove_unfinished(root)
        assert (root / "mine.bin").exists()
    remove_unfinished(root)
    assert (
        sorted(path for path in root.iterdir() if not path.name.startswith("."))
        == finished
    )
    assert data.exists()


def test_a_process_reports_what_it_took_over_from_an_earlier_one_and_not_what_it_made(
    data: Path,
) -> None:
    code = (
        "import sys; from pathlib import Path; from systems.engine.store.artefacts "
        "import prepare, reused\n"
        "root, make = Path(sys.argv[1]), lambda folder: None\n"
        "for n in (0, 1, 1): prepare(root, 'packed', {'n': n}, make)\n"
        "print([path.name for path in reused()], all(cost.seconds > 0 for cost in "
        "reused().values()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root_of(data))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (
        done.strip()
        == f"{[prepare(root_of(data), 'packed', {'n': 0}, make(1)).path.name]} True"
    )


def test_artefacts_are_reused_under_their_setting_and_by_their_code_alone(
    data: Path,
) -> None:
    def made(memory: str, code: str) -> Prepared:
        with mock.patch.dict(artefacts._UNDER):
            artefacts.work_under({"memory": memory}, code)
            return prepare(root_of(data), "packed", {"n": 0}, make(1))

    small = made("+64MiB", "a")
    large = made("+128MiB", "a")
    assert not (small.reused or large.reused)
    assert small.path != large.path
    assert made("+64MiB", "a").reused
    assert made("+128MiB", "a").reused
    other = made("+64MiB", "b")
    assert not other.reused and other.path == small.path, (
        "no folder of former code is left"
    )
    assert not made("+64MiB", "a").reused


def test_the_oldest_go_by_age_or_by_size(data: Path) -> None:
    found = list_artefacts(Places.below(data).artefacts)
    assert stale(found) == []
    assert stale(found, older_than_s=150) == found[:2]
    assert stale(found, keep_bytes=found[2].bytes) == found[:2]
    assert stale(found, keep_bytes=0) == found
    assert remove_artefacts(stale(found, older_than_s=150)) == found[:2]
    assert list_artefacts(Places.below(data).artefacts) == found[2:]
    assert not prepare(root_of(data), "packed", {"n": 0}, make(1)).reused
    assert prepare(root_of(data), "packed", {"n": 2}, make(1)).reused


def test_nothing_of_a_system_that_is_running_is_removed(data: Path) -> None:
    ready = os.pipe()
    done = os.pipe()
    pid = os.fork()
    if pid == 0:
        with in_use(root_of(data)):
            os.write(ready[1], b"x")
            os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    found = list_artefacts(Places.below(data).artefacts)
    assert [info.system for info in remove_artefacts(found)] == ["mariusgnn"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert len(remove_artefacts(found)) == 2, "a killed run uses nothing any more"
    assert list_artefacts(Places.below(data).artefacts) == []


def test_remains_of_a_killed_preparation_go_those_of_a_living_one_stay(
    tmp_path: Path,
) -> None:
    ready = os.pipe()

    def half(folder: Path) -> None:
        (folder / "rows").write_bytes(b"half")
        os.write(ready[1], b"x")
        time.sleep(60)

    pid = os.fork()
    if pid == 0:
        prepare(root_of(tmp_path), "packed", {"n": 0}, half)
        os._exit(0)
    os.read(ready[0], 1)
    partial = [path for path in root_of(tmp_path).iterdir() if path.is_dir()]
    assert list_artefacts(Places.below(tmp_path).artefacts) == [], "it is being made"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    found = list_artefacts(Places.below(tmp_path).artefacts)
    assert [info.path for info in found] == partial
    assert not found[0].complete
    assert remove_artefacts(stale(found)) == found
    assert not partial[0].exists()
