"""Plain readings that systems and harness exchange: what a disk does, and when stages ran. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DiskPoint:
    """One measured point of a disk: reads of `block_bytes` with `depth` in flight.

    Attributes:
        jobs: threads that shared the depth.
        batch: requests handed in, and waited for, at a time; 0: each by itself.
        others_disk, others_cpu: shares of the disk's traffic and of the processors that others took meanwhile; None
            where that is not known.
    """

    block_bytes: int
    depth: int
    iops: float
    bytes_per_s: float
    pattern: Literal["random", "sequential"] = "random"
    jobs: int = 1
    batch: int = 0
    others_disk: float | None = None
    others_cpu: float | None = None


@dataclass(frozen=True)
class DiskProfile:
    """What the dataset's device does, under the run's limits (methodology rule 10). Plain data, made by the harness.

    Attributes:
        limited: (requests, bytes) a second that a limiter lets pass, each counted by itself (an SSD class); 0: no limit
            of it.
        tried: the ways of reading that were tried before `points` were measured in the best of them.
        first_read: reads of blocks that had not been read before, where reading them again was faster (a cache below
            the kernel); `points` are then of blocks that had been read once, as those of a measured epoch were in the
            warm-up.
        region_bytes: the file's first so many were measured; 0: all of it.
        write_cost: bytes that could be read in the time of a byte written, as both use up one budget; 0: writes have
            their own.
    """

    points: tuple[DiskPoint, ...] = ()
    logical_block_bytes: int = 512
    tool: str = "none"
    limited: tuple[float, float] | None = None
    tried: tuple[DiskPoint, ...] = ()
    first_read: tuple[DiskPoint, ...] = ()
    region_bytes: int = 0
    write_cost: float = 1.0

    def seconds(self, requests_by_size: Mapping[int, float]) -> float:
        """Seconds the device needs for random reads, request bytes -> how many, at full depth.

        One after the other by `request_seconds`. A limiter lets short and long requests pass at the same time: short
        ones use up its requests, long ones its bytes, so of both together the scarcer one counts.
        """
        alone = sum(count * self.request_seconds(size) for size, count in requests_by_size.items())
        if self.limited is None:
            return alone
        requests = sum(requests_by_size.values())
        nbytes = sum(size * count for size, count in requests_by_size.items())
        per_request, per_byte = (1.0 / rate if rate else 0.0 for rate in self.limited)
        together = max(requests * per_request, nbytes * per_byte)
        apart = sum(count * max(per_request, size * per_byte) for size, count in requests_by_size.items())
        return alone * together / apart if apart else alone

    def request_seconds(self, request_bytes: int) -> float:
        """Seconds the device needs for one random read of `request_bytes` at full depth.

        Between two measured sizes the time per request is interpolated linearly in bytes; above the largest towards the
        sequential reads' size and time, and beyond that by their bandwidth. (A limiter, which counts requests and bytes
        each by itself, has a corner there and no slope.) Raises ValueError on a profile without random points.
        """
        points = sorted((p for p in self.points if p.pattern == "random"), key=lambda p: p.block_bytes)
        best: dict[int, float] = {}
        for point in points:
            best[point.block_bytes] = max(best.get(point.block_bytes, 0.0), point.iops)
        if not best:
            raise ValueError("the disk profile has no random-read points")
        sizes = sorted(best)
        times = [1.0 / best[size] for size in sizes]
        if request_bytes <= sizes[0]:
            return times[0]
        for low, high, t_low, t_high in zip(sizes, sizes[1:], times, times[1:], strict=False):
            if request_bytes <= high:
                return t_low + (t_high - t_low) * (request_bytes - low) / (high - low)
        found = [p for p in self.points if p.pattern == "sequential"]
        if not found:
            return times[-1] * request_bytes / sizes[-1]
        best_run = max(found, key=lambda p: p.bytes_per_s)
        streamed = request_bytes / best_run.bytes_per_s
        longest = best_run.block_bytes
        if self.limited is None and request_bytes < longest:
            rise = longest / best_run.bytes_per_s - times[-1]
            streamed = times[-1] + rise * (request_bytes - sizes[-1]) / (longest - sizes[-1])
        return max(times[-1], streamed)

    def sequential_bytes_per_s(self) -> float:
        """The best sequential rate measured, 0 where none was."""
        return max((p.bytes_per_s for p in self.points if p.pattern == "sequential"), default=0.0)


@dataclass(frozen=True)
class StageSpan:
    """One stage of one batch on one thread: seconds on the monotonic clock."""

    stage: str
    batch: int
    thread: str
    start: float
    end: float


def wall_seconds(spans: Sequence[StageSpan]) -> dict[str, float]:
    """Seconds per stage in which at least one of its spans was open (methodology rule 11)."""
    by_stage: dict[str, list[tuple[float, float]]] = {}
    for span in spans:
        by_stage.setdefault(span.stage, []).append((span.start, span.end))
    result: dict[str, float] = {}
    for stage, intervals in by_stage.items():
        total, reach = 0.0, float("-inf")
        for start, end in sorted(intervals):
            total += max(0.0, end - max(start, reach))
            reach = max(reach, end)
        result[stage] = total
    return result
