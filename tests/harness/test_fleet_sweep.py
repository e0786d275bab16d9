"""A sweep over hosts that fail; their answers are scripted, `test_fleet.py` has real
ones."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import sweep
from harness.hosts.host import Order
from harness.hosts.sweep import Answer, Fleet, FleetSweep, Task
from harness.run.sweep import Outcome
from tests.harness.records import make_record
from workloads.errors import InputError

CONTENT: dict[str, Any] = {"experiments": [], "isolation": "none"}


class Scripted(Fleet):
    """Hosts of one label. The first makes the datasets and is lost after it; the second
    has no room for them."""

    def __init__(self, kind: str = "datasets") -> None:
        self.configs = [
            make_record("pyg+", [1.0], round=number).config for number in range(2)
        ]
        self.here = {"first": "ssd", "second": "ssd"}
        self.kind = kind
        self.asked: list[tuple[Task, Collection[str]]] = []
        self.cancelled: list[str] = []

    def hosts(self) -> dict[str, str]:
        return dict(self.here)

    def order(self, order: Order, without: Collection[str]) -> None:
        self.asked.append(
            (None if order.task == "prepare" else order.number, set(without))
        )

    def answers(self, timeout_s: float) -> list[Answer]:
        waiting = self.asked
        self.asked = []
        found = []
        for task, without in waiting:
            if task is None:
                configs = [config.model_dump(mode="json") for config in self.configs]
                found.append(
                    Answer(
                        "ssd",
                        task,
                        {"configs": configs, "fingerprint": "f", "node": "first"},
                    )
                )
            elif "second" in without:
                self.asked.append((task, without))  # no host is left to place it on
            else:
                self.here.pop("first", None)
                error = {
                    "error": "the disk is full",
                    "fix": "",
                    "kind": self.kind,
                    "node": "second",
                }
                found.append(Answer("ssd", task, error))
        return found

    def cancel(self, label: str) -> None:
        self.cancelled.append(label)
        self.asked.clear()


def _sweep(
    fleet: Fleet, root: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Outcome:
    monkeypatch.setattr(sweep, "POLL_S", 0.01)
    return FleetSweep(
        fleet, CONTENT, root / "results", lambda text: None, wait_s=0.1, **options
    ).run()


def test_runs_of_a_label_whose_last_host_cannot_make_the_datasets_are_recorded_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Scripted()
    outcome = _sweep(fleet, tmp_path, monkeypatch)
    assert outcome.problems == {"ssd": "the disk is full"}
    assert fleet.cancelled == ["ssd"]
    assert [record.status for record in outcome.records] == ["failed", "failed"]
    assert all(
        "no host of label ssd was left" in record.reason for record in outcome.records
    )


def test_a_host_with_other_code_ends_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="the disk is full"):
        _sweep(Scripted("code"), tmp_path, monkeypatch)


def test_a_run_that_a_host_cannot_record_is_recorded_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = _sweep(Scripted(""), tmp_path, monkeypatch)
    assert outcome.problems == {}
    assert [record.reason for record in outcome.records] == ["the disk is full"] * 2


def test_a_label_that_never_comes_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Scripted()
    fleet.answers = lambda timeout_s: []  # type: ignore[method-assign]
    outcome = _sweep(fleet, tmp_path, monkeypatch, labels=["tape"])
    assert outcome.records == []
    assert "tape" in outcome.problems


def test_it_states_how_many_of_its_runs_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "POLL_S", 0.01)
    spread = FleetSweep(
        Scripted(), CONTENT, tmp_path / "results", lambda text: None, wait_s=0.1
    )
    assert spread.reading().share is None, "no host has reported what is to be run"
    outcome = spread.run()
    found = spread.reading()
    assert (found.done, found.total, found.unit) == (len(outcome.records), 2, "runs")
