"""Rules 14, 15, 17 to 20, 23, 26, 28 and 29: a run did the workload's work, and its
record suffices to repeat it."""

from __future__ import annotations

import math

from harness.foreign import is_foreign
from harness.judge.counted import Counted
from harness.judge.io import DRAWN_SHARE
from harness.judge.registry import Finding, RunContext, rule, unknown
from harness.records.record import EpochRecord, Record, Status

# Relative noise of a calibrated training time and of an epoch.
NOISE = 0.10
# Bytes of an id and a position, for nodes and edges of a stored or drawn mini-batch.
GRAPH_BYTES = 16
# Difference allowed between sizes of mini-batches that two samplers of one distribution
# draw: PyG's are 1 % smaller.
SIZE_SHARE = 0.05
RESULTS: tuple[Status, ...] = ("ok", "oom", "timeout")
# Tiers of hits that are memory.
IN_MEMORY = ("device", "host")
# Least share of training's modelled time.
TRAINED = 0.8
NEEDED = (
    "code.commit",
    "versions.python",
    "versions.torch",
    "kernel.release",
    "disk.file_system",
)


@rule("14")
def run_ended_well(record: Record, context: RunContext) -> Finding | None:
    """A failed run measured nothing. Out of memory, timeout and unsupported are
    results."""
    return Finding(record.status != "failed", record.reason or record.status)


@rule("15", "CAVEATS", of=["ok"])
def warmed_up(record: Record, context: RunContext) -> Finding | None:
    """The first epoch has one-time costs: a run needs a warm-up epoch, recorded and
    left out, and a measured one."""
    first = sum(epoch.warmup for epoch in record.epochs)
    measured = len(record.measured)
    return Finding(first > 0 and measured > 0, f"{first} warm-up, {measured} measured")


@rule("18", of=["ok"], evidence=True)
def every_batch_once(record: Record, context: RunContext) -> Finding | None:
    """A system that drops mini-batches or seed nodes looks faster.

    Compares the numbers of mini-batches and of seed nodes of every epoch with the seed
    plan's, which are the same for each epoch, whoever draws the mini-batches.
    """
    wanted = record.readings.batches
    seeds = record.readings.seeds
    if wanted is None:
        return unknown(record.readings.unknown or "the seed plan is not known")
    if wrong := [epoch for epoch in record.epochs if epoch.batches != wanted]:
        return Finding(
            False,
            f"epoch {wrong[0].epoch} trained {wrong[0].batches} of {wanted} batches",
        )
    if fewer := [
        epoch
        for epoch in record.epochs
        if epoch.seeds is not None and seeds and epoch.seeds < seeds
    ]:
        return Finding(
            False,
            f"epoch {fewer[0].epoch} trained {fewer[0].seeds} of {seeds} seed nodes",
        )
    return Finding(True, f"{wanted} an epoch")


@rule("17", of=["ok"], evidence=True, reads=True)
def counters_add_up(record: Record, context: RunContext) -> Finding | None:
    """Hit rates and read amplification are computed from the system's own counters,
    which can flatter it.

    Checks for each epoch that hits and misses add up to the rows, that these are the
    nodes of its mini-batches, and that useful bytes are at most the bytes read. Rows
    that are no hits in memory are at least those that any system with this memory reads
    (docs/frontier.md), nine tenths of them if the system draws its own mini-batches.
    Over the measured epochs, useful bytes are at most a tenth more than mini-batches of
    the workload's neighbour sampler need: a row for each node, 16 bytes for each node
    and each edge.
    """
    if all(epoch.nodes is None for epoch in record.epochs):
        return None
    for epoch in record.epochs:
        if fault := _apart(record, epoch):
            return Finding(False, f"epoch {epoch.epoch}: {fault}")
    useful, needed = _useful_and_needed(record)
    if useful > (1.0 + NOISE) * needed:
        return Finding(
            False,
            f"{useful:,} bytes useful in measured epochs, whose mini-batches need "
            f"{needed:,}",
        )
    return Finding(True, "every epoch")


def _apart(record: Record, epoch: EpochRecord) -> str:
    """Return the counters of an epoch that do not add up; empty if all do."""
    own = Counted(epoch)
    useful = own.useful_bytes
    if own.read_bytes and useful > own.read_bytes:
        return f"{useful:,} bytes useful of {own.read_bytes:,} read"
    if not own.rows or own.misses is None or own.hits is None:
        return ""
    served = own.misses + sum(own.hits.values())
    nodes = own.rows if epoch.nodes is None else epoch.nodes
    if not served == own.rows == nodes:
        return (
            f"{served:,.0f} hits and misses, {own.rows:,} rows, {nodes:,} nodes of "
            "mini-batches"
        )
    held = sum(own.hits.get(tier, 0) for tier in IN_MEMORY)
    least = record.readings.least_bytes.get(epoch.epoch, 0)
    share = 1.0 if record.readings.faithful else DRAWN_SHARE
    read = int(share * least) // record.config.dataset.row_bytes
    if own.rows - held < read:
        return (
            f"{held:,} hits in memory of {own.rows:,} rows, of which at least {read:,} "
            "are read with this memory"
        )
    return ""


def _useful_and_needed(record: Record) -> tuple[int, int]:
    """Return the useful bytes of the measured epochs by the system's count, and the
    most that their mini-batches need: every row at each use, and the drawn graph. Both
    are 0 where lists are drawn from as a whole. Leaves out the first epoch, in which a
    system may fill its caches."""
    if not record.readings.faithful or record.config.sampler != "neighbor":
        return 0, 0
    counted = [
        one
        for one in record.measured
        if one.epoch and one.nodes is not None and one.edges is not None
    ]
    nodes, edges = (
        sum(getattr(epoch, name) for epoch in counted) for name in ("nodes", "edges")
    )
    useful = sum(Counted(epoch).useful_bytes for epoch in counted)
    row_bytes = record.config.dataset.row_bytes
    return useful, nodes * row_bytes + (nodes + edges) * GRAPH_BYTES


@rule("18", of=["ok"], evidence=True, faithful=True)
def digests_equal_the_workload(record: Record, context: RunContext) -> Finding | None:
    """Faithful systems on one workload have equal digests; a different digest is an
    error, not noise.

    Compares each epoch's structure digest with that of the same epoch sampled outside
    the cap.
    """
    if not record.epochs:
        return None
    digests = record.readings.digests
    if not digests:
        return unknown(
            record.readings.unknown or "the mini-batches were not sampled again"
        )
    wrong = [
        epoch.epoch
        for epoch in record.epochs
        if epoch.digest != digests.get(epoch.epoch)
    ]
    return Finding(
        not wrong,
        f"epochs {wrong} differ" if wrong else f"{len(record.epochs)} epochs equal",
    )


@rule("18", of=["ok"], evidence=True)
def mini_batches_came_in_order(record: Record, context: RunContext) -> Finding | None:
    """A system that was asked to keep the seed plan's order, and trains in one that
    reuses rows better, reads less.

    Compares the order of the trained mini-batches of each rank with their numbers.
    Applies if `keep_order` is set.
    """
    if not record.config.keep_order or all(
        epoch.in_order is None for epoch in record.epochs
    ):
        return None
    wrong = [epoch.epoch for epoch in record.epochs if epoch.in_order is False]
    return Finding(
        not wrong,
        f"epochs {wrong} in another order" if wrong else "in the seed plan's order",
    )


@rule("18", "CAVEATS", of=RESULTS, evidence=True)
def mini_batches_equal_the_workload(
    record: Record, context: RunContext
) -> Finding | None:
    """A system that samples by itself trains on other mini-batches, so its epochs are
    not the same work.

    Applies to runs whose mini-batches need not equal the workload's: of a system that
    samples by itself, of one that aggregates the first layer beforehand, of a replay of
    one epoch's mini-batches. Only numbers, sizes and feature rows are compared;
    `outcore check` compares a foreign system's draws with those that the workload's
    sampler gives.
    """
    if record.readings.faithful or not (
        record.status == "ok" or is_foreign(record.system)
    ):
        return None
    return Finding(
        False,
        "not the workload's mini-batches: compared by their numbers, sizes and rows "
        "alone",
    )


@rule("18", of=["ok"], evidence=True)
def sizes_are_as_drawn(record: Record, context: RunContext) -> Finding | None:
    """A foreign system that leaves out a hop or neighbours, or has them in the wrong
    order, does other work.

    Compares nodes and edges of every epoch, summed over its mini-batches, with those of
    an epoch that the workload's sampler draws, expanding nodes as the system does by
    its own account: at most a twentieth apart, and six standard deviations beside, by
    the sampler's own mini-batches or by as many independent draws as the first hop has.
    Does not apply where a later hop takes whole lists, whose lengths have no bound.
    `outcore check` has closer bounds.
    """
    config = record.config
    drawn = record.readings.drawn
    if (
        record.readings.faithful
        or not is_foreign(record.system)
        or config.sampler != "neighbor"
    ):
        return None
    if min(config.fanout[1:], default=0) < 0:
        return None
    if any(
        epoch.epoch not in drawn or epoch.nodes is None or epoch.edges is None
        for epoch in record.epochs
    ):
        return unknown(
            record.readings.unknown or "the sizes of mini-batches are not known"
        )
    draws = (record.readings.seeds or 1) * max(1, config.fanout[0])
    spreads = [
        max(epoch[at] for epoch in drawn.values()) if drawn else 0.0 for at in (2, 3)
    ]
    worst = (0.0, "no epoch")
    for epoch in record.epochs:
        wanted = drawn[epoch.epoch][:2]
        for name, most, spread in zip(("nodes", "edges"), wanted, spreads, strict=True):
            reported = getattr(epoch, name)
            allowed = SIZE_SHARE * most + 6 * max(spread, most / math.sqrt(draws))
            text = (
                f"epoch {epoch.epoch}: {reported:,} {name}, {most:,} drawn by the "
                "workload's sampler"
            )
            worst = max(
                worst,
                (
                    abs(reported - most) / max(1.0, allowed),
                    f"{text}, {allowed:,.0f} apart allowed",
                ),
            )
    return Finding(worst[0] <= 1, worst[1])


@rule("18", "CAVEATS", of=RESULTS)
def loss_is_finite(record: Record, context: RunContext) -> Finding | None:
    """A training that diverged computes on nan: its epochs take their time, but loss
    and accuracy are no result.

    Counts the mini-batches of each epoch whose loss is not finite. Does not apply to an
    emulated device, which computes no loss, nor to runs that do not train.
    """
    if record.config.stages != "all" or record.config.device.startswith("emulated"):
        return None
    # Records of older versions have no count, only an epoch without a mean loss.
    counts = {
        epoch.epoch: epoch.losses_not_finite or epoch.batches * (epoch.loss is None)
        for epoch in record.epochs
    }
    diverged = {epoch: count for epoch, count in counts.items() if count}
    if not diverged:
        return Finding(True, "every epoch")
    first, count = next(iter(diverged.items()))
    more = (
        f", {len(diverged)} of {len(record.epochs)} epochs in all"
        if len(diverged) > 1
        else ""
    )
    return Finding(
        False, f"loss is not finite: nan in {count} mini-batches of epoch {first}{more}"
    )


@rule("18", "CAVEATS", of=RESULTS, evidence=True)
def training_is_the_workloads(record: Record, context: RunContext) -> Finding | None:
    """A foreign system trains by its own code; one that trains on nothing has the
    shortest epochs.

    Equal digests prove that it had the rows of every mini-batch, not that it trained on
    them, and its losses are as it reports them. A system in Outcore's worker is trained
    by Outcore, so only such a run can be `VALID`.
    """
    if not is_foreign(record.system) or record.config.stages != "all":
        return None
    return Finding(
        False, "by the system's own code, whose losses are as it reports them"
    )


@rule("19", "CAVEATS")
def emulated_is_not_accuracy(record: Record, context: RunContext) -> Finding | None:
    """An emulated accelerator computes nothing, so a run on it must not carry a loss or
    an accuracy."""
    if not record.config.device.startswith("emulated"):
        return None
    carried = [
        epoch.epoch
        for epoch in record.epochs
        if epoch.loss is not None or epoch.accuracy is not None
    ]
    return Finding(not carried, f"{record.config.device}: storage numbers only")


@rule("20", "CAVEATS", of=["ok"], transient=True)
def training_alone_is_shorter(record: Record, context: RunContext) -> Finding | None:
    """An accelerator cannot be busy for longer than the epoch; if it seems so, training
    alone was timed too slow.

    Compares accelerator utilisation with 1, plus a tenth for the noise of both times.
    Training alone is timed while other programs are quiet, and again after a run whose
    epochs are shorter.
    """
    used = record.summary.accelerator_utilisation
    if record.config.stages != "all":
        return None
    if used is None:
        return unknown("training alone was not timed")
    return Finding(used <= 1.0 + NOISE, f"training alone takes {used:.2f} x the epoch")


@rule("20", "CAVEATS", evidence=True)
def device_memory_is_not_free(record: Record, context: RunContext) -> Finding | None:
    """If copies take no time, rows that stay on the device are in memory that no budget
    counts.

    An emulated device whose copies take no time must lose its rows between epochs, as
    `null` does.
    """
    if not record.config.device.startswith("emulated:"):
        return None
    free = record.readings.free_device_memory
    device = record.config.device
    if free:
        return Finding(False, f"{device} keeps rows, and copies take no time")
    return Finding(True, device)


@rule("20", of=["ok"], evidence=True, faithful=True)
def rows_crossed_the_bus(record: Record, context: RunContext) -> Finding | None:
    """Rows that are written into an emulated device's memory as if it were the host's
    take no time on its bus.

    Compares the busy seconds of the copy lane in each epoch with the least that any
    system with this device memory needs for the epoch's rows at the bus's rate
    (docs/frontier.md), less a fiftieth.
    """
    least = record.readings.least_bus_s
    if not any(least.values()):
        return None
    if any(epoch.bus_s is None for epoch in record.epochs):
        return unknown("the copies were not timed")
    epoch = min(
        record.epochs,
        key=lambda epoch: (epoch.bus_s or 0.0) - least.get(epoch.epoch, 0.0),
    )
    wanted = least.get(epoch.epoch, 0.0)
    busy = epoch.bus_s or 0.0
    return Finding(
        busy >= 0.98 * wanted,
        f"epoch {epoch.epoch}: bus busy {busy:.3f} s, at least {wanted:.3f} s",
    )


@rule("20", of=["ok"], evidence=True, faithful=True)
def training_took_its_time(record: Record, context: RunContext) -> Finding | None:
    """A system that skips training steps, or makes the emulated device faster, has
    shorter epochs.

    Compares the busy seconds of an emulated device's compute lane in each epoch with
    those of the same mini-batches' training alone: at least four fifths, since the
    latter may gather rows that lie in order, and may be sampled.
    """
    alone = context.calibration.train_s if context.calibration else {}
    epochs = [
        epoch
        for epoch in record.epochs
        if epoch.compute_s is not None and alone.get(epoch.epoch, 0.0) > 0
    ]
    if (
        record.config.stages != "all"
        or not record.config.device.startswith("emulated:")
        or not epochs
    ):
        return None
    share, number = min(
        ((epoch.compute_s or 0.0) / alone[epoch.epoch], epoch.epoch) for epoch in epochs
    )
    return Finding(
        share >= TRAINED,
        f"epoch {number}: busy {share:.2f} x the time of training alone",
    )


@rule("26", of=["ok"], reads=True)
def features_equal_the_dataset(record: Record, context: RunContext) -> Finding | None:
    """A system that reads no feature rows, or wrong ones, is the fastest of all.

    Compares feature rows at training with the dataset read by direct reads: a digest
    over the whole first warm-up epoch, and in every epoch 64 rows of each of eight
    mini-batches, drawn when the epoch began. These are looked at again after the
    training step, since a mini-batch's rows have to stay until its release. An epoch
    without a compared row may have been trained on arbitrary data.
    """
    checks = record.readings.features
    if wrong := [check for check in checks if not check.ok]:
        first = wrong[0]
        where = "the whole epoch" if first.whole else f"mini-batch {first.batch}"
        return Finding(
            False,
            f"epoch {first.epoch}, {where}: {first.detail}; {len(wrong)} of "
            f"{len(checks)} checks",
        )
    checked = {check.epoch for check in checks}
    if not checks or any(epoch.epoch not in checked for epoch in record.epochs):
        return unknown(record.readings.unchecked or "an epoch has no checked row")
    rows, whole = (
        sum(getattr(check, name) for check in checks) for name in ("rows", "whole")
    )
    return Finding(
        True,
        f"{rows} rows of {len(checks) - whole} "
        f"mini-batches{' and an epoch' if whole else ''}",
    )


@rule("23", "CAVEATS")
def provenance_is_complete(record: Record, context: RunContext) -> Finding | None:
    """A number that cannot be reproduced is no evidence.

    Checks that the environment has commit, versions of Python and torch, kernel and
    file system.
    """
    missing = [name for name in NEEDED if _at(record.environment, name) in (None, "")]
    return Finding(
        not missing, "missing: " + ", ".join(missing) if missing else "complete"
    )


@rule("23", "CAVEATS")
def code_is_committed(record: Record, context: RunContext) -> Finding | None:
    """The commit in a record identifies the code that ran only if there were no
    uncommitted changes."""
    dirty = _at(record.environment, "code.dirty")
    if dirty is None and _at(record.environment, "code.refused"):
        fix = "git config --global --add safe.directory FOLDER"
        return unknown(f"git refuses this checkout, which another user owns: {fix}")
    if dirty is None:
        return unknown("this is no git checkout")
    return Finding(
        not dirty,
        "uncommitted changes"
        if dirty
        else str(_at(record.environment, "code.commit"))[:12],
    )


@rule("23")
def nothing_was_slowed_on_purpose(
    record: Record, context: RunContext
) -> Finding | None:
    """Runs that are slowed on purpose, to test the regression gate, are no measurement
    of a system.

    Checks for the fact that the run had a stage clock for tests, which may spin in an
    epoch.
    """
    clock = record.facts.test_clock
    return Finding(
        clock is None, f"its stage clock was that of a test: {clock}" if clock else ""
    )


@rule("23", "CAVEATS")
def host_keeps_its_promises(record: Record, context: RunContext) -> Finding | None:
    """Each limitation of the isolation backend on this host weakens a rule, so it is a
    caveat."""
    return Finding(not record.caveats, "; ".join(record.caveats))


@rule("28", "CAVEATS")
def code_is_known(record: Record, context: RunContext) -> Finding | None:
    """Runs of different code are never averaged; a run of unknown code is averaged with
    no other.

    Checks for the fingerprints of the system's sources and of the measuring harness,
    and that they are made from all code that was loaded but installed libraries: a
    module may be imported by a computed name, a file by `ctypes`.
    """
    if record.readings.unknown_code:
        return Finding(
            False, f"in no fingerprint: {', '.join(record.readings.unknown_code)}"
        )
    known = bool(record.code.system and record.code.harness)
    return Finding(
        known,
        f"system {record.code.system}, harness {record.code.harness}"
        if known
        else "no fingerprint",
    )


@rule("29", "CAVEATS")
def evidence_is_kept(record: Record, context: RunContext) -> Finding | None:
    """A verdict that cannot be derived again from the record's parts cannot be
    verified.

    Records of older versions hold no readings of gates, no checked rows and no seal.
    """
    return Finding(
        record.evidence is not None,
        "" if record.evidence else "made by an older version: not judged anew",
    )


@rule("29", evidence=True)
def record_is_sealed(record: Record, context: RunContext) -> Finding | None:
    """A number that was changed after it was written is no measurement.

    Checks the seal: digests over `record.json` and the run's tables, written last.
    """
    return Finding(not context.unsealed, context.unsealed or "as it was written")


def _at(tree: object, path: str) -> object:
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree
