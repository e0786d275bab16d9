"""A system in a user's own package, found by `package.module:Class`, with forecast and
facts."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.harness.run_tools import REPOSITORY, command, environment, share_cache
from tests.support import make_tiny

NAME = "mine.rows:OwnRows"
SOURCE = """
    from collections.abc import Iterator
    from typing import ClassVar

    import torch

    from systems.engine.io.topology import DatasetFiles
    from systems.forecast import sequential
    from systems.interface import (
        Batch, Counters, Facts, Forecast, Options, Plan, PlanItem, System, SystemInfo, Trace
    )
    from workloads.sampling.make import make_sampler, make_seed_plan


    class OwnFacts(Facts):
        loaded_s: float | None = None


    class OwnRows(System):
        info: ClassVar[SystemInfo] = SystemInfo(
            name="own-rows", paper="–", summary="all rows", devices=("cpu",), faithful=True, options=Options
        )
        rows = 0

        @classmethod
        def loads_everything(cls, options):
            return True

        def plan(self):
            dataset = self.workload.dataset
            items = (PlanItem("features", dataset.feature_bytes), PlanItem("graph", dataset.total_bytes))
            return Plan(items).require(self.info.name, self.budget)

        def prepare(self):
            DatasetFiles(self.workload, ["indices", "labels", "features"]).check()
            load = self.workload.dataset.load
            self.features = torch.from_numpy(load("features"))
            self.sampler = make_sampler(
                self.workload, indptr=load("indptr"), indices=load("indices"), labels=load("labels")
            )

        def epoch(self, k):
            self.rows = 0
            return self._epoch(k)

        def _epoch(self, k):
            for index, seeds in enumerate(make_seed_plan(self.workload).batches(k)):
                with self.clock.stage("sample", index):
                    sampled = self.sampler.sample(k, index, seeds)
                with self.clock.stage("extract", index):
                    table = self.features[torch.from_numpy(sampled.nodes)]
                self.rows += sampled.num_nodes
                yield Batch(sampled, table)

        def counters(self):
            return Counters(rows=self.rows, hits={"host": self.rows})

        def facts(self):
            return OwnFacts(io="own loader", loaded_s=1.5)

        def forecast(self, trace, host_bytes):
            return Forecast({}, "keeps its rows", prepare_reads=sequential(self.workload.dataset.feature_bytes))

        def close(self):
            self.features = self.sampler = None


    class WithoutForecast(OwnRows):
        def forecast(self, trace, host_bytes):
            return None
"""
WORKLOAD = ("--fanout", "5,5", "--batch-size", "100", "--hidden", "16")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("outside")
    (home / "code" / "mine").mkdir(parents=True)
    (home / "code" / "mine" / "__init__.py").touch()
    (home / "code" / "mine" / "rows.py").write_text(textwrap.dedent(SOURCE))
    make_tiny(home / "data" / "tiny", train_fraction=0.5)
    share_cache(home / "results", tmp_path_factory)
    return home


def outcore(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    found = environment(home / "data", home / "results")
    paths = os.pathsep.join([str(home / "code"), str(REPOSITORY)])
    return subprocess.run(
        command(*arguments),
        env=found | {"PYTHONPATH": paths},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )


@pytest.mark.slow(
    "harness/run",
    "harness/figures/base.py",
    "systems/registry.py",
    "systems/interface.py",
    seconds=80,
)
def test_it_is_run_and_its_facts_are_in_the_record_and_it_is_drawn(home: Path) -> None:
    arguments = ("--dataset", "tiny", "--epochs", "2", "--isolation", "none", *WORKLOAD)
    done = outcore(home, "run", NAME, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    (file,) = (home / "results" / "runs").glob("*/record.json")
    record = json.loads(file.read_text())
    assert record["status"] == "ok"
    assert record["system"] == NAME
    assert record["facts"]["io"] == "own loader"
    assert record["facts"]["loaded_s"] == 1.5
    assert record["notes"]["io"] == "own loader"
    assert record["notes"]["loaded_s"] == "1.500"
    shown = outcore(home, "report", "--out", str(home / "report.html"))
    assert shown.returncode == 0, shown.stderr
    assert NAME in (home / "report.html").read_text()


@pytest.mark.slow("harness/check", "systems/registry.py", "systems/interface.py")
def test_it_is_checked(home: Path) -> None:
    done = outcore(home, "check", NAME, "--quick", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["ok"], found


@pytest.mark.slow(
    "harness/advise",
    "systems/forecast.py",
    "systems/registry.py",
    "systems/interface.py",
)
def test_it_is_advised_on_and_without_a_forecast_that_is_stated(home: Path) -> None:
    systems = (
        "--system",
        NAME,
        "--system",
        "mine.rows:WithoutForecast",
        "--system",
        "pyg+",
    )
    memory = (
        "--memory",
        "+64MiB",
        "--isolation",
        "none",
        "--epochs",
        "2",
        "--batches",
        "4",
    )
    done = outcore(home, "advise", "tiny", *memory, *systems, *WORKLOAD, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {entry["system"] for entry in found["ranked"]} == {NAME, "pyg+"}
    assert "no forecast" in found["refused"]["mine.rows:WithoutForecast"]
