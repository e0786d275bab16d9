"""Accuracy runs: their settings in profiles, and time to accuracy from their
records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.compare.evidence import load_evidence
from harness.compare.plan import Plan, grid
from harness.compare.verdicts import NotDrawn
from harness.figures.accuracy_runs import (
    BASE_VARIABLE,
    GENERATED,
    accuracy_curve,
    accuracy_profile,
    at_target,
    common_target,
    final_accuracy,
    origin,
)
from harness.plan.experiment import cells, load_experiment, parse_experiment
from tests.harness.figure_profile import keep_profile
from tests.harness.records import make_record, save
from workloads.errors import InputError


def trained(system: str, seconds: float, accuracy: list[float], **more: Any) -> Any:
    run = {
        "device": "cpu",
        "device_memory_bytes": None,
        "memory": "+56MiB",
        "test_nodes": 4000,
        **more,
    }
    run |= {
        "dataset": GENERATED,
        "fanout": [10, 5],
        "layers": 2,
        "batch_size": 100,
        "hidden": 64,
        "epochs": 10,
    }
    made = make_record(system, [seconds] * (len(accuracy) - 1), **run)
    for epoch, share in zip(made.epochs, accuracy, strict=True):
        epoch.test_accuracy = share
    made.preprocess.seconds = 10.0
    return made


def test_time_to_accuracy_counts_every_epoch_until_it_was_reached() -> None:
    record = trained("gnndrive", 2.0, [0.5, 0.7, 0.8, 0.75]).to_json()
    curve = accuracy_curve(record)
    assert list(curve["epoch"]) == [1, 2, 3, 4]
    assert list(curve["seconds"]) == [2.0, 4.0, 6.0, 8.0]
    assert list(curve["end_to_end"]) == [12.0, 14.0, 16.0, 18.0]
    assert (at_target(record, 0.72), at_target(record, 0.72, "epoch")) == (6.0, 3)
    assert at_target(record, 0.72, "end_to_end") == 16.0
    assert at_target(record, 0.9) is None


def test_the_final_accuracy_is_of_the_last_epochs() -> None:
    assert final_accuracy(
        trained("a", 1.0, [0.1, 0.6, 0.7, 0.8]).to_json()
    ) == pytest.approx(0.7)


def test_a_run_that_was_not_judged_has_no_curve() -> None:
    record = make_record("gnndrive", [1.0]).to_json()
    assert final_accuracy(record) is None
    assert accuracy_curve(record).empty
    assert at_target(record, 0.1) is None
    assert common_target([record]) is None


def test_the_common_target_is_within_reach_of_all() -> None:
    records = [
        trained("a", 1.0, [0.5, 0.8]).to_json(),
        trained("b", 1.0, [0.5, 0.9, 0.7]).to_json(),
    ]
    target = common_target(records)
    assert target == pytest.approx(0.79)
    assert all(at_target(record, target) is not None for record in records)


def test_without_a_base_graph_the_dataset_is_generated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(BASE_VARIABLE, raising=False)
    profile = accuracy_profile(load_experiment("quick").model_dump())
    assert list(profile["datasets"]) == [GENERATED]
    assert (
        origin({"config": {"dataset": {"name": GENERATED}}})
        == "generated graph and labels"
    )


def test_the_base_graph_comes_from_the_environment_or_the_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = load_experiment("quick").model_dump()
    plain["gallery"]["accuracy"] = {"base": "somewhere/books.npz", "expand": 4}
    monkeypatch.delenv(BASE_VARIABLE, raising=False)
    assert (
        accuracy_profile(plain)["datasets"]["accuracy-books-x4"]["base"]
        == "somewhere/books.npz"
    )
    monkeypatch.setenv(BASE_VARIABLE, str(tmp_path / "films.npz"))
    changed = accuracy_profile(plain, model="gat")
    assert changed["run"]["dataset"] == "accuracy-films-x4"
    assert changed["run"]["model"] == "gat"


def test_an_accuracy_profile_is_a_valid_experiment_that_judges_every_epoch() -> None:
    for name in ("smoke", "quick", "standard", "paper"):
        content = {
            **accuracy_profile(load_experiment(name).model_dump()),
            "systems": ["gnndrive"],
            "gallery": {},
        }
        (cell,) = cells(parse_experiment(content))
        assert cell.settings.test_nodes > 0
        assert cell.settings.epochs == 10


def test_a_fault_under_accuracy_names_its_key() -> None:
    plain = load_experiment("quick").model_dump()
    plain["gallery"]["accuracy"] = {"epoch": 3}
    with pytest.raises(InputError, match=r"gallery\.accuracy\.epoch"):
        accuracy_profile(plain)


def test_one_budget_for_all_and_in_memory_without(tmp_path: Path) -> None:
    save(tmp_path, trained("in-memory", 1.0, [0.5, 0.6], memory="none"))
    for system in ("pyg+", "gnndrive"):
        save(tmp_path, trained(system, 1.0, [0.5, 0.6]))
    save(tmp_path, trained("gnndrive", 9.0, [0.5, 0.6], memory="+8MiB"))
    save(tmp_path, make_record("pyg+", [1.0], device="cpu", device_memory_bytes=None))
    keep_profile(tmp_path)
    found = load_evidence(tmp_path).cells("diskgnn-fig8", all_of_them, least=1)
    memory = zip(found.runs["system"], found.runs["config.memory"], strict=True)
    assert sorted(memory) == [
        ("gnndrive", "+56MiB"),
        ("in-memory", "none"),
        ("pyg+", "+56MiB"),
    ]


def all_of_them(profile: dict[str, Any]) -> Plan:
    """Plan in-memory as the reference, and two systems under a cap."""
    reference = {"name": "in-memory", "memory": "none"}
    return grid(accuracy_profile(profile), [reference, "pyg+", "gnndrive"], {"": {}})


def test_no_accuracy_runs_is_stated(tmp_path: Path) -> None:
    save(tmp_path, make_record("gnndrive", [1.0]))
    with pytest.raises(NotDrawn):
        load_evidence(tmp_path).cells("diskgnn-fig8", all_of_them, least=1)
