"""A sweep over hosts that fail; their answers are scripted, `test_fleet.py` has real
ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import sweep
from harness.hosts.fleet import Answer, Fleet, Pulse
from harness.hosts.orders import Content, Greeting, Order
from harness.hosts.sweep import FleetSweep
from harness.plan.experiment import PlannedRun
from harness.records.code import code_of
from harness.records.record import Record
from harness.results import store
from harness.results.archive import pack
from harness.results.store import records, runs_folder
from harness.run.sweep import Outcome
from harness.settings import RunSettings
from tests.harness.records import make_record, save
from workloads.errors import InputError

CELLS = 4
FULL = {"error": "the results disk is full", "fix": "free some space"}
Behaviour = Callable[[Order], dict[str, Any] | None]


class Scripted(Fleet):
    """Hosts that answer at once: `script` has the behaviour of a host that differs from
    a healthy one, None for no answer ever; `silence` has the seconds since a sign of
    life."""

    def __init__(self, root: Path, hosts: dict[str, str]) -> None:
        self.root = root
        self.here = dict(hosts)
        self.script: dict[str, Behaviour] = {}
        self.silence: dict[str, float] = {}
        self.commits: dict[str, str] = {}
        self.asked: list[tuple[str, Order]] = []
        self.waiting: dict[str, Order] = {}
        self.dismissed: list[str] = []
        self.configs = [
            make_record("in-memory", [1.0], round=number).config
            for number in range(CELLS)
        ]

    def hosts(self) -> dict[str, str]:
        return dict(self.here)

    def order(self, host: str, order: Order) -> None:
        assert host not in self.waiting, "a host has one order at a time"
        self.asked.append((host, order))
        self.waiting[host] = order

    def answers(self, timeout_s: float) -> list[Answer]:
        found = []
        for host, order in list(self.waiting.items()):
            script = self.script.get(host)
            content = script(order) if script else self.healthy(host, order)
            if content is not None:
                del self.waiting[host]
                found.append(Answer(host, content))
        return found

    def pulses(self) -> dict[str, Pulse]:
        return {host: Pulse(self.silence.get(host, 0.0), 0.0) for host in self.waiting}

    def dismiss(self, host: str) -> None:
        self.dismissed.append(host)
        self.waiting.pop(host, None)

    def healthy(self, host: str, order: Order) -> dict[str, Any]:
        """Return the answer of a host without a fault."""
        environment = {"cpu": {"model": host}, "host_label": self.here.get(host, "ssd")}
        if order.task == "greet":
            codes = {"in-memory neighbor": code_of("in-memory", "neighbor")}
            commit = self.commits.get(host)
            greeting = Greeting(commit=commit, codes=codes, environment=environment)
            return greeting.model_dump(mode="json")
        if order.task == "prepare":
            configs = [config.model_dump(mode="json") for config in self.configs]
            return {"configs": configs}
        record = self.record(host, order.number, environment)
        save(self.root / host, record)
        archive = self.root / f"{record.run_id}.tar.gz"
        folder = runs_folder(self.root / host) / record.run_id
        pack(self.root / host, [folder], [], archive)
        return {"archive": archive.read_bytes()}

    def record(self, host: str, number: int, environment: dict[str, Any]) -> Record:
        """Return a record of the present code."""
        config = self.configs[number]
        made = make_record("in-memory", [1.0], round=number)
        update = {
            "config": config,
            "config_hash": config.config_hash,
            "environment": environment,
            "code": code_of("in-memory", config.sampler),
        }
        return made.model_copy(update=update)

    def runs_of(self, host: str) -> list[int]:
        """Return the runs that a host was asked for, in order."""
        return [
            order.number
            for name, order in self.asked
            if name == host and order.task == "run"
        ]


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Return a function that runs a sweep over a scripted fleet."""
    monkeypatch.setattr(sweep, "POLL_S", 0.01)
    lines: list[str] = []

    def run(fleet: Fleet, **options: Any) -> Outcome:
        content = Content(
            experiments=[],
            fresh=options.pop("fresh", False),
            retry=options.pop("retry", True),
        )
        planned = [PlannedRun("in-memory", RunSettings())]
        options = {"wait_s": 0.1, **options}
        spread = FleetSweep(
            fleet, content, planned, tmp_path / "results", lines.append, **options
        )
        run.lines = lines  # type: ignore[attr-defined]
        return spread.run()

    return run


@pytest.fixture
def two(tmp_path: Path) -> Scripted:
    """Return two hosts of one label."""
    return Scripted(tmp_path / "hosts", {"first": "ssd", "second": "ssd"})


def broken(fleet: Scripted, host: str, task: str = "run") -> None:
    """Let a host fail with every order of a kind."""

    def behave(order: Order) -> dict[str, Any]:
        return FULL if order.task == task else fleet.healthy(host, order)

    fleet.script[host] = behave


def test_hosts_of_one_label_share_its_runs_in_order(
    two: Scripted, swept: Callable[..., Outcome]
) -> None:
    outcome = swept(two)
    assert [record.status for record in outcome.records] == ["ok"] * CELLS
    shared = [two.runs_of("first"), two.runs_of("second")]
    assert sorted(shared[0] + shared[1]) == list(range(CELLS))
    assert all(runs == sorted(runs) for runs in shared)


@pytest.mark.parametrize("task", ["greet", "prepare", "run"])
def test_a_broken_host_is_left_out_by_name_and_the_healthy_one_does_everything(
    task: str, two: Scripted, swept: Callable[..., Outcome]
) -> None:
    broken(two, "first", task)
    outcome = swept(two)
    assert [record.status for record in outcome.records] == ["ok"] * CELLS
    assert sorted(two.runs_of("second")) == list(range(CELLS))
    assert len(two.runs_of("first")) == (task == "run")
    assert list(outcome.left_out) == ["ssd/first"]
    assert "the results disk is full; free some space" in outcome.left_out["ssd/first"]
    assert outcome.problems == {}


def test_a_run_that_fails_on_every_host_leaves_none_out(
    two: Scripted, swept: Callable[..., Outcome]
) -> None:
    for host in ("first", "second"):
        two.script[host] = lambda order, host=host: (  # type: ignore[misc]
            FULL if order.number == 1 else two.healthy(host, order)
        )
    outcome = swept(two)
    by_round = {record.config.round: record for record in outcome.records}
    assert [by_round[number].status for number in range(CELLS)] == [
        "ok",
        "failed",
        "ok",
        "ok",
    ]
    assert "ssd/first: the results" in by_round[1].reason
    assert "ssd/second: the results" in by_round[1].reason
    assert outcome.left_out == {}


def test_the_only_host_of_a_label_goes_on_after_a_failure_and_ends_after_several(
    tmp_path: Path, swept: Callable[..., Outcome]
) -> None:
    alone = Scripted(tmp_path / "hosts", {"first": "ssd"})
    alone.script["first"] = lambda order: (
        FULL if order.number == 0 else alone.healthy("first", order)
    )
    outcome = swept(alone)
    assert [record.status for record in outcome.records] == ["failed", "ok", "ok", "ok"]
    assert outcome.left_out == {}
    worse = Scripted(tmp_path / "worse", {"first": "hdd"})
    broken(worse, "first")
    outcome = swept(worse)
    assert [record.status for record in outcome.records] == ["failed"] * CELLS
    assert len(worse.runs_of("first")) == sweep.FAILURES
    assert "hdd/first: the results disk is full" in outcome.problems["hdd"]


def test_a_host_of_another_commit_is_left_out_and_the_others_go_on(
    two: Scripted, swept: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "a" * 40
    monkeypatch.setattr(sweep, "code", lambda: {"commit": own})
    two.commits = {"first": "b" * 40, "second": own}
    outcome = swept(two)
    assert [record.status for record in outcome.records] == ["ok"] * CELLS
    assert two.runs_of("first") == []
    assert "it runs commit bbbbbbbbbbbb" in outcome.left_out["ssd/first"]
    assert "install the same commit there" in outcome.left_out["ssd/first"]


def test_a_host_with_changed_code_is_left_out(
    two: Scripted, swept: Callable[..., Outcome]
) -> None:
    def dirty(order: Order) -> dict[str, Any]:
        answer = two.healthy("first", order)
        if order.task == "greet":
            answer["codes"]["in-memory neighbor"]["harness"] = "0" * 16
        return answer

    two.script["first"] = dirty
    outcome = swept(two)
    assert [record.status for record in outcome.records] == ["ok"] * CELLS
    assert "its code of in-memory or the harness" in outcome.left_out["ssd/first"]


def test_a_silent_host_is_named_and_its_run_is_repeated_elsewhere(
    two: Scripted, swept: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SILENT_S", 0.0)
    two.silence["first"] = 90.0
    two.script["first"] = lambda order: (
        None if order.task == "run" else two.healthy("first", order)
    )
    outcome = swept(two)
    assert [record.status for record in outcome.records] == ["ok"] * CELLS
    assert outcome.left_out == {"ssd/first": "no sign of life for 90 s"}
    assert "first" in two.dismissed


def test_a_run_beyond_its_deadline_is_repeated_elsewhere(
    two: Scripted, swept: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    two.script["first"] = lambda order: (
        None if order.task == "run" else two.healthy("first", order)
    )
    busy = 2 * two.configs[0].timeout_s + sweep.SLACK_S + 1
    monkeypatch.setattr(
        two,
        "pulses",
        lambda: {host: Pulse(0.0, busy) for host in two.waiting if host == "first"},
    )
    outcome = swept(two)
    assert [record.status for record in outcome.records] == ["ok"] * CELLS
    assert "its order is not done after" in outcome.left_out["ssd/first"]


def test_runs_of_a_lost_host_are_repeated_on_another_of_its_label(
    two: Scripted, swept: Callable[..., Outcome]
) -> None:
    def vanish(order: Order) -> dict[str, Any] | None:
        if order.task != "run":
            return two.healthy("first", order)
        two.here.pop("first", None)
        return None

    two.script["first"] = vanish
    outcome = swept(two)
    assert [record.status for record in outcome.records] == ["ok"] * CELLS
    assert two.runs_of("first")[0] in two.runs_of("second")


def test_a_host_whose_process_is_lost_again_and_again_is_left_out(
    two: Scripted, swept: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = two.answers

    def answers(timeout_s: float) -> list[Answer]:
        return [
            Answer("first", {}, lost=True) if answer.host == "first" else answer
            for answer in whole(timeout_s)
        ]

    monkeypatch.setattr(two, "answers", answers)
    outcome = swept(two)
    assert [record.status for record in outcome.records] == ["ok"] * CELLS
    assert outcome.left_out == {"ssd/first": "its process was lost 3 times"}


def test_an_archive_that_cannot_be_imported_is_a_fault_of_its_host(
    two: Scripted, swept: Callable[..., Outcome]
) -> None:
    two.script["first"] = lambda order: (
        {"archive": b"no archive"}
        if order.task == "run"
        else two.healthy("first", order)
    )
    outcome = swept(two)
    assert [record.status for record in outcome.records] == ["ok"] * CELLS
    assert outcome.left_out["ssd/first"].startswith("its archive ")


def test_a_label_whose_hosts_are_lost_has_failed_runs_of_its_own_host(
    tmp_path: Path, swept: Callable[..., Outcome]
) -> None:
    pair = {"a": "alpha", "b": "beta"}
    fleet = Scripted(tmp_path / "hosts", pair)
    for host in pair:
        fleet.script[host] = lambda order, host=host: (  # type: ignore[misc]
            FULL if order.task == "run" else fleet.healthy(host, order)
        )
    outcome = swept(fleet)
    assert {record.environment["host_label"] for record in outcome.records} == set(
        pair.values()
    )
    kept = list(records(tmp_path / "results"))
    assert len(kept) == len(pair) * CELLS, "no record replaced another"


def test_a_label_that_never_comes_is_a_problem(
    two: Scripted, swept: Callable[..., Outcome]
) -> None:
    two.here = {}
    outcome = swept(two, labels=["tape"])
    assert outcome.records == []
    assert "no host of label tape" in outcome.problems["tape"]


def test_without_a_labelled_host_the_sweep_is_refused(
    two: Scripted, swept: Callable[..., Outcome]
) -> None:
    two.here = {}
    with pytest.raises(InputError, match="outcore-host"):
        swept(two)


def test_a_second_call_repeats_nothing_whichever_host_made_a_run(
    two: Scripted, swept: Callable[..., Outcome]
) -> None:
    first = swept(two)
    again = swept(two)
    assert (len(first.records), again.records, again.skipped) == (CELLS, [], CELLS)
    assert {record.run_id for record in again.earlier} == {
        record.run_id for record in first.records
    }


def test_a_second_call_repeats_spoilt_runs_unless_it_may_not(
    two: Scripted, swept: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    swept(two)
    monkeypatch.setattr("harness.run.sweep.spoilt", lambda record: True)
    assert swept(two, retry=False).skipped == CELLS
    assert swept(two).skipped == 0


def test_the_store_is_read_once_for_all_labels(
    tmp_path: Path, swept: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = {f"host{number}": f"label{number}" for number in range(5)}
    fleet = Scripted(tmp_path / "hosts", hosts)
    swept(fleet)
    read = []
    whole = store.read_record
    monkeypatch.setattr(
        "harness.results.store.read_record",
        lambda path: (read.append(path), whole(path))[1],
    )
    assert swept(fleet).skipped == len(hosts) * CELLS
    assert len(read) == len(hosts) * CELLS


def test_the_progress_counts_the_runs_of_all_labels(
    two: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "POLL_S", 0.01)
    spread = FleetSweep(
        two,
        Content(experiments=[]),
        [PlannedRun("in-memory", RunSettings())],
        tmp_path / "results",
        lambda text: None,
        wait_s=0.1,
    )
    assert spread.reading().share is None, "no host has reported what is to be run"
    outcome = spread.run()
    found = spread.reading()
    assert (found.done, found.total, found.unit) == (
        len(outcome.records),
        CELLS,
        "runs",
    )
