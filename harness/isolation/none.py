"""No cap: the run is measured, not limited, for hosts where no backend works; its
verdict is CAVEATS at best."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from harness.isolation.base import (
    Availability,
    Cap,
    IoStats,
    Isolation,
    Limits,
    MemoryStats,
)
from harness.isolation.files import read_text
from harness.isolation.processes import cap_name, is_left_over, kill_all
from workloads.errors import HostError

# Environment variable that children, orphans too, inherit: a run's processes are found
# without a cgroup.
_MARK = "OUTCORE_CAP"
_RESCAN_SECONDS = 1.0
# searching for marks takes up to a two-hundredth of the time, however many processes
# the host has
_RESCAN_SHARE = 200

NOT_ENFORCED = (
    "no memory cap: the kernel limits neither memory nor page cache of this run"
)
NO_IO_LIMIT = "no device limit: this host allows no limit of the run's I/O"


class NoCap(Cap):
    """Processes that carry a mark in their environment; sizes are the sums over these
    processes."""

    def __init__(self, name: str, limits: Limits, caveats: Sequence[str] = ()) -> None:
        self.name = name
        self.caveats = [*caveats, NOT_ENFORCED]
        if limits.io:
            self.caveats.append(NO_IO_LIMIT)
        self._peak = 0
        self._known: list[int] = []
        self._scan_at = 0.0
        self._lock = threading.Lock()
        self._faults: dict[int, int] = {}

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` with the mark in its environment."""
        return ["/usr/bin/env", f"{_MARK}={self.name}", *argv]

    def memory(self) -> MemoryStats:
        """Return sums over the present processes. Page cache is unknown (0): it is
        charged to no group. Shared memory counts once per process that maps it; the
        peak is the highest reading."""
        with self._lock:
            begin = time.monotonic()
            if begin >= self._scan_at:
                self._known = marked(self.name)
                now = time.monotonic()
                self._scan_at = now + max(
                    _RESCAN_SECONDS, _RESCAN_SHARE * (now - begin)
                )
            sizes = {"RssAnon": 0, "RssShmem": 0}
            for pid in self._known:
                status = read_text(Path(f"/proc/{pid}/status"))
                for name, kib in re.findall(
                    r"^(RssAnon|RssShmem):\s*(\d+) kB", status, re.MULTILINE
                ):
                    sizes[name] += int(kib) * 1024
                stat = read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
                if len(stat) > 9:
                    self._faults[pid] = int(stat[9])
            anon, shmem = sizes.values()
            self._peak = max(self._peak, anon + shmem)
            faults = sum(self._faults.values())
            return MemoryStats(
                usage=anon + shmem,
                peak=self._peak,
                anon=anon,
                shmem=shmem,
                major_faults=faults,
            )

    def io(self) -> IoStats | None:
        """Return None: I/O is known only from the device's own counters."""
        return None

    def pids(self) -> list[int]:
        """Return the processes that carry the mark."""
        return marked(self.name)

    def set_memory(self, limit_bytes: int | None) -> None:
        """Do nothing: there is no limit to change."""

    def reset_peak(self) -> bool:
        """Restart the peak."""
        self._peak = 0
        return True

    def close(self) -> None:
        """Kill remaining processes. Raises HostError: a process does not end."""
        if not kill_all(self.pids):
            raise HostError(f"a process of {self.name} does not end", "reboot the host")


class NoIsolation(Isolation):
    """Measurement without limits."""

    name: ClassVar[str] = "none"

    @classmethod
    def available(cls) -> Availability:
        """Return that this backend always works."""
        return Availability(
            True,
            "nothing is enforced",
            "run as root, or on a host with systemd",
            False,
            False,
        )

    def create(self, run_id: str, limits: Limits) -> NoCap:
        """Create a cap that enforces nothing, and has that as a caveat."""
        return NoCap(cap_name(run_id), limits, self.caveats)

    @classmethod
    def sweep(cls) -> list[str]:
        """Kill the processes of dead orchestrators; return the names of their caps."""
        names = {mark for mark in _marks().values() if is_left_over(mark)}
        for name in names:
            kill_all(lambda name=name: marked(name))  # type: ignore[misc]
        return sorted(names)


def marked(name: str) -> list[int]:
    """Return live processes with the mark `name`."""
    return sorted(pid for pid, mark in _marks().items() if mark == name)


def _marks() -> dict[int, str]:
    """Return process -> mark, of processes whose environment this user may read."""
    import psutil

    found: dict[int, str] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if mark := process.environ().get(_MARK):
                found[process.pid] = mark
    return found
