"""What a sweep over hosts does when they fail, by hosts whose answers are scripted; `test_fleet.py` has real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.hosts import sweep
from harness.hosts.sweep import Answer, Fleet, FleetSweep, Lost, Seat, Task
from tests.harness.records import make_record
from workloads.errors import HostError


class Scripted(Fleet):
    """Hosts of one label: the first prepares and is lost in its run, the second cannot make the datasets."""

    def __init__(self) -> None:
        self.configs = [make_record("pyg+", [1.0], round=number).config for number in range(2)]
        self.here = [Seat(name, "ssd", name, name, None) for name in ("first", "second")]
        self.asked: list[tuple[Seat, Task]] = []

    def arrivals(self) -> list[Seat]:
        here, self.here = self.here, []
        return here

    def order(self, seat: Seat, task: Task) -> None:
        self.asked.append((seat, task))

    def answers(self, timeout_s: float) -> list[Answer]:
        """The second is slow with its datasets: it answers when the first is lost."""
        waiting, self.asked = self.asked, []
        found = []
        for seat, task in waiting:
            if task is not None:
                found.append(Answer(seat, task, Lost("the machine went down")))
            elif seat.name == "first":
                found.append(Answer(seat, task, [config.model_dump(mode="json") for config in self.configs]))
            elif len(waiting) == 1:
                found.append(Answer(seat, task, HostError("the disk is full")))
            else:
                self.asked.append((seat, task))
        return found


def test_runs_of_a_label_whose_last_host_cannot_make_the_datasets_are_recorded_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "POLL_S", 0.01)
    outcome = FleetSweep(Scripted(), tmp_path / "results", lambda text: None, wait_s=0.1).run()
    assert outcome.problems == {"ssd": "the disk is full"}
    assert [record.status for record in outcome.records] == ["failed", "failed"] and outcome.lost == 2
    assert all("no host of label ssd was left" in record.reason for record in outcome.records)
