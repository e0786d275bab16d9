"""Predicted seconds of an epoch by its counters and the device's profile.

One device serves sampling and extraction, so its time adds up over stages; training
runs beside it. The longer of the two is the prediction, plus reads before the first
mini-batch (data preparation). No measured time enters it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from harness.judge.counted import Counted
from harness.judge.wear import written_bytes
from harness.records.record import EpochRecord
from systems.readings import DiskPoint, DiskProfile

_PAGE = 4096
_MIB = 1 << 20
# Pages that are not read ahead are read one fault at a time.
_LARGEST_FAULT = 16 << 10
# The kernel splits larger page-cache reads (the usual max_sectors_kb).
_LARGEST_REQUEST = 512 << 10


@dataclass(frozen=True)
class Prediction:
    """Predicted seconds of an epoch by its parts.

    Attributes:
        own_s: device seconds of the reads that the system counted.
        page_cache_s: device seconds of the kernel's other reads (mapped topology,
            mapped features).
        train_s: seconds of the training steps with nothing else running.
        reads_first: whether all of the system's own reads come before the first
            training step.
    """

    own_s: float
    page_cache_s: float
    train_s: float
    reads_first: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of the whole epoch."""
        if self.reads_first:
            return self.own_s + max(self.page_cache_s, self.train_s)
        return max(self.own_s + self.page_cache_s, self.train_s)

    @property
    def bound(self) -> Literal["device", "training"]:
        """Slower side of the epoch."""
        return (
            "device" if self.own_s + self.page_cache_s >= self.train_s else "training"
        )


def at_depth(profile: DiskProfile, depth: int) -> DiskProfile:
    """Return a profile whose random points are those of a reader at queue depth
    `depth`.

    Between two measured depths a read takes as long as at the lower one, until the rate
    of the higher one is reached. A profile without points at or below `depth` stays, as
    an upper bound; so do sequential points (read ahead).
    """
    kept = [point for point in profile.points if point.pattern != "random"]
    sizes: dict[int, dict[int, float]] = {}
    for point in profile.points:
        if point.pattern == "random":
            rates = sizes.setdefault(point.block_bytes, {})
            rates[point.depth] = max(rates.get(point.depth, 0.0), point.iops)
    # A size measured only at higher depths scales like its nearest neighbour in size.
    shares = {
        size: _rate(rates, depth) / max(rates.values())
        for size, rates in sizes.items()
        if min(rates) <= depth
    }
    for size, rates in sizes.items():
        share = (
            shares[min(shares, key=lambda other: abs(other - size))] if shares else 1.0
        )
        iops = max(rates.values()) * share
        kept.append(DiskPoint(size, depth, iops, iops * size))
    return replace(profile, points=tuple(kept))


def _rate(rates: Mapping[int, float], depth: int) -> float:
    """Return the reads a second at a depth; a higher depth never counts as slower."""
    below = max(known for known in rates if known <= depth)
    low = max(rate for known, rate in rates.items() if known <= depth)
    above = min((known for known in rates if known > depth), default=None)
    if above is None or rates[above] <= low or below == depth:
        return low
    return min(rates[above], low * depth / below)


def predict(
    epoch: EpochRecord,
    profile: DiskProfile,
    train_s: float | None,
    *,
    reads_first: bool = False,
    pages: DiskProfile | None = None,
) -> Prediction | None:
    """Predict one epoch, writes included; None without random points in the profile or
    device bytes of the epoch.

    Args:
        epoch, profile: record of the epoch, device profile under the run's limits.
        train_s: seconds of the training steps alone; None without training.
        reads_first: whether the system's own reads precede the first training step
            (stage `data_prep`).
        pages: device profile for page faults without read-ahead: `at_depth` of the
            number of faulting threads.
    """
    if (
        not any(point.pattern == "random" for point in profile.points)
        or epoch.device_bytes is None
    ):
        return None
    own = Counted(epoch)
    own_s = device_seconds(profile, epoch, own.requests_by_size)
    left_bytes = max(0, epoch.device_bytes - own.requested_bytes)
    page_cache_s = 0.0
    if left_bytes >= _PAGE:
        # Bounded, since own requests that the kernel splits are counted twice.
        most = left_bytes // _PAGE
        own_requests = sum(own.requests_by_size.values())
        least = -(-left_bytes // _LARGEST_REQUEST)
        requests = min(most, max(least, (epoch.device_requests or most) - own_requests))
        size = round(left_bytes / requests)
        met = pages if pages is not None and size <= _LARGEST_FAULT else profile
        page_cache_s = requests * met.request_seconds(size)
    return Prediction(own_s, page_cache_s, train_s or 0.0, reads_first)


def device_seconds(
    profile: DiskProfile, epoch: EpochRecord, requests_by_size: Mapping[int, float]
) -> float:
    """Return the device seconds of an epoch's reads (number of requests by bytes) and
    of its writes (rule 11).

    A device alternates between reads and writes; a class has one budget for both if its
    drive has. A profile is read-only, so writes count as long sequential reads, their
    bytes multiplied by `write_cost` of the device or class.
    """
    both = dict(requests_by_size)
    if (written := written_bytes(epoch) * profile.write_cost) > 0:
        both[_MIB] = both.get(_MIB, 0.0) + written / _MIB
    return profile.seconds(both)
