"""Rules 14, 15, 18 to 20 and 26: a successful run, enough epochs, equal mini-batches and rows, limits of emulation."""

from __future__ import annotations

from harness.judge.registry import Finding, RunContext, rule, unknown
from harness.records.record import Record

# Relative noise of a calibrated training time and of an epoch.
NOISE = 0.10


@rule("14", "run_ended_well")
def run_ended_well(record: Record, context: RunContext) -> Finding | None:
    """A failed run measured nothing. Out of memory, timeout and unsupported are results."""
    return Finding(record.status != "failed", record.reason or record.status)


@rule("15", "warmed_up", "CAVEATS", of=["ok"])
def warmed_up(record: Record, context: RunContext) -> Finding | None:
    """The first epoch has one-time costs: a run needs a warm-up epoch, recorded and left out, and a measured one."""
    return Finding(
        any(epoch.warmup for epoch in record.epochs) and bool(record.measured),
        f"{sum(epoch.warmup for epoch in record.epochs)} warm-up, {len(record.measured)} measured",
    )


@rule("18", "dataset_stayed_the_same", of=["ok"], evidence=True)
def dataset_stayed_the_same(record: Record, context: RunContext) -> Finding | None:
    """A system that writes to its dataset changes the work, and what its digests are compared with.

    Compares inode, size and times of modification and change of the dataset's files before the run and after it.
    As root, a worker sees the dataset read-only.
    """
    changed = record.readings.rewritten
    if changed is None:
        return None
    return Finding(not changed, f"changed during the run: {', '.join(changed)}" if changed else "no file changed")


@rule("18", "every_batch_once", of=["ok"], evidence=True)
def every_batch_once(record: Record, context: RunContext) -> Finding | None:
    """A system that drops mini-batches looks faster.

    Compares the number of mini-batches of every epoch with the seed plan's, which is the same for each epoch.
    """
    wanted = record.readings.batches
    if wanted is None:
        return unknown(record.readings.unknown or "the seed plan is not known")
    wrong = [epoch for epoch in record.epochs if epoch.batches != wanted]
    if wrong:
        return Finding(False, f"epoch {wrong[0].epoch} trained {wrong[0].batches} of {wanted} batches")
    return Finding(True, f"{wanted} an epoch")


@rule("18", "digests_equal_the_workload", of=["ok"], evidence=True, faithful=True)
def digests_equal_the_workload(record: Record, context: RunContext) -> Finding | None:
    """Faithful systems on one workload have equal digests; a different digest is an error, not noise.

    Compares each epoch's structure digest with that of the same epoch sampled outside the cap.
    """
    if not record.epochs:
        return None
    digests = record.readings.digests
    if not digests:
        return unknown(record.readings.unknown or "the mini-batches were not sampled again")
    wrong = [epoch.epoch for epoch in record.epochs if epoch.digest != digests.get(epoch.epoch)]
    return Finding(not wrong, f"epochs {wrong} differ" if wrong else f"{len(record.epochs)} epochs equal")


@rule("19", "emulated_is_not_accuracy", "CAVEATS")
def emulated_is_not_accuracy(record: Record, context: RunContext) -> Finding | None:
    """An emulated accelerator computes nothing, so a run on it must not carry a loss or an accuracy."""
    if not record.config.device.startswith("emulated"):
        return None
    carried = [epoch.epoch for epoch in record.epochs if epoch.loss is not None or epoch.accuracy is not None]
    return Finding(not carried, f"{record.config.device}: storage numbers only")


@rule("20", "training_alone_is_shorter", "CAVEATS", of=["ok"])
def training_alone_is_shorter(record: Record, context: RunContext) -> Finding | None:
    """An accelerator cannot be busy for longer than the epoch; if it seems so, training alone was timed too slow.

    Compares accelerator utilisation with 1, plus a tenth for the noise of both times.
    """
    used = record.summary.accelerator_utilisation
    if record.config.stages != "all":
        return None
    if used is None:
        return unknown("training alone was not timed")
    return Finding(used <= 1.0 + NOISE, f"training alone takes {used:.2f} x the epoch")


@rule("20", "device_memory_is_not_free", "CAVEATS", evidence=True)
def device_memory_is_not_free(record: Record, context: RunContext) -> Finding | None:
    """If copies take no time, rows that stay on the device are in memory that no budget counts.

    An emulated device whose copies take no time must lose its rows between epochs, as `null` does.
    """
    if not record.config.device.startswith("emulated:"):
        return None
    free = record.readings.free_device_memory
    return Finding(not free, f"{record.config.device}{' keeps rows, and copies take no time' if free else ''}")


@rule("20", "rows_crossed_the_bus", of=["ok"], evidence=True, faithful=True)
def rows_crossed_the_bus(record: Record, context: RunContext) -> Finding | None:
    """Rows that are written into an emulated device's memory as if it were the host's take no time on its bus.

    Compares the busy seconds of the copy lane in each epoch with the least that any system with this device memory
    needs for the epoch's rows at the bus's rate (docs/frontier.md), less a fiftieth.
    """
    least = record.readings.least_bus_s
    if not any(least.values()):
        return None
    if any(epoch.bus_s is None for epoch in record.epochs):
        return unknown("the copies were not timed")
    epoch = min(record.epochs, key=lambda epoch: (epoch.bus_s or 0.0) - least.get(epoch.epoch, 0.0))
    wanted, busy = least.get(epoch.epoch, 0.0), epoch.bus_s or 0.0
    return Finding(busy >= 0.98 * wanted, f"epoch {epoch.epoch}: bus busy {busy:.3f} s, at least {wanted:.3f} s")


@rule("26", "features_equal_the_dataset", of=["ok"], reads=True)
def features_equal_the_dataset(record: Record, context: RunContext) -> Finding | None:
    """A system that reads no feature rows, or wrong ones, is the fastest of all.

    Compares feature rows at training with the dataset read by direct reads: a digest over the whole first warm-up
    epoch, and in every epoch 128 rows of each of four mini-batches, drawn when the epoch began.
    """
    evidence = record.readings
    if not evidence.features:
        return unknown(evidence.unchecked or "no row was checked")
    checks = evidence.features
    wrong = [check for check in checks if not check.ok]
    if wrong:
        first = wrong[0]
        where = "the whole epoch" if first.whole else f"mini-batch {first.batch}"
        return Finding(False, f"epoch {first.epoch}, {where}: {first.detail}; {len(wrong)} of {len(checks)} checks")
    rows, whole = (sum(getattr(check, name) for check in checks) for name in ("rows", "whole"))
    return Finding(True, f"{rows} rows of {len(checks) - whole} mini-batches{' and an epoch' if whole else ''}")


@rule("26", "features_were_checked", "CAVEATS", of=["ok"], evidence=True, reads=True)
def features_were_checked(record: Record, context: RunContext) -> Finding | None:
    """An epoch without a compared feature row may have been trained on arbitrary data."""
    checked = {check.epoch for check in record.readings.features}
    left = [str(epoch.epoch) for epoch in record.epochs if epoch.epoch not in checked]
    return Finding(not left, f"epochs {', '.join(left)} were not checked" if left else "every epoch")
