"""Caches below the kernel (of a hypervisor, of an array), detected by the speed of second reads of the same blocks.
O_DIRECT bypasses this host's page cache, not the cache of the machine below: a profile of blocks that were never read
would hold a run to the drive's rate, while its measured epochs read again the blocks of the warm-up."""

from __future__ import annotations

import mmap
import os
import random
import statistics
import time
from pathlib import Path

from harness.ssd.fio import FioJob, run_fio
from systems.readings import DiskPoint, DiskProfile

# Least gain of second reads that shows a cache.
SEEN = 1.3
_BLOCK = 4096
# In smaller files too many of the blocks drawn at random have been read before.
_LEAST_BYTES = 16 << 20
_ROUNDS, _BLOCKS = 8, 32
# Longest time of `read_once`.
_WARM_S = 5.0


def reread_gain(file: Path) -> float:
    """Return how many times as fast random 4 KiB blocks are on a second read, one in flight; 1 for a file below 16 MiB.
    Rounds of first and second reads alternate, so that neither gets the machine's better moments. Takes about 0.1 s."""
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
    """Read the file once from its beginning, for at most `seconds`; return the number of bytes read."""
    job = FioJob(
        file=file, block_bytes=1 << 20, depth=32, pattern="sequential", once=True, seconds=seconds, exact_latency=False
    )
    return min(file.stat().st_size, run_fio([job])[0].bytes_read)


def gain_of(profile: DiskProfile) -> tuple[float, DiskPoint | None, DiskPoint | None]:
    """Return the largest gain of second over first reads in a profile, and both points; (1, None, None) without one."""
    pairs = (
        (again.iops / first.iops, first, again)
        for first in profile.first_read
        for again in profile.points
        if (again.block_bytes, again.pattern, again.depth == 1) == (first.block_bytes, first.pattern, first.depth == 1)
        and again.iops > first.iops > 0
    )
    return max(pairs, key=lambda pair: pair[0], default=(1.0, None, None))
