"""A sweep over many hosts: each label gets every run, one at a time on a machine, and
no run is lost with its host. Hosts of one label share its runs; records of different
labels, part of a host's fingerprint, are never averaged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from harness.hosts.collect import collect, record_failed
from harness.hosts.earlier import Earlier
from harness.hosts.fleet import Answer, Fleet
from harness.hosts.orders import Content, Greeting, Order, codes_of
from harness.hosts.roster import Failure, Host, Label
from harness.plan.experiment import PlannedRun
from harness.progress import Reading, silent
from harness.records.environment import code
from harness.records.record import Code, RunConfig
from harness.run.sweep import Outcome
from workloads.errors import InputError, OutcoreError

#: Hosts that may be lost during a run, or fail to execute it, before it has failed.
TRIES = 3
#: Failures in a row of a label's only host, after which it gets no more runs.
FAILURES = 3
POLL_S = 2.0
#: Seconds without a sign of life after which a host is reported.
SILENT_S = 20.0
#: Seconds in which a host has to give its first sign of life.
START_S = 180.0
#: Seconds beyond its timeouts that a run may take: preparation, profiles, evaluation.
SLACK_S = 900.0


@dataclass
class FleetSweep:
    """Orders for a sweep's cells, and collection of their records.

    Attributes:
        fleet, content: the hosts, and the part of all orders that never changes.
        planned: the sweep's cells, in its order.
        results_root: folder in which records are collected.
        progress: called with each host that comes, goes or fails, and each record.
        labels: labels to wait for; empty: those of all hosts.
        wait_s: seconds to wait for a label without a host, and for a silent host.
    """

    fleet: Fleet
    content: Content
    planned: Sequence[PlannedRun]
    results_root: Path
    progress: Callable[[str], None]
    _: KW_ONLY
    labels: Collection[str] = ()
    wait_s: float = 60.0
    _hosts: dict[str, Host] = field(default_factory=dict, init=False)
    _labels: dict[str, Label] = field(default_factory=dict, init=False)
    _own: dict[str, Code] = field(default_factory=dict, init=False)
    _losses: Counter[str] = field(default_factory=Counter, init=False)
    _known: Earlier | None = field(default=None, init=False)
    _outcome: Outcome = field(default_factory=Outcome, init=False)

    def run(self) -> Outcome:
        """Run all cells of each label until each has a record; a run that no host
        completed gets one that failed.

        Raises:
            InputError: no host has the label `outcore-host`.
            HostError: the fleet is lost; finished runs are recorded.
        """
        self._own = codes_of(list(self.planned))
        for name in sorted(set(self.labels)):
            self._labels[name] = Label(name)
        self._look()
        if not self._labels:
            raise InputError(
                "no host of the cluster carries the label outcore-host",
                "start each with `ray start --address … --labels outcore-host=NAME`",
            )
        looked = time.monotonic()
        while self._assign():
            for answer in self.fleet.answers(POLL_S):
                self._take(answer)
            if time.monotonic() - looked >= POLL_S:
                self._listen()
                self._look()
                looked = time.monotonic()
        return self._outcome

    def reading(self) -> Reading:
        """Return the progress of the runs of all labels that have begun."""
        done = len(self._outcome.records)
        labels = self._labels.values()
        total = sum(len(label.configs) for label in labels) - self._outcome.skipped
        return Reading(f"{len(self._hosts)} hosts", done, total, "runs")

    def _look(self) -> None:
        """Note hosts that came or went, and give labels up that were alone for too
        long."""
        here = self.fleet.hosts()
        for name in self._hosts.keys() - here.keys():
            self._lose(self._hosts[name])
        for name, own in sorted(here.items()):
            wanted = not self.labels or own in self.labels
            if name not in self._hosts and wanted:
                self._hosts[name] = host = Host(name, own)
                self._labels.setdefault(own, Label(own)).hosts.append(host)
                self.progress(f"host {host} is here")
                if self._losses[name] >= TRIES:
                    self._leave_out(host, f"its process was lost {TRIES} times")
        now = time.monotonic()
        for label in self._labels.values():
            if label.fit:
                label.alone_since = None
            elif label.alone_since is None:
                label.alone_since = now
            elif now - label.alone_since > self.wait_s and not label.closed:
                self._give_up(label)

    def _assign(self) -> bool:
        """Send the next order to each idle host; return whether there is anything to
        wait for."""
        for label in self._labels.values():
            fit = label.fit
            known = all(host.stage != "new" for host in fit)
            if label.configs and known and not label.begun:
                self._begin(label, fit)
            for host in fit:
                if host.order is None:
                    self._send(host, label)
        waiting = any(host.order for host in self._hosts.values())
        return waiting or any(map(self._is_open, self._labels.values()))

    def _is_open(self, label: Label) -> bool:
        """Return whether a label has runs left that nobody executes."""
        return not label.closed and (not label.begun or bool(label.queue))

    def _send(self, host: Host, label: Label) -> None:
        """Send its next order to an idle host, if there is one."""
        if label.closed:
            return
        if host.stage == "new":
            order = Order(task="greet")
        elif host.stage == "greeted":
            if label.begun and not label.queue:
                return
            order = Order(task="prepare")
        elif label.queue and label.begun:
            machines = [other.machine for other in self._hosts.values()]
            shared = machines.count(host.machine) > 1
            order = Order(task="run", number=label.queue.pop(0), shared=shared)
        else:
            return
        host.order = order
        host.warned = False
        self.fleet.order(host.name, order)

    def _begin(self, label: Label, hosts: Sequence[Host]) -> None:
        """Queue a label's runs without a record here."""
        label.begun = True
        earlier = self._earlier()
        fingerprints = {host.fingerprint for host in hosts}
        for number, config in enumerate(label.configs):
            known = earlier.of(config, fingerprints)
            self._outcome.earlier += known
            if self.content.fresh or not known:
                label.queue.append(number)
        done = len(label.configs) - len(label.queue)
        self._outcome.skipped += done
        self.progress(f"{label.name}: {len(label.queue)} runs, {done} done before")

    def _earlier(self) -> Earlier:
        """Return the records of earlier calls, read once."""
        if self._known is None:
            retry = self.content.retry
            self._known = Earlier(self.results_root, retry=retry, progress=silent)
        return self._known

    def _take(self, answer: Answer) -> None:
        """Take the answer of a host: its identity, its configurations, its record, or
        the reason why it has none."""
        host = self._hosts.get(answer.host)
        if host is None or host.order is None:
            return
        if answer.lost:
            self._lose(host)
            return
        label = self._labels[host.label]
        order = host.order
        host.order = None
        if "error" in answer.content:
            self._fail(host, order, _sentence(answer.content))
        elif order.task == "greet":
            self._greet(host, Greeting.model_validate(answer.content))
        elif order.task == "prepare":
            host.stage = "ready"
            if not label.configs:
                found = answer.content["configs"]
                label.configs = [RunConfig.model_validate(one) for one in found]
                label.environment = host.environment
        else:
            self._collect(host, order.number, answer.content["archive"])

    def _greet(self, host: Host, greeting: Greeting) -> None:
        """Take a host's identity; leave it out if its code is another."""
        host.environment = greeting.environment
        host.machine = greeting.machine
        reason = self._other_code(greeting)
        if reason:
            self._leave_out(host, f"{reason}; install the same commit there")
        else:
            host.stage = "greeted"

    def _other_code(self, greeting: Greeting) -> str:
        """Return how a host's code differs from this process's; empty if it does
        not."""
        own = code()["commit"]
        theirs = greeting.commit
        if own and theirs and own != theirs:
            return f"it runs commit {theirs[:12]}, this process {own[:12]}"
        for name, found in self._own.items():
            other = greeting.codes.get(name)
            if other != found:
                system = name.partition(" ")[0]
                return f"its code of {system} or the harness has other changes"
        return ""

    def _collect(self, host: Host, number: int, archive: bytes) -> None:
        """Import a run's record."""
        label = self._labels[host.label]
        try:
            record = collect(archive, self.results_root)
        except InputError as error:
            self._fail(host, Order(task="run", number=number), str(error))
            return
        host.failures = 0
        self._losses[host.name] = 0
        self._outcome.records.append(record)
        run = f"run {number + 1}/{len(label.configs)} {record.system}"
        ended = f"{record.config.memory}: {record.status}, {record.verdict}"
        self.progress(f"{host}: {run} {ended}")

    def _fail(self, host: Host, order: Order, reason: str) -> None:
        """Repeat an order that a host could not execute on another host of the label.

        The host gets no more orders if there is another one; the label's only host goes
        on until it has failed several times in a row. If several hosts fail with one
        run, the run is at fault, and they go on.
        """
        label = self._labels[host.label]
        if order.task != "run":
            self._leave_out(host, reason)
            return
        failure = label.failures.setdefault(order.number, Failure())
        failure.reasons[str(host)] = reason
        host.failures += 1
        others = [one for one in label.fit if one is not host]
        untried = [one for one in others if str(one) not in failure.reasons]
        if untried and len(failure.reasons) < TRIES:
            label.put_back(order.number)
            failure.blamed.append(host)
            self._leave_out(host, reason)
            return
        reasons = "; ".join(f"{name}: {why}" for name, why in failure.reasons.items())
        self._record_lost(label, order.number, reasons)
        for blamed in failure.blamed:
            self._take_back(blamed)
        if not failure.blamed and host.failures >= FAILURES:
            self._leave_out(host, reason)

    def _leave_out(self, host: Host, reason: str) -> None:
        """Give a host no more orders, and report the reason."""
        host.stage = "out"
        self._outcome.left_out[str(host)] = reason
        self.fleet.dismiss(host.name)
        self.progress(f"host {host} is left out: {reason}")

    def _take_back(self, host: Host) -> None:
        """Give a host orders again that was left out for a run's fault."""
        if host.name in self._hosts:
            host.stage = "new"
            self._outcome.left_out.pop(str(host), None)
            self.progress(f"host {host} is taken back: the run fails on others too")

    def _lose(self, host: Host) -> None:
        """Forget a host that is gone; queue its run again, or record it as failed if it
        was lost with several hosts."""
        del self._hosts[host.name]
        self._labels[host.label].hosts.remove(host)
        if host.stage != "out":
            self._losses[host.name] += 1
            self.progress(f"host {host} was lost")
        self.fleet.dismiss(host.name)
        self._requeue(host, "its hosts were lost")

    def _requeue(self, host: Host, reason: str) -> None:
        """Queue the run of a host again that is gone."""
        order = host.order
        host.order = None
        if order is None or order.task != "run":
            return
        label = self._labels[host.label]
        label.losses[order.number] += 1
        if label.losses[order.number] < TRIES:
            label.put_back(order.number)
        else:
            self._record_lost(label, order.number, f"{reason} ({TRIES} times)")

    def _listen(self) -> None:
        """Report hosts without a sign of life, and leave those out that stay silent or
        exceed the deadline of their order."""
        for name, pulse in self.fleet.pulses().items():
            host = self._hosts.get(name)
            if host is None or host.order is None:
                continue
            silence = f"no sign of life for {pulse.silent_s:.0f} s"
            deadline = self._deadline_s(host)
            reason = ""
            least = START_S if host.stage == "new" else SILENT_S
            if pulse.silent_s > max(least, self.wait_s):
                reason = silence
            elif pulse.busy_s > deadline:
                reason = f"its order is not done after {pulse.busy_s:.0f} s"
            elif pulse.silent_s > SILENT_S and not host.warned:
                host.warned = True
                self.progress(f"host {host} gives {silence}")
            if reason:
                self._leave_out(host, reason)
                self._requeue(host, f"hosts were left out: {reason}")

    def _deadline_s(self, host: Host) -> float:
        """Return the seconds that a host's order may take; without end where datasets
        are made."""
        order = host.order
        if order is None or order.task == "prepare":
            return float("inf")
        if order.task == "greet":
            return SLACK_S
        config = self._labels[host.label].configs[order.number]
        return 2 * config.timeout_s + SLACK_S

    def _give_up(self, label: Label) -> None:
        """Record the rest of a label's runs as failed."""
        label.closed = True
        reason = f"no host of label {label.name} was left for {self.wait_s:.0f} s"
        own = {
            name: why
            for name, why in self._outcome.left_out.items()
            if name.rpartition("/")[0] == label.name
        }
        whys = [f"{name}: {why}" for name, why in own.items()]
        self._outcome.problems[label.name] = "; ".join([reason, *whys])
        if label.configs and not label.begun:
            self._begin(label, [])
        for number in label.queue:
            self._record_lost(label, number, self._outcome.problems[label.name])
        label.queue.clear()

    def _record_lost(self, label: Label, number: int, reason: str) -> None:
        """Write a record without epochs, which the next sweep tries again."""
        record = record_failed(label, number, reason, self.results_root)
        self._outcome.records.append(record)
        run = f"{record.system} {record.config.memory}"
        self.progress(f"{label.name}: {run}: failed ({reason})")


def _sentence(content: dict[str, Any]) -> str:
    """Return an answer's error with its fix."""
    return str(OutcoreError(content["error"], content.get("fix", "")))
