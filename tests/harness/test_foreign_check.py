"""`outcore check` of a foreign system: a right one passes, and each fault is found by
the promise that it breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.check.foreign import (
    COUNT,
    DRAWS,
    LEFT,
    LOSSES,
    MEMORY,
    ROWS,
    SEEDS,
    SIZES,
    check_foreign,
    mixed,
)
from harness.check.rules import RUNS
from tests.harness.run_tools import REPOSITORY, outcore_here
from workloads.errors import HostError, InputError

FAULTY = f"env:{REPOSITORY / 'tests' / 'harness' / 'foreign_worker'}"
TEMPLATE = f"env:{REPOSITORY / 'outcore' / 'template' / 'foreign'}"
SLOW = (
    "harness/check/foreign.py",
    "harness/check/draws.py",
    "outcore/foreign",
    "harness/foreign",
)


def broken(fault: str, folder: Path) -> dict[str, str]:
    results = check_foreign(
        FAULTY, options={"fault": fault}, folder=folder, logs=folder / "logs"
    )
    assert [one.name for one in results] == [
        RUNS,
        COUNT,
        SEEDS,
        SIZES,
        DRAWS,
        ROWS,
        LOSSES,
        MEMORY,
        LEFT,
    ]
    assert all(one.ok or one.fix for one in results)
    return {one.name: one.detail for one in results if not one.ok}


@pytest.mark.slow("harness/check", "harness/foreign", "foreign")
def test_the_template_keeps_every_promise(tmp_path: Path) -> None:
    done = outcore_here(
        "check",
        "--foreign",
        TEMPLATE,
        "--json",
        data=tmp_path / "data",
        results=tmp_path / "results",
    )
    reported = json.loads(done.stdout)
    assert done.returncode == 0 and reported["ok"], reported
    details = {one["name"]: one["detail"] for one in reported["checks"]}
    assert "1e-06" in details[SIZES]
    assert details[ROWS].startswith("1536 rows")
    assert not list(tmp_path.glob("results/checks/*"))


def test_a_fault_is_found(tmp_path: Path) -> None:
    assert set(broken("rows", tmp_path)) == {ROWS}


@pytest.mark.slow(*SLOW)
@pytest.mark.parametrize(
    ("fault", "promises"),
    [
        ("with replacement", {SIZES, DRAWS}),
        ("process", {LEFT}),
        ("fan-out", {SIZES, DRAWS}),
        ("hop", {SIZES, DRAWS}),
        ("third hop", {SIZES, DRAWS}),
        ("hops reversed", {SIZES, DRAWS}),
        ("window", {DRAWS}),
        ("hubs", {DRAWS}),
        ("one draw a node", {SIZES, DRAWS}),
        ("out-neighbours", {DRAWS}),
        ("one mini-batch less", {COUNT, SEEDS, SIZES, DRAWS}),
        ("seed twice", {SEEDS}),
        ("order", {SEEDS}),
        ("two epochs", {SEEDS, DRAWS}),
        ("same mini-batches", {SEEDS}),
        ("number", {COUNT, SEEDS, DRAWS}),
        ("spots", {ROWS}),
        ("loss", {LOSSES}),
        ("file", {LEFT}),
        ("features in the floor", {MEMORY}),
        ("features in the step", {MEMORY}),
        ("crashes", {RUNS}),
        ("leaves", {RUNS}),
        ("counter", {RUNS}),
        ("plan", {RUNS}),
        ("refuses", {RUNS}),
        ("too much memory", {RUNS}),
    ],
)
def test_every_fault_is_found(fault: str, promises: set[str], tmp_path: Path) -> None:
    found = broken(fault, tmp_path)
    if fault == "number":
        # Unless the one number that is reported is drawn in every epoch.
        found.pop(ROWS, None)
    assert set(found) == promises, found
    if fault == "crashes":
        assert "no luck" in found[RUNS]
        assert "no luck" in (tmp_path / "logs" / "worker.log").read_text()


@pytest.mark.parametrize("size", [1, 150, 2000, 3000])
def test_mini_batches_of_a_shuffle_mix_and_others_do_not(size: int) -> None:
    random = np.random.default_rng(size)
    nodes = np.random.default_rng(0).permutation(9000)[:2000]

    def batches(order: Any) -> list[Any]:
        return np.split(order, range(size, len(order), size))

    assert all(
        mixed(batches(nodes), batches(random.permutation(nodes))) for _ in range(20)
    )
    if 1 < size < 2000:
        assert not mixed(batches(nodes), batches(nodes))
        assert not mixed(batches(nodes), batches(nodes)[::-1])
        half = np.concatenate(
            [random.permutation(nodes[:1000]), random.permutation(nodes[1000:])]
        )
        assert not mixed(batches(nodes), batches(half)), "shuffled in two halves"


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    for words, message in (
        (("--foreign", "pgy"), "did you mean env:pyg"),
        ((FAULTY, "-o", "falt=none"), "did you mean 'fault'"),
    ):
        done = outcore_here(
            "check", *words, data=tmp_path / "data", results=tmp_path / "results"
        )
        assert (
            done.returncode == 2
            and message in done.stderr
            and "Traceback" not in done.stderr
        ), done.stderr


def test_a_system_without_its_environment_states_how_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTCORE_ENVIRONMENTS", str(tmp_path / "none"))
    with pytest.raises(HostError, match="`outcore systems setup graphbolt` makes it"):
        check_foreign("env:graphbolt", folder=tmp_path)
    with pytest.raises(InputError, match="no foreign system"):
        check_foreign("env:nothing-like-it", folder=tmp_path)
