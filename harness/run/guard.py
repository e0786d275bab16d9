"""Guard of a run's cap: watches the worker, its descendants and the memory limit (methodology rule 27)."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from harness.isolation.base import Cap
from harness.isolation.files import read_text
from harness.isolation.processes import children, descendants

_PR_SET_CHILD_SUBREAPER = 36


class Guard:
    """Sampler of one run's processes, called by the telemetry's thread and at gates. A process that outlives its parent
    (a daemon) becomes a child of this process. Its session distinguishes it from this process's own children: a worker
    begins in a new session, and no process can enter an older one. `samples`: number of samples. `outside`: command of
    each process of the run seen outside the cap, by pid. `limits`: memory limits seen in force, in bytes; 0: none.
    `reaped_user_s`: processor seconds in user mode of ended daemons, which no process of the run counts.

    A context manager, entered before the worker is spawned: orphaned processes are adopted from then on, and killed at
    the end. It takes every new child of this process for the run's, so a process may have one at a time.
    Raises RuntimeError on entry: this process has another run.
    """

    _busy = threading.Lock()

    def __init__(self, cap: Cap) -> None:
        self._cap = cap
        self._lock = threading.Lock()
        self._worker: int | None = None
        self._before: set[int] = set()
        self.samples = 0
        self.reaped_user_s = 0.0
        self.outside: dict[int, str] = {}
        self.limits: set[int] = set()

    def __enter__(self) -> Guard:
        if not Guard._busy.acquire(blocking=False):
            raise RuntimeError("this process has a run already; start each run in a process of its own")
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._before = children(os.getpid())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._end()
        finally:
            Guard._busy.release()

    def watch(self, worker: int) -> None:
        """Watch the process `worker`; not for a container, whose processes cannot leave it (`worker` is its client)."""
        self._worker = None if self._cap.named_pipes else worker

    def look(self, limit: int | None) -> list[str]:
        """Take a sample, `limit` being the memory limit in force; return the processes now outside the cap."""
        with self._lock:
            self.samples += 1
            self.limits.add(limit or 0)
            if self._worker is None:
                return []
            mine = {self._worker, *descendants(self._worker)}
            left_behind = self._left_behind()
            for orphan in left_behind:
                mine |= {orphan, *descendants(orphan)}
            now = self._cap.strays(mine)
            for pid in now:
                line = read_text(Path(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()
                self.outside.setdefault(pid, f"{pid} ({line[:60] or 'ended'})")
            self.reaped_user_s += _reap(left_behind)
            return [self.outside[pid] for pid in now]

    def _end(self) -> None:
        """Kill the run's orphaned processes outside its cap."""
        with self._lock:
            if self._worker is None:
                return
            # A killed process's children become ours.
            while left_behind := self._left_behind():
                for pid in left_behind:
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                _reap(left_behind, wait=True)
            self._worker = None

    def _left_behind(self) -> set[int]:
        own = os.getsid(0)
        ours = children(os.getpid()) - self._before - {self._worker}
        return {pid for pid in ours if _session(pid) not in (own, None)}


def _session(pid: int) -> int | None:
    with suppress(OSError):  # ended
        return os.getsid(pid)
    return None


def _reap(pids: set[int], *, wait: bool = False) -> float:
    """Reap ended children; return their processor seconds in user mode."""
    spent = 0.0
    for pid in pids:
        with suppress(OSError):  # not our child, or gone
            ended, _, usage = os.wait4(pid, 0 if wait else os.WNOHANG)
            spent += usage.ru_utime if ended else 0.0
    return spent
