"""Rule 16: a run had the host to itself, since work of other programs is not the system's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.judge.metrics import usable_processors
from harness.judge.registry import Finding, RunContext, rule, unknown
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
    processors = usable_processors(record)
    if not long:
        return None
    if not processors or any(epoch.host_user_s is None or epoch.user_s is None for epoch in long):
        return unknown("the processors' time was not counted")
    worst = max(
        max(0.0, (epoch.host_user_s or 0.0) - (epoch.user_s or 0.0)) / (epoch.wall_s * processors) for epoch in long
    )
    return Finding(worst <= BUSY, f"others computed for {100 * worst:.0f} % of the processors")


def _disk(record: Record, context: RunContext, most: float) -> Finding | None:
    profile = context.bare_profile or context.profile
    spans = [(seconds, counts) for seconds, *counts in _spans(record) if seconds >= LEAST_S]
    if not spans:
        return None
    if profile is None or not any(point.pattern == "random" for point in profile.points):
        return unknown("there is no device profile")
    known = [(seconds, [count for count in counts if count is not None]) for seconds, counts in spans]
    if any(len(counts) < 4 for _, counts in known):
        return unknown("the cap's reads or the disk's were not counted")
    share, nbytes = max(_others(seconds, counts, profile) for seconds, counts in known)
    return Finding(share <= most, f"others read {format_bytes(nbytes)}, {100 * share:.0f} % of the time")


def _spans(record: Record) -> Iterator[tuple[float, int | None, int | None, int | None, int | None]]:
    """Yield seconds, bytes and requests of the cap, bytes and requests of the disk; None for an unknown count.

    One span is an epoch, and one is from the first to the last gate unless other sweeps ran between epochs.
    """
    for epoch in record.epochs if record.evidence else record.measured:
        own, of_disk = (epoch.device_bytes, epoch.device_requests), (epoch.diskstats_bytes, epoch.diskstats_requests)
        yield epoch.wall_s, *own, *of_disk
    gates = record.readings.gates
    if len(gates) > 1 and not record.readings.in_turns:
        first, last = gates[0], gates[-1]
        own = last.since(first, "io_bytes"), last.since(first, "io_requests")
        of_disk = last.since(first, "disk_bytes"), last.since(first, "disk_requests")
        yield last.reached_s - first.opened_s, *own, *of_disk


def _others(seconds: float, counts: Sequence[int], profile: DiskProfile) -> tuple[float, int]:
    """Return (share of the time, bytes) of other programs' reads."""
    own_bytes, own_requests, disk_bytes, disk_requests = counts
    nbytes, requests = max(0, disk_bytes - own_bytes), max(0, disk_requests - own_requests)
    if not nbytes:
        return 0.0, 0
    # Requests and bytes are both lower bounds, since the kernel may merge or split requests.
    rate = profile.sequential_bytes_per_s()
    spent = nbytes / max(rate, 1.0) if rate else 0.0
    if requests:
        spent = max(spent, requests * profile.request_seconds(max(1, nbytes // requests)))
    return spent / seconds, nbytes
