"""Honest runs are held against three promises: none INVALID, slow ones SPOILT, quiet
ones counted."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.fixture()
def outcomes() -> ModuleType:
    return importlib.import_module("_honest_outcomes")


def made(outcomes: ModuleType, number: int = 0, **changes: Any) -> Any:
    known: dict[str, Any] = {
        "attempt": 0,
        "label": "",
        "status": "ok",
        "verdict": "VALID",
        "epoch_s": 1.0,
    }
    run_id = f"run {number} {sorted(changes.items())}"
    return outcomes.Outcome(number=number, run_id=run_id, **{**known, **changes})


def test_a_slow_run_that_counts_breaks_the_promise_and_a_spoilt_one_keeps_it(
    outcomes: ModuleType,
) -> None:
    quiet = made(outcomes)
    slow = made(outcomes, load="loops", epoch_s=1.31, verdict="CAVEATS")
    found = outcomes.judge([quiet, slow])
    assert found.off == [slow]
    assert not found.kept
    assert found.ratios == {quiet.run_id: 1.0, slow.run_id: 1.31}
    found = outcomes.judge(
        [quiet, made(outcomes, load="loops", epoch_s=1.31, verdict="SPOILT")]
    )
    assert (found.off, found.off_spoilt, found.kept) == ([], 1, True)
    assert outcomes.judge([quiet, made(outcomes, load="loops", epoch_s=1.29)]).kept


def test_a_quiet_run_is_held_against_the_fastest_quiet_one_of_its_own_setting(
    outcomes: ModuleType,
) -> None:
    fast = made(outcomes)
    slow = made(outcomes, repeat=1, epoch_s=1.4)
    assert outcomes.judge([fast, slow]).off == [slow]
    assert outcomes.judge(
        [fast, made(outcomes, 1, epoch_s=1.4), made(outcomes, attempt=1, epoch_s=1.4)]
    ).kept
    # A spoilt run's time says nothing, so it is no reference.
    spoilt = made(outcomes, epoch_s=0.5, verdict="SPOILT")
    assert outcomes.judge([spoilt, fast]).off == []
    assert outcomes.judge([spoilt, made(outcomes, load="disk")]).unpaired == 2


@pytest.mark.parametrize(
    ("changes", "kept"),
    [({"verdict": "INVALID"}, False), ({"status": "failed"}, False), ({}, True)],
)
def test_an_invalid_run_or_a_failed_one_breaks_the_promise_beside_load_too(
    outcomes: ModuleType, changes: dict[str, Any], kept: bool
) -> None:
    assert (
        outcomes.judge([made(outcomes), made(outcomes, load="both", **changes)]).kept
        is kept
    )


def test_two_in_a_hundred_quiet_runs_may_be_spoilt_and_any_number_beside_load(
    outcomes: ModuleType,
) -> None:
    quiet = [made(outcomes, number) for number in range(98)]
    spoilt = [made(outcomes, 98 + number, verdict="SPOILT") for number in range(3)]
    beside = [
        made(outcomes, number, load="loops", verdict="SPOILT") for number in range(98)
    ]
    assert outcomes.judge([*quiet, *spoilt[:2], *beside]).kept
    assert not outcomes.judge([*quiet, *spoilt, *beside]).kept


def test_the_book_remembers_runs_and_draws_from_call_to_call(
    outcomes: ModuleType, tmp_path: Path
) -> None:
    book = outcomes.Book(tmp_path / "runs.jsonl")
    book.add(made(outcomes, 3, refused="no room", status="", verdict=""))
    assert book.attempt(3) == 1
    assert not book.has_run(3, "", 0)
    kept = made(
        outcomes,
        3,
        attempt=1,
        load="disk",
        epochs=[{"seconds": 1.0}],
        broken={"a": "b"},
    )
    book.add(kept)
    again = outcomes.Book(tmp_path / "runs.jsonl")
    assert again.outcomes[1] == kept
    assert again.attempt(3) == 1
    assert again.attempt(4) == 0
    assert again.has_run(3, "disk", 0)
    assert not again.has_run(3, "", 0)


def test_two_hundred_runs_cover_systems_graphs_ranks_samplers_containers_and_load() -> (
    None
):
    runs = importlib.import_module("honest_runs")
    arguments = argparse.Namespace(
        seed=1, docker=0.1, systems=runs.names(), phase="both", repeat=1
    )
    drawn = [runs.draw(arguments, number) for number in range(100)]
    assert {one.system for one in drawn} == set(runs.names())
    for key, wanted in [
        ("dataset", set(runs.GRAPHS)),
        ("ranks", {1, 2}),
        ("device", set(runs.DEVICES)),
        ("disk_class", set(runs.DISK_CLASSES)),
        ("sampler", {"neighbor", "layerwise"}),
    ]:
        assert {one.run[key] for one in drawn} == wanted
    assert {one.docker for one in drawn} == {False, True}
    assert {shape.dim for shape in runs.SHAPES} >= {1, 16, 128, 1024}
    kinds = {
        kind for number in range(100) for kind, _ in runs.runs_of(arguments, number)
    }
    assert kinds == {"", *runs.LOADS}
