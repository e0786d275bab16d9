"""Rules 15 to 20: enough epochs, the same batches for everyone, and what emulation may be used for."""

from __future__ import annotations

from harness.context import RunContext
from harness.record import Record
from harness.verdict.registry import Finding, rule


@rule("14", "run_ended_well")
def run_ended_well(record: Record, context: RunContext) -> Finding | None:
    """A run that failed measured nothing. Out of memory, out of time and unsupported are results."""
    return Finding(record.status != "failed", record.reason or record.status)


@rule("15", "warmed_up", "CAVEATS")
def warmed_up(record: Record, context: RunContext) -> Finding | None:
    """A first epoch pays for what later ones find done; it is recorded and left out."""
    if record.status != "ok":
        return None
    return Finding(
        any(epoch.warmup for epoch in record.epochs) and bool(record.measured),
        f"{sum(epoch.warmup for epoch in record.epochs)} warm-up, {len(record.measured)} measured",
    )


@rule("18", "every_batch_once")
def every_batch_once(record: Record, context: RunContext) -> Finding | None:
    """A system that drops batches looks faster for it.

    Batches of every epoch against the seed plan's count, which is the same each epoch.
    """
    if record.status != "ok" or context.workload is None:
        return None
    from workloads.sampling.make import make_seed_plan

    wanted = make_seed_plan(context.workload).num_batches * context.workload.world
    wrong = [epoch for epoch in record.epochs if epoch.batches != wanted]
    if wrong:
        return Finding(False, f"epoch {wrong[0].epoch} trained {wrong[0].batches} of {wanted} batches")
    return Finding(True, f"{wanted} an epoch")


@rule("18", "digests_equal_the_workload")
def digests_equal_the_workload(record: Record, context: RunContext) -> Finding | None:
    """Two faithful systems on one workload have equal digests; one that differs is wrong, not noisy.

    Each epoch's structure digest against the same epoch sampled outside the cap.
    """
    if record.status != "ok" or context.workload is None or not context.faithful or not record.epochs:
        return None
    from harness.trace_facts import TraceFacts

    epochs = TraceFacts(context.workload, record.config, context.cache).epochs()
    if epochs is None:
        return None
    digests = {entry.epoch: entry.digest for entry in epochs}
    wrong = [epoch.epoch for epoch in record.epochs if epoch.digest != digests.get(epoch.epoch)]
    return Finding(not wrong, f"epochs {wrong} differ" if wrong else f"{len(record.epochs)} epochs equal")


@rule("19", "emulated_is_not_accuracy", "CAVEATS")
def emulated_is_not_accuracy(record: Record, context: RunContext) -> Finding | None:
    """An emulated accelerator computes nothing, so a run on it must not carry a loss or an accuracy."""
    if not record.config.device.startswith("emulated"):
        return None
    carried = [epoch.epoch for epoch in record.epochs if epoch.loss is not None or epoch.accuracy is not None]
    return Finding(not carried, f"{record.config.device}: storage numbers only")
