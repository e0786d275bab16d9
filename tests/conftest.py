"""Fixtures shared by all test folders."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import make_tiny
from workloads.dataset import Dataset

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--slow`."""
    text = "tests marked slow: none, those whose sources were touched (scripts/touched), or all"
    parser.addoption("--slow", choices=("none", "touched", "all"), default="none", help=text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests that were not requested."""
    wanted = config.getoption("--slow")
    if wanted == "all":
        return
    files = touched() if wanted == "touched" else []
    left = [
        item for item in items if (mark := item.get_closest_marker("slow")) and not concerns(mark.args, item, files)
    ]
    config.hook.pytest_deselected(items=left)
    gone = set(left)
    items[:] = [item for item in items if item not in gone]


def touched() -> list[str]:
    """Return the files that the change set touches, relative to the repository."""
    done = subprocess.run([ROOT / "scripts" / "touched"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def concerns(places: tuple[str, ...], item: pytest.Item, files: list[str]) -> bool:
    """Return whether one of `files` is the test's own file or lies at one of `places` (files and folders)."""
    own = item.path.relative_to(ROOT).as_posix()
    return any(file == place or file.startswith(f"{place}/") for file in files for place in (own, *places))


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Make a dataset of 2,000 nodes, 20,000 edges and 16 float32 columns; read-only, shared by the session."""
    return make_tiny(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="module")
def engine_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lock the container engine: tests count its containers, and make and remove images under fixed names."""
    base = tmp_path_factory.getbasetemp()
    beside_others = "PYTEST_XDIST_WORKER" in os.environ
    with ((base.parent if beside_others else base) / "engine").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pytest_collection_finish() -> None:
    """Exclude the thousands of collected tests from later garbage collections."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter collect everything at its end; nanobind counts what is left then."""
    gc.unfreeze()
