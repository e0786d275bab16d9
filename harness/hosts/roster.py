"""State of a sweep over hosts: hosts with their progress, and labels with the runs that
are left."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.hosts.orders import Order
from harness.records.hosts import host_fingerprint
from harness.records.record import RunConfig

Stage = Literal["new", "greeted", "ready", "out"]


@dataclass
class Host:
    """One host of the sweep.

    Attributes:
        name, label: name in the fleet, and operator's label.
        stage: `new` until it has reported its identity, `ready` once it has the
            datasets, `out` when it gets no more orders.
        order: order under way.
        environment, machine: its description for records, and digest of its machine.
        failures: runs in a row that it could not execute.
        warned: whether its silence was reported.
    """

    name: str
    label: str
    stage: Stage = "new"
    order: Order | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    machine: str = ""
    failures: int = 0
    warned: bool = False

    def __str__(self) -> str:
        return f"{self.label}/{self.name[:6]}"

    @property
    def fingerprint(self) -> str:
        """Fingerprint that its records have."""
        return host_fingerprint(self.environment)


@dataclass
class Failure:
    """Run that hosts could not execute: the reasons by host, and those of them that are
    out for it alone."""

    reasons: dict[str, str] = field(default_factory=dict)
    blamed: list[Host] = field(default_factory=list)


@dataclass
class Label:
    """One label, whose hosts share its runs.

    Attributes:
        hosts: hosts that are here.
        configs: configurations of all runs, in the sweep's order; empty until a host
            has made the datasets.
        queue: indices of the runs that no host has begun, ascending (rule 16).
        failures: runs that a host could not execute.
        losses: number of hosts that were lost during each run.
        environment: description of the first host that was ready, for lost runs.
        begun: whether the runs were queued.
        closed: whether the label was given up.
        alone_since: time from which it had no host, in s.
    """

    name: str
    hosts: list[Host] = field(default_factory=list)
    configs: Sequence[RunConfig] = ()
    queue: list[int] = field(default_factory=list)
    failures: dict[int, Failure] = field(default_factory=dict)
    losses: Counter[int] = field(default_factory=Counter)
    environment: dict[str, Any] = field(default_factory=dict)
    begun: bool = False
    closed: bool = False
    alone_since: float | None = None

    @property
    def fit(self) -> list[Host]:
        """Hosts that get orders."""
        return [host for host in self.hosts if host.stage != "out"]

    def put_back(self, number: int) -> None:
        """Queue a run again, at its place in the sweep's order."""
        bisect.insort(self.queue, number)
