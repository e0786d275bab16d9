"""Seconds for which the threads of a run were ready and waited for a processor, as the
kernel counts them."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.isolation.processes import threads_of

_NS = 1e-9
# Processor times of processes are in these units.
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_CHUNK = 1 << 12


class _Times(NamedTuple):
    """Seconds on a processor, and seconds of waiting for one."""

    ran_s: float
    waited_s: float


@dataclass
class _Process:
    """Times seen of one process.

    Attributes:
        threads: times of each living thread since its begin, by its number.
        ran_s, waited_s: sums over all threads, ended ones as they were last seen.
        unseen_s: seconds on a processor that belong to no sum, since their thread ended
            before the next look.
    """

    threads: dict[int, _Times] = field(default_factory=dict)
    ran_s: float = 0.0
    waited_s: float = 0.0
    unseen_s: float = 0.0


class Waiting:
    """Sum of the waiting of all threads of some processes, from look to look; it never
    falls.

    The counters of a thread (`/proc/PID/task/TID/schedstat`) end with it, and threads
    of one process wait differently: frequent looks see what each of them waited. The
    processor time of a process includes its ended threads; the part that no look saw is
    taken to have waited as much for each second as the rest. Any thread may look.
    """

    def __init__(self) -> None:
        self._processes: dict[int, _Process] = {}
        self._total_s = 0.0
        self._lock = threading.Lock()

    def look(self, pids: Collection[int]) -> float | None:
        """Return the seconds of waiting until now; None where the kernel does not count
        them (CONFIG_SCHED_INFO)."""
        if _of_thread(os.getpid(), os.getpid()) is None:
            return None
        with self._lock:
            for pid in pids:
                process = self._processes.setdefault(pid, _Process())
                self._total_s += _grown(process, pid)
            return self._total_s


def _grown(process: _Process, pid: int) -> float:
    """Return the waiting of a process since the last look."""
    living: dict[int, _Times] = {}
    grown_s = 0.0
    for number in threads_of(pid):
        now = _of_thread(pid, number)
        if now is None:
            continue
        before = process.threads.get(number, _Times(0.0, 0.0))
        if now.ran_s < before.ran_s:  # another thread has the number
            before = _Times(0.0, 0.0)
        process.ran_s += now.ran_s - before.ran_s
        grown_s += now.waited_s - before.waited_s
        living[number] = now
    process.threads = living
    process.waited_s += grown_s
    return grown_s + _unseen(process, pid)


def _unseen(process: _Process, pid: int) -> float:
    """Return the waiting since the last look of threads that ended before this one."""
    # User time and kernel time are rounded to a tick each.
    unseen_s = _processor_s(pid) - process.ran_s - 2 * _TICK_S
    more_s = unseen_s - process.unseen_s
    if more_s <= 0.0 or process.ran_s <= 0.0:
        return 0.0
    process.unseen_s = unseen_s
    return more_s * process.waited_s / process.ran_s


def _of_thread(pid: int, number: int) -> _Times | None:
    """Return the times of a thread; None once it has ended, or where the kernel has
    none."""
    fields = _content(f"/proc/{pid}/task/{number}/schedstat").split()
    if len(fields) < 2:
        return None
    return _Times(int(fields[0]) * _NS, int(fields[1]) * _NS)


def _processor_s(pid: int) -> float:
    """Return the processor seconds of a process, its ended threads included; 0 once it
    has ended."""
    # The name before the last bracket may hold blanks. Fields 14 and 15 of proc(5) are
    # user time and kernel time.
    fields = _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 13:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _content(path: str) -> bytes:
    """Return a small file of /proc, empty where it is gone. A look reads dozens: file
    objects cost twice as much."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
