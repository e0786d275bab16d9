"""`--sampler` reaches the workload, and real runs of one sampler agree whatever the system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.plan.experiment import PlannedRun, RunSettings, check_settings, resolve
from harness.worker.build import workload_of
from tests.harness.run_tools import outcore, share_cache
from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.errors import InputError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    make_tiny(root / "tiny", nodes=3000, edges=20_000, dim=16)
    return root


@pytest.mark.parametrize(
    ("settings", "layers"),
    [
        ({"sampler": "neighbor", "fanout": [4, 3]}, 2),
        ({"sampler": "layerwise", "fanout": [40, 30]}, 2),
        ({"sampler": "shadow", "fanout": [4, 3]}, 2),
        ({"sampler": "shadow", "fanout": [4, 3], "layers": 5}, 5),
    ],
)
def test_sampler_and_layers_reach_the_workload(data: Path, settings: dict[str, Any], layers: int) -> None:
    planned = PlannedRun("in-memory", RunSettings(dataset="tiny", **settings))
    config = resolve(planned, data, "none")
    workload = workload_of(config, Dataset.open(data / "tiny"))
    assert (workload.sampler.name, workload.model.layers) == (settings["sampler"], layers)
    assert workload.sampler.fanout == tuple(settings["fanout"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": "layerwise", "fanout": [4, 3], "layers": 3}, "layers is 3"),
        ({"sampler": "layerwise", "replace": True}, "without replacement"),
    ],
)
def test_impossible_samplers_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_settings(RunSettings(dataset="tiny", **settings))


@pytest.mark.slow("workloads/sampling", "harness/settings.py", "harness/worker/build.py")
def test_runs_of_shadow_have_equal_digests(
    data: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    share_cache(tmp_path / "results", tmp_path_factory)
    digests = set()
    for system in ("in-memory", "gnndrive"):
        done = outcore(
            "run",
            system,
            "--dataset",
            "tiny",
            "--sampler",
            "shadow",
            "--fanout",
            "3,3",
            "--layers",
            "3",
            "--batch-size",
            "40",
            "--hidden",
            "8",
            "--epochs",
            "2",
            "--json",
            data=data,
            results=tmp_path / "results",
        )
        record = json.loads(done.stdout)
        assert record["status"] == "ok", record
        digests.add(tuple((epoch["digest"], epoch["feature_digest"]) for epoch in record["epochs"]))
    assert len(digests) == 1
