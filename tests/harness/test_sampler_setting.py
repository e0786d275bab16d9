"""`--sampler` reaches the workload, and real runs of one sampler agree whatever the
system."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.check.case import cases
from harness.plan.experiment import PlannedRun, resolve
from harness.settings import RunSettings, check_settings, strict
from harness.worker.build import workload_of
from systems.loading.loader import Loader
from tests.harness.run_tools import (
    REPOSITORY,
    command,
    environment,
    outcore,
    share_cache,
)
from tests.support import make_tiny
from workloads.dataset import Dataset
from workloads.errors import InputError
from workloads.sampling import listing


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
def test_sampler_and_layers_reach_the_workload(
    data: Path, settings: dict[str, Any], layers: int
) -> None:
    planned = PlannedRun("in-memory", RunSettings(dataset="tiny", **settings))
    config = resolve(planned, data, "none")
    workload = workload_of(config, Dataset.open(data / "tiny"))
    assert (workload.sampler.name, workload.model.layers) == (
        settings["sampler"],
        layers,
    )
    assert workload.sampler.fanout == tuple(settings["fanout"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": "layerwise", "fanout": [4, 3], "layers": 3}, "layers is 3"),
        ({"sampler": "layerwise", "replace": True}, "without replacement"),
    ],
)
def test_impossible_samplers_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_settings(RunSettings(dataset="tiny", **settings))


WIDER = '''
from workloads.sampling.listing import SamplerKind
from workloads.sampling.neighbor import NeighborSampler


class WiderSampler(NeighborSampler):
    """Sampler of one neighbour more than each fan-out."""

    def __init__(self, indptr, indices, fanout, **others):
        super().__init__(indptr, indices, [count + 1 for count in fanout], **others)


SAMPLER = SamplerKind("wider", lambda workload, **others: WiderSampler(**others), (4, 3), replacement=False)
'''


@pytest.mark.slow(
    "workloads/sampling",
    "harness/settings.py",
    "harness/worker/build.py",
    "harness/records/code.py",
    seconds=150,
)
def test_a_sampler_is_one_file(
    data: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "wider_sampler.py").write_text(WIDER)
    monkeypatch.syspath_prepend(tmp_path)
    share_cache(tmp_path / "results", tmp_path_factory)
    digests = []
    for sampler, fanout in (("wider_sampler:SAMPLER", "2,2"), ("neighbor", "3,3")):
        done = subprocess.run(
            command(
                *(
                    "run",
                    "gnndrive",
                    "--dataset",
                    "tiny",
                    "--sampler",
                    sampler,
                    "--fanout",
                    fanout,
                ),
                *("--batch-size", "40", "--hidden", "8", "--epochs", "2", "--json"),
            ),
            env={
                **environment(data, tmp_path / "results"),
                "PYTHONPATH": f"{REPOSITORY}:{tmp_path}",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        record = json.loads(done.stdout)
        assert (record["status"], record["config"]["sampler"]) == ("ok", sampler), (
            record
        )
        digests.append(
            [(epoch["digest"], epoch["feature_digest"]) for epoch in record["epochs"]]
        )
    assert digests[0] == digests[1]

    settings = RunSettings(
        dataset="tiny", sampler="wider_sampler:SAMPLER", replace=True
    )
    with pytest.raises(InputError, match="without replacement"):
        check_settings(settings)
    with Loader(
        data / "tiny",
        sampler="wider_sampler:SAMPLER",
        fanout=(2, 2),
        batch_size=40,
        form="plain",
    ) as loader:
        assert max(next(iter(loader)).edge_index[1].bincount()) == 3


@pytest.mark.parametrize(
    "name", ["neighbour", "no_such_module:SAMPLER", "workloads.sampling.batch:SAMPLER"]
)
def test_an_unknown_sampler_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="sampler"):
        check_settings(strict(RunSettings, {"dataset": "tiny", "sampler": name}, "run"))


def test_every_sampler_has_a_case_of_the_conformance_check() -> None:
    checked = {case.sampler for case in cases(("cpu",), quick=True)}
    assert checked == set(listing.names())


@pytest.mark.slow(
    "workloads/sampling", "harness/settings.py", "harness/worker/build.py", seconds=75
)
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
        digests.add(
            tuple(
                (epoch["digest"], epoch["feature_digest"]) for epoch in record["epochs"]
            )
        )
    assert len(digests) == 1
