"""Hosts of a Ray cluster, found by their label `outcore-host`; needs the extra
`outcore[hosts]`. Ray places each order on a node of its label, one at a time on a node,
and places it anew where the node is lost. Ray pickles Python objects between processes,
and access to its ports suffices to run code on every node: the network between driver
and hosts has to be trusted. Runs return as archives that are checked like those of
unknown origin (`results_import`)."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Any

from harness.hosts.host import Order, perform
from harness.hosts.sweep import TRIES, Answer, Fleet, Task
from workloads.errors import HostError, InputError

LABEL = "outcore-host"
# Labels and resources that every node has by itself: each node has one unit of a
# resource with this prefix.
_NODE = "ray.io/node-id"
_ONE_AT_A_TIME = "node:__internal_implicit_resource_outcore"
_CONNECTS = 3


class RayFleet(Fleet):
    """Every node of a cluster that has the label, as hosts for `FleetSweep`. A context
    manager. `address`: `ray://HOST:PORT` of the cluster's client server, or `HOST:PORT`
    of its head for a driver on a node. Raises InputError: Ray is not installed. Raises
    HostError: no cluster answers at the address."""

    def __init__(self, address: str) -> None:
        try:
            import ray as installed
        except ImportError as error:
            fix = "install outcore[hosts] on every host"
            raise InputError(
                "--hosts needs Ray, which is not installed", fix
            ) from error
        self._ray: Any = installed
        self._orders: dict[Any, tuple[str, Task]] = {}
        if not _listens(address):
            # Ray itself would wait half a minute before it reported this.
            fix = (
                "start one with `ray start --head`, and see that its client port "
                "(10001) can be reached"
            )
            raise HostError(
                f"no Ray cluster answers at {address}: nothing listens there", fix
            )
        for left in reversed(range(_CONNECTS)):
            try:
                self._ray.init(
                    address=address, log_to_driver=False, logging_level="error"
                )
                break
            except (ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
                # The process that Ray starts for a client sometimes hangs before it
                # listens: ask for a new one.
                self._ray.shutdown()
                if left and _listens(address):
                    continue
                message = (str(error).splitlines() or [type(error).__name__])[0]
                fix = (
                    "start one with `ray start --head`, and the same version of Ray on "
                    "both sides"
                )
                raise HostError(
                    f"no Ray cluster answers at {address}: {message}", fix
                ) from error

    def __enter__(self) -> RayFleet:
        return self

    def __exit__(self, *exc: object) -> None:
        """Disconnect from the cluster; runs in progress end with their tasks."""
        self._ray.shutdown()

    def hosts(self) -> dict[str, str]:
        """Return the labelled nodes that are alive."""
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        labels = {
            str(node["NodeID"]): (node.get("Labels") or {}).get(LABEL) for node in alive
        }
        return {name: str(label) for name, label in labels.items() if label}

    def order(self, order: Order, without: Collection[str]) -> None:
        """Let Ray place an order on a node of its label."""
        selector = {LABEL: order.label} | (
            {_NODE: f"!in({','.join(sorted(without))})"} if without else {}
        )
        remote = self._ray.remote(_on_node).options(
            num_cpus=0,
            resources={_ONE_AT_A_TIME: 1},
            label_selector=selector,
            max_retries=TRIES - 1,
        )
        task = None if order.task == "prepare" else order.number
        self._orders[remote.remote(order.model_dump())] = (order.label, task)

    def answers(self, timeout_s: float) -> list[Answer]:
        """Return the answers to completed orders after the first one or `timeout_s`; at
        once where none is pending."""
        if not self._orders:
            return []
        ready, _ = self._ray.wait(list(self._orders), num_returns=1, timeout=timeout_s)
        found = []
        for reference in ready:
            label, task = self._orders.pop(reference)
            try:
                content: dict[str, Any] = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                message = (
                    f"host {label} failed: {type(error.cause).__name__}: {error.cause}"
                )
                content = {
                    "error": message,
                    "fix": "look at Ray's logs there",
                    "kind": "",
                }
            except (self._ray.exceptions.RayError, ConnectionError) as error:
                lost = (
                    f"its hosts were lost: {' '.join(str(error).split())[:300]} (tried "
                    f"{TRIES} times)"
                )
                content = {"error": lost, "fix": "", "kind": ""}
            found.append(Answer(label, task, content))
        return found

    def cancel(self, label: str) -> None:
        """Withdraw the orders of a label."""
        for reference in [
            reference for reference, (own, _) in self._orders.items() if own == label
        ]:
            del self._orders[reference]
            self._ray.cancel(reference, force=True)


def _on_node(order: dict[str, Any]) -> dict[str, Any]:
    import ray

    return perform(Order.model_validate(order)) | {
        "node": ray.get_runtime_context().get_node_id()
    }


def _listens(address: str) -> bool:
    """Return whether a server listens at `ray://HOST:PORT`."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5.0):
            return True
    except (OSError, ValueError):
        return False
