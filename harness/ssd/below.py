"""Caches below the kernel (a hypervisor's, an array's): whether blocks are faster when they are read a second time.

O_DIRECT passes our own page cache by; that of the machine below is there all the same. A profile of blocks that were
never read would then hold a run to the drive, while its measured epochs read again what the warm-up has read.
"""

from __future__ import annotations

import mmap
import os
import random
import statistics
import time
from pathlib import Path

from harness.ssd.fio import FioJob, best_engine, run_fio
from systems.readings import DiskPoint, DiskProfile

# Reading again is seen as faster from this on.
SEEN = 1.3
_BLOCK = 4096
# Smaller files say nothing: what is read once of them is most of them.
_LEAST_BYTES = 16 << 20
_ROUNDS, _BLOCKS = 8, 32
# A region is read once in so many seconds at most.
_WARM_S = 5.0


def reread_gain(file: Path) -> float:
    """How many times as fast random blocks of 4 KiB are when they are read again, one in flight; 1 where untold.

    Rounds of first and second readings take turns, so that neither gets the machine's better moments. About 0.1 s.
    """
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
    """Read the file from its beginning, once, for `seconds` at most; bytes of it that were read."""
    job = FioJob(
        file=file,
        block_bytes=1 << 20,
        depth=32,
        pattern="sequential",
        once=True,
        seconds=seconds,
        engine=best_engine(),
        exact_latency=False,
    )
    return min(file.stat().st_size, run_fio([job])[0].bytes_read)


def gain_of(profile: DiskProfile) -> tuple[float, DiskPoint | None, DiskPoint | None]:
    """The largest gain of second readings over first ones in a profile, with both; 1 where none was seen."""
    best: tuple[float, DiskPoint | None, DiskPoint | None] = (1.0, None, None)
    for first in profile.first_read:
        same = [
            point
            for point in profile.points
            if (point.block_bytes, point.pattern) == (first.block_bytes, first.pattern)
            and (point.depth == 1) == (first.depth == 1)
        ]
        for again in same:
            if first.iops > 0 and again.iops / first.iops > best[0]:
                best = (again.iops / first.iops, first, again)
    return best
