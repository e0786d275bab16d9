"""Watches that a run stays in its cap: the worker, what it starts, and the limit itself (methodology rule 27)."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from pathlib import Path

from harness.isolation.base import Cap
from harness.isolation.files import read_text
from harness.isolation.processes import descendants

_PR_SET_CHILD_SUBREAPER = 36


class Guard:
    """Looks at one run's processes; called by the telemetry's thread and at gates.

    What a worker leaves behind (a daemon) becomes a child of this process. It is told from this process's own children
    by its session: a worker begins in a new one, and no process can enter an older one.

    Attributes:
        samples: how often it looked.
        outside: processes of the run that were seen outside the cap, each with its command.
        limits: memory limits that were in force, bytes; 0: none.
    """

    def __init__(self, cap: Cap) -> None:
        self._cap = cap
        self._lock = threading.Lock()
        self._worker: int | None = None
        self._before: set[int] = set()
        self.samples = 0
        self.outside: dict[int, str] = {}
        self.limits: set[int] = set()

    def begin(self) -> None:
        """Adopt from now on what loses its parent; call it before the worker is spawned."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._before = _children()

    def watch(self, worker: int) -> None:
        """The worker is there. In a container it is the client that started it, and nothing there can leave."""
        self._worker = None if self._cap.named_pipes else worker

    def look(self, limit: int | None) -> list[str]:
        """Look once; `limit` is the memory limit now in force. Returns what is outside at this moment."""
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
                self.outside.setdefault(pid, _name(pid))
            _reap(left_behind)
            return [self.outside[pid] for pid in now]

    def end(self) -> None:
        """Kill what the run left behind outside its cap."""
        with self._lock:
            if self._worker is None:
                return
            # What dies may leave children of its own, which then are ours.
            while left_behind := self._left_behind():
                for pid in left_behind:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except OSError:
                        pass
                _reap(left_behind, wait=True)
            self._worker = None

    def _left_behind(self) -> set[int]:
        own = os.getsid(0)
        return {pid for pid in _children() - self._before - {self._worker} if _session(pid) not in (own, None)}


def _children() -> set[int]:
    """Children of this process, whichever of its threads started them."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        found |= {int(word) for word in read_text(thread / "children").split()}
    return found


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None  # ended


def _reap(pids: set[int], *, wait: bool = False) -> None:
    for pid in pids:
        try:
            os.waitpid(pid, 0 if wait else os.WNOHANG)
        except OSError:
            pass  # somebody else's, or gone


def _name(pid: int) -> str:
    line = read_text(Path(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()
    return f"{pid} ({line[:60] or 'ended'})"
