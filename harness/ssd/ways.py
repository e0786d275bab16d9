"""Search for fio's fastest method of reading: reads in flight, batch size and
threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.isolation.base import Cap
from harness.ssd.fio import FioJob, best_engine, run_fio
from harness.ssd.quiet import Meter
from systems.interface import DiskPoint

DEPTHS = (32, 128, 256, 512)
# More bytes in flight fill no queue further and only take memory.
_IN_FLIGHT_BYTES = 8 << 20
_SEARCH_RAMP_S = 0.05
_LEAST_EACH = 8
_SMALL = 16 << 10
# Threads of blocking reads, where the kernel has no asynchronous reads.
_SYNC_THREADS = (8, 32, 64)


@dataclass(frozen=True)
class Way:
    """Method of reading: `depth` in flight over all `jobs` threads, submitted `batch`
    at a time (0: one by one)."""

    depth: int
    batch: int = 0
    jobs: int = 1


@dataclass(frozen=True)
class Reads:
    """fio on one file, as a source of measured points: reads `region_bytes` from the
    file's beginning (0: all), and counts other traffic on `disks` (`major:minor` of the
    disks under the file; none under a limiter)."""

    file: Path
    disks: tuple[str, ...] = ()
    cap: Cap | None = None
    region_bytes: int = 0

    def measure(
        self,
        block_bytes: int,
        way: Way,
        seconds: float,
        ramp_seconds: float = 0.2,
        *,
        sequential: bool = False,
    ) -> DiskPoint:
        """Measure one point.

        Args:
            block_bytes, way: size and method of the reads.
            seconds, ramp_seconds: counted time, and uncounted time before it.
            sequential: whether reads follow each other; else random ones.
        """
        job = FioJob(
            file=self.file,
            block_bytes=block_bytes,
            depth=max(1, way.depth // way.jobs),
            threads=way.jobs,
            batch=way.batch,
            pattern="sequential" if sequential else "random",
            seconds=seconds,
            ramp_seconds=ramp_seconds,
            exact_latency=False,
            region_bytes=self.region_bytes,
        )
        with Meter(self.disks, self.cap) as meter:
            (result,) = run_fio([job], self.cap)
        disk, processors = meter.shares(block_bytes)
        others = (None if disk is None else round(disk, 4), round(processors, 4))
        measured = (job.depth * way.jobs, result.iops, result.bytes_per_s)
        return DiskPoint(
            block_bytes, *measured, job.pattern, way.jobs, way.batch, *others
        )


def way_of(point: DiskPoint) -> Way:
    """Return the method by which a point was read."""
    return Way(point.depth, point.batch, point.jobs)


def first_ways(block_bytes: int, depths: Sequence[int] = DEPTHS) -> list[Way]:
    """Return methods with one thread: each depth in batches of a quarter, and one depth
    one by one."""
    most = max(1, _IN_FLIGHT_BYTES // block_bytes)
    fitting = sorted({min(depth, most) for depth in depths})
    if best_engine() == "psync":
        return [Way(threads, 0, threads) for threads in _SYNC_THREADS]
    alone = min(fitting, key=lambda depth: abs(depth - 256))
    return [*(Way(depth, depth // 4) for depth in fitting if depth >= 4), Way(alone)]


def shared_ways(best: Way) -> list[Way]:
    """Return the best method of one thread, shared by as many threads as there are
    processors."""
    threads = len(os.sched_getaffinity(0))
    if threads < 2 or best.jobs > 1 or best.depth < 2:
        return []
    each = max(min(_LEAST_EACH, best.depth), best.depth // threads)
    return list(
        dict.fromkeys(
            [Way(each * threads, each // 4, threads), Way(each * threads, 0, threads)]
        )
    )


def search(
    reads: Reads, block_bytes: int, depths: Sequence[int], seconds: float
) -> list[DiskPoint]:
    """Measure random reads by every method for `seconds` and fio's own 0.3 s; return
    the points, best first.

    Args:
        depths: reads in flight to try.
    """

    def rate(way: Way) -> DiskPoint:
        return reads.measure(block_bytes, way, seconds, _SEARCH_RAMP_S)

    found = sorted(
        map(rate, first_ways(block_bytes, depths)), key=lambda point: -point.iops
    )
    # Long reads keep a device busy before they keep one thread busy.
    found += map(rate, shared_ways(way_of(found[0])) if block_bytes <= _SMALL else ())
    return sorted(found, key=lambda point: -point.iops)
