"""Rules 9 to 11: reads came from the device, no faster than it can, and no fewer than
any system needs."""

from __future__ import annotations

from harness.foreign import is_foreign
from harness.judge.counted import Counted
from harness.judge.memory import files_within
from harness.judge.metrics import efficiency_of_engine, least_device_seconds
from harness.judge.predict import predict
from harness.judge.registry import Finding, RunContext, rule, unknown
from harness.judge.wear import written_bytes
from harness.records.record import EpochRecord, Record
from harness.ssd.quiet import SEEN, busiest, gain_of, is_quiet, slack
from workloads.units import format_bytes

RATE_TOLERANCE = 1.10
# Share of the least reads that a system's own mini-batches may differ by chance from
# the workload's.
DRAWN_SHARE = 0.9
# Idle time that the kernel's limiter saves up and lets pass as a burst: one slice of
# blk-throttle.
SLICE_S = 0.1
# Reads allowed between epochs: those in flight when the last mini-batch is trained, and
# pages of code.
BETWEEN_SHARE = 0.02
BETWEEN_BYTES = 1 << 20
# Rules that a run faster than the device profile breaks: the profile is measured again
# before they give the verdict.
BEATEN = frozenset({"no_faster_than_the_device", "distance_is_below_one"})


def _device_bytes(epoch: EpochRecord) -> int | None:
    return (
        epoch.device_bytes if epoch.device_bytes is not None else epoch.diskstats_bytes
    )


@rule("9", of=["ok"])
def device_reads_cover_own_count(record: Record, context: RunContext) -> Finding | None:
    """A system that counts more read bytes than the device delivered used a cache that
    was charged to no cap.

    Compares each epoch's device bytes (the cap's counters for the dataset's disks, else
    the disks' own) with the system's `bytes_read` and with the sum of its requests, by
    which its engine efficiency is computed.
    """
    counted = [epoch for epoch in record.epochs if Counted(epoch).read_bytes]
    for epoch in counted:
        own = Counted(epoch).read_bytes
        device = _device_bytes(epoch)
        if device is None:
            return unknown("the device's reads were not counted")
        if device < own:
            both = (
                f"{format_bytes(own)} counted, {format_bytes(device)} from the device"
            )
            return Finding(False, f"epoch {epoch.epoch}: {both}")
    return Finding(True, "every epoch") if counted else None


@rule("9", of=["ok"], evidence=True, capped=True, reads=True)
def device_reads_cover_working_set(
    record: Record, context: RunContext
) -> Finding | None:
    """Rows that are neither in memory nor read from the device came from a cache that
    was charged to no cap.

    Compares each epoch's device bytes, regardless of the system's counters, with the
    bytes that even the best choice of resident rows leaves to read (docs/frontier.md).
    Applies to runs under a cap on the workload's own mini-batches; of a foreign system
    that samples by itself, with nine tenths of those that the workload's sampler draws.
    """
    evidence = record.readings
    if not (evidence.faithful or is_foreign(record.system)):
        return None
    share = 1.0 if evidence.faithful else DRAWN_SHARE
    if not evidence.least_bytes:
        return unknown(evidence.unknown or "the mini-batches were not sampled again")
    for epoch in record.epochs:
        least = evidence.least_bytes.get(epoch.epoch)
        device = _device_bytes(epoch)
        if device is None or least is None:
            return unknown("the device's reads were not counted")
        least = int(share * least)
        if device < least:
            reported = (
                f"{format_bytes(device)} from the device, {format_bytes(least)} at the "
                "least"
            )
            return Finding(False, f"epoch {epoch.epoch}: {reported}")
    return Finding(
        True,
        f"{format_bytes(int(share * max(evidence.least_bytes.values())))} at the least",
    )


@rule("9", of=["ok"], evidence=True, capped=True)
def nothing_was_read_between_epochs(
    record: Record, context: RunContext
) -> Finding | None:
    """Data that is read while no clock runs is missing from the epoch that uses it.

    Counts the cap's device bytes from the gate before an epoch (the end of the previous
    epoch or of the preparation) to its first gate: at most a fiftieth of the epoch's
    device bytes or 1 MiB, whichever is more.
    """
    found: list[tuple[float, int, int]] = []
    for epoch in record.epochs:
        gates = record.readings.before(epoch.epoch)
        between = gates and gates[1].since(gates[0], "io_bytes")
        if between is None:
            return unknown("the device's reads were not counted between epochs")
        allowed = max(BETWEEN_BYTES, int(BETWEEN_SHARE * (epoch.device_bytes or 0)))
        found.append((between / allowed, between, epoch.epoch))
    if not found:
        return None
    share, between, number = max(found, key=lambda entry: entry[0])
    return Finding(share <= 1, f"{format_bytes(between)} before epoch {number}")


@rule("9", of=["ok"], evidence=True)
def files_are_on_the_disk(record: Record, context: RunContext) -> Finding | None:
    """Reads of another disk are neither counted nor limited by an SSD class, and that
    disk may be memory (zram).

    Adds up the data files that the run's processes had open, at gates and once a
    second, and that lie on another disk than the dataset: at most 0.5 % of the features
    or 1 MiB, whichever is more.
    """
    return files_within(
        record,
        record.readings.elsewhere,
        "on another disk",
        "every file is on the dataset's disk",
    )


@rule("9", of=["ok"], transient=True)
def no_faster_than_the_device(record: Record, context: RunContext) -> Finding | None:
    """A rate above fio's on the same files comes from a cache below the kernel.

    The time that fio needs for the run's requests may exceed the time taken by at most
    10 %. Under an SSD class the kernel's limiter saves up idle time and lets it pass as
    a burst, so the limits of the class apply to the whole epoch plus the slice saved up
    before it, and the bare device's rates to the extract time. A beaten profile is
    measured again, three times with pauses, before this rule gives the verdict, since
    virtual disks have slow moments. The device may be faster than the profile by the
    share that other programs still took of the disk or of the processors, and by its
    better moments: a short trial of fio was faster than the point of the same size that
    the profile keeps.
    """
    efficiency = record.summary.engine_efficiency
    if not any(epoch.device_bytes for epoch in record.measured):
        return None
    if efficiency is None:
        return unknown(
            str(
                record.summary.extra.get(
                    "engine_efficiency_from", "no request was counted"
                )
            )
        )
    allowed = RATE_TOLERANCE * max(
        slack(profile) for profile in (context.profile, context.bare_profile) if profile
    )
    beside = (
        f", {allowed:.2f} allowed for others' load and better moments"
        if allowed > RATE_TOLERANCE
        else ""
    )
    if efficiency <= RATE_TOLERANCE or not context.limits:
        return Finding(
            efficiency <= allowed,
            f"{efficiency:.2f} x the device's measured rate{beside}",
        )
    over_epoch, _ = efficiency_of_engine(record, context, whole_epoch=True)
    if over_epoch is not None:
        seconds = [epoch.wall_s for epoch in record.measured]
        over_epoch *= sum(seconds) / (sum(seconds) + SLICE_S * len(seconds))
    of_bare, _ = (
        efficiency_of_engine(record, context, context.bare_profile)
        if context.bare_profile
        else (None, "")
    )
    known = over_epoch is not None or of_bare is not None
    held = known and (over_epoch or 0) <= RATE_TOLERANCE and (of_bare or 0) <= allowed
    bare = "unknown" if of_bare is None else f"{of_bare:.2f}"
    of_class = f"{over_epoch or 0:.2f} x the class over the epoch and a slice"
    return Finding(
        held, f"{of_class}, {bare} x the bare device while extracting{beside}"
    )


@rule("9", "CAVEATS", of=["ok"], transient=True)
def within_the_class_at_every_moment(
    record: Record, context: RunContext
) -> Finding | None:
    """Bursts that the limiter lets pass make extraction look faster than the class if
    epochs are short.

    Checks that engine efficiency under an SSD class is at most 1.1.
    """
    efficiency = record.summary.engine_efficiency
    if efficiency is None or not context.limits:
        return None
    return Finding(
        efficiency <= RATE_TOLERANCE, f"{efficiency:.2f} x the class while extracting"
    )


@rule("10", "CAVEATS", of=["ok", "oom"])
def device_profile_by_fio(record: Record, context: RunContext) -> Finding | None:
    """The roofline needs a device profile of the series, measured by fio: other tools
    give a weaker one."""
    if context.profile is None or not context.profile.points:
        return Finding(False, "no device profile")
    return Finding(
        context.profile.tool.startswith("fio"), f"measured with {context.profile.tool}"
    )


@rule("10", "CAVEATS", transient=True)
def device_profile_was_quiet(record: Record, context: RunContext) -> Finding | None:
    """A profile measured beside other programs is slower than the device, so systems
    look better in comparison.

    Checks other programs' shares of the disk's traffic (at most a twentieth) and of the
    processors (at most a fifth) at each point of the bare device's profile. Such a
    profile was measured again after pauses, and is kept for minutes.
    """
    profile = context.bare_profile or context.profile
    if profile is None or all(point.others_cpu is None for point in profile.points):
        return None
    disk, processors = busiest(profile)
    reported = (
        f"others took up to {100 * disk:.0f} % of the disk and {100 * processors:.0f} "
        "% of the processors"
    )
    return Finding(all(map(is_quiet, profile.points)), reported)


@rule("10", "CAVEATS", transient=True)
def no_cache_below_the_kernel(record: Record, context: RunContext) -> Finding | None:
    """A hypervisor's or an array's cache serves blocks that were read before, at rates
    that are not the drive's.

    Compares reads of blocks that were read before with reads of the same file's blocks
    not read for long: at most 1.3 times as fast. Behind such a cache the profile is of
    blocks read before, like those of a measured epoch.
    """
    profile = context.bare_profile or context.profile
    if profile is None or not profile.first_read:
        return None
    gain, first, again = gain_of(profile)
    if first is None or again is None:
        return None
    rates = f"{first.iops:,.0f}/s the first time, {again.iops:,.0f}/s again"
    return Finding(
        gain <= SEEN, f"{first.block_bytes} B reads, {first.depth} in flight: {rates}"
    )


@rule("9")
def disk_is_behind_no_page_cache(record: Record, context: RunContext) -> Finding | None:
    """A loop device that reads its file through the host's page cache serves direct
    reads from memory outside the cap.

    Checks every layer between the dataset's file system and its disk; `losetup
    --direct-io=on` fixes it.
    """
    cached = (record.environment.get("disk") or {}).get("page_cached")
    if cached is None:
        return None
    how = (
        f"{', '.join(cached)} read through the page cache: attach with `losetup "
        "--direct-io=on`"
    )
    return Finding(not cached, how if cached else "")


@rule("10", "CAVEATS")
def disk_class_was_enforced(record: Record, context: RunContext) -> Finding | None:
    """A run labelled with an SSD class that the host did not enforce shows the bare
    device."""
    if record.config.disk_class in ("", "none"):
        return None
    return Finding(
        record.readings.io_limited,
        f"{record.config.disk_class} by {record.readings.isolation}",
    )


@rule("10", "CAVEATS", of=["ok"], transient=True)
def within_the_shared_budget(record: Record, context: RunContext) -> Finding | None:
    """If a drive has one budget for reads and writes, an emulation with a limit for
    each is too fast.

    Compares the time of an epoch's reads and writes under the one budget of its SSD
    class with the epoch plus the limiter's slice: at most 1.1 times. Does not apply
    without writes, or if the class has separate budgets.
    """
    profile = context.profile
    if profile is None or not (
        context.limits and profile.limited and profile.write_cost
    ):
        return None
    made = [
        (epoch, predict(epoch, profile, None))
        for epoch in record.measured
        if written_bytes(epoch)
    ]
    shares = [
        (found.own_s + found.page_cache_s) / (epoch.wall_s + SLICE_S)
        for epoch, found in made
        if found
    ]
    if not shares:
        return None
    most = max(shares)
    return Finding(
        most <= RATE_TOLERANCE,
        f"reads and writes together are {most:.2f} x the budget of the class",
    )


@rule("10", "CAVEATS")
def reads_are_asynchronous(record: Record, context: RunContext) -> Finding | None:
    """A reader that fell back from io_uring, or to buffered reads, is not the system
    that its paper describes.

    Checks the system's fact `io`, unless the option `io_mode` asked for `pread`.
    """
    mode = record.facts.io
    if mode is None:
        return None
    wanted = str(record.config.options.get("io_mode", "auto"))
    return Finding(not mode.startswith("pread") or wanted == "pread", mode)


@rule("11", of=["ok"], capped=True, reads=True, faithful=True, transient=True)
def distance_is_below_one(record: Record, context: RunContext) -> Finding | None:
    """No system can be faster than the least time of its mini-batches' reads; a faster
    one got rows from elsewhere.

    Divides the least time of an epoch by the epoch's seconds: at most 1.1, as in rule
    9. The least time reads the bytes that even the best choice of resident rows leaves
    (proven in docs/frontier.md) at the best rate that fio measured on the device in the
    series. Under an SSD class the slice that the limiter saved up is added to the
    epoch.
    """
    if not record.epochs:
        return None
    saved = SLICE_S if context.limits else 0.0
    shares = []
    for epoch in record.epochs:
        least = least_device_seconds(record, context, epoch.epoch)
        if least is None:
            return unknown(
                "there is no device profile, or the mini-batches were not sampled again"
            )
        shares.append(least / max(epoch.wall_s + saved, 1e-9))
    return Finding(
        max(shares) <= RATE_TOLERANCE,
        f"the least time is {max(shares):.2f} x the epoch",
    )
