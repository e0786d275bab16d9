"""Rules 14, 15 and 29: seconds agree with the orchestrator's clock, and hold all of the
system's work and no other."""

from __future__ import annotations

from harness.judge.memory import files_within
from harness.judge.metrics import REPORT_S, usable_processors
from harness.judge.registry import Finding, RunContext, rule, unknown
from harness.records.record import Record

# Delay from a worker's clock to the orchestrator's: a pipe and a wake-up, longer on a
# busy machine.
AGREES_S = 0.1
AGREES_SHARE = 0.05
NEAR_S = 0.02
NEAR_SHARE = 0.02
# Time to send tables and to ask for counters, on a busy machine.
BETWEEN_S = 0.25
BETWEEN_SHARE = 0.10
PREPARING_S = 0.5
PREPARING_SHARE = 0.10
# A system's own threads continue while the clock is stopped.
CHECKING_SHARE = 0.02


@rule("29", of=["ok"], evidence=True, transient=True, timed=True)
def clock_agrees_with_the_gates(record: Record, context: RunContext) -> Finding | None:
    """A slow or replaced clock in the worker makes any system look faster.

    Compares each epoch's seconds with the time from the opening of its first gate to
    the arrival at its last by the orchestrator's clock: at most 0.1 s or a twentieth
    apart, whichever is more.
    """
    return _clock(record, AGREES_S, AGREES_SHARE)


@rule("29", "CAVEATS", of=["ok"], evidence=True, transient=True)
def clock_is_close_to_the_gates(record: Record, context: RunContext) -> Finding | None:
    """A busy machine delays an epoch's message to the orchestrator.

    Compares each epoch's seconds with its gates by the orchestrator's clock: at most
    0.02 s or a fiftieth apart.
    """
    return _clock(record, NEAR_S, NEAR_SHARE)


@rule("29", of=["ok"], evidence=True, timed=True)
def nothing_was_done_between_epochs(
    record: Record, context: RunContext
) -> Finding | None:
    """Work of a system at closed gates, or while the harness asks for its counters, is
    missing from every number.

    Measures the seconds from the opening of the gate before an epoch (the end of the
    previous epoch or of the preparation) to the arrival at its first gate: at most a
    quarter of a second plus a tenth of the epoch. The run's seconds in user mode, also
    while these gates are closed, are at most a quarter for each processor plus that
    tenth. The harness's report of a mini-batch takes up to 50 µs more.
    """
    return _between(record, BETWEEN_S, BETWEEN_SHARE, wall=True)


@rule("29", "CAVEATS", of=["ok"], evidence=True, transient=True)
def little_was_done_between_epochs(
    record: Record, context: RunContext
) -> Finding | None:
    """Threads that sample or gather ahead while no clock runs make short epochs
    shorter.

    Counts the run's seconds in user mode from the gate before an epoch to its first
    gate, also while these are closed: at most a fiftieth of the epoch, plus 0.02 s for
    each processor, on which a library's idle threads may spin, and 50 µs for the report
    of each mini-batch.
    """
    return _between(record, NEAR_S, NEAR_SHARE, wall=False)


@rule("29", of=["ok"], evidence=True, timed=True)
def preparation_took_what_it_says(
    record: Record, context: RunContext
) -> Finding | None:
    """Work of a system while the harness asks for names of files is missing from the
    preparation.

    Compares the preparation's seconds after the plan with the time from the plan's
    arrival to the gate after the preparation, by the orchestrator's clock, which may be
    longer by at most half a second plus a tenth of itself.
    """
    gate_s = record.preprocess.gate_s
    if gate_s is None:
        return unknown("the gates have no times")
    reported = record.preprocess.seconds - record.preprocess.planning_s
    held = gate_s - reported <= PREPARING_S + PREPARING_SHARE * gate_s
    return Finding(
        held, f"{reported:.2f} s reported, {gate_s:.2f} s between plan and gate"
    )


@rule("14", of=["ok"], evidence=True)
def nothing_was_prepared_before(record: Record, context: RunContext) -> Finding | None:
    """Data that was prepared before the run is missing from its preparation.

    Adds up the data files that the run's processes had open, at gates and once a
    second, that are older than the run's worker and not the dataset's own files,
    wherever they lie (in the dataset's folder, too) and even without a name: at most
    0.5 % of the features or 1 MiB, whichever is more. Small files count where all that
    are open together are that large. Artefacts that the system took by
    `systems.engine.store.artefacts` count with the seconds and bytes of their making,
    which was under the same setting (memory cap, limits of the disk, cores) and by the
    same code, else they are made anew; anything else in the folder of artefacts is
    removed before a run, and a worker's home (`HOME`, caches) and folder of temporary
    files are new and empty. Code of libraries is no data.
    """
    return files_within(
        record,
        record.readings.from_before,
        "older than the run",
        "every file is its own",
    )


@rule("15", "CAVEATS", of=["ok"], transient=True)
def checks_took_little(record: Record, context: RunContext) -> Finding | None:
    """The digests of `--verify` are computed off the clock, and the system's own
    threads continue meanwhile, uncounted.

    Divides the seconds spent on digests by the epoch's seconds: at most a fiftieth.
    """
    if not record.measured:
        return None
    worst = max(
        epoch.checking_s / max(epoch.seconds, 1e-9) for epoch in record.measured
    )
    return (
        Finding(
            worst <= CHECKING_SHARE,
            f"{worst:.2f} x the epoch spent on digests beside it",
        )
        if worst
        else None
    )


def _clock(record: Record, seconds: float, share: float) -> Finding | None:
    if not record.epochs:
        return None
    if any(epoch.gate_s is None for epoch in record.epochs):
        return unknown("the gates have no times")
    found = (
        ((epoch.gate_s or 0.0) - epoch.seconds - epoch.checking_s, epoch)
        for epoch in record.epochs
    )
    apart, epoch = max(found, key=lambda entry: abs(entry[0]))
    held = abs(apart) <= max(seconds, share * (epoch.gate_s or 0.0))
    return Finding(
        held,
        f"epoch {epoch.epoch}: {epoch.seconds:.3f} s reported, {epoch.gate_s:.3f} s "
        "between its gates",
    )


def _between(
    record: Record, seconds: float, share: float, *, wall: bool
) -> Finding | None:
    if not record.epochs:
        return None
    processors = max(1, record.config.cores or usable_processors(record))
    worst = (-1.0, 0.0, 0)
    for epoch in record.epochs:
        gates = record.readings.before(epoch.epoch)
        if gates is None:
            return unknown("the gates have no times")
        last, first = gates
        more = share * epoch.seconds + REPORT_S * epoch.batches
        spent_s = first.user_s - last.user_s
        worst = max(
            worst, (spent_s / (seconds * processors + more), spent_s, epoch.epoch)
        )
        if wall:
            spent_s = first.reached_s - last.opened_s
            worst = max(worst, (spent_s / (seconds + more), spent_s, epoch.epoch))
    return Finding(worst[0] <= 1.0, f"{worst[1]:.2f} s before epoch {worst[2]}")
