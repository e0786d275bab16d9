"""examples/train.py reaches the accuracy of training in memory, in a process capped at
a quarter of the features."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.isolation import Cap, Limits
from systems.engine.io.memory import evict
from tests.harness.cap_tools import CAPPING, MIB, needs_cap, on_disk
from tests.support import make_tiny
from workloads.dataset import PARTS, Dataset
from workloads.making.make import MakeSpec, make_dataset

REPOSITORY = Path(__file__).parents[2]
REAL = REPOSITORY.parent / "shared" / "data" / "labelled" / "amazon-computers.npz"
SETTINGS = ["--epochs", "4", "--batch-size", "100"]

pytestmark = needs_cap


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    yield from on_disk()


@pytest.fixture(scope="module")
def shop(disk: Path) -> Dataset:
    """Make a dataset with 215 MiB of features: a real labelled graph expanded
    eightfold, else a generated one."""
    shape = (
        {"kind": "kronecker", "base": str(REAL), "expand": 8}
        if REAL.is_file()
        else {"kind": "rmat", "nodes": 110_000, "edges": 1_500_000}
    )
    return make_dataset(
        disk / "shop", MakeSpec(**shape, dim=512, fractions=(0.04, 0.01, 0.04))
    )


def run(
    cap: Cap, dataset: Dataset, *arguments: str
) -> subprocess.CompletedProcess[str]:
    for part in PARTS:
        evict(
            dataset.file(part)
        )  # resident pages are charged to another process, so they would be free
    command = [
        sys.executable,
        "examples/train.py",
        str(dataset.path),
        *SETTINGS,
        *arguments,
    ]
    return subprocess.run(
        cap.command(command),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def trained(cap: Cap, dataset: Dataset, *arguments: str) -> dict[str, Any]:
    done = run(cap, dataset, *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_cap(name: str, memory_bytes: int | None = None) -> Cap:
    return CAPPING[0]().create(
        f"loader-{name}-{os.getpid()}", Limits(memory_bytes=memory_bytes)
    )


@pytest.fixture(scope="module")
def floor(disk: Path) -> int:
    """Measure the bytes of interpreter, torch, model and optimiser with almost no
    data."""
    tiny = make_tiny(disk / "tiny", nodes=300, edges=1000, dim=512, seed=11)
    with make_cap("floor") as cap:
        trained(cap, tiny, "--memory", "none")
        return cap.memory().peak


@pytest.fixture(scope="module")
def in_memory(shop: Dataset) -> dict[str, Any]:
    with make_cap("free") as cap:
        return trained(cap, shop, "--system", "in-memory", "--memory", "none")


@pytest.mark.slow(
    "systems/loading",
    "systems/gnndrive",
    "examples",
    "workloads/training.py",
    seconds=60,
)
def test_training_from_disk_in_a_quarter_of_the_features_reaches_the_accuracy_of_memory(
    shop: Dataset, floor: int, in_memory: dict[str, Any]
) -> None:
    labels = shop.load("labels")
    majority = np.bincount(labels[labels >= 0]).max() / len(labels)
    with make_cap("gnndrive", floor + shop.feature_bytes // 4) as cap:
        found = trained(
            cap, shop, "--system", "gnndrive", "--memory", "44MiB", "-o", "extractors=2"
        )
        assert cap.memory().oom_kills == 0
    assert in_memory["test"] > majority + 0.2
    assert abs(found["test"] - in_memory["test"]) <= 0.005
    for ours, wanted in zip(found["curve"], in_memory["curve"], strict=True):
        # The same mini-batches in the same order: the curves differ by rounding only.
        assert ours["loss"] == pytest.approx(wanted["loss"], rel=1e-3)
        assert ours["accuracy"] == pytest.approx(wanted["accuracy"], abs=0.002)


@pytest.mark.slow("systems/loading", "examples")
def test_the_cap_is_real_and_in_memory_training_ends_in_it(
    shop: Dataset, floor: int
) -> None:
    with make_cap("in-memory", floor + shop.feature_bytes // 4) as cap:
        assert (
            run(cap, shop, "--system", "in-memory", "--memory", "none").returncode < 0
        )
        assert cap.memory().oom_kills > 0


@pytest.mark.slow("outcore", "systems/loading", "systems/engine", seconds=10)
def test_the_loader_refuses_before_the_kernel_kills(shop: Dataset) -> None:
    with make_cap("refused") as cap:
        done = run(cap, shop, "--system", "in-memory", "--memory", "0.25x")
        assert cap.memory().peak < shop.feature_bytes + 300 * MIB
    assert done.returncode == 2
    assert done.stderr.startswith("error: in-memory: features needs")
