"""Interface to the hosts of a sweep: who is there, an order to a host, its answer, and
whether it lives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from harness.hosts.orders import Order


@dataclass(frozen=True)
class Answer:
    """Answer of the host `host` to its order: see `harness.hosts.host.Host.perform`,
    with the archive as bytes; `error` and `fix` where the host could not execute it.
    `lost`: whether the host is gone, and so has no answer."""

    host: str
    content: dict[str, Any]
    lost: bool = False


@dataclass(frozen=True)
class Pulse:
    """Sign of life of a host: `silent_s`: seconds since its last one. `busy_s`: seconds
    since its order began, by the last one."""

    silent_s: float
    busy_s: float


class Fleet(ABC):
    """Hosts by name, each with a label, of which each executes one order at a time.
    Every call raises HostError where the fleet itself is lost."""

    @abstractmethod
    def hosts(self) -> dict[str, str]:
        """Return the label of each host that is here, by the host's name."""

    @abstractmethod
    def order(self, host: str, order: Order) -> None:
        """Send an order to a host that has none."""

    @abstractmethod
    def answers(self, timeout_s: float) -> list[Answer]:
        """Return the answers to completed orders, after the first one or
        `timeout_s`."""

    @abstractmethod
    def pulses(self) -> dict[str, Pulse]:
        """Return the last sign of life of each host that has an order."""

    @abstractmethod
    def dismiss(self, host: str) -> None:
        """Withdraw the order of a host and end its process there; it gets no more."""
