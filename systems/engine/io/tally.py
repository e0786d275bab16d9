"""Counts of one epoch, to which all threads of a system add."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

from systems.engine.io.reader import ReadStats
from systems.interface import Counters


class Tally:
    """Counts under names of the system's choice, and the counts of its reads; any
    thread may add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.restart()

    def restart(self) -> None:
        """Reset all counts."""
        with self._lock:
            self._counts: defaultdict[str, Any] = defaultdict(int)
            self._reads = ReadStats()

    def add(self, reads: ReadStats | None = None, **counts: float) -> None:
        """Add reads, and a number to each named count, all at once."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count
            if reads is not None:
                self._reads.add(reads)

    def __getitem__(self, name: str) -> Any:
        """Return a named count, 0 if nothing was added to it."""
        with self._lock:
            return self._counts.get(name, 0)

    def observed(self, *names: str) -> dict[str, float]:
        """Return these counts as `Counters.observed` has them."""
        return {name: float(self[name]) for name in names}

    def reads(self) -> ReadStats:
        """Return the counts of all reads so far."""
        total = ReadStats()
        with self._lock:
            total.add(self._reads)
        return total

    def counters(self, depth: int, *more: ReadStats, **fields: Any) -> Counters:
        """Return the harness's counters of the reads so far and of `more`, at `depth`
        in flight; as `counters_of`."""
        total = self.reads()
        for stats in more:
            total.add(stats)
        return counters_of(total, depth, **fields)


def counters_of(reads: ReadStats, depth: int, **fields: Any) -> Counters:
    """Return the harness's counters of these reads at `depth` in flight; `fields` has
    the others, or replaces some."""
    counted: dict[str, Any] = {
        name: getattr(reads, name) for name in ("bytes_read", "bytes_useful")
    }
    counted |= {
        "io_requests": reads.requests,
        "requests_by_size": dict(reads.requests_by_size),
        "queue_depth": depth,
    }
    return Counters(**counted | fields)
