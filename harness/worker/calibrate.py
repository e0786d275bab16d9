"""Worker side of the calibration: the floor of a system, and without any system the
memory and time of training."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray

from harness.wire.protocol import Calibrated, Done, RankChannel, WorkerSpec
from harness.worker import build
from harness.worker.epoch_report import EpochLog, EpochReport, events
from systems.interface import Batch, StageClock
from workloads.accelerator import Accelerator, LaneSpan
from workloads.accelerators.emulated import EmulatedAccelerator
from workloads.feature_table import SplitTable, Table
from workloads.sampling.batch import SampledBatch
from workloads.sampling.make import make_sampler, make_seed_plan
from workloads.sampling.neighbor import NeighborSampler
from workloads.sampling.seeds import PartitionPlan, SeedPlan
from workloads.training import Trainer

TIMED_BATCHES = 5
REPETITIONS = 3
SLOW_STEP_S = 1.0
MODELLED_SECONDS = 4.0
# Share of the processors that other programs may use beside a measurement, pauses
# before it is made again, and seconds for each processor by which the host's counters,
# which grow in ticks, are off by chance.
QUIET = 0.1
PAUSES_S = (1.0, 3.0)
CHANCE_S = 0.02
#: Returns the values of all ranks, given this rank's.
Gather = Callable[[float], list[float]]
# Spans that a mini-batch leaves in the log of a run, at most, with a system of the
# usual stages.
STAGES = 6
LANES = 2


def load_alone(spec: WorkerSpec, joint: RankChannel) -> None:
    """Load a system and build the parts of its run, waiting at gates for readings of
    the cap; nothing more."""
    build.take_cores(spec)
    build.load_system(spec, joint)
    parts = build.parts(spec, joint)
    joint.gate("floor")
    parts.accelerator.close()
    joint.send(Done(notes={}))


def train_alone(spec: WorkerSpec, joint: RankChannel) -> None:
    """Wait at gates (`floor`, `log`, `before step`, …) for readings of the cap, then
    time batches. No system is loaded. Device, model and optimiser are those of a run,
    and so are digest and training of the largest mini-batch. Its features are in memory
    before the step, since they belong to the system's plan, not to training. All device
    memory but their table's is training's."""
    build.take_cores(spec)
    if joint.rank == 0:
        build.compile_kernels(spec)
    joint.gather(None)
    parts = build.parts(spec, joint)
    joint.gate("floor")
    workload = parts.workload
    accelerator = parts.accelerator
    trainer = parts.trainer
    reports = joint.gather(
        usual_report(len((spec.bounds or [])[joint.rank]["nodes_by_batch"][0]))
    )
    for event in events(0, reports):
        event.model_dump_json()
    joint.gate("log")
    del reports
    try:
        sampler = make_sampler(workload)
        plan = make_seed_plan(workload)
        epoch, index = (spec.bounds or [])[joint.rank]["largest"]
        largest = sampler.sample(epoch, index, plan.batches(epoch)[index])
        dtype = (
            torch.float16
            if workload.dataset.feature_dtype == np.float16
            else torch.float32
        )
        table = accelerator.allocate(largest.num_nodes, workload.dataset.dim, dtype)
        if accelerator.kind != "emulated":
            table.normal_()  # random values cost as much as real ones
        rows = torch.arange(largest.num_nodes)
        tables: list[Table] = [table]
        others: list[SampledBatch] = []
        if accelerator.kind == "cuda":
            # The driver loads a kernel at its first use, and other sizes of a
            # mini-batch use others.
            others = [
                sampler.sample(epoch, at, seeds)
                for at, seeds in _spread(plan.batches(epoch))
            ]
            # Systems train on split tables too, whose rows are gathered first, and copy
            # rows through device buffers.
            host = accelerator.host_buffer(table[:1].nbytes).view(dtype).view(1, -1)
            accelerator.copy(table, host, rows[:1]).wait()
            tables.append(SplitTable(table[:-1], host))
        # Freed heap goes back to the kernel, so that the step's own memory is visible
        # as growth.
        with suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        for at in ("before step", "step again"):
            joint.gate(at)
            EpochLog(with_features=spec.config.stages != "sample").digest(
                Batch(largest, table, rows)
            )
            if spec.config.stages == "all":
                for one in tables:
                    trainer.step(largest, one, rows)
                for other in others:
                    trainer.step(other, table, rows[: other.num_nodes])
                accelerator.synchronize()
        joint.gate("after step")
        training = (
            0 if accelerator.peak_bytes is None else accelerator.peak_beside_tables
        )
        # Torch gives nothing back meanwhile, so it held its peak at the gate.
        held = (accelerator.peak_bytes or 0) if accelerator.kind == "cuda" else 0
        if spec.time_training:
            joint.send(
                slowest(
                    joint.gather(
                        training_times(
                            spec.config.epochs, sampler, plan, trainer, table, joint
                        )
                    )
                )
            )
        joint.send(
            Done(
                notes={},
                device_peak_bytes=joint.gather(training),
                device_held_bytes=joint.gather(held),
            )
        )
    finally:
        accelerator.close()


def usual_report(batches: int) -> EpochReport:
    """Make the harness's log of an epoch of `batches` mini-batches. Its memory grows
    with their number, and is part of the floor, not of a system's budget."""
    clock = StageClock()
    log = EpochLog(with_features=False)
    for number in range(batches):
        for _ in range(STAGES):
            clock.add("stage", number, time.monotonic(), time.monotonic())
        log.rows.append(
            (
                number,
                1 << 30,
                1 << 30,
                1 << 30,
                time.monotonic(),
                0,
                f"{number:016x}",
                time.monotonic(),
            )
        )
    spans = [
        LaneSpan("copy", i // LANES, time.monotonic(), time.monotonic())
        for i in range(LANES * batches)
    ]
    return EpochReport(0.0, 0.0, log, clock.drain(), spans, {})


def slowest(times: list[Calibrated]) -> Calibrated:
    """Return the times of the slowest rank for each epoch, since ranks step
    together."""
    return Calibrated(
        train_s={
            epoch: max(one.train_s[epoch] for one in times)
            for epoch in times[0].train_s
        },
        null_s={
            epoch: max(one.null_s[epoch] for one in times) for epoch in times[0].null_s
        },
        how=times[0].how,
        quiet=all(one.quiet for one in times),
    )


def training_times(
    epochs: int,
    sampler: NeighborSampler,
    plan: SeedPlan | PartitionPlan,
    trainer: Trainer,
    table: torch.Tensor,
    joint: RankChannel | None = None,
) -> Calibrated:
    """Return each epoch's training seconds: modelled by mini-batch on an emulated
    device, else from a measured rate.

    Args:
        epochs: number of epochs of the run.
        sampler, plan: sampler and seed plan of the run's workload.
        trainer, table: trainer, and a feature table on its device for the largest
            mini-batch.
        joint: channel of a run's ranks, which take the same steps; None: a single
            process.
    """
    gather = joint.gather if joint else _alone
    train: dict[int, float] = {}
    null: dict[int, float] = {}
    emulated = trainer.accelerator.kind == "emulated"
    row_bytes = table.shape[1] * table.element_size()
    copy_seconds = _copy_model(trainer.accelerator, table)
    step_rate = 0.0
    quiet = True
    if not emulated:
        last = epochs - 1
        step_rate, quiet = quietly(
            lambda: _step_rate(
                last, sampler, plan.batches(last), trainer, table, gather
            ),
            lambda measure: _beside_others(measure, gather),
        )
    for epoch in range(epochs):
        seeds = plan.batches(epoch)
        start = time.monotonic()
        seen = 0
        steps = 0.0
        copies = 0.0
        # Spread over the epoch, so that stopping early leaves a fair sample.
        for index in np.random.default_rng(0).permutation(len(seeds)):
            sampled = sampler.sample(epoch, int(index), seeds[index])
            # Systems pass this alias list too: with it the device gathers the rows
            # before the first layer.
            modelled = (
                trainer.modelled_seconds(
                    sampled, table, torch.arange(sampled.num_nodes)
                )
                if emulated
                else None
            )
            steps += (
                step_rate * (sampled.num_nodes + sampled.num_edges)
                if modelled is None
                else modelled
            )
            copies += copy_seconds(sampled.num_nodes * row_bytes)
            seen += 1
            if time.monotonic() - start > MODELLED_SECONDS / epochs:
                break
        scale = len(seeds) / seen if seen else 0.0
        train[epoch] = steps * scale
        # Copy and compute overlap, except for the first mini-batch's copy.
        null[epoch] = max(steps, copies) * scale + (copies / seen if seen else 0.0)
    how = (
        "modelled for each batch"
        if emulated
        else f"measured on {TIMED_BATCHES} batches"
    )
    return Calibrated(train_s=train, null_s=null, how=how, quiet=quiet)


def quietly(
    measure: Callable[[], float],
    others: Callable[[Callable[[], float]], tuple[float, float]] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[float, bool]:
    """Measure seconds; measure again after pauses while other programs are busy.

    Args:
        measure: function that returns seconds of a step, or of a unit of its work.
        others: function that calls `measure` and returns its result with the others'
            share of the processors meanwhile.
        pause: function that sleeps for some seconds.

    Returns:
        The least result, since other load only adds time, and whether one was measured
        on a quiet machine.
    """
    found = []
    for wait_s in (*PAUSES_S, None):
        seconds, share = (others or _beside_others)(measure)
        found.append(seconds)
        if share <= QUIET:
            return min(found), True
        if wait_s is not None:
            pause(wait_s)
    return min(found), False


def _alone(value: float) -> list[float]:
    """Return the values of all ranks of a single process."""
    return [value]


def _beside_others(
    measure: Callable[[], float], gather: Gather = _alone
) -> tuple[float, float]:
    """Return a measurement, and the share of the processors that other programs and
    machines used meanwhile: the largest that any rank saw, since ranks measure again
    together or not at all."""
    before_s = _others_s()
    began = time.monotonic()
    result = measure()
    seconds = max(time.monotonic() - began, 1e-9)
    processors = os.cpu_count() or 1
    chance_s = CHANCE_S * processors
    share = max(0.0, _others_s() - before_s - chance_s) / (seconds * processors)
    return result, max(gather(share))


def _others_s() -> float:
    """Return the seconds in user mode of all processors since boot, and the stolen
    ones, without this process's."""
    # Read by hand: a library for it would be memory of the calibration that no run has.
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    user = ticks[0]
    nice = ticks[1]
    steal = ticks[7] if len(ticks) > 7 else 0
    own_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    return (user + nice + steal) / os.sysconf("SC_CLK_TCK") - own_s


def _step_rate(
    epoch: int,
    sampler: NeighborSampler,
    seeds: Sequence[NDArray[np.int64]],
    trainer: Trainer,
    table: torch.Tensor,
    gather: Gather,
) -> float:
    """Return seconds per unit of work (nodes plus edges, in which a step's time is
    close to linear). Features are in memory and nothing else runs; a mini-batch's
    fastest repetition counts, since a disturbance only adds time. Each step joins the
    gradients of all ranks, so every rank takes as many."""
    seconds = 0.0
    work = 0
    for index, some in _spread(seeds):
        sampled = sampler.sample(epoch, index, some)
        rows = torch.arange(sampled.num_nodes)
        best = float("inf")
        for _ in range(REPETITIONS):
            start = time.monotonic()
            trainer.step(sampled, table, rows)
            trainer.accelerator.synchronize()
            best = min(best, time.monotonic() - start)
            if max(gather(best)) > SLOW_STEP_S:
                break
        seconds += best
        work += sampled.num_nodes + sampled.num_edges
    return seconds / work if work else 0.0


def _spread(seeds: Sequence[NDArray[np.int64]]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return the numbers and seed nodes of some mini-batches, evenly spread over an
    epoch."""
    places = np.linspace(0, len(seeds) - 1, min(TIMED_BATCHES, len(seeds)))
    return [(at, seeds[at]) for at in sorted({round(place) for place in places})]


def _copy_model(
    accelerator: Accelerator, table: torch.Tensor
) -> Callable[[int], float]:
    """Return copy seconds as a function of bytes: the device profile's, or the median
    rate of copies of the table."""
    if isinstance(accelerator, EmulatedAccelerator):
        return accelerator.profile.copy_seconds
    if accelerator.kind == "cpu":
        return lambda nbytes: 0.0
    staging = accelerator.host_buffer(table.nbytes)
    source = staging.view(table.dtype).view(table.shape)
    seconds = []
    for _ in range(5):
        start = time.monotonic()
        accelerator.copy(table, source).wait()
        seconds.append(time.monotonic() - start)
    accelerator.free_host(staging)
    rate = sorted(seconds)[len(seconds) // 2] / max(1, staging.numel())
    return lambda nbytes: rate * nbytes
