"""Rule 16: a run had the host to itself, since work of other programs is not the system's."""

from __future__ import annotations

from dataclasses import dataclass

from harness.judge.context import RunContext
from harness.judge.registry import Finding, rule, unknown
from harness.records.record import Record
from systems.readings import DiskProfile
from workloads.units import format_bytes

# Shares of an epoch that the disk spends on other programs' reads.
QUIET, SHARED = 0.05, 0.25
# Share of all processors' time that other programs use.
BUSY = 0.2
# Shorter epochs do not average out counters in ticks, nor the read-ahead for other programs.
LEAST_S = 0.5


@rule("16", "disk_was_quiet", "CAVEATS", of=["ok"])
def disk_was_quiet(record: Record, context: RunContext) -> Finding | None:
    """Other programs' reads on the same disk slow the run's reads, even below the limits of an SSD class.

    Estimates the time of the disk's reads beyond the cap's, at the bare device's rates for requests of that size: at
    most a twentieth of each epoch from 0.5 s on, warm-ups included, and of the time from the first gate to the last.
    """
    return _disk(record, context, QUIET)


@rule("16", "disk_was_not_shared", "SPOILT", of=["ok"])
def disk_was_not_shared(record: Record, context: RunContext) -> Finding | None:
    """If other programs' reads keep the disk busy for more than a quarter of an epoch, its time is not the system's.

    Such a run is not used, without blame on its system, and is repeated when the bench is called again.
    """
    return _disk(record, context, SHARED)


@rule("16", "processors_were_quiet", "CAVEATS", of=["ok"])
def processors_were_quiet(record: Record, context: RunContext) -> Finding | None:
    """Other programs take processors, their caches and memory bandwidth from the run.

    Divides the host's user time beyond the worker's by the epoch's seconds (0.5 or more) times the processors: at most
    a fifth. Time in the kernel is left out, since that of the run's own requests is charged to no process.
    """
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
    """Reads of the cap and of the whole disk within `seconds`; None if unknown."""

    seconds: float
    io_bytes: int | None
    io_requests: int | None
    disk_bytes: int | None
    disk_requests: int | None


def _disk(record: Record, context: RunContext, most: float) -> Finding | None:
    profile = context.bare_profile or context.profile
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
    """Return one span per epoch, and one from the first to the last gate unless other sweeps ran between epochs."""
    found = [
        _Span(epoch.wall_s, epoch.device_bytes, epoch.device_requests, epoch.diskstats_bytes, epoch.diskstats_requests)
        for epoch in (record.epochs if record.evidence else record.measured)
    ]
    evidence = record.evidence
    if evidence and len(evidence.gates) > 1 and not evidence.in_turns:
        first, last = evidence.gates[0], evidence.gates[-1]
        counts = (last.since(first, name) for name in ("io_bytes", "io_requests", "disk_bytes", "disk_requests"))
        found.append(_Span(last.reached_s - first.opened_s, *counts))
    return found


def _others(span: _Span, profile: DiskProfile) -> tuple[float, int] | None:
    """Return (share of the time, bytes) of other programs' reads; None if a count is unknown."""
    if span.io_bytes is None or span.io_requests is None or span.disk_bytes is None or span.disk_requests is None:
        return None
    nbytes = max(0, span.disk_bytes - span.io_bytes)
    requests = max(0, span.disk_requests - span.io_requests)
    if not nbytes:
        return 0.0, 0
    # Requests and bytes are both lower bounds, since the kernel may merge or split requests.
    seconds = nbytes / max(profile.sequential_bytes_per_s(), 1.0) if profile.sequential_bytes_per_s() else 0.0
    if requests:
        seconds = max(seconds, requests * profile.request_seconds(max(1, nbytes // requests)))
    return seconds / span.seconds, nbytes
