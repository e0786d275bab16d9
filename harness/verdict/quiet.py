"""Rule 16: what is compared had the host to itself; work of others beside a run is not the system's doing."""

from __future__ import annotations

import os

from harness.context import RunContext
from harness.record import EpochRecord, Record
from harness.verdict.registry import Finding, rule
from systems.interface import DiskProfile
from workloads.units import format_bytes

# Shares of an epoch that the disk spends on others' reads.
QUIET, SHARED = 0.05, 0.25
# Share of all processors' time that others compute for.
BUSY = 0.2
# Shorter epochs end before what the kernel counts in ticks, and what it reads ahead for others, evens out.
LEAST_S = 0.5


@rule("16", "disk_was_quiet", "CAVEATS")
def disk_was_quiet(record: Record, context: RunContext) -> Finding | None:
    """Reads of others on the same disk take their time from the run's, even below the limits of an SSD class.

    What the disk read beyond what the cap did, at the bare device's rates for requests of that size, over the epoch:
    at most a twentieth.
    """
    return _disk(record, context, QUIET)


@rule("16", "disk_was_not_shared")
def disk_was_not_shared(record: Record, context: RunContext) -> Finding | None:
    """Where others' reads keep the disk busy for a quarter of an epoch its time says nothing of the system.

    Such a run is made again when the bench is called again.
    """
    return _disk(record, context, SHARED)


@rule("16", "processors_were_quiet", "CAVEATS")
def processors_were_quiet(record: Record, context: RunContext) -> Finding | None:
    """Programs beside the run take processors, their caches and the memory's bandwidth from it.

    User time of the host beyond the worker's own, over the epoch's seconds times the processors: at most a fifth. Time
    in the kernel is left out, since that of the run's own requests is counted for nobody.
    """
    if record.status != "ok":
        return None
    processors = os.cpu_count() or 1
    worst = -1.0
    for epoch in record.measured:
        if epoch.host_user_s is None or epoch.user_s is None or epoch.seconds < LEAST_S:
            continue
        worst = max(worst, max(0.0, epoch.host_user_s - epoch.user_s) / (epoch.seconds * processors))
    return None if worst < 0 else Finding(worst <= BUSY, f"others computed for {100 * worst:.0f} % of the processors")


def _disk(record: Record, context: RunContext, most: float) -> Finding | None:
    profile = context.bare_profile or context.profile
    if record.status != "ok" or profile is None or not any(point.pattern == "random" for point in profile.points):
        return None
    found = [_others(epoch, profile) for epoch in record.measured if epoch.seconds >= LEAST_S]
    known = [entry for entry in found if entry is not None]
    if not known:
        return None
    share, nbytes = max(known)
    return Finding(share <= most, f"others read {format_bytes(nbytes)}, {100 * share:.0f} % of an epoch's time")


def _others(epoch: EpochRecord, profile: DiskProfile) -> tuple[float, int] | None:
    """(share of the epoch, bytes) of the disk's reads for others; None where the cap's own are not known."""
    parts = (epoch.device_bytes, epoch.device_requests, epoch.diskstats_bytes, epoch.diskstats_requests)
    if any(part is None for part in parts):
        return None
    nbytes = max(0, (epoch.diskstats_bytes or 0) - (epoch.device_bytes or 0))
    requests = max(0, (epoch.diskstats_requests or 0) - (epoch.device_requests or 0))
    if not nbytes:
        return 0.0, 0
    # Both the requests and the bytes bound it from below; the kernel may have merged or split on the way to the disk.
    seconds = nbytes / max(profile.sequential_bytes_per_s(), 1.0) if profile.sequential_bytes_per_s() else 0.0
    if requests:
        seconds = max(seconds, requests * profile.request_seconds(max(1, nbytes // requests)))
    return seconds / epoch.seconds, nbytes
