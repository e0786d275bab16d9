"""Meter of major page faults, split into those of sampling and of extraction."""

from __future__ import annotations

import resource
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

_WINDOW = 30  # mini-batches over which the miss ratio is smoothed
R = TypeVar("R")


class FaultMeter:
    """Major faults of the process, split into those of sampling and of extraction.

    Each sampling thread is measured by itself (RUSAGE_THREAD); the process's other
    faults are extraction's, whose native threads come and go. A mini-batch's miss ratio
    is its extraction faults over its rows, smoothed over the last 30 mini-batches as
    Ginex's and GNNDrive's authors do.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.restart()

    def restart(self) -> None:
        """Reset all counts."""
        self._sampling = 0
        self._started = process_faults()
        self._recent: deque[tuple[int, int]] = deque(maxlen=_WINDOW)
        self._extracting = 0
        self._rows = 0
        self.peak_ratio = 0.0

    def sample(self, work: Callable[[], R]) -> R:
        """Run `work` and count its faults as sampling's."""
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        try:
            return work()
        finally:
            faults = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt - before
            with self._lock:
                self._sampling += faults

    def extracted(self, rows: int) -> None:
        """Count a gathered mini-batch of `rows` rows: all new faults that are not
        sampling's are extraction's."""
        with self._lock:
            total = max(0, process_faults() - self._started - self._sampling)
            faults = max(0, total - self._extracting)
            self._extracting = max(total, self._extracting)
            self._rows += rows
            self._recent.append((faults, rows))
            self.peak_ratio = max(self.peak_ratio, self._moving())

    def _moving(self) -> float:
        rows = sum(rows for _, rows in self._recent)
        return sum(faults for faults, _ in self._recent) / rows if rows else 0.0

    def observed(self) -> dict[str, float]:
        """Return the faults and ratios since the last restart."""
        with self._lock:
            return {
                "major_faults": float(process_faults() - self._started),
                "major_faults_sample": float(self._sampling),
                "major_faults_extract": float(self._extracting),
                "page_cache_miss_ratio": self._extracting / self._rows
                if self._rows
                else 0.0,
                "page_cache_miss_ratio_last30": self._moving(),
                "page_cache_miss_ratio_peak30": self.peak_ratio,
            }


def process_faults() -> int:
    """Return the major faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
