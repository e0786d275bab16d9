"""Measurements that systems and harness exchange: disk profiles and stage spans.
Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from pydantic import TypeAdapter

#: Latencies of requests: direction (`read`, `write`) -> largest bytes of a request of
#: the size class (`larger`: above 1 MiB) -> histogram. A histogram is a text of pairs
#: `nanoseconds:requests`, ascending: the requests that took up to so long, and longer
#: than the pair before.
Latencies: TypeAlias = dict[str, dict[str, str]]


@dataclass(frozen=True)
class DiskPoint:
    """One measured point of a disk: reads of `block_bytes` with `depth` in flight.

    Attributes:
        jobs: threads that shared the depth.
        batch: requests submitted and awaited together; 0: individually.
        others_disk, others_cpu: shares of disk traffic and processor time of other
            processes; None if unknown.
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
    """Measured speed of the dataset's device under the run's limits (methodology rule
    10), as plain data.

    Attributes:
        limited: (requests, bytes) a second that a limiter (an SSD class) admits, each
            counted separately; 0: unlimited.
        tried: read methods tried before `points` were measured with the fastest.
        first_read: reads of blocks never read before, if repeated reads were faster (a
            cache below the kernel); `points` then measure blocks already read once, as
            the warm-up does for a measured epoch.
        region_bytes: bytes measured from the file's start; 0: the whole file.
        write_cost: bytes read in the time of one byte written, if both share one
            budget; 0: separate budgets.
    """

    points: tuple[DiskPoint, ...] = ()
    logical_block_bytes: int = 512
    tool: str = "none"
    limited: tuple[float, float] | None = None
    tried: tuple[DiskPoint, ...] = ()
    first_read: tuple[DiskPoint, ...] = ()
    region_bytes: int = 0
    write_cost: float = 1.0

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> DiskProfile:
        """Return a profile from plain data, as records keep it; without points where
        none was measured.

        Raises:
            ValueError: the content is no profile.
        """
        return _profiles().validate_python(content)

    def seconds(self, requests_by_size: Mapping[int, float]) -> float:
        """Predict the device's seconds for random reads at full depth, given the number
        of reads by request bytes.

        Without a limiter, sums `request_seconds`. A limiter admits short and long
        requests concurrently: short requests consume its request budget, long ones its
        byte budget, so only the scarcer budget counts.
        """
        alone = sum(
            count * self.request_seconds(size)
            for size, count in requests_by_size.items()
        )
        if self.limited is None:
            return alone
        requests = sum(requests_by_size.values())
        nbytes = sum(size * count for size, count in requests_by_size.items())
        per_request, per_byte = (1.0 / rate if rate else 0.0 for rate in self.limited)
        together = max(requests * per_request, nbytes * per_byte)
        apart = sum(
            count * max(per_request, size * per_byte)
            for size, count in requests_by_size.items()
        )
        return alone * together / apart if apart else alone

    def request_seconds(self, request_bytes: int) -> float:
        """Predict the device's seconds for one random read of `request_bytes` at full
        depth.

        Time is interpolated linearly in bytes between two measured sizes; above the
        largest, towards the sequential read's size and time, then by sequential
        bandwidth. (A limiter, which counts requests and bytes separately, has a corner
        there and no slope.) Raises ValueError on a profile without random points.
        """
        best = self.random_rates()
        if not best:
            raise ValueError("the disk profile has no random-read points")
        sizes = list(best)
        times = [1.0 / rate for rate in best.values()]
        if request_bytes <= sizes[0]:
            return times[0]
        for low, high, t_low, t_high in zip(
            sizes, sizes[1:], times, times[1:], strict=False
        ):
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
            streamed = times[-1] + rise * (request_bytes - sizes[-1]) / (
                longest - sizes[-1]
            )
        return max(times[-1], streamed)

    def random_rates(self) -> dict[int, float]:
        """Return the highest measured random reads a second by request bytes,
        ascending."""
        return dict(
            sorted(
                (point.block_bytes, point.iops)
                for point in self.points
                if point.pattern == "random"
            )
        )

    def sequential_bytes_per_s(self) -> float:
        """Return the highest measured sequential rate, 0 if none was measured."""
        return max(
            (p.bytes_per_s for p in self.points if p.pattern == "sequential"),
            default=0.0,
        )


@cache
def _profiles() -> TypeAdapter[DiskProfile]:
    from pydantic import TypeAdapter

    return TypeAdapter(DiskProfile)


class StageSpan(NamedTuple):
    """Time span of one stage of one batch on one thread, in seconds of the monotonic
    clock."""

    stage: str
    batch: int
    thread: str
    start: float
    end: float


def wall_seconds(spans: Sequence[StageSpan]) -> dict[str, float]:
    """Return seconds per stage during which at least one of its spans was open
    (methodology rule 11)."""
    seconds = {span.stage: 0.0 for span in spans}
    reach = dict.fromkeys(seconds, float("-inf"))
    for span in sorted(spans, key=lambda span: span.start):
        seconds[span.stage] += max(0.0, span.end - max(span.start, reach[span.stage]))
        reach[span.stage] = max(reach[span.stage], span.end)
    return seconds
