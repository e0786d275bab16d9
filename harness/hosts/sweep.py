"""A sweep over many hosts: each label gets every run, one at a time on a machine, and
no run is lost with its host. Hosts of one label share its runs; records of different
labels, part of a host's fingerprint, are never averaged."""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from harness.hosts.host import Order
from harness.progress import Reading
from harness.records.code import is_current
from harness.records.environment import code
from harness.records.hosts import host_fingerprint
from harness.records.record import Record, RunConfig
from harness.results import store as results
from harness.results.incoming import merge
from harness.run.orchestrator import new_run_id
from harness.run.sweep import Outcome
from workloads.errors import HostError, InputError

TRIES = 3
POLL_S = 2.0
Task = int | None  # None: make the datasets; a number: run that cell of the sweep


@dataclass(frozen=True)
class Answer:
    """The answer to an order: see `perform`, with the host in `node`; an error without
    `kind` also for lost hosts."""

    label: str
    task: Task
    content: dict[str, Any]


class Fleet(ABC):
    """A source of hosts, which places orders on them."""

    @abstractmethod
    def hosts(self) -> dict[str, str]:
        """Return the label of each host that is here, by the host's name."""

    @abstractmethod
    def order(self, order: Order, without: Collection[str]) -> None:
        """Place an order on a host of its label, once one is free, but on none of
        `without`."""

    @abstractmethod
    def answers(self, timeout_s: float) -> list[Answer]:
        """Return the answers to completed orders after the first one or `timeout_s`; at
        once where none is pending."""

    @abstractmethod
    def cancel(self, label: str) -> None:
        """Withdraw the orders of a label."""


@dataclass
class FleetSweep:
    """Orders for a sweep's cells, and collection of their records. `content`: content
    of every order beyond its label, task and number. `progress`: called with each host
    that comes or goes, and each record. `labels`: labels to wait for; empty: those of
    all hosts. `wait_s`: seconds to wait for a label without a host, at the beginning
    and after a loss. `fresh`: whether to run cells again that have a record here."""

    fleet: Fleet
    content: dict[str, Any]
    results_root: Path
    progress: Callable[[str], None]
    _: KW_ONLY
    labels: Collection[str] = ()
    wait_s: float = 60.0
    fresh: bool = False
    _here: dict[str, str] = field(default_factory=dict, init=False)
    _unfit: set[str] = field(default_factory=set, init=False)
    _open: dict[str, set[Task]] = field(default_factory=dict, init=False)
    _configs: dict[str, list[RunConfig]] = field(default_factory=dict, init=False)
    _alone_since: dict[str, float] = field(default_factory=dict, init=False)
    _outcome: Outcome = field(default_factory=Outcome, init=False)

    def __post_init__(self) -> None:
        self.content = {**self.content, "fresh": self.fresh, "commit": code()["commit"]}

    def run(self) -> Outcome:
        """Run all cells of each label until each has a record; a run that no host
        completed gets one that failed. Raises InputError: no host has the label
        `outcore-host`, or a host runs other code than this process."""
        for label in sorted(set(self.labels)):
            self._order(label, None)
        self._look()
        if not self._open:
            message = "no host of the cluster carries the label outcore-host"
            raise InputError(
                message,
                "start each with `ray start --address … --labels outcore-host=NAME`",
            )
        while any(self._open.values()):
            for answer in self.fleet.answers(POLL_S):
                self._take(answer)
            self._look()
        return self._outcome

    def reading(self) -> Reading:
        """Return the progress of the runs of all labels that have begun."""
        done = len(self._outcome.records)
        total = sum(map(len, self._configs.values())) - self._outcome.skipped
        return Reading(f"{len(self._here)} hosts", done, total, "runs")

    def _look(self) -> None:
        """Note hosts that came or went, begin with their labels, and give labels up
        that were alone for too long."""
        here = {
            name: label
            for name, label in self.fleet.hosts().items()
            if not self.labels or label in self.labels
        }
        for name in here.keys() ^ self._here.keys():
            label = (self._here | here)[name]
            self.progress(
                f"host {label}/{name[:6]} {'is here' if name in here else 'was lost'}"
            )
        self._here = here
        for label in sorted(set(here.values()) - self._open.keys()):
            self._order(label, None)
        usable = {label for name, label in here.items() if name not in self._unfit}
        for label in [label for label, tasks in self._open.items() if tasks]:
            if label in usable:
                self._alone_since.pop(label, None)
            elif (
                time.monotonic() - self._alone_since.setdefault(label, time.monotonic())
                > self.wait_s
            ):
                self._give_up(label)

    def _give_up(self, label: str) -> None:
        self.fleet.cancel(label)
        for task in sorted(task for task in self._open[label] if task is not None):
            self._record_lost(
                label,
                task,
                f"no host of label {label} was left for {self.wait_s:.0f} s",
            )
        if label not in self._configs:
            self._outcome.problems.setdefault(
                label,
                f"no host of label {label} could make its datasets or came at all",
            )
        self._open[label].clear()

    def _order(self, label: str, task: Task) -> None:
        self._open.setdefault(label, set()).add(task)
        what = {"task": "prepare"} if task is None else {"task": "run", "number": task}
        self.fleet.order(
            Order.model_validate({**self.content, "label": label, **what}), self._unfit
        )

    def _take(self, answer: Answer) -> None:
        label = answer.label
        task = answer.task
        content = answer.content
        error = content.get("error")
        kind = content.get("kind")
        if kind == "code":
            raise InputError(str(error), content["fix"])
        self._open[label].discard(task)
        if error and (task is None or kind == "datasets"):
            self._outcome.problems[label] = error
            self.progress(error)
            if kind == "datasets":
                # A host that cannot make the datasets gets no runs.
                self._unfit.add(content["node"])
                self._order(label, task)
        elif task is None:
            configs = [
                RunConfig.model_validate(config) for config in content["configs"]
            ]
            self._begin(label, configs, content["fingerprint"])
        elif error:
            self._record_lost(label, task, error)
        else:
            record = self._merge(content["archive"])
            self._outcome.records.append(record)
            done = (
                f"run {task + 1}/{len(self._configs[label])} {record.system} "
                f"{record.config.memory}"
            )
            self.progress(f"{label}: {done}: {record.status}, {record.verdict}")

    def _begin(self, label: str, configs: list[RunConfig], fingerprint: str) -> None:
        """Order a label's runs without a record here, once a host of it has the
        datasets."""
        self._configs[label] = configs
        earlier = self._done(fingerprint)
        todo = []
        for number, config in enumerate(configs):
            known = earlier.get((config.config_hash, config.round), [])
            self._outcome.earlier += known
            if self.fresh or not known:
                todo.append(number)
        self._outcome.skipped += len(configs) - len(todo)
        self.progress(
            f"{label}: {len(todo)} runs, {len(configs) - len(todo)} done before"
        )
        for number in todo:
            self._order(label, number)

    def _done(self, fingerprint: str) -> dict[tuple[str, int], list[Record]]:
        """Return the records by a host's present code, by configuration and round;
        failed runs are tried again."""
        found: dict[tuple[str, int], list[Record]] = {}
        for record in results.records(self.results_root):
            theirs = (
                record.status != "failed"
                and host_fingerprint(record.environment) == fingerprint
            )
            if theirs and is_current(record.code, record.system, record.config.sampler):
                found.setdefault((record.config_hash, record.config.round), []).append(
                    record
                )
        return found

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
        results.write_run(self.results_root, record, {})
        self._outcome.records.append(record)
        self.progress(f"{label}: {config.system} {config.memory}: failed ({reason})")

    def _merge(self, archive: bytes) -> Record:
        with tempfile.TemporaryDirectory(prefix="outcore-collect-") as folder:
            path = Path(folder, "run.tar.gz")
            path.write_bytes(archive)
            merged = merge([path], self.results_root)
        names = [*merged.runs, *merged.skipped]
        if len(names) != 1:
            raise HostError(
                f"a host sent {len(names)} runs where one was asked for",
                "install the same commit there",
            )
        return results.read_record(results.runs_folder(self.results_root) / names[0])
