"""Disturbance of a measurement: shares of the disk and the processors that other
processes took meanwhile, and caches below the kernel (of a hypervisor, of an array),
detected by the speed of second reads of the same blocks.

O_DIRECT bypasses this host's page cache, not the cache of the machine below: a profile
of blocks that were never read would hold a run to the drive's rate, while its measured
epochs read again the blocks of the warm-up.
"""

from __future__ import annotations

import math
import mmap
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.isolation.base import Cap
from harness.isolation.files import read_text
from harness.ssd.fio import FioJob, run_fio
from systems.readings import DiskPoint, DiskProfile

# Shares of the disk's traffic, and of all processors' time, that others may take beside
# a measurement.
QUIET_DISK = 0.05
QUIET_CPU = 0.2
# Other traffic below this (requests and bytes a second) is normal background.
_BREATH_REQUESTS = 100.0
_BREATH_BYTES = 4e6
# Bytes that cost a disk about as much as one request.
_WORTH_BYTES = 16 << 10
# The kernel splits longer requests.
_SPLIT_BYTES = 64 << 10
# Largest correction of a measured rate for the share that others took, and for the
# device's better moments.
_MOST_SLACK = 3.0
WAITS_S = (1.0, 3.0)
# Least gain of second reads that shows a cache.
SEEN = 1.3
_BLOCK = 4096
# In smaller files too many of the blocks drawn at random have been read before.
_LEAST_BYTES = 16 << 20
_ROUNDS = 8
_BLOCKS = 32
# Longest time of `read_once`.
_WARM_S = 5.0


class Meter:
    """Context manager around a child process that reads; `shares` then returns the
    shares that others took. The child runs in `cap`, or without one, and must have
    ended and been waited for when the block ends. `grew`: growth of the counters that
    `_read` lists, within the block."""

    def __init__(self, disks: Sequence[str], cap: Cap | None = None) -> None:
        self._disks = disks
        self._cap = cap

    def __enter__(self) -> Meter:
        self._before = self._read()
        return self

    def __exit__(self, *exc: object) -> None:
        self.grew = [
            after - before
            for before, after in zip(self._before, self._read(), strict=True)
        ]

    def shares(self, block_bytes: int) -> tuple[float | None, float]:
        """Return the shares of the disk's traffic (None: unknown) and of the processors
        that others took. Traffic counts in requests of `block_bytes`, the child's size,
        or in bytes where they cost more."""
        seconds, all_requests, all_bytes, own, own_user_s, user_s, stolen_s = self.grew
        seconds = max(seconds, 1e-9)
        processors = max(0.0, user_s - own_user_s + stolen_s) / (
            seconds * (os.cpu_count() or 1)
        )
        if math.isnan(own) or not self._disks:
            return None, processors
        nbytes = max(0.0, all_bytes - own)
        # The kernel splits long requests, so a count above the child's own is no sign
        # of other traffic.
        asked = own / block_bytes if block_bytes <= _SPLIT_BYTES else all_requests
        requests = max(0.0, all_requests - asked)
        if requests < _BREATH_REQUESTS * seconds and nbytes < _BREATH_BYTES * seconds:
            return 0.0, processors
        theirs = max(requests, nbytes / _WORTH_BYTES)
        return theirs / (
            theirs + max(own / block_bytes, own / _WORTH_BYTES)
        ), processors

    def _read(self) -> list[float]:
        """Read the time; the disks' requests and bytes; the child's bytes (NaN:
        unknown) and seconds in user mode; all processors' seconds in user mode, and
        those that a hypervisor took away."""
        import psutil

        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        times = psutil.cpu_times()
        cap_io = self._cap.io() if self._cap else None
        own = (
            children.ru_inblock * 512
            if self._cap is None
            else cap_io.read_bytes
            if cap_io
            else math.nan
        )
        user_s = times.user + getattr(times, "nice", 0.0)
        stolen_s = getattr(times, "steal", 0.0)
        return [
            time.monotonic(),
            *traffic(self._disks),
            own,
            children.ru_utime,
            user_s,
            stolen_s,
        ]


def traffic(disks: Sequence[str], sys: Path = Path("/sys")) -> tuple[int, int]:
    """Return requests and bytes of all disks since boot, reads and writes together."""
    requests = sectors = 0
    for number in disks:
        row = read_text(sys / "dev/block" / number / "stat").split()
        if len(row) >= 7:
            requests += int(row[0]) + int(row[4])
            sectors += int(row[2]) + int(row[6])
    return requests, 512 * sectors


def is_quiet(*points: DiskPoint) -> bool:
    """Return whether others took little of the disk and the processors while the points
    were measured."""
    return all(
        (p.others_disk or 0.0) <= QUIET_DISK and (p.others_cpu or 0.0) <= QUIET_CPU
        for p in points
    )


def quietly(
    measure: Callable[[], DiskPoint],
    waits: list[float],
    pause: Callable[[float], None] = time.sleep,
) -> DiskPoint:
    """Measure a point; while others were busy and `waits` (seconds, used up from the
    front) has pauses left, measure again. Return the best rate, marked quiet if the
    last attempt was."""
    found = [measure()]
    while not is_quiet(found[-1]) and waits:
        pause(waits.pop(0))
        found.append(measure())
    # Other load never makes a disk faster, so the highest rate is the disk's own.
    best = max(found, key=lambda point: point.iops)
    last = found[-1]
    return (
        replace(best, others_disk=last.others_disk, others_cpu=last.others_cpu)
        if is_quiet(last)
        else best
    )


def busiest(profile: DiskProfile) -> tuple[float, float]:
    """Return the largest shares of disk and processors that others took while a point
    of the profile was measured. Points with one read in flight are left out: they leave
    the disk to others, so that their share says little."""
    points = [point for point in profile.points if point.depth > 1]
    return (
        max((point.others_disk or 0.0 for point in points), default=0.0),
        max((point.others_cpu or 0.0 for point in points), default=0.0),
    )


def slack(profile: DiskProfile) -> float:
    """Return how many times faster than a profile's points the device may be, at most
    3: by the share that others took of it, or by its better moments, which the short
    trials before the points show. 1 for a quiet, steady device."""
    disk, processors = (0.0, 0.0) if is_quiet(*profile.points) else busiest(profile)
    free = (1 - min(disk, 1.0)) * (1 - min(processors, 1.0))
    rates = profile.random_rates()
    moments = [
        trial.iops / rate
        for trial in profile.tried
        if (rate := rates.get(trial.block_bytes))
    ]
    return min(_MOST_SLACK, max(1.0, 1 / max(free, 1e-6), *moments))


def reread_gain(file: Path) -> float:
    """Return how many times as fast random 4 KiB blocks are on a second read, one in
    flight; 1 for a file below 16 MiB. Rounds of first and second reads alternate, so
    that neither gets the machine's better moments. Takes about 0.1 s."""
    blocks = file.stat().st_size // _BLOCK
    if blocks * _BLOCK < _LEAST_BYTES:
        return 1.0
    fd = os.open(file, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, _BLOCK) as buffer:
            gains = []
            for _ in range(_ROUNDS):
                drawn = random.sample(range(blocks), _BLOCKS)
                first, second = (_median_s(fd, buffer, drawn) for _ in range(2))
                gains.append(first / second)
    finally:
        os.close(fd)
    return statistics.median(gains)


def _median_s(fd: int, buffer: mmap.mmap, blocks: list[int]) -> float:
    took = []
    for block in blocks:
        begin = time.perf_counter()
        os.preadv(fd, [buffer], block * _BLOCK)
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def read_once(file: Path, seconds: float = _WARM_S) -> int:
    """Read the file once from its beginning, for at most `seconds`; return the number
    of bytes read."""
    job = FioJob(
        file=file,
        block_bytes=1 << 20,
        depth=32,
        pattern="sequential",
        once=True,
        seconds=seconds,
        exact_latency=False,
    )
    return min(file.stat().st_size, run_fio([job])[0].bytes_read)


def gain_of(profile: DiskProfile) -> tuple[float, DiskPoint | None, DiskPoint | None]:
    """Return the largest gain of second over first reads in a profile, and both points;
    (1, None, None) without one."""
    pairs = (
        (again.iops / first.iops, first, again)
        for first in profile.first_read
        for again in profile.points
        if (again.block_bytes, again.pattern, again.depth == 1)
        == (first.block_bytes, first.pattern, first.depth == 1)
        and again.iops > first.iops > 0
    )
    return max(pairs, key=lambda pair: pair[0], default=(1.0, None, None))
