"""One file per backend that caps memory and I/O of a run; `select()` picks the strictest that the host allows."""

from harness.isolation.base import Availability, Cap, IoLimit, IoStats, Isolation, Limits, MemoryStats
from harness.isolation.select import Selection, names, select, sweep_all

__all__ = [
    "Availability",
    "Cap",
    "IoLimit",
    "IoStats",
    "Isolation",
    "Limits",
    "MemoryStats",
    "Selection",
    "names",
    "select",
    "sweep_all",
]
