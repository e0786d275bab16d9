"""GraphBolt, PyG's and DGL's own loaders, each in its environment: they keep what a
foreign system promises and learn.

Their environments take gigabytes, or minutes of compiling: `outcore systems setup NAME`
makes them. Without one, its tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.check.foreign import DRAWS, SIZES, check_foreign
from harness.foreign.environment import find
from harness.plan.experiment import PlannedRun, resolve
from harness.run.orchestrator import execute
from harness.run.series import Series
from harness.settings import RunSettings
from tests.harness.run_tools import left_behind, share_cache
from tests.support import make_tiny
from workloads.dataset import Dataset

PLACES = (
    "foreign",
    "outcore/foreign",
    "harness/foreign",
    "harness/check/foreign.py",
    "harness/check/draws.py",
)
SYSTEMS = ("graphbolt", "dgl", "pyg")
pytestmark = [pytest.mark.slow(*PLACES), pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    if missing := find(request.param).missing:
        pytest.skip(missing)
    return f"env:{request.param}"


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    root = tmp_path_factory.mktemp("foreign")
    make_tiny(root / "data" / "tiny", nodes=20_000, edges=200_000, dim=64)
    share_cache(root / "results", tmp_path_factory)
    with Series(root / "results", root / "data") as opened:
        yield opened


@pytest.mark.parametrize(
    "options", [{}, {"workers": 2, "madvise": "random"}], ids=["plain", "workers"]
)
def test_it_keeps_every_promise(
    system: str, options: dict[str, Any], tmp_path: Path
) -> None:
    if system == "env:graphbolt" and options:
        options = {**options, "prefetch": True}
    results = check_foreign(
        system, options=options, folder=tmp_path, logs=tmp_path / "logs"
    )
    broken = {one.name: one.detail for one in results if not one.ok}
    if system == "env:pyg":
        for promise in (SIZES, DRAWS):  # torch-sparse's draws are not uniform
            broken.pop(promise, None)
    assert broken == {}


@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_it_learns_under_a_cap(system: str, series: Series, model: str) -> None:
    settings = RunSettings.model_validate(
        {
            "dataset": "tiny",
            "model": model,
            "fanout": [5, 5],
            "batch_size": 500,
            "epochs": 4,
            "hidden": 16,
            "learning_rate": 0.02,
            "memory": "+256MiB",
            "timeout": 300.0,
        }
    )
    wanted = resolve(
        PlannedRun(system, settings), series.data_root, series.isolation.name
    )
    dataset = Dataset.open(series.data_root / "tiny")
    record = execute(series, wanted, dataset)
    assert record.status == "ok" and left_behind(series) == [], record.reason
    assert record.epochs[-1].accuracy is not None
    assert record.epochs[-1].accuracy > 0.6
    assert record.epochs[-1].loss is not None
    assert record.epochs[-1].loss < 0.8 * (record.epochs[0].loss or 0)
    rules = {rule.name: rule for rule in record.verdict_rules}
    assert rules["features_equal_the_dataset"].ok
    assert rules["every_batch_once"].ok
    broken = {name for name, rule in rules.items() if not rule.ok}
    assert (
        record.verdict != "INVALID" and "mini_batches_equal_the_workload" in broken
    ), broken
