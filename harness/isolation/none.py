"""No cap: the run is watched, not limited, for hosts where nothing else works; its verdict is CAVEATS at best."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from harness.isolation.base import Availability, Cap, IoStats, Isolation, Limits, MemoryStats
from harness.isolation.files import read_text
from harness.isolation.owner import cap_name, is_left_over
from harness.isolation.processes import kill_all
from workloads.errors import HostError

# Children inherit it, orphans too, so that a run's processes are found without a cgroup.
_MARK = "OUTCORE_CAP"
_RESCAN_SECONDS = 1.0
# Looking for marks takes up to a two-hundredth of the time, however many processes the host has.
_RESCAN_SHARE = 200

NOT_ENFORCED = "no memory cap: the kernel limits neither memory nor page cache of this run"
NO_IO_LIMIT = "no device limit: this host lets nobody limit the run's I/O"


class NoCap(Cap):
    """Processes that carry a mark in their environment; sizes are the sums over them."""

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
        """`argv` with the mark in its environment."""
        return ["/usr/bin/env", f"{_MARK}={self.name}", *argv]

    def memory(self) -> MemoryStats:
        """Sums over the processes as they are now. Page cache is unknown (0): it is charged to nobody.

        Shared memory counts once per process that maps it; the peak is the highest reading.
        """
        with self._lock:
            begin = time.monotonic()
            if begin >= self._scan_at:
                self._known = marked(self.name)
                now = time.monotonic()
                self._scan_at = now + max(_RESCAN_SECONDS, _RESCAN_SHARE * (now - begin))
            anon = shmem = 0
            for pid in self._known:
                fields = dict(
                    line.split(":", 1) for line in read_text(Path(f"/proc/{pid}/status")).splitlines() if ":" in line
                )
                anon += _kib(fields.get("RssAnon", "0"))
                shmem += _kib(fields.get("RssShmem", "0"))
                stat = read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
                if len(stat) > 9:
                    self._faults[pid] = int(stat[9])
            self._peak = max(self._peak, anon + shmem)
            return MemoryStats(
                usage=anon + shmem, peak=self._peak, anon=anon, shmem=shmem, major_faults=sum(self._faults.values())
            )

    def io(self) -> IoStats | None:
        """Unknown: only the device's own counters say what was read."""
        return None

    def pids(self) -> list[int]:
        """Processes that carry the mark."""
        return marked(self.name)

    def set_memory(self, limit_bytes: int | None) -> None:
        """Nothing: there is no limit to change."""

    def reset_peak(self) -> None:
        """The peak starts again."""
        self._peak = 0

    def kill(self) -> None:
        """SIGKILL everything inside and wait."""
        kill_all(self.pids)

    def close(self) -> None:
        """Kill what is left."""
        if not kill_all(self.pids):
            raise HostError(f"a process of {self.name} does not end", "reboot the host")


class NoIsolation(Isolation):
    """Watching only."""

    name: ClassVar[str] = "none"

    @classmethod
    def available(cls) -> Availability:
        """Always."""
        return Availability(True, "nothing is enforced", "run as root, or on a host with systemd", False, False)

    def create(self, run_id: str, limits: Limits) -> NoCap:
        """A cap that enforces nothing and says so in its caveats."""
        return NoCap(cap_name(run_id), limits, self.caveats)

    @classmethod
    def sweep(cls) -> list[str]:
        """End the processes of dead orchestrators."""
        names = {mark for mark in _marks().values() if is_left_over(mark)}
        for name in names:
            kill_all(lambda name=name: marked(name))  # type: ignore[misc]
        return sorted(names)


def marked(name: str) -> list[int]:
    """Live processes with the mark `name`."""
    return sorted(pid for pid, mark in _marks().items() if mark == name)


def _marks() -> dict[int, str]:
    """Process -> mark, of those we may look at."""
    found: dict[int, str] = {}
    prefix = f"{_MARK}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        for word in environment.split(b"\0"):
            if word.startswith(prefix):
                found[int(entry.name)] = word[len(prefix) :].decode(errors="replace")
    return found


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024 if text.strip() else 0
