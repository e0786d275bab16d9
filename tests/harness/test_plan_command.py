"""`outcore plan`: the plan of a run without the run, the least memory that a run then
keeps to, what `auto` became."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.judge.registry import Calibration
from harness.run import calibrate
from harness.run.series import Series
from systems.loading import Loader
from tests.harness.cap_tools import MIB, on_disk
from tests.harness.run_tools import outcore, outcore_here, share_cache
from tests.support import make_tiny
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.accelerators.profile import load_profile
from workloads.dataset import Dataset
from workloads.errors import BudgetError

SETTINGS = (
    "--dataset tiny --fanout 5,5 --batch-size 50 --max-batches 6 --epochs 1 --warmup 0 "
    "--hidden 16"
).split()


CONCERNS = pytest.mark.slow(
    "systems/planning.py",
    "harness/run/planning.py",
    "harness/cli/plan.py",
    "harness/worker",
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Dataset, Path]]:
    results = tmp_path_factory.mktemp("plan") / "results"
    share_cache(results, tmp_path_factory)
    for folder in on_disk():
        yield make_tiny(folder / "tiny", nodes=30_000, edges=300_000, dim=64), results


def planned(places: tuple[Dataset, Path], *arguments: str) -> dict[str, Any]:
    dataset, results = places
    done = outcore(
        "plan",
        *arguments,
        *SETTINGS,
        "--json",
        data=dataset.path.parent,
        results=results,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@CONCERNS
def test_the_plan_is_that_of_the_run_and_the_run_at_the_least_memory_is_kept(
    places: tuple[Dataset, Path],
) -> None:
    dataset, results = places
    memory = planned(places, "gnndrive", "--memory", "+40MiB")["least_memory"]
    plan = planned(places, "gnndrive", "--memory", memory)
    assert plan["least_memory"] == memory
    assert plan["budget_bytes"] == int(memory.strip("+MiB")) << 20
    arguments = ("run", "gnndrive", *SETTINGS, "--memory", memory, "--json")
    record = json.loads(
        outcore(*arguments, data=dataset.path.parent, results=results).stdout
    )
    assert record["status"] == "ok", record["reason"]
    assert record["memory"]["plan"] == plan["plan"]
    below = f"+{int(memory.strip('+MiB')) - 1}MiB"
    done = outcore(
        "run",
        "gnndrive",
        *SETTINGS,
        "--memory",
        below,
        data=dataset.path.parent,
        results=results,
    )
    assert done.returncode == 2
    assert f"{memory} is the least that fits" in done.stderr


@CONCERNS
def test_a_cap_is_reported_beside_the_budget_and_all_fits_80_columns(
    places: tuple[Dataset, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, results = places
    found = planned(places, "gnndrive", "--memory", "1GiB", "-o", "samplers=1")
    assert found["cap_bytes"] == 1 << 30
    assert found["budget_bytes"] < 1 << 30
    assert found["least_memory"][0] != "+"
    assert "samplers" not in found["auto"]
    assert found["auto"]["extractors"] >= 1
    monkeypatch.setenv("COLUMNS", "80")
    done = outcore(
        "plan", "gnndrive", *SETTINGS, "-q", data=dataset.path.parent, results=results
    )
    assert done.returncode == 0, done.stderr
    assert "least memory that it accepts: +" in done.stdout
    assert "auto: extractors 4" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_what_has_no_plan_of_one_process_is_refused(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    for arguments, message in (
        (("gnndrive", "--ranks", "2"), "of one process"),
        (("image:mine",), "plans in its own worker"),
    ):
        done = outcore_here(
            "plan",
            *arguments,
            *SETTINGS,
            data=tiny_dataset.path.parent,
            results=tmp_path,
        )
        assert done.returncode == 2 and message in done.stderr, done.stderr


def test_the_plan_of_a_loader_is_the_loaders_own(
    tiny_dataset: Dataset, tmp_path: Path
) -> None:
    def plan(memory: str, *more: str) -> Any:
        arguments = (
            "--memory",
            memory,
            "--loader",
            "--fanout",
            "5,4",
            "--batch-size",
            "50",
            *more,
        )
        place = ("--dataset", tiny_dataset.name)
        return outcore_here(
            "plan",
            "outcore",
            *place,
            *arguments,
            data=tiny_dataset.path.parent,
            results=tmp_path,
        )

    before = sorted(tiny_dataset.path.parent.iterdir())
    refused = plan("1MiB")
    named = re.search(r"(\d+)MiB is the least that fits", refused.stderr)
    assert refused.returncode == 2
    assert named is not None
    assert "the loader: rows handed out needs" in refused.stderr
    memory = f"{named[1]}MiB"
    done = plan(memory, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    with Loader(
        tiny_dataset, system="outcore", memory=memory, fanout=[5, 4], batch_size=50
    ) as loader:
        planned = [(item.name, item.bytes, item.tier) for item in loader.plan.items]
        assert found["auto"] == loader.chosen
    assert [
        (item["name"], item["bytes"], item["tier"]) for item in found["plan"]
    ] == planned
    assert found["least_memory"] == memory
    assert found["budget_bytes"] == int(named[1]) << 20
    with pytest.raises(BudgetError, match="is the least that fits"):
        Loader(
            tiny_dataset, system="outcore", memory="1MiB", fanout=[5, 4], batch_size=50
        )
    shown = plan(memory, "-q").stdout
    assert "a loader by outcore on" in shown
    assert f"least memory that it accepts: {memory}" in shown
    assert "rows handed out" in shown
    assert "--loader plans it" not in shown
    emulated = plan(memory, "--device", "emulated:instant", "--device-memory", "1GiB")
    assert emulated.returncode == 2
    assert "computes nothing" in emulated.stderr
    of_run = plan(memory, "--epochs", "7")
    assert of_run.returncode == 2
    assert (
        "epochs is 7, a setting of runs, and --loader plans a loader" in of_run.stderr
    )
    assert sorted(tiny_dataset.path.parent.iterdir()) == before


class Card(EmulatedAccelerator):
    """A device without a GPU that subtracts what training takes, as the CUDA device
    does."""

    def __init__(
        self,
        name: str,
        *,
        memory_bytes: int,
        training_bytes: int | None = None,
        touch: bool = True,
    ) -> None:
        self.training_bytes = training_bytes or 0
        super().__init__(
            load_profile("instant"), memory_bytes - self.training_bytes, touch=touch
        )


def test_training_takes_its_part_of_a_gpus_memory_before_the_system_plans(
    tiny_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Calibration(
        floor_bytes=MIB, training_bytes=MIB, training_device_bytes=3 * MIB
    )
    monkeypatch.setattr(calibrate, "calibrate", lambda *_: held)
    monkeypatch.setattr(Series, "unsupported", lambda *_: "")
    monkeypatch.setattr(Series, "prepare", lambda *_, **__: None)
    monkeypatch.setattr("workloads.accelerators.make.make_accelerator", Card)
    monkeypatch.setattr("systems.planning.make_accelerator", Card)

    def plan(device_memory: str, *more: str) -> Any:
        arguments = (
            "--memory",
            "+40MiB",
            "--device",
            "cuda",
            "--device-memory",
            device_memory,
            *more,
        )
        return outcore_here(
            "plan",
            "gnndrive",
            *SETTINGS,
            *arguments,
            data=tiny_dataset.path.parent,
            results=tmp_path,
        )

    done = plan("64MiB", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["device_budget_bytes"], found["training_device_bytes"]) == (
        61 * MIB,
        3 * MIB,
    )
    planned = sum(item["bytes"] for item in found["plan"] if item["tier"] == "device")
    assert 0 < planned <= 61 * MIB
    assert (
        "device memory for buffers 61.0 MiB, beside 3.0 MiB of training"
        in plan("64MiB").stdout
    )
    # The least device memory that a refusal names holds training too, and is accepted.
    done = plan("3100KiB")
    named = re.search(r"(\d+)MiB of device memory is the least", done.stderr)
    assert done.returncode == 2 and named is not None and int(named[1]) > 3, done.stderr
    assert plan(f"{named[1]}MiB").returncode == 0
    done = plan("3MiB")
    assert done.returncode == 2
    assert "training takes 3.0 MiB of it already" in done.stderr
