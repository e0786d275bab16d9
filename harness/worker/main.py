"""The worker: executes one run in its own process, inside the cap, and reports to the
orchestrator. It waits at gates (after `prepare()`, at both ends of each epoch) and
writes events only there; under the clock it adds one store a mini-batch
(`harness/wire/board.py`). Usage: `python -m harness.worker.main SPEC EVENT_FD GO_FD
PARENT [BOARD]`."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # during the imports: 190,000 objects, none of them garbage, a quarter of a second
    gc.disable()

import math
import os
import resource
import signal
import sys
import time
import traceback
from operator import is_
from pathlib import Path
from typing import NoReturn

import numpy as np
from torch import Tensor

import systems.engine  # noqa: F401 - every run's, as PyTorch is: not counted as a system's preparation
from harness.records.code import loaded
from harness.records.record import PlannedBuffer
from harness.settings import parse_memory
from harness.wire.board import Board
from harness.wire.pipes import die_with_parent
from harness.wire.protocol import (
    Channel,
    Done,
    Failed,
    Planned,
    Prepared,
    RankChannel,
    WorkerSpec,
)
from harness.wire.spots import NONCE_BYTES, chosen
from harness.worker import build
from harness.worker.accuracy import Snapshots, evaluate
from harness.worker.calibrate import load_alone, train_alone
from harness.worker.epoch_report import EpochLog, EpochReport, events
from harness.worker.offline import EpisodeTimer
from systems.engine.io.latency import LatencyMeter
from systems.engine.io.memory import share_one_heap
from systems.engine.store import artefacts
from systems.interface import (
    Batch,
    DiskProfile,
    Facts,
    MemoryBudget,
    Plan,
    Runtime,
    System,
)
from systems.planning import Planner
from workloads.accelerator import Accelerator
from workloads.errors import BudgetError, OutcoreError
from workloads.feature_table import SplitTable
from workloads.ranks import PeerLost, RankGroup
from workloads.sampling.batch import Block, SampledBatch


class Run:
    """One run of one system, or one rank's part of it: plan, prepare, epochs."""

    def __init__(self, spec: WorkerSpec, joint: RankChannel, board: Board) -> None:
        self._spec = spec
        self._joint = joint
        self._board = board
        self._num_batches = (
            len(spec.bounds[0]["nodes_by_batch"][0]) if spec.bounds else 0
        )
        cores = build.take_cores(spec)
        system = build.load_system(spec, joint)
        parts = build.parts(spec, joint)
        self._latency = LatencyMeter()
        joint.gate("floor")
        self._workload = parts.workload
        self._accelerator = parts.accelerator
        self._trainer = parts.trainer
        build.hand_over_bounds(spec, parts.workload)
        self._clock = build.stage_clock(spec)
        runtime = Runtime(
            accelerator=self._accelerator,
            disk=DiskProfile.from_plain(spec.disk),
            artefacts=Path(spec.artefacts),
            scratch=Path(spec.scratch),
            cores=cores,
            stages=spec.config.stages,
            keep_order=spec.config.keep_order,
            rank=joint.rank,
            world=joint.world,
            group=joint.group,
            epochs=spec.config.epochs,
            progress=board.stage,
        )
        # Each rank has its own device and an equal part of the host's budget.
        host = (
            spec.budget_host
            if spec.budget_host is None
            else spec.budget_host // joint.world
        )
        self._bytes = host, self._accelerator.memory_bytes
        # Preparation counts from here on, options, constructor and plan included, plus
        # the loading of the system's libraries.
        self._began = time.monotonic() - system.seconds
        read, written = artefacts.process_io()
        self._io_before = read - system.io[0], written - system.io[1]
        options = system.kind.info.options.model_validate(spec.config.options)
        cap = parse_memory(
            spec.config.memory, parts.workload.dataset.feature_bytes
        ).cap_bytes
        rest = None if cap is None or host is None else cap - host
        self._planner = Planner(
            system.kind, parts.workload, runtime, options, spec.config.device, rest=rest
        )
        self._system: System = self._planner.make(*self._bytes, self._clock)
        self._episodes = EpisodeTimer(self._system, spec.config.epochs)

    def execute(self) -> None:
        """Plan, prepare and run all epochs; always close the system."""
        config = self._spec.config
        trainer = self._trainer
        rank = self._joint.rank
        try:
            plan = [*self._plan().items, *MemoryBudget.beside(*self._bytes).held]
            items = [
                PlannedBuffer.model_validate(item, from_attributes=True)
                for item in plan
            ]
            planning_s = time.monotonic() - self._began
            self._joint.send(Planned.joined(self._joint.gather(items)))
            self._prepare(planning_s)
            models = (
                Snapshots(Path(self._spec.scratch), trainer)
                if config.test_nodes and rank == 0
                else None
            )
            for epoch in range(config.epochs):
                self._epoch(epoch, warmup=epoch < config.warmup)
                if models is not None:
                    models.keep()
            notes = self._notes()
            facts = self._facts()
            peak = self._accelerator.peak_bytes
        finally:
            self._system.close()
            self._accelerator.close()
        peaks = [one for one in self._joint.gather(peak) if one is not None]
        reported = Done(
            notes=notes, facts=facts, device_peak_bytes=peaks, loaded=loaded()
        )
        self._joint.send(reported)

    def _plan(self) -> Plan:
        """Return the system's plan; raise BudgetError with the least memory that fits,
        unless ranks plan together."""
        try:
            return self._system.plan()
        except BudgetError as error:
            raise (
                error
                if self._joint.world > 1
                else self._planner.refusal(error, *self._bytes)
            ) from error

    def failed(self, event: Failed) -> Failed:
        """Add the system's notes and facts to a failure; nothing if it failed before it
        had any."""
        try:
            return event.model_copy(
                update={"notes": self._notes(), "facts": self._facts()}
            )
        except Exception:
            return event

    def _facts(self) -> Facts:
        """Return the system's facts with the parts of its data path."""
        parts = tuple(self._system.data_path())
        return self._system.facts().model_copy(update={"parts": parts})

    def _notes(self) -> dict[str, str]:
        """Return the system's notes, and one of automatic options below the paper's
        values, which exceed the budget."""
        lowered = [
            f"{name} {value} instead of {wanted}"
            for name, (value, wanted) in self._system.lowered.items()
        ]
        reported = {**self._system.notes(), **self._accelerator.notes()}
        return {
            **reported,
            **({"lowered_to_fit": ", ".join(lowered)} if lowered else {}),
        }

    def _prepare(self, planning_s: float) -> None:
        """Prepare, the first epochs' offline work included; the report has time and I/O
        of libraries, constructor and plan (`planning_s`), too."""
        start = time.monotonic()
        self._system.prepare()
        offline = self._episodes.prepare(0)
        seconds = planning_s + time.monotonic() - start
        read, written = (
            now - before
            for now, before in zip(artefacts.process_io(), self._io_before, strict=True)
        )
        files = self._system.files()
        reused = artefacts.reused()
        costs = list(reused.values())
        own = Prepared(
            seconds=seconds,
            planning_s=planning_s,
            made_s=sum(cost.seconds for cost in costs),
            made_bytes_read=sum(cost.bytes_read for cost in costs),
            made_bytes_written=sum(cost.bytes_written for cost in costs),
            bytes_read=read,
            bytes_written=written,
            reused=bool(reused),
            files=[str(path) for path in files],
            reused_from=[str(path) for path in reused],
            offline=offline,
        )
        self._joint.send(Prepared.joined(self._joint.gather(own)))
        self._joint.gate("prepared")

    def _epoch(self, epoch: int, *, warmup: bool) -> None:
        with_features = (
            warmup or self._spec.config.verify
        ) and self._spec.config.stages != "sample"
        self._clock.drain()
        self._accelerator.lanes()
        self._board.begin(self._num_batches)
        count = self._board.count
        nonce = self._joint.gate(
            f"epoch {epoch} start", NONCE_BYTES if self._spec.challenge else 0
        )
        looked_at = (
            chosen(nonce, epoch, self._num_batches)
            if nonce and self._num_batches
            else frozenset()
        )
        log = EpochLog(with_features=with_features, nonce=nonce, looked_at=looked_at)
        self._latency.restart()
        start = time.monotonic()
        offline = self._episodes.prepare(epoch)
        for number, batch in enumerate(self._system.epoch(epoch), start=1):
            self._train(batch, log)
            count(number)
        self._accelerator.synchronize()
        end = time.monotonic()
        latencies = self._latency.found()
        self._joint.gate(f"epoch {epoch} end")
        self._board.begin(0)
        counters = self._system.counters().as_dict()
        lanes = self._accelerator.lanes()
        own = EpochReport(
            start, end, log, self._clock.drain(), lanes, counters, latencies, offline
        )
        for event in events(epoch, self._joint.gather(own)):
            self._joint.send(event)

    def _train(self, batch: Batch, log: EpochLog) -> None:
        """Wait for the mini-batch, train and release it, and log it."""
        if batch.ready is not None:
            with self._clock.stage("wait", batch.sampled.index):
                batch.ready()
        own = _own(
            batch, self._accelerator, with_table=self._spec.config.stages != "sample"
        )
        log.digest(own)
        loss = math.nan
        correct = 0
        if self._spec.config.stages == "all":
            aggregated = own.first_layer_aggregated
            with self._clock.stage("train", own.sampled.index):
                result = self._trainer.step(
                    own.sampled, own.table, own.rows, first_layer_aggregated=aggregated
                )
            loss = result.loss
            correct = result.correct
            log.look_again(own)
        elif self._spec.config.stages == "sample+extract":
            self._accelerator.fault_in(own.table, own.rows, own.sampled.num_nodes)
        batch.release()
        log.add(own, loss, correct)


def _own(batch: Batch, accelerator: Accelerator, *, with_table: bool) -> Batch:
    """Return a copy of a mini-batch for digest and training step alike: arrays and
    tensors are shared, but no object of the system can show the step another mini-batch
    than the digest, or rows that are read on demand. The table is as the device sees
    it.

    Raises:
        TypeError: a part is of a class of the system's own, or the table is missing.
    """
    sampled = batch.sampled
    table = batch.table
    tables = (table.device, table.host) if type(table) is SplitTable else (table,)
    missing = table is None and with_table
    tensors = [one for one in (*tables, batch.rows) if one is not None or missing]
    wanted = [
        Batch,
        SampledBatch,
        *[Block] * len(sampled.blocks),
        *[Tensor] * len(tensors),
    ]
    found = [type(part) for part in (batch, sampled, *sampled.blocks, *tensors)]
    # By identity: a class's own class decides what it is equal to.
    if not all(map(is_, found, wanted)):
        false, true = next(
            (one, other)
            for one, other in zip(found, wanted, strict=True)
            if one is not other
        )
        raise TypeError(
            f"epoch() yielded a {false.__qualname__}: a {true.__qualname__} itself is "
            "wanted"
        )
    # Called by hand: `dataclasses.replace` takes twice as long, in every mini-batch of
    # every system.
    hops = [
        Block(np.asarray(one.indptr), np.asarray(one.indices), one.num_src, one.num_dst)
        for one in sampled.blocks
    ]
    own = SampledBatch(
        sampled.epoch,
        sampled.index,
        np.asarray(sampled.nodes),
        sampled.num_seeds,
        tuple(hops),
        np.asarray(sampled.labels),
        sampled.edge_reads,
        sampled.list_reads,
        sampled.list_hits,
        sampled.local,
    )
    seen = None if table is None else accelerator.seen_by_device(table)
    return Batch(own, seen, batch.rows, batch.first_layer_aggregated)


def main(argv: list[str]) -> NoReturn:
    """Execute the spec; exit with 0 if the run completed, else with 1 after an `error`
    event with the reason."""
    gc.freeze()
    gc.enable()
    die_with_parent(int(argv[3]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # SIGTERM unwinds the stack, so that systems close their files and threads.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    share_one_heap()
    channel = Channel(_opened(argv[1], os.O_WRONLY), _opened(argv[2], os.O_RDONLY))
    spec = WorkerSpec.model_validate_json(Path(argv[0]).read_text(encoding="utf-8"))
    groups: list[RankGroup] = []
    try:
        code = _work(spec, channel, argv[4] if len(argv) > 4 else None, groups)
    except (
        SystemExit
    ) as ended:  # SIGTERM, also while another error is reported, or the system's own
        if not groups:
            raise
        code = ended.code if isinstance(ended.code, int) else 1
    # The end of an interpreter takes half a second of PyTorch's, and while gloo's
    # threads hold its tensors it may be ended by SIGABRT, which would be reported
    # instead of the reason.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _work(
    spec: WorkerSpec, channel: Channel, board_name: str | None, groups: list[RankGroup]
) -> int:
    """Execute the spec; return 0, or 1 after sending an error's reason. A rank's group
    is added to `groups`."""
    run: Run | None = None
    try:
        group = RankGroup.from_environment(cuda=spec.config.device.startswith("cuda"))
        groups += [] if group is None else [group]
        joint = RankChannel(channel, group)
        if spec.mode == "training":
            train_alone(spec, joint)
        elif spec.mode == "calibrate":
            load_alone(spec, joint)
        elif spec.mode == "evaluate":
            evaluate(spec, joint)
        else:
            # Ranks step together, so rank 0 reports progress for all.
            board = Board.attach(board_name if joint.rank == 0 else None)
            artefacts.work_under(spec.setting, spec.code)
            with artefacts.in_use(Path(spec.artefacts)):
                run = Run(spec, joint, board)
                run.execute()
        if group is not None:
            group.close()
        return 0
    except PeerLost:
        traceback.print_exc()
        return 1  # the lost rank, or torchrun for it, reports the reason
    except OutcoreError as error:
        traceback.print_exc()
        failed = Failed(kind=error.kind, message=error.message, fix=error.fix)
    except Exception as error:
        traceback.print_exc()
        kind = "memory" if _is_memory(error) else "bug"
        failed = Failed(kind=kind, message=f"{type(error).__name__}: {error}"[:4000])
    channel.send(failed if run is None else run.failed(failed))
    return 1


def _opened(place: str, mode: int) -> int:
    """Open a pipe given as a number (inherited descriptor) or a path (named pipe, or
    descriptor below torchrun)."""
    return int(place) if place.isdecimal() else os.open(place, mode | os.O_CLOEXEC)


def _is_memory(error: Exception) -> bool:
    """Return whether an allocation failed: Python's, the device's, or torch's on the
    host (a plain RuntimeError)."""
    named = type(error).__name__ == "OutOfMemoryError"
    return (
        isinstance(error, MemoryError) or named or "can't allocate memory" in str(error)
    )


if __name__ == "__main__":
    main(sys.argv[1:])
