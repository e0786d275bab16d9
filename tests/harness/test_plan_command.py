"""`outcore plan`: the plan of a run without the run, the least memory that a run then keeps to, what `auto` became."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cap_tools import on_disk
from tests.harness.run_tools import outcore, outcore_here, share_cache
from tests.support import make_tiny
from workloads.dataset import Dataset

SETTINGS = "--dataset tiny --fanout 5,5 --batch-size 50 --max-batches 6 --epochs 1 --warmup 0 --hidden 16".split()


CONCERNS = pytest.mark.slow("systems/planning.py", "harness/run/planning.py", "harness/cli/plan.py", "harness/worker")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Dataset, Path]]:
    results = tmp_path_factory.mktemp("plan") / "results"
    share_cache(results, tmp_path_factory)
    for folder in on_disk():
        yield make_tiny(folder / "tiny", nodes=30_000, edges=300_000, dim=64), results


def planned(places: tuple[Dataset, Path], *arguments: str) -> dict[str, Any]:
    dataset, results = places
    done = outcore("plan", *arguments, *SETTINGS, "--json", data=dataset.path.parent, results=results)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@CONCERNS
def test_the_plan_is_that_of_the_run_and_the_run_at_the_least_memory_is_kept(places: tuple[Dataset, Path]) -> None:
    dataset, results = places
    memory = planned(places, "gnndrive", "--memory", "+40MiB")["least_memory"]
    plan = planned(places, "gnndrive", "--memory", memory)
    assert plan["least_memory"] == memory and plan["budget_bytes"] == int(memory.strip("+MiB")) << 20
    arguments = ("run", "gnndrive", *SETTINGS, "--memory", memory, "--json")
    record = json.loads(outcore(*arguments, data=dataset.path.parent, results=results).stdout)
    assert record["status"] == "ok", record["reason"]
    assert record["memory"]["plan"] == plan["plan"]
    below = f"+{int(memory.strip('+MiB')) - 1}MiB"
    done = outcore("run", "gnndrive", *SETTINGS, "--memory", below, data=dataset.path.parent, results=results)
    assert done.returncode == 2 and f"{memory} is the least that fits" in done.stderr


@CONCERNS
def test_a_cap_is_told_beside_the_budget_and_all_fits_80_columns(
    places: tuple[Dataset, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, results = places
    found = planned(places, "gnndrive", "--memory", "1GiB", "-o", "samplers=1")
    assert found["cap_bytes"] == 1 << 30 and found["budget_bytes"] < 1 << 30
    assert found["least_memory"][0] != "+" and "samplers" not in found["auto"] and found["auto"]["extractors"] >= 1
    monkeypatch.setenv("COLUMNS", "80")
    done = outcore("plan", "gnndrive", *SETTINGS, "-q", data=dataset.path.parent, results=results)
    assert done.returncode == 0, done.stderr
    assert "least memory that it accepts: +" in done.stdout and "auto: extractors 4" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_what_has_no_plan_of_one_process_is_refused(tiny_dataset: Dataset, tmp_path: Path) -> None:
    for arguments, said in (
        (("gnndrive", "--ranks", "2"), "of one process"),
        (("image:mine",), "plans in its own worker"),
    ):
        done = outcore_here("plan", *arguments, *SETTINGS, data=tiny_dataset.path.parent, results=tmp_path)
        assert done.returncode == 2 and said in done.stderr, done.stderr
