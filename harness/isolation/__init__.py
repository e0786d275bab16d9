"""One file per backend that caps memory and I/O of a run; `select()` picks the strictest that the host allows."""

from harness.isolation.base import Cap, IoLimit, IoStats, Isolation, Limits
from harness.isolation.select import names, select, sweep_all

__all__ = ["Cap", "IoLimit", "IoStats", "Isolation", "Limits", "names", "select", "sweep_all"]
