"""One file per backend that caps memory and I/O of a run; `select()` picks the
strictest that the host allows."""

from __future__ import annotations

from dataclasses import dataclass

from harness.isolation.base import (
    Availability,
    Cap,
    IoLimit,
    IoStats,
    Isolation,
    Limits,
)
from harness.isolation.cgroup1 import Cgroup1
from harness.isolation.cgroup2 import Cgroup2
from harness.isolation.docker.backend import Docker
from harness.isolation.none import NoIsolation
from harness.isolation.systemd import Systemd
from workloads.errors import HostError, InputError

__all__ = [
    "Cap",
    "IoLimit",
    "IoStats",
    "Isolation",
    "Limits",
    "names",
    "select",
    "sweep_all",
]

# Strictest first: v2 limits buffered writes too; v1 limits reads; systemd may lack the
# io controller.
BACKENDS: tuple[type[Isolation], ...] = (Cgroup2, Cgroup1, Systemd, NoIsolation)
BY_NAME: tuple[type[Isolation], ...] = (
    Docker,
)  # never selected by `auto`: a host's engine may serve another purpose


@dataclass(frozen=True)
class Selection:
    """Selected backend, its availability here, and why stricter backends were passed
    over (name -> reason)."""

    backend: Isolation
    availability: Availability
    passed_over: dict[str, str]


def names() -> list[str]:
    """Return the values of `--isolation`; after the backends chosen by name only, those
    of `auto`, strictest first."""
    return ["auto", *(backend.name for backend in (*BY_NAME, *BACKENDS))]


def select(name: str = "auto") -> Selection:
    """Return the backend `name`, or with `auto` the strictest that works here; `none`
    then has all reasons as caveats. Raises InputError: the backend is unknown. Raises
    HostError: the requested backend does not work here."""
    if name not in names():
        raise InputError(f"isolation is {name!r}", f"use one of {', '.join(names())}")
    passed_over: dict[str, str] = {}
    for backend in BACKENDS if name == "auto" else (*BY_NAME, *BACKENDS):
        if name not in ("auto", backend.name):
            continue
        availability = backend.available()
        if availability.ok:
            caveats = [
                f"{other} is not used: {reason}"
                for other, reason in passed_over.items()
            ]
            chosen = backend(caveats=caveats if backend is NoIsolation else [])
            return Selection(chosen, availability, passed_over)
        if name != "auto":
            raise HostError(
                f"isolation {name} does not work here: {availability.reason}",
                availability.fix,
            )
        passed_over[backend.name] = availability.reason
    raise HostError("no isolation works here", "use --isolation none")


def sweep_all() -> list[str]:
    """Remove leftovers of dead orchestrators under every backend; return their
    names."""
    return [name for backend in (*BY_NAME, *BACKENDS) for name in backend.sweep()]
