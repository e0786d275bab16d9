"""The process of one host executes orders without a cluster: identity, datasets, runs,
systems of the driver's folder, and faults in a sentence."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.hosts.collect import collect
from harness.hosts.modules import read_modules, write_modules
from harness.hosts.node import Node
from harness.hosts.orders import Content, Order
from harness.plan.experiment import PlannedRun
from harness.records.code import code_of
from harness.results.store import run_folders
from harness.settings import RunSettings
from tests.harness.run_tools import (
    MISBEHAVING,
    REPOSITORY,
    SETTINGS,
    share_cache,
    workers_of,
)
from tests.support import make_tiny
from workloads.errors import InputError

# A system of a user, in two files.
MINE = """
from helper import Base

class Mine(Base):
    pass

SYSTEM = Mine
"""
HELPER = """
from systems.in_memory import SYSTEM

class Base(SYSTEM):
    info = SYSTEM.info
"""
Start = Callable[[dict[str, Any]], Node]


def experiment(system: Any = "in-memory", **run: Any) -> dict[str, Any]:
    return {
        "name": "node",
        "run": {**SETTINGS, "memory": "none", **run},
        "systems": [system],
        "rounds": 1,
    }


@pytest.fixture
def start(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Start]:
    """Return a function that starts a host's process with a content."""
    make_tiny(tmp_path / "data" / "tiny", nodes=20_000, edges=100_000, dim=64)
    share_cache(tmp_path / "results", tmp_path_factory)
    monkeypatch.setenv("OUTCORE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("OUTCORE_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made: list[Node] = []

    def begin(content: dict[str, Any]) -> Node:
        node = Node(Content.model_validate(content).model_dump_json(), "alpha")
        made.append(node)
        return node

    yield begin
    for node in made:
        node._process.kill()
        node._process.wait()


def perform(
    node: Node, task: str, number: int = -1, *, shared: bool = False
) -> dict[str, Any]:
    content = {"task": task, "number": number, "shared": shared}
    order = Order.model_validate(content)
    return node.perform(order.model_dump_json())


@pytest.mark.slow("harness/hosts", "harness/run/sweep.py", seconds=40)
def test_a_host_reports_itself_and_returns_a_run_that_can_be_collected(
    start: Start, tmp_path: Path
) -> None:
    node = start({"experiments": [experiment()]})
    greeting = perform(node, "greet")
    assert greeting["environment"]["host_label"] == "alpha"
    expected = code_of("in-memory", "neighbor").model_dump(mode="json")
    assert greeting["codes"] == {"in-memory neighbor": expected}
    assert len(perform(node, "prepare")["configs"]) == 1
    answer = perform(node, "run", 0)
    record = collect(answer["archive"], tmp_path / "collected")
    assert record.status == "ok"
    assert record.environment["host_label"] == "alpha"
    assert record.environment["host_fingerprint"][:6] in record.run_id
    # The next order of the run has the same record.
    again = collect(perform(node, "run", 0)["archive"], tmp_path / "collected")
    if record.verdict != "SPOILT":
        assert again.run_id == record.run_id
    # The process runs without the variables and the priority of Ray's workers.
    pid = node._process.pid
    around = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"OMP_NUM_THREADS" not in around
    assert node.busy_s() == 0.0


@pytest.mark.slow("harness/hosts", "harness/run/sweep.py", seconds=60)
def test_runs_of_a_host_share_a_series_unless_it_shares_its_machine(
    start: Start, tmp_path: Path
) -> None:
    twice = {**experiment(), "rounds": 3}
    node = start({"experiments": [twice]})

    def holders() -> set[int]:
        return set(workers_of(tmp_path / "data")) - {node._process.pid}

    perform(node, "run", 0)
    first = holders()
    assert len(first) == 1
    perform(node, "run", 1)
    assert holders() == first
    perform(node, "run", 2, shared=True)
    assert holders() == set()


def test_a_system_of_the_current_folder_is_sent_along(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    (folder / "helper.py").write_text(HELPER)
    (folder / "other.py").write_text("raise SystemExit\n")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    modules = read_modules([PlannedRun("mine", RunSettings())])
    assert modules == {"mine.py": MINE, "helper.py": HELPER}
    expected = code_of("mine", "neighbor").model_dump(mode="json")
    monkeypatch.chdir(tmp_path)
    without = perform(start({"experiments": [experiment("mine")]}), "greet")
    assert "there is no system 'mine'" in without["error"]
    assert "install" in without["fix"]
    content = {"experiments": [experiment("mine")], "modules": modules}
    greeting = perform(start(content), "greet")
    assert greeting["codes"] == {"mine neighbor": expected}


def test_a_module_cannot_be_written_out_of_its_folder(tmp_path: Path) -> None:
    for name in ("../mine.py", "/tmp/mine.py"):
        with pytest.raises(InputError, match="leads out"):
            write_modules({name: ""}, tmp_path)


def test_a_host_without_a_package_reports_it_with_the_fix(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = tmp_path / "stub"
    stub.mkdir()
    missing = "raise ModuleNotFoundError(\"No module named 'pandas'\")\n"
    (stub / "pandas.py").write_text(missing)
    monkeypatch.setenv("PYTHONPATH", f"{stub}:{REPOSITORY}")
    answer = perform(start({"experiments": [experiment()]}), "greet")
    assert "No module named 'pandas'" in answer["error"]
    assert answer["fix"].startswith("pip install 'outcore[hosts]' there")


@pytest.mark.slow("harness/hosts", seconds=40)
def test_a_process_killed_in_a_run_is_reported_and_leaves_nothing(
    start: Start, tmp_path: Path
) -> None:
    slow = {"name": MISBEHAVING, "options": {"extract_seconds": 5.0}}
    node = start({"experiments": [experiment(slow)]})
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(perform(node, "run", 0)))
    thread.start()
    end = time.monotonic() + 300
    while not _trains(tmp_path / "data") and time.monotonic() < end:
        time.sleep(0.1)
    assert node.busy_s() > 0.0
    os.kill(node._process.pid, signal.SIGKILL)
    thread.join(60)
    assert "run ended with exit code -9" in answers[0]["error"]
    start({"experiments": [experiment()]}).perform(json.dumps({"task": "greet"}))
    left = list((tmp_path / "results").glob(".order.outcore-tmp-*"))
    assert len(left) == 1, "the next process removes what a killed one left"
    assert run_folders(tmp_path / "results") == []


def _trains(data: Path) -> bool:
    for pid in workers_of(data, holders=False):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"harness.worker.main" in line:
            return True
    return False
