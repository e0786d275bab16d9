"""Rule 16: what is compared had the host to itself; work of others beside a run is not the system's doing."""

from __future__ import annotations

from dataclasses import dataclass

from harness.context import RunContext
from harness.record import GateReading, Record
from harness.verdict.registry import Finding, rule, unknown
from systems.readings import DiskProfile
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

    What the disk read beyond what the cap did, at the bare device's rates for requests of that size: at most a
    twentieth of each epoch, the warm-up's too, and of the time from the first gate to the last as a whole.
    """
    return _disk(record, context, QUIET)


@rule("16", "disk_was_not_shared", "SPOILT")
def disk_was_not_shared(record: Record, context: RunContext) -> Finding | None:
    """Where others' reads keep the disk busy for a quarter of an epoch its time says nothing of the system.

    Such a run is not used, which is no word against its system, and is made again when the bench is called again.
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
    long = [epoch for epoch in record.measured if epoch.wall_s >= LEAST_S]
    processors = int((record.environment.get("cpu") or {}).get("usable") or 0)
    if not long:
        return None
    if not processors or any(epoch.host_user_s is None or epoch.user_s is None for epoch in long):
        return unknown("the processors' time was not counted")
    worst = max(
        max(0.0, (epoch.host_user_s or 0.0) - (epoch.user_s or 0.0)) / (epoch.wall_s * processors) for epoch in long
    )
    return Finding(worst <= BUSY, f"others computed for {100 * worst:.0f} % of the processors")


@dataclass(frozen=True)
class _Span:
    """Reads of the cap and of the whole disk in some seconds; None where they are not known."""

    seconds: float
    io_bytes: int | None
    io_requests: int | None
    disk_bytes: int | None
    disk_requests: int | None


def _disk(record: Record, context: RunContext, most: float) -> Finding | None:
    profile = context.bare_profile or context.profile
    if record.status != "ok":
        return None
    spans = [span for span in _spans(record) if span.seconds >= LEAST_S]
    if not spans:
        return None
    if profile is None or not any(point.pattern == "random" for point in profile.points):
        return unknown("there is no device profile")
    found = [_others(span, profile) for span in spans]
    known = [entry for entry in found if entry is not None]
    if len(known) < len(found):
        return unknown("the cap's reads or the disk's were not counted")
    share, nbytes = max(known)
    return Finding(share <= most, f"others read {format_bytes(nbytes)}, {100 * share:.0f} % of the time")


def _spans(record: Record) -> list[_Span]:
    """Every epoch, and all from the first gate on; without the gates between, where others have their turn there."""
    found = [
        _Span(epoch.wall_s, epoch.device_bytes, epoch.device_requests, epoch.diskstats_bytes, epoch.diskstats_requests)
        for epoch in (record.epochs if record.evidence else record.measured)
    ]
    evidence = record.evidence
    if evidence and len(evidence.gates) > 1 and not evidence.in_turns:
        found.append(_between(evidence.gates[0], evidence.gates[-1]))
    return found


def _between(first: GateReading, last: GateReading) -> _Span:
    def difference(name: str) -> int | None:
        before, after = getattr(first, name), getattr(last, name)
        return None if before is None or after is None else after - before

    counts = (difference(name) for name in ("io_bytes", "io_requests", "disk_bytes", "disk_requests"))
    return _Span(last.reached_s - first.opened_s, *counts)


def _others(span: _Span, profile: DiskProfile) -> tuple[float, int] | None:
    """(share of the time, bytes) of the disk's reads for others; None where the cap's own are not known."""
    if span.io_bytes is None or span.io_requests is None or span.disk_bytes is None or span.disk_requests is None:
        return None
    nbytes = max(0, span.disk_bytes - span.io_bytes)
    requests = max(0, span.disk_requests - span.io_requests)
    if not nbytes:
        return 0.0, 0
    # Both the requests and the bytes bound it from below; the kernel may have merged or split on the way to the disk.
    seconds = nbytes / max(profile.sequential_bytes_per_s(), 1.0) if profile.sequential_bytes_per_s() else 0.0
    if requests:
        seconds = max(seconds, requests * profile.request_seconds(max(1, nbytes // requests)))
    return seconds / span.seconds, nbytes
