"""A sweep over many hosts: each label gets every run, one at a time on a machine, and no run is lost with its host.

Hosts with the same label share its runs; records of different labels are never averaged, since the label is part of a
host's fingerprint.
"""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.records.code import is_current
from harness.records.environment import code
from harness.records.hosts import host_fingerprint
from harness.records.record import Record, RunConfig
from harness.results import store as results
from harness.results.incoming import merge
from harness.run.orchestrator import new_run_id
from workloads.errors import HostError, InputError, OutcoreError

TRIES = 3
POLL_S = 2.0
# None: make the datasets; a number: run that cell of the sweep.
Task = int | None


@dataclass(frozen=True)
class Seat:
    """A host that runs one cell at a time.

    Attributes:
        label: label of the host, shared by hosts of one kind.
        machine: id of the machine; two seats on one machine never run at the same time.
        commit: commit of its code; None where unknown.
    """

    name: str
    label: str
    machine: str
    fingerprint: str
    commit: str | None


@dataclass(frozen=True)
class Lost:
    """The loss of a host during a task."""

    reason: str


@dataclass(frozen=True)
class Answer:
    """The result of a task: configurations as plain data, an archive, an error of the host, or its loss."""

    seat: Seat
    task: Task
    content: list[dict[str, Any]] | bytes | OutcoreError | Lost


class Fleet(ABC):
    """A source of seats, with their orders and answers."""

    @abstractmethod
    def arrivals(self) -> list[Seat]:
        """Return the seats that have joined since the last call."""

    @abstractmethod
    def order(self, seat: Seat, task: Task) -> None:
        """Ask a seat for one task, without waiting."""

    @abstractmethod
    def answers(self, timeout_s: float) -> list[Answer]:
        """Return the results of completed tasks after the first one or `timeout_s`; at once where none is pending."""


@dataclass
class FleetOutcome:
    """The result of a sweep over hosts.

    Attributes:
        records: records made by this call, or found on their hosts.
        skipped: number of runs with a record here already.
        lost: number of `records` for runs that no host of their label completed.
        problems: label -> reason why no run of it could be recorded.
    """

    records: list[Record] = field(default_factory=list)
    skipped: int = 0
    lost: int = 0
    problems: dict[str, str] = field(default_factory=dict)


class FleetSweep:
    """Distribution of a sweep's cells to seats, and collection of their records.

    Args:
        progress: called with each cell and its seat.
        labels: labels to wait for; empty: those of the hosts present at the beginning.
        wait_s: seconds to wait for a label without a seat, at the beginning and after a loss.
        fresh: whether to run cells again that have a record here.
    """

    def __init__(
        self,
        fleet: Fleet,
        results_root: Path,
        progress: Callable[[str], None],
        *,
        labels: Collection[str] = (),
        wait_s: float = 60.0,
        fresh: bool = False,
    ) -> None:
        self._fleet = fleet
        self._root = results_root
        self._progress = progress
        self._wait_s = wait_s
        self._fresh = fresh
        self._idle: list[Seat] = []
        self._busy: dict[Seat, Task] = {}
        self._configs: dict[str, list[RunConfig]] = {}
        self._waiting: dict[str, deque[int]] = {}
        self._prepared: set[Seat] = set()
        self._tries: Counter[tuple[str, Task]] = Counter()
        self._alone_since: dict[str, float] = {label: time.monotonic() for label in labels}
        self._outcome = FleetOutcome()

    def run(self) -> FleetOutcome:
        """Run all cells of each label until each has a record.

        Raises:
            InputError: no host has the label `outcore-host`, or a host runs other code than this process.
        """
        self._arrive()
        while not self._busy and not self._idle and self._alone_since and not self._given_up():
            time.sleep(POLL_S)
            self._arrive()
        if not self._idle and not self._outcome.problems:
            raise InputError(
                "no host of the cluster carries the label outcore-host",
                "start each with `ray start --address … --labels outcore-host=NAME`",
            )
        while True:
            self._hand_out()
            self._given_up()
            if not self._busy and not self._left():
                return self._outcome
            answers = self._fleet.answers(POLL_S)
            for answer in answers:
                self._take(answer)
            if not answers and not self._busy:
                time.sleep(POLL_S)
            self._arrive()

    def _left(self) -> bool:
        """Return whether a label has runs left, or is still waited for."""
        return bool(self._idle_work() or self._alone_since or any(self._waiting.values()))

    def _idle_work(self) -> bool:
        return any(seat not in self._prepared for seat in self._idle)

    def _arrive(self) -> None:
        for seat in self._fleet.arrivals():
            own = code()["commit"]
            if own and seat.commit and own != seat.commit:
                raise InputError(
                    f"host {seat.name} runs commit {seat.commit[:12]}, this process {own[:12]}",
                    "install the same commit on every host",
                )
            self._progress(f"host {seat.name} is here")
            self._alone_since.pop(seat.label, None)
            self._idle.append(seat)

    def _hand_out(self) -> None:
        for seat in list(self._idle):
            if any(seat.machine == other.machine for other in self._busy):
                continue
            if seat not in self._prepared:
                self._order(seat, None)
            elif self._waiting.get(seat.label):
                self._order(seat, self._waiting[seat.label].popleft())

    def _order(self, seat: Seat, task: Task) -> None:
        self._idle.remove(seat)
        self._busy[seat] = task
        self._tries[seat.label, task] += 1
        self._progress(f"{seat.name}: {self._name(seat.label, task)}")
        self._fleet.order(seat, task)

    def _name(self, label: str, task: Task) -> str:
        if task is None:
            return "datasets"
        config = self._configs[label][task]
        return f"run {task + 1}/{len(self._configs[label])} {config.system} {config.memory} round {config.round}"

    def _take(self, answer: Answer) -> None:
        seat, task, content = answer.seat, answer.task, answer.content
        del self._busy[seat]
        if isinstance(content, Lost):
            self._progress(f"{seat.name} was lost: {content.reason}")
            self._again(seat, task, f"host {seat.name} was lost: {content.reason}")
            self._note_if_alone(seat.label)
            return
        self._idle.append(seat)
        if isinstance(content, OutcoreError):
            if task is None:
                self._idle.remove(seat)  # a host that cannot make the datasets gets no runs
                self._outcome.problems[seat.label] = content.message
                self._progress(str(content))
                if self._waiting.get(seat.label):
                    self._note_if_alone(seat.label)
            else:
                self._record_lost(seat.label, task, content.message)
        elif isinstance(content, bytes):
            assert task is not None
            record = self._merge(content)
            self._outcome.records.append(record)
            self._progress(f"{seat.name}: {record.system} {record.config.memory}: {record.status}, {record.verdict}")
        else:
            self._prepared.add(seat)
            self._begin(seat, [RunConfig.model_validate(config) for config in content])

    def _note_if_alone(self, label: str) -> None:
        """Start the time in which another host of a label has to join, where it has none left."""
        if not any(other.label == label for other in [*self._idle, *self._busy]):
            self._alone_since[label] = time.monotonic()

    def _begin(self, seat: Seat, configs: list[RunConfig]) -> None:
        """Queue a label's runs without a record here, from the first of its hosts that has the datasets."""
        if seat.label in self._configs:
            return
        self._configs[seat.label] = configs
        done = set() if self._fresh else self._done(seat.fingerprint)
        todo = [number for number, config in enumerate(configs) if (config.config_hash, config.round) not in done]
        self._outcome.skipped += len(configs) - len(todo)
        self._waiting[seat.label] = deque(todo)

    def _done(self, fingerprint: str) -> set[tuple[str, int]]:
        bad: list[results.BadRecord] = []
        return {
            (record.config_hash, record.config.round)
            for record in results.records(self._root, bad)
            if record.status != "failed"
            and host_fingerprint(record.environment) == fingerprint
            and is_current(record.code, record.system)
        }

    def _again(self, seat: Seat, task: Task, reason: str) -> None:
        """Return a lost host's task to its label's queue, at most `TRIES` times."""
        self._prepared.discard(seat)
        if task is None:
            return
        if self._tries[seat.label, task] < TRIES:
            self._waiting[seat.label].appendleft(task)
        else:
            self._record_lost(seat.label, task, f"{reason} (tried {TRIES} times)")

    def _given_up(self) -> bool:
        """Record the runs of labels without a host for too long as lost; return whether there was such a label."""
        late = [label for label, since in self._alone_since.items() if time.monotonic() - since > self._wait_s]
        for label in late:
            del self._alone_since[label]
            if label not in self._configs:
                self._outcome.problems[label] = f"no host of label {label} could make its datasets or came at all"
            for number in self._waiting.pop(label, ()):
                self._record_lost(label, number, f"no host of label {label} was left for {self._wait_s:.0f} s")
        return bool(late)

    def _record_lost(self, label: str, number: int, reason: str) -> None:
        """Write a record without epochs, which the next sweep tries again."""
        config = self._configs[label][number]
        record = Record(
            run_id=new_run_id(config),
            config_hash=config.config_hash,
            system=config.system,
            status="failed",
            reason=reason,
            started_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            config=config,
            environment={"host_label": label},
        )
        results.write_run(self._root, record, {})
        self._outcome.records.append(record)
        self._outcome.lost += 1
        self._progress(f"{label}: {config.system} {config.memory}: failed ({reason})")

    def _merge(self, archive: bytes) -> Record:
        with tempfile.TemporaryDirectory(prefix="outcore-collect-") as folder:
            path = Path(folder, "run.tar.gz")
            path.write_bytes(archive)
            merged = merge([path], self._root)
        names = [*merged.runs, *merged.skipped]
        if len(names) != 1:
            raise HostError(f"a host sent {len(names)} runs where one was asked for", "install the same commit there")
        return results.read_record(results.runs_folder(self._root) / names[0])
