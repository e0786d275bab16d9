"""Rules 8 to 10: what was read was really read, and no faster than the device can."""

from __future__ import annotations

from harness.context import RunContext
from harness.metrics import engine_efficiency
from harness.record import EpochRecord, Record
from harness.verdict.registry import Finding, rule
from workloads.units import format_bytes

RATE_TOLERANCE = 1.10
# What the kernel's limiter saves up for an idle device and lets pass at once: one slice of blk-throttle.
SLICE_S = 0.1


def _device_bytes(epoch: EpochRecord) -> int | None:
    return epoch.device_bytes if epoch.device_bytes is not None else epoch.diskstats_bytes


@rule("9", "device_reads_cover_own_count")
def device_reads_cover_own_count(record: Record, context: RunContext) -> Finding | None:
    """A system whose count of bytes read exceeds what the device delivered read from a cache nobody charged.

    Each epoch's device bytes (the cap's counters, else the disk's) against the system's own `bytes_read`.
    """
    if record.status != "ok":
        return None
    seen = False
    for epoch in record.epochs:
        device, own = _device_bytes(epoch), int(epoch.counters.get("bytes_read") or 0)
        if device is None or own == 0:
            continue
        seen = True
        if device < own:
            return Finding(
                False, f"epoch {epoch.epoch}: {format_bytes(own)} counted, {format_bytes(device)} from the device"
            )
    return Finding(True, "every epoch") if seen else None


@rule("9", "no_faster_than_the_device")
def no_faster_than_the_device(record: Record, context: RunContext) -> Finding | None:
    """A rate above what fio reaches on the same files comes from a cache behind the kernel's back.

    The time fio would need for the run's requests may exceed the time taken by at most 10 %. Under an SSD class the
    kernel's limiter saves up what an idle moment leaves and lets it pass as a burst, so there the class is held over
    the whole epoch and the slice saved up before it, and the bare device over the extract time. A profile that was
    beaten is measured once more before this is the verdict, since virtual disks have slow moments.
    """
    efficiency = record.summary.engine_efficiency
    if record.status != "ok" or efficiency is None:
        return None
    if efficiency <= RATE_TOLERANCE or not (context.io_limited and context.limits):
        return Finding(efficiency <= RATE_TOLERANCE, f"{efficiency:.2f} x the device's measured rate")
    over_epoch, _ = engine_efficiency(record, context, whole_epoch=True)
    if over_epoch is not None:
        seconds = [epoch.seconds for epoch in record.measured]
        over_epoch *= sum(seconds) / (sum(seconds) + SLICE_S * len(seconds))
    of_bare, _ = engine_efficiency(record, context, context.bare_profile) if context.bare_profile else (None, "")
    held = [ratio for ratio in (over_epoch, of_bare) if ratio is not None]
    bare = "unknown" if of_bare is None else f"{of_bare:.2f}"
    return Finding(
        bool(held) and max(held) <= RATE_TOLERANCE,
        f"{over_epoch or 0:.2f} x the class over the epoch and a slice, {bare} x the bare device while extracting",
    )


@rule("9", "within_the_class_at_every_moment", "CAVEATS")
def within_the_class_at_every_moment(record: Record, context: RunContext) -> Finding | None:
    """Bursts that the limiter lets pass make extraction look faster than the class; epochs are too short to even out.

    Engine efficiency under an SSD class above 1.1.
    """
    efficiency = record.summary.engine_efficiency
    if record.status != "ok" or efficiency is None or not (context.io_limited and context.limits):
        return None
    return Finding(efficiency <= RATE_TOLERANCE, f"{efficiency:.2f} x the class while extracting")


@rule("10", "device_profile_by_fio", "CAVEATS")
def device_profile_by_fio(record: Record, context: RunContext) -> Finding | None:
    """Without a profile of the series there is no roofline, and with another tool than fio a weaker one."""
    if record.status not in ("ok", "oom"):
        return None
    if context.profile is None or not context.profile.points:
        return Finding(False, "no device profile")
    return Finding(context.profile.tool.startswith("fio"), f"measured with {context.profile.tool}")


@rule("10", "disk_class_was_enforced", "CAVEATS")
def disk_class_was_enforced(record: Record, context: RunContext) -> Finding | None:
    """A run labelled with an SSD class that the host did not enforce shows the bare device."""
    if record.config.disk_class in ("", "none"):
        return None
    return Finding(context.io_limited, f"{record.config.disk_class} by {context.isolation}")


@rule("10", "reads_are_asynchronous", "CAVEATS")
def reads_are_asynchronous(record: Record, context: RunContext) -> Finding | None:
    """A reader that fell back from io_uring, or to buffered reads, is not the system its paper describes.

    Looks at what the system noted of its reader.
    """
    mode = record.notes.get("io")
    if mode is None:
        return None
    wanted = str(record.config.options.get("io_mode", "auto")) != "pread"
    fell_back = mode.startswith("pread") and wanted
    return Finding(not fell_back, mode)
