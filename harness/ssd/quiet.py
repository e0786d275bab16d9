"""How quiet a machine was while something was measured on it: what others took of the disk and of the processors."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.isolation.base import Cap
from harness.isolation.files import read_text
from systems.readings import DiskPoint, DiskProfile

# Shares of the disk's traffic, and of all processors' time, that others may take beside a measurement.
QUIET_DISK, QUIET_CPU = 0.05, 0.2
# Others' traffic below this (requests and bytes a second) is the machine's own breathing.
_BREATH_REQUESTS, _BREATH_BYTES = 100.0, 4e6
# So many bytes cost a disk about what a request does, whatever its kind.
_WORTH_BYTES = 16 << 10
# The kernel splits longer requests.
_SPLIT_BYTES = 64 << 10
# A rate measured beside others is corrected for what they took, at most by this.
_MOST_SLACK = 3.0
WAITS_S = (1.0, 3.0)


@dataclass(frozen=True)
class _Reading:
    """Counters at one moment: the disks', the children's, the processors'."""

    at: float
    requests: int
    nbytes: int
    own_bytes: int | None
    own_user_s: float
    host_user_s: float
    stolen_s: float


class Meter:
    """A context manager around a child that reads; afterwards `shares` says what others took meanwhile.

    The child is one that has ended and was waited for when the block ends, in `cap` or in none.
    """

    def __init__(self, disks: Sequence[str], cap: Cap | None = None) -> None:
        self._disks = disks
        self._cap = cap

    def __enter__(self) -> Meter:
        self._before = self._read()
        return self

    def __exit__(self, *exc: object) -> None:
        self._after = self._read()

    def shares(self, block_bytes: int) -> tuple[float | None, float]:
        """Shares of the disk's traffic (None: unknown) and of the processors that went to others.

        Args:
            block_bytes: of the child's requests. Traffic is counted in requests, or in bytes where those cost more.
        """
        before, after = self._before, self._after
        seconds = max(after.at - before.at, 1e-9)
        user = (after.host_user_s - before.host_user_s) - (after.own_user_s - before.own_user_s)
        stolen = after.stolen_s - before.stolen_s
        processors = max(0.0, user + stolen) / (seconds * (os.cpu_count() or 1))
        if before.own_bytes is None or after.own_bytes is None or not self._disks:
            return None, processors
        own = after.own_bytes - before.own_bytes
        nbytes = max(0, after.nbytes - before.nbytes - own)
        # What the kernel splits says nothing of others' requests.
        asked = own / block_bytes if block_bytes <= _SPLIT_BYTES else after.requests - before.requests
        requests = max(0.0, after.requests - before.requests - asked)
        if requests < _BREATH_REQUESTS * seconds and nbytes < _BREATH_BYTES * seconds:
            return 0.0, processors
        theirs = max(requests, nbytes / _WORTH_BYTES)
        return theirs / (theirs + max(own / block_bytes, own / _WORTH_BYTES)), processors

    def _read(self) -> _Reading:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        cap_io = self._cap.io() if self._cap else None
        requests, nbytes = traffic(self._disks)
        own = children.ru_inblock * 512 if self._cap is None else cap_io.read_bytes if cap_io else None
        return _Reading(time.monotonic(), requests, nbytes, own, children.ru_utime, *_processors())


def traffic(disks: Sequence[str], sys: Path = Path("/sys")) -> tuple[int, int]:
    """Requests and bytes of all disks since boot, reads and writes."""
    requests = sectors = 0
    for number in disks:
        row = read_text(sys / "dev/block" / number / "stat").split()
        if len(row) >= 7:
            requests += int(row[0]) + int(row[4])
            sectors += int(row[2]) + int(row[6])
    return requests, 512 * sectors


def _processors() -> tuple[float, float]:
    """Seconds in user mode of all processors since boot, and seconds that a hypervisor gave to others."""
    import psutil

    times = psutil.cpu_times()
    return float(times.user + getattr(times, "nice", 0.0)), float(getattr(times, "steal", 0.0))


def is_quiet(point: DiskPoint) -> bool:
    """Whether others took little enough while a point was measured."""
    return (point.others_disk or 0.0) <= QUIET_DISK and (point.others_cpu or 0.0) <= QUIET_CPU


def quietly(
    measure: Callable[[], DiskPoint], waits: list[float], pause: Callable[[float], None] = time.sleep
) -> DiskPoint:
    """Measure a point; where others were busy beside it, wait and measure again: the best rate, the quietest moment.

    Args:
        waits: pauses that are left for a whole profile, in seconds; used up from the front.
    """
    found = [measure()]
    while not is_quiet(found[-1]) and waits:
        pause(waits.pop(0))
        found.append(measure())
    # Nobody makes a disk faster: a higher rate is its own, whoever was there.
    best, last = max(found, key=lambda point: point.iops), found[-1]
    return replace(best, others_disk=last.others_disk, others_cpu=last.others_cpu) if is_quiet(last) else best


def busiest(profile: DiskProfile) -> tuple[float, float]:
    """The largest shares of disk and processors that others took while a point of the profile was measured.

    One read in flight leaves the disk to others, so that their share of it says little.
    """
    points = [point for point in profile.points if point.depth > 1]
    return (
        max((point.others_disk or 0.0 for point in points), default=0.0),
        max((point.others_cpu or 0.0 for point in points), default=0.0),
    )


def slack(profile: DiskProfile) -> float:
    """How much faster the device may be than a profile says that was measured beside others; 1 for a quiet one."""
    if all(is_quiet(point) for point in profile.points):
        return 1.0
    disk, processors = busiest(profile)
    free = (1 - min(disk, 1.0)) * (1 - min(processors, 1.0))
    return min(_MOST_SLACK, 1 / max(free, 1e-6))
