"""Rule 16: other programs and other machines took too much of the processors or of the
disk for times to count."""

from __future__ import annotations

from collections.abc import Sequence

from harness.judge.metrics import usable_processors
from harness.judge.registry import Finding, RunContext, rule, unknown
from harness.records.record import EpochRecord, Record
from systems.readings import DiskProfile
from workloads.units import format_bytes

# Share of all processors' time that other programs use.
BUSY = 0.2
# Shares of an epoch in which the run waited for a processor, and in which others used
# one: with a fifth of its time lost a run takes 1.25 times as long. Least part of
# others in all computing: threads of the run wait for each other, too, where it has
# more of them than processors.
WAITED = 0.2
OTHERS = 0.1
# Shorter epochs are judged together: the host's counters grow in ticks, of which a few
# for each processor are chance.
LEAST_S = 0.5
CHANCE_S = 0.02
# Counts of the cap's reads and of the disk's.
READS = ("device_bytes", "device_requests", "diskstats_bytes", "diskstats_requests")
# Shares of an epoch that the disk spends on other programs' reads. They come in bursts,
# in which the run's own wait: beside a reader of 15 % an epoch took 1.7 times as long.
QUIET = 0.05
SHARED = 0.1
# Three intervals of the samples of a cap (`harness/telemetry/recorder.py`).
UNWATCHED_S = 0.3


@rule("16", "CAVEATS", of=["ok"], transient=True)
def processors_were_quiet(record: Record, context: RunContext) -> Finding | None:
    """Other programs take processors, their caches and memory bandwidth from the run.

    Divides the host's user time beyond the worker's by the seconds times the
    processors: at most a fifth, in each epoch from 0.5 s on and in all epochs together.
    Time in the kernel is left out, since that of the run's own requests is charged to
    no process.
    """
    if not record.epochs:
        return None
    processors = usable_processors(record)
    if not processors or any(
        epoch.host_user_s is None or epoch.user_s is None for epoch in record.epochs
    ):
        return unknown("the processors' time was not counted")
    share = max(busy_share(span, processors) for span in _spans(record))
    return Finding(
        share <= BUSY, f"others computed for {100 * share:.0f} % of the processors"
    )


def busy_share(span: Sequence[EpochRecord], processors: int) -> float:
    """Return the share of all processors' time in which other programs were in user
    mode during some epochs."""
    return _others_s(span, processors) / (_seconds(span) * processors)


@rule("16", "SPOILT", of=["ok"], evidence=True, transient=True)
def processors_were_not_shared(record: Record, context: RunContext) -> Finding | None:
    """If a run waits for processors that other programs use, its time is not the
    system's.

    Adds up the seconds for which threads of the run were ready and waited for a
    processor, by the kernel's count, and those that the hypervisor took (steal).
    Divides them by the epoch or, where several threads run at once, by their time in
    user mode and waiting: at most a fifth. Is not broken if other programs used
    processors for less than a fifth of the epoch, or did less than a tenth of all
    computing, since a run with more threads than processors waits for itself. Their
    time in the kernel counts: a program that copies files has hardly any other. Judges
    each epoch from 0.5 s on and all epochs together. Such a run is repeated.
    """
    if not record.epochs or any(epoch.stolen_s is None for epoch in record.epochs):
        return None
    processors = usable_processors(record)
    counted = all(
        None not in (epoch.waited_s, epoch.host_user_s, epoch.user_s)
        for epoch in record.epochs
    )
    if not counted or not processors:
        return unknown(
            "the kernel does not count how long threads wait for a processor"
        )
    lost = [(_lost(span, processors), _waited(span)) for span in _spans(record)]
    worst, waited = max(lost)
    return Finding(
        worst <= 1.0, f"waited for processors for {100 * waited:.0f} % of the time"
    )


@rule("16", "CAVEATS", of=["ok"], transient=True)
def disk_was_quiet(record: Record, context: RunContext) -> Finding | None:
    """Other programs' reads on the same disk slow the run's reads, even below the
    limits of an SSD class.

    Estimates the time of the disk's reads beyond the cap's, at the bare device's rates
    for requests of that size: at most a twentieth of each epoch from 0.5 s on, warm-ups
    included, and of all epochs together, however short.
    """
    return _disk(record, context, QUIET)


@rule("16", "SPOILT", of=["ok"], transient=True)
def disk_was_not_shared(record: Record, context: RunContext) -> Finding | None:
    """If other programs' reads keep the disk busy for more than a tenth of an epoch,
    its time is not the system's.

    Estimates as `disk_was_quiet` does. Such a run is not used, without blame on its
    system, and is repeated when the bench is called again.
    """
    return _disk(record, context, SHARED)


@rule("16", "SPOILT", of=["ok"], evidence=True, transient=True)
def watched_throughout(record: Record, context: RunContext) -> Finding | None:
    """While no sample is taken, nothing shows what a run does: its cap may be raised,
    or the machine suspended.

    Measures the longest time between two samples of the cap within an epoch: at most
    three intervals (0.3 s). A sandboxed worker cannot see or signal the observer, so a
    gap is the machine's: a suspended machine, a stopped orchestrator or processors that
    others keep busy. They look alike in the record, and the run is repeated.
    """
    unwatched_s = record.readings.unwatched_s
    if unwatched_s is None:
        return None
    return Finding(unwatched_s <= UNWATCHED_S, f"{unwatched_s:.2f} s without a sample")


def _spans(record: Record) -> list[list[EpochRecord]]:
    """Return the spans by which noise is judged: each long epoch, and all epochs
    together."""
    return [[epoch] for epoch in record.epochs if epoch.wall_s >= LEAST_S] + [
        record.epochs
    ]


def _seconds(span: Sequence[EpochRecord]) -> float:
    return max(sum(epoch.wall_s for epoch in span), 1e-9)


def _sum(span: Sequence[EpochRecord], counter: str) -> float:
    return sum(getattr(epoch, counter) or 0.0 for epoch in span)


def _others_s(span: Sequence[EpochRecord], processors: int) -> float:
    """Return the seconds in user mode of other programs, less those that are chance."""
    seconds = _sum(span, "host_user_s") - _sum(span, "user_s")
    return max(0.0, seconds - CHANCE_S * processors)


def _all_of_others_s(span: Sequence[EpochRecord], processors: int) -> float:
    """Return the seconds of other programs in user mode and, where the cap counts its
    own, in the kernel."""
    if any(None in (epoch.host_system_s, epoch.system_s) for epoch in span):
        return _others_s(span, processors)
    own_s = _sum(span, "user_s") + _sum(span, "system_s")
    of_host_s = _sum(span, "host_user_s") + _sum(span, "host_system_s")
    # Kernels divide a process's time between the two modes by samples, so that only the
    # sums can be compared.
    return max(0.0, of_host_s - own_s - CHANCE_S * processors)


def _waited(span: Sequence[EpochRecord]) -> float:
    """Return the share of the time for which the run waited: of one thread, or of all
    threads where several run."""
    waited_s = _sum(span, "waited_s") + _sum(span, "stolen_s")
    return waited_s / max(_seconds(span), waited_s + _sum(span, "user_s"))


def _lost(span: Sequence[EpochRecord], processors: int) -> float:
    """Return the least of the three shares over its limit; above 1 the span is no
    evidence."""
    others_s = _all_of_others_s(span, processors) + _sum(span, "stolen_s")
    own_s = _sum(span, "user_s") + _sum(span, "system_s")
    of_all = others_s / max(others_s + own_s, 1e-9)
    return min(
        _waited(span) / WAITED, others_s / _seconds(span) / WAITED, of_all / OTHERS
    )


def _disk(record: Record, context: RunContext, most: float) -> Finding | None:
    profile = context.bare_profile or context.profile
    if not record.epochs:
        return None
    spans = _spans(record)
    if profile is None or not any(
        point.pattern == "random" for point in profile.points
    ):
        return unknown("there is no device profile")
    if any(
        getattr(epoch, name) is None
        for span in spans
        for epoch in span
        for name in READS
    ):
        return unknown("the cap's reads or the disk's were not counted")
    share, nbytes = max(_others_reads(span, profile) for span in spans)
    return Finding(
        share <= most,
        f"others read {format_bytes(nbytes)}, {100 * share:.0f} % of the time",
    )


def _others_reads(
    span: Sequence[EpochRecord], profile: DiskProfile
) -> tuple[float, int]:
    """Return (share of the time, bytes) of other programs' reads."""
    own_bytes, own_requests, disk_bytes, disk_requests = (
        int(_sum(span, name)) for name in READS
    )
    nbytes = max(0, disk_bytes - own_bytes)
    requests = max(0, disk_requests - own_requests)
    if not nbytes:
        return 0.0, 0
    # Requests and bytes are both lower bounds, since the kernel may merge or split
    # requests.
    rate = profile.sequential_bytes_per_s()
    spent = nbytes / max(rate, 1.0) if rate else 0.0
    if requests:
        spent = max(
            spent, requests * profile.request_seconds(max(1, nbytes // requests))
        )
    return spent / _seconds(span), nbytes
