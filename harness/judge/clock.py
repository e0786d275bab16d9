"""Rules 15 and 29: seconds agree with the orchestrator's clock, and no work is hidden from the clock."""

from __future__ import annotations

from harness.judge.memory import WARM_BYTES, WARM_SHARE
from harness.judge.registry import Finding, RunContext, rule, unknown
from harness.records.record import Record, spread
from workloads.units import format_bytes

# Delay from a worker's clock to the orchestrator's: a pipe and a wake-up, longer on a busy machine.
AGREES_S, AGREES_SHARE = 0.1, 0.05
NEAR_S, NEAR_SHARE = 0.02, 0.02
# Time to send tables and to ask for counters.
BETWEEN_S, BETWEEN_SHARE = 0.25, 0.10
PREPARING_S, PREPARING_SHARE = 0.5, 0.10
# A system's own threads continue while the clock is stopped.
CHECKING_SHARE = 0.02


@rule("29", "clock_agrees_with_the_gates", of=["ok"], evidence=True)
def clock_agrees_with_the_gates(record: Record, context: RunContext) -> Finding | None:
    """A slow or replaced clock in the worker makes any system look faster.

    Compares each epoch's seconds with the time from the opening of its first gate to the arrival at its last by the
    orchestrator's clock: at most 0.1 s or a twentieth apart, whichever is more.
    """
    return _clock(record, AGREES_S, AGREES_SHARE)


@rule("29", "clock_is_close_to_the_gates", "CAVEATS", of=["ok"], evidence=True)
def clock_is_close_to_the_gates(record: Record, context: RunContext) -> Finding | None:
    """A busy machine delays an epoch's message to the orchestrator.

    Compares each epoch's seconds with its gates by the orchestrator's clock: at most 0.02 s or a fiftieth apart.
    """
    return _clock(record, NEAR_S, NEAR_SHARE)


@rule("29", "nothing_was_done_between_epochs", of=["ok"], evidence=True)
def nothing_was_done_between_epochs(record: Record, context: RunContext) -> Finding | None:
    """Work of a system while the harness asks for its counters is missing from the epoch that benefits from it.

    Measures the seconds from the opening of an epoch's last gate to the arrival at the next epoch's first gate: at most
    a quarter of a second plus a tenth of the next epoch.
    """
    if len(record.epochs) < 2:
        return None
    gates = {gate.at: gate for gate in record.readings.gates}
    worst = (-1.0, 0.0, 0)
    for epoch in record.epochs[1:]:
        end, start = gates.get(f"epoch {epoch.epoch - 1} end"), gates.get(f"epoch {epoch.epoch} start")
        if end is None or start is None:
            return unknown("the gates have no times")
        between = start.reached_s - end.opened_s
        worst = max(worst, (between / (BETWEEN_S + BETWEEN_SHARE * epoch.seconds), between, epoch.epoch))
    return Finding(worst[0] <= 1.0, f"{worst[1]:.2f} s before epoch {worst[2]}")


@rule("29", "preparation_took_what_it_says", of=["ok"], evidence=True)
def preparation_took_what_it_says(record: Record, context: RunContext) -> Finding | None:
    """Work of a system while the harness asks for names of files is missing from the preparation.

    Compares the preparation's seconds after the plan with the time from the plan's arrival to the gate after the
    preparation, by the orchestrator's clock, which may be longer by at most half a second plus a tenth of itself.
    """
    gate_s = record.preprocess.gate_s
    if gate_s is None:
        return unknown("the gates have no times")
    told = record.preprocess.seconds - record.preprocess.planning_s
    apart = gate_s - told
    return Finding(
        apart <= PREPARING_S + PREPARING_SHARE * gate_s, f"{told:.2f} s told, {gate_s:.2f} s between plan and gate"
    )


@rule("14", "nothing_was_prepared_before", of=["ok"], evidence=True)
def nothing_was_prepared_before(record: Record, context: RunContext) -> Finding | None:
    """Data that was prepared before the run is missing from its preparation.

    Adds up the data files that the run's processes have open at the gates, are older than the run, and lie neither in
    the dataset nor in the folders that the harness gave the run: at most 0.5 % of the features or 1 MiB, whichever is
    more. Artefacts that earlier runs kept by `systems.engine.store.artefacts` count with the seconds of their making;
    anything else in the folder of artefacts is removed before a run.
    """
    found = record.readings.from_before
    if found is None:
        return None
    allowed = max(WARM_BYTES, int(WARM_SHARE * record.config.dataset.feature_bytes))
    names = ", ".join(f"{path} ({format_bytes(nbytes)})" for path, nbytes in found.items())
    return Finding(sum(found.values()) <= allowed, f"older than the run: {names}" if found else "every file is its own")


@rule("29", "numbers_follow_from_their_parts", of=["ok"], evidence=True)
def numbers_follow_from_their_parts(record: Record, context: RunContext) -> Finding | None:
    """A median that differs from the median of the record's epochs was edited.

    Compares the summary's median epoch time with the median of the measured epochs.
    """
    if not record.measured:
        return None
    told, found = record.summary.epoch_s, spread([epoch.seconds for epoch in record.measured])
    if told is None or abs(told.median - found.median) > 1e-9:
        return Finding(False, f"median {found.median:.4g} s of the epochs, {told.median if told else 0:.4g} s told")
    return Finding(True, f"median {found.median:.4g} s")


@rule("15", "checks_took_little", "CAVEATS", of=["ok"])
def checks_took_little(record: Record, context: RunContext) -> Finding | None:
    """The digests of `--verify` are computed off the clock, and the system's own threads continue meanwhile, uncounted.

    Divides the seconds spent on digests by the epoch's seconds: at most a fiftieth.
    """
    if not record.measured:
        return None
    worst = max(epoch.checking_s / max(epoch.seconds, 1e-9) for epoch in record.measured)
    return Finding(worst <= CHECKING_SHARE, f"{worst:.2f} x the epoch spent on digests beside it") if worst else None


def _clock(record: Record, seconds: float, share: float) -> Finding | None:
    if not record.epochs:
        return None
    known = [(epoch, epoch.gate_s) for epoch in record.epochs if epoch.gate_s is not None]
    if len(known) < len(record.epochs):
        return unknown("the gates have no times")
    found = ((gate_s - epoch.seconds - epoch.checking_s, epoch) for epoch, gate_s in known)
    apart, epoch = max(found, key=lambda entry: abs(entry[0]))
    allowed = max(seconds, share * (epoch.gate_s or 0.0))
    return Finding(
        abs(apart) <= allowed,
        f"epoch {epoch.epoch}: {epoch.seconds:.3f} s told, {epoch.gate_s:.3f} s between its gates",
    )
