"""Hosts of a Ray cluster, found by their label `outcore-host`; needs the extra
`outcore[hosts]`. Each host has an actor on its node, which has the sweep's content from
Ray's object store and executes one order at a time. Ray pickles Python objects between
processes, and access to its ports suffices to run code on every node: the network
between driver and hosts has to be trusted. Runs return as archives that are checked
like those of unknown origin (`results_import`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from harness.hosts.connection import connect
from harness.hosts.fleet import Answer, Fleet, Pulse
from harness.hosts.node import Node
from harness.hosts.orders import Content, Order
from workloads.errors import HostError

LABEL = "outcore-host"
#: Seconds between two signs of life.
BEAT_S = 5.0


@dataclass
class _Link:
    """Actor of one host, with references to the answers that are under way."""

    actor: Any
    order: Any = None
    beat: Any = None
    beat_sent: float = 0.0
    busy_s: float = 0.0


class RayFleet(Fleet):
    """Every node of a cluster that has the label, as hosts for `FleetSweep`. A context
    manager.

    Args:
        address: see `harness.hosts.connection.connect`, with its errors.
        content: content of the sweep.
        progress: called with each step of the connection.
    """

    def __init__(
        self,
        address: str,
        content: Content,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._address = address
        self._ray = connect(address, progress)
        self._links: dict[str, _Link] = {}
        self._listened = time.monotonic()
        with self._reached():
            self._content = self._ray.put(content.model_dump_json())

    def __enter__(self) -> RayFleet:
        return self

    def __exit__(self, *exc: object) -> None:
        """Disconnect from the cluster; actors, and runs in progress, end with it."""
        with suppress(Exception):
            self._ray.shutdown()

    def hosts(self) -> dict[str, str]:
        """Return the labelled nodes that are alive."""
        with self._reached():
            nodes = self._ray.nodes()
        alive = [node for node in nodes if node["Alive"]]
        labels = {
            str(node["NodeID"]): (node.get("Labels") or {}).get(LABEL) for node in alive
        }
        self._here = {name: str(label) for name, label in labels.items() if label}
        return self._here

    def order(self, host: str, order: Order) -> None:
        """Send an order to a host, whose actor is started by the first one."""
        with self._reached():
            if host not in self._links:
                self._links[host] = _Link(self._start(host))
            link = self._links[host]
            link.order = link.actor.perform.remote(order.model_dump_json())
            self._beat(link)

    def _start(self, host: str) -> Any:
        """Start the actor of a host on its node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node_id=host, soft=False)
        # Two threads: one for the order, one for signs of life.
        options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": 2}
        kind = self._ray.remote(Node).options(scheduling_strategy=there, **options)
        return kind.remote(self._content, self._here[host])

    def answers(self, timeout_s: float) -> list[Answer]:
        """Return the answers to completed orders, after the first one or
        `timeout_s`."""
        pending = {
            link.order: host
            for host, link in self._links.items()
            if link.order is not None
        }
        if not pending:
            time.sleep(timeout_s)
            return []
        found = []
        for reference in self._ready(list(pending), timeout_s):
            host = pending[reference]
            self._links[host].order = None
            found.append(self._answer(host, reference))
        return found

    def _answer(self, host: str, reference: Any) -> Answer:
        errors = self._ray.exceptions
        try:
            with self._reached():
                return Answer(host, self._ray.get(reference))
        except errors.RayTaskError as error:
            return Answer(host, {"error": _last_line(error), "fix": _DOCTOR})
        except errors.ActorDiedError as error:
            if "creation task" not in str(error):
                return Answer(host, {}, lost=True)
            return Answer(host, {"error": _last_line(error), "fix": _INSTALL})
        except errors.RayError:
            return Answer(host, {}, lost=True)

    def _ready(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
        """Return those of the references whose results are there, after the first one
        or `timeout_s`."""
        with self._reached():
            first, _ = self._ray.wait(references, num_returns=1, timeout=timeout_s)
            if not first:
                return []
            found, _ = self._ray.wait(
                references, num_returns=len(references), timeout=0
            )
        return list(found)

    def pulses(self) -> dict[str, Pulse]:
        """Return the last sign of life of each host that has an order."""
        links = {
            host: link
            for host, link in self._links.items()
            if link.order is not None and link.beat is not None
        }
        beats = {link.beat: link for link in links.values()}
        for reference in self._ready(list(beats), 0) if beats else []:
            link = beats[reference]
            with suppress(self._ray.exceptions.RayError), self._reached():
                link.busy_s = self._ray.get(reference)
            link.beat = None
        now = time.monotonic()
        gap_s = now - self._listened
        self._listened = now
        found = {}
        for host, link in links.items():
            if gap_s > 2 * BEAT_S and link.beat is not None:
                # This process itself was held up, as by a call of Ray to a lost host.
                link.beat_sent += gap_s
            silent_s = now - link.beat_sent
            found[host] = Pulse(0.0 if link.beat is None else silent_s, link.busy_s)
            if link.beat is None and silent_s > BEAT_S:
                self._beat(link)
        return found

    def _beat(self, link: _Link) -> None:
        """Ask a host for a sign of life, unless an answer is under way."""
        if link.beat is None:
            with self._reached():
                link.beat = link.actor.busy_s.remote()
            link.beat_sent = time.monotonic()

    def dismiss(self, host: str) -> None:
        """Withdraw the order of a host and end its process there."""
        link = self._links.pop(host, None)
        if link is not None:
            with suppress(self._ray.exceptions.RayError), self._reached():
                self._ray.kill(link.actor)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Raise HostError where the cluster's head is lost."""
        lost = self._ray.exceptions.RaySystemError
        try:
            yield
        except (ConnectionError, TimeoutError, lost) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise HostError(
                f"the Ray cluster at {self._address} was lost ({reason}); finished "
                "runs are recorded",
                "start its head and its nodes again, and the same command goes on",
            ) from error


_DOCTOR = "run `outcore doctor` there"
_INSTALL = "pip install 'outcore[hosts]' there, the same commit and version of Ray"


def _last_line(error: Exception) -> str:
    """Return the last line of an error of Ray, which quotes the traceback of the
    host."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
