"""Disturbance of a measurement: shares of the disk and the processors that other processes took meanwhile."""

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
# Other traffic below this (requests and bytes a second) is normal background.
_BREATH_REQUESTS, _BREATH_BYTES = 100.0, 4e6
# Bytes that cost a disk about as much as one request.
_WORTH_BYTES = 16 << 10
# The kernel splits longer requests.
_SPLIT_BYTES = 64 << 10
# Largest correction of a disturbed rate for the share that others took.
_MOST_SLACK = 3.0
WAITS_S = (1.0, 3.0)


@dataclass(frozen=True)
class _Reading:
    """Counters at one moment: disks, the cap or child processes, processors."""

    at: float
    requests: int
    nbytes: int
    own_bytes: int | None
    own_user_s: float
    host_user_s: float
    stolen_s: float


class Meter:
    """Context manager around a child process that reads; `shares` then returns the shares that others took. The child
    runs in `cap`, or without one, and must have ended and been waited for when the block ends."""

    def __init__(self, disks: Sequence[str], cap: Cap | None = None) -> None:
        self._disks = disks
        self._cap = cap

    def __enter__(self) -> Meter:
        self._before = self._read()
        return self

    def __exit__(self, *exc: object) -> None:
        self._after = self._read()

    def shares(self, block_bytes: int) -> tuple[float | None, float]:
        """Return the shares of the disk's traffic (None: unknown) and of the processors that others took. Traffic
        counts in requests of `block_bytes`, the child's size, or in bytes where they cost more."""
        before, after = self._before, self._after
        seconds = max(after.at - before.at, 1e-9)
        user = (after.host_user_s - before.host_user_s) - (after.own_user_s - before.own_user_s)
        stolen = after.stolen_s - before.stolen_s
        processors = max(0.0, user + stolen) / (seconds * (os.cpu_count() or 1))
        if before.own_bytes is None or after.own_bytes is None or not self._disks:
            return None, processors
        own = after.own_bytes - before.own_bytes
        nbytes = max(0, after.nbytes - before.nbytes - own)
        # The kernel splits long requests, so a count above the child's own is no sign of other traffic.
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
    """Return requests and bytes of all disks since boot, reads and writes together."""
    requests = sectors = 0
    for number in disks:
        row = read_text(sys / "dev/block" / number / "stat").split()
        if len(row) >= 7:
            requests += int(row[0]) + int(row[4])
            sectors += int(row[2]) + int(row[6])
    return requests, 512 * sectors


def _processors() -> tuple[float, float]:
    """Return seconds since boot of all processors in user mode, and seconds that a hypervisor took away."""
    import psutil

    times = psutil.cpu_times()
    return float(times.user + getattr(times, "nice", 0.0)), float(getattr(times, "steal", 0.0))


def is_quiet(point: DiskPoint) -> bool:
    """Return whether others took little of the disk and the processors while a point was measured."""
    return (point.others_disk or 0.0) <= QUIET_DISK and (point.others_cpu or 0.0) <= QUIET_CPU


def quietly(
    measure: Callable[[], DiskPoint], waits: list[float], pause: Callable[[float], None] = time.sleep
) -> DiskPoint:
    """Measure a point; while others were busy and `waits` (seconds, used up from the front) has pauses left, measure
    again. Return the best rate, marked quiet if the last attempt was."""
    found = [measure()]
    while not is_quiet(found[-1]) and waits:
        pause(waits.pop(0))
        found.append(measure())
    # Other load never makes a disk faster, so the highest rate is the disk's own.
    best, last = max(found, key=lambda point: point.iops), found[-1]
    return replace(best, others_disk=last.others_disk, others_cpu=last.others_cpu) if is_quiet(last) else best


def busiest(profile: DiskProfile) -> tuple[float, float]:
    """Return the largest shares of disk and processors that others took while a point of the profile was measured.
    Points with one read in flight are left out: they leave the disk to others, so that their share says little."""
    points = [point for point in profile.points if point.depth > 1]
    return (
        max((point.others_disk or 0.0 for point in points), default=0.0),
        max((point.others_cpu or 0.0 for point in points), default=0.0),
    )


def slack(profile: DiskProfile) -> float:
    """Return how many times faster than a disturbed profile the device may be, at most 3; 1 for a quiet profile."""
    if all(is_quiet(point) for point in profile.points):
        return 1.0
    disk, processors = busiest(profile)
    free = (1 - min(disk, 1.0)) * (1 - min(processors, 1.0))
    return min(_MOST_SLACK, 1 / max(free, 1e-6))
