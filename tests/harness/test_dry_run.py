"""`outcore bench --dry-run` plans every run: misfits are named with the least memory,
and nothing is run or locked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from harness.judge.registry import Calibration
from harness.plan.experiment import PlannedRun
from harness.run import calibrate
from harness.run.dry_run import DryPlan, dry_plans
from harness.run.series import Series
from harness.settings import RunSettings
from tests.harness.run_tools import outcore_here
from tests.support import make_tiny

RUN = {
    "dataset": "tiny",
    "fanout": [5, 5],
    "batch_size": 50,
    "epochs": 1,
    "warmup": 0,
    "hidden": 16,
    "isolation": "none",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    root = tmp_path_factory.mktemp("dry")
    make_tiny(root / "data" / "tiny", nodes=30_000, edges=300_000, dim=64)
    yield root / "data", root / "results"


def dry(
    places: tuple[Path, Path], folder: Path, systems: list[Any], *more: str, **run: Any
) -> CompletedProcess[str]:
    file = folder / "mine.yaml"
    file.write_text(
        json.dumps({"name": "mine", "run": {**RUN, **run}, "systems": systems})
    )
    data, results = places
    return outcore_here(
        "bench",
        str(file),
        "--dry-run",
        "--figures",
        "none",
        "-q",
        *more,
        data=data,
        results=results,
    )


def plan_of(places: tuple[Path, Path], system: str, **settings: Any) -> DryPlan:
    data, results = places
    cell = PlannedRun(system, RunSettings.model_validate({**RUN, **settings}))
    (found,) = dry_plans([cell, cell], results, data, isolation="none")
    return found


def test_an_experiment_of_which_nothing_fits_ends_with_exit_code_2_and_the_least_memory(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    done = dry(places, tmp_path, ["gnndrive", "in-memory"], memory="+1MiB")
    assert done.returncode == 2
    assert (
        "each of the 2 runs to do would end as oom: no plan fits its memory; raise it: "
        "gnndrive takes" in done.stderr
    )
    lines = [
        line for line in done.stdout.splitlines() if line.startswith("does not fit: ")
    ]
    assert [line.split()[3] for line in lines] == ["gnndrive", "in-memory"]
    assert all(line.endswith("is the least that its plan takes") for line in lines)
    assert not (places[1] / "runs").exists()


def test_one_run_that_does_not_fit_is_a_note(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    done = dry(
        places,
        tmp_path,
        ["gnndrive", {"name": "in-memory", "run": {"memory": "+1MiB"}}],
        "--json",
        memory="+64MiB",
    )
    assert done.returncode == 0, done.stderr
    plans = {plan["system"]: plan for plan in json.loads(done.stdout)["plans"]}
    assert plans["gnndrive"]["fits"] is True
    assert plans["gnndrive"]["least"] == ""
    assert plans["in-memory"]["fits"] is False
    assert plans["in-memory"]["least"].startswith("+")


def test_runs_that_cannot_be_planned_here_are_counted_with_the_reason(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    recipe = {"later": {"kind": "rmat", "nodes": 1000, "edges": 4000}}
    file = tmp_path / "mine.yaml"
    run = {**RUN, "dataset": "later", "memory": "+1MiB"}
    file.write_text(
        json.dumps(
            {
                "name": "mine",
                "datasets": recipe,
                "run": run,
                "systems": ["gnndrive", "ginex"],
            }
        )
    )
    done = outcore_here(
        "bench",
        str(file),
        "--dry-run",
        "--figures",
        "none",
        data=places[0],
        results=places[1],
    )
    assert done.returncode == 0, done.stderr
    assert "not planned: 2 runs, dataset later is not made yet" in done.stdout
    assert plan_of(places, "env:pyg").reason == "env:pyg plans in its own worker"


@pytest.mark.parametrize("system", ["gnndrive", "ginex", "pyg+"])
def test_the_least_memory_fits_and_a_mebibyte_less_does_not(
    places: tuple[Path, Path], system: str
) -> None:
    found = plan_of(places, system, memory="+64KiB")
    assert found.fits is False
    assert found.least.startswith("+")
    size = int(found.least.strip("+MiB"))
    assert plan_of(places, system, memory=found.least).fits is True
    if size > 1:
        assert plan_of(places, system, memory=f"+{size - 1}MiB").fits is False


def test_a_device_that_is_too_small_is_named_with_the_device_memory_that_does(
    places: tuple[Path, Path],
) -> None:
    on = {"device": "emulated:a10g", "memory": "none"}
    found = plan_of(places, "gnndrive", device_memory="64KiB", **on)
    assert found.fits is False
    assert found.least.endswith("MiB of device memory")
    size = found.least.partition(" ")[0]
    assert plan_of(places, "gnndrive", device_memory=size, **on).fits is True


def test_of_a_cap_the_part_that_a_run_measured_is_subtracted(
    places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rough = plan_of(places, "gnndrive", memory="80MiB")
    assert rough.fits is True
    assert rough.whole_cap
    done = dry(places, tmp_path, ["gnndrive"], memory="80MiB")
    assert (
        "of a cap, interpreter, torch and a training step take a part: `outcore plan` "
        "measures it" in done.stdout
    )
    measured = Calibration(floor_bytes=60 << 20, training_bytes=16 << 20)
    monkeypatch.setattr(calibrate, "kept", lambda series, config: measured)
    found = plan_of(places, "gnndrive", memory="80MiB")
    assert found.fits is False
    assert not found.whole_cap
    assert int(found.least.removesuffix("MiB")) > 80
    assert plan_of(places, "gnndrive", memory=found.least).fits
    below = plan_of(places, "gnndrive", memory="70MiB")
    assert below.fits is False
    assert "an empty run takes 76.0 MiB already" in below.reason


def test_a_calibration_is_found_again_by_the_key_under_which_it_is_kept(
    places: tuple[Path, Path],
) -> None:
    from harness.plan.experiment import resolve

    series = Series(places[1], places[0], isolation="none")
    settings = RunSettings.model_validate({**RUN, "memory": "80MiB"})
    config = resolve(PlannedRun("gnndrive", settings), places[0], "none")
    assert calibrate.kept(series, config) is None
    calibrate.keep(series, config, floor={"built_bytes": 1, "libraries": ["x"]})
    assert calibrate.kept(series, config) is None, "training is unknown"
    calibrate.keep(
        series,
        config,
        step={"log_bytes": 4, "training_bytes": 2, "training_device_bytes": 3},
    )
    found = calibrate.kept(series, config)
    assert found is not None
    assert (found.built_bytes, found.floor_bytes) == (1, 5)
    assert (found.training_bytes, found.training_device_bytes) == (2, 3)
    other = resolve(PlannedRun("ginex", settings), places[0], "none")
    assert calibrate.step_key(series, other) == calibrate.step_key(series, config), (
        "training alone loads no system"
    )
    assert calibrate.memory_key(series, other) != calibrate.memory_key(series, config)


def test_a_dry_run_neither_waits_for_nor_disturbs_a_sweep_that_runs(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    with Series(places[1], places[0], isolation="none"):
        done = dry(places, tmp_path, ["gnndrive"], memory="+64MiB")
    assert done.returncode == 0, done.stderr
