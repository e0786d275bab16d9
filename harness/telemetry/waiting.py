"""Seconds for which the threads of a run were ready and waited for a processor, as the kernel counts them."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.isolation.files import read_text
from harness.isolation.processes import threads_of

_NS = 1e-9
# Processor times of processes are in these units.
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class _Thread:
    """Seconds on a processor and seconds of waiting for one, since the thread's begin."""

    ran_s: float
    waited_s: float


class Waiting:
    """Sum of the waiting of all threads of some processes, from look to look; it never falls.

    The counters of a thread (`/proc/PID/task/TID/schedstat`) end with it. The processor time of a process includes its
    ended threads: they are taken to have waited as much for each second on a processor as the others.
    """

    def __init__(self) -> None:
        self._threads: dict[tuple[int, int], _Thread] = {}
        self._processes: dict[int, float] = {}
        self._total_s = 0.0

    def look(self, pids: Collection[int]) -> float | None:
        """Return the seconds of waiting until now; None where the kernel does not count them (CONFIG_SCHED_INFO)."""
        if _thread(os.getpid(), os.getpid()) is None:
            return None
        for pid in pids:
            self._total_s += self._grown(pid)
        return self._total_s

    def _grown(self, pid: int) -> float:
        """Return the waiting of a process since the last look."""
        ran_s = waited_s = 0.0
        for number in threads_of(pid):
            thread = _thread(pid, number)
            if thread is None:
                continue
            before = self._threads.get((pid, number), _Thread(0.0, 0.0))
            if thread.ran_s < before.ran_s:  # another thread has the number
                before = _Thread(0.0, 0.0)
            ran_s += thread.ran_s - before.ran_s
            waited_s += thread.waited_s - before.waited_s
            self._threads[pid, number] = thread
        of_ended_s = self._processor_s(pid) - ran_s - _TICK_S
        return waited_s * (1.0 + of_ended_s / ran_s) if of_ended_s > 0 and ran_s > 0 else waited_s

    def _processor_s(self, pid: int) -> float:
        """Return the processor seconds of a process since the last look, its ended threads included."""
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            spent_s = times.user + times.system
            before_s = self._processes.get(pid, 0.0)
            self._processes[pid] = spent_s
            return max(0.0, spent_s - before_s)
        return 0.0


def _thread(pid: int, number: int) -> _Thread | None:
    """Return the counters of a thread; None once it has ended, or where the kernel has none."""
    fields = read_text(Path(f"/proc/{pid}/task/{number}/schedstat")).split()
    if len(fields) < 2:
        return None
    return _Thread(int(fields[0]) * _NS, int(fields[1]) * _NS)
