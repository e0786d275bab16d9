"""Hosts of a Ray cluster, found by their label `outcore-host`; needs the extra `outcore[hosts]`.

Ray pickles Python objects between processes, and access to its ports suffices to run code on every node: the network
between driver and hosts has to be trusted. Runs return as archives that are checked like a stranger's
(`results_import`).
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Any

from harness.hosts.host import Host
from harness.hosts.sweep import Answer, Fleet, Lost, Seat, Task
from workloads.errors import HostError, InputError, OutcoreError

LABEL = "outcore-host"
# Seconds without an answer after which a host is asked again.
_ANSWER_S = 60.0
_CONNECTS = 3


class RayFleet(Fleet):
    """Every node of a cluster that has the label, as seats for `FleetSweep`. A context manager.

    Args:
        address: `ray://HOST:PORT` of the cluster's client server, or `HOST:PORT` of its head for a driver on a node.
        experiments, isolation, fresh: arguments of every `Host`.
        labels: labels of the nodes to take; empty: all.

    Raises:
        InputError: Ray is not installed.
        HostError: no cluster answers at the address.
    """

    def __init__(
        self,
        address: str,
        experiments: list[dict[str, Any]],
        isolation: str,
        labels: Collection[str] = (),
        *,
        fresh: bool = False,
    ) -> None:
        self._ray = ray = _ray()
        self._told = (experiments, isolation, fresh)
        self._labels = frozenset(labels)
        self._seats: dict[str, Seat] = {}
        self._actors: dict[Seat, Any] = {}
        self._orders: dict[Any, tuple[Seat, Task]] = {}
        if not _listens(address):
            # Ray itself would wait half a minute before it reported this.
            raise HostError(
                f"no Ray cluster answers at {address}: nothing listens there",
                "start one with `ray start --head`, and see that its client port (10001) can be reached",
            )
        for attempt in range(_CONNECTS):
            try:
                ray.init(address=address, log_to_driver=False, logging_level="error")
                break
            except (ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
                # The process that Ray starts for a client sometimes hangs before it listens: ask for a new one.
                ray.shutdown()
                if attempt + 1 < _CONNECTS and _listens(address):
                    continue
                said = str(error).splitlines()
                raise HostError(
                    f"no Ray cluster answers at {address}: {said[0] if said else type(error).__name__}",
                    "start one with `ray start --head`, and the same version of Ray on both sides",
                ) from error

    def __enter__(self) -> RayFleet:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the cluster; runs in progress end with their actors."""
        self._ray.shutdown()

    def arrivals(self) -> list[Seat]:
        """Return the nodes that have joined since the last call.

        Raises:
            OutcoreError: a node failed to describe itself.
        """
        seats = []
        for node in self._ray.nodes():
            label, number = str((node.get("Labels") or {}).get(LABEL, "")), str(node["NodeID"])
            wanted = label and (not self._labels or label in self._labels)
            if not wanted or not node["Alive"] or number in self._seats:
                continue
            strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(number, soft=False)
            remote = self._ray.remote(Host).options(num_cpus=0, max_restarts=0, scheduling_strategy=strategy)
            actor = remote.remote(*self._told, label)
            try:
                found = self._ray.get(actor.describe.remote(), timeout=_ANSWER_S)
            except self._ray.exceptions.RayTaskError as error:
                raise _cause(error) from error
            except self._ray.exceptions.RayError:
                self._ray.kill(actor)  # the node left again, or cannot answer yet
                continue
            seat = Seat(f"{label}/{number[:6]}", label, found["machine"], found["fingerprint"], found["commit"])
            self._seats[number] = seat
            self._actors[seat] = actor
            seats.append(seat)
        return seats

    def order(self, seat: Seat, task: Task) -> None:
        """Ask a seat for one task; `answers` returns the result."""
        actor = self._actors[seat]
        reference = actor.prepare.remote() if task is None else actor.run.remote(task)
        self._orders[reference] = (seat, task)

    def answers(self, timeout_s: float) -> list[Answer]:
        """Return the results of completed tasks after the first one or `timeout_s`; at once where none is pending."""
        if not self._orders:
            return []
        ready, _ = self._ray.wait(list(self._orders), num_returns=1, timeout=timeout_s)
        return [self._answer(reference) for reference in ready]

    def _answer(self, reference: Any) -> Answer:
        seat, task = self._orders.pop(reference)
        exceptions = self._ray.exceptions
        content: Any
        try:
            content = self._ray.get(reference)
        except exceptions.RayTaskError as error:
            content = _cause(error)
        except (exceptions.RayError, ConnectionError) as error:
            content = Lost(" ".join(str(error).split())[:300])
        return Answer(seat, task, content)


def _listens(address: str) -> bool:
    """Return whether a server listens at `ray://HOST:PORT`."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5.0):
            return True
    except (OSError, ValueError):
        return False


def _cause(error: Any) -> OutcoreError:
    """Return the host's error from a Ray error."""
    cause = error.cause
    if isinstance(cause, OutcoreError):
        return cause
    return HostError(f"a host failed: {type(cause).__name__}: {cause}", "look at Ray's logs there")


def _ray() -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise InputError("--hosts needs Ray, which is not installed", "install outcore[hosts] on every host") from error
    return ray
