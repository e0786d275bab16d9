"""The worker: executes one run in its own process, inside the cap, and reports to the orchestrator.

`python -m harness.worker.main SPEC EVENT_FD GO_FD PARENT [BOARD]`. It waits at gates (after `prepare()`, at both
ends of each epoch) and writes events only there; under the clock it adds one store a mini-batch
(`harness/wire/board.py`).
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.wire.board import Board
    from harness.wire.joint import Joint
    from harness.wire.protocol import Channel, WorkerSpec
    from harness.worker.epoch_report import EpochLog
    from systems.interface import Batch, System
    from workloads.ranks import RankGroup

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent, the process `parent`, ends in any manner."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(70)


class Run:
    """One run of one system, or one rank's part of it: plan, prepare, epochs."""

    def __init__(self, spec: WorkerSpec, joint: Joint, board: Board) -> None:
        import systems.engine  # noqa: F401 - every run's, as PyTorch is: not counted as a system's preparation
        from harness.worker import build
        from systems.interface import Batch, DiskProfile, MemoryBudget, Runtime, reserve_bytes
        from systems.registry import load
        from workloads.sampling.batch import SampledBatch

        # A class of a system's own could show the training step another mini-batch than the digest.
        self._kinds = (Batch, SampledBatch)
        self._spec = spec
        self._joint = joint
        self._board = board
        self._num_batches = len(spec.bounds[0]["nodes_by_batch"][0]) if spec.bounds else 0
        cores = build.cores_of(spec)
        build.limit_threads(spec)
        began, io_before = time.monotonic(), _process_io()
        self._system_class = load(spec.config.system)
        self._system_class.load_libraries()
        libraries_s, io_after = time.monotonic() - began, _process_io()
        self._workload = build.build_workload(spec, joint.rank)
        build.hand_over_bounds(spec, self._workload)
        self._accelerator = build.build_accelerator(spec, joint.rank)
        self._trainer = build.build_trainer(spec, self._workload, self._accelerator, joint.group)
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
        host = spec.budget_host if spec.budget_host is None else spec.budget_host // joint.world
        self._reserve = 0 if host is None else reserve_bytes(host)
        budget = MemoryBudget(None if host is None else host - self._reserve, spec.budget_device)
        options = self._system_class.info.options.model_validate(spec.config.options)
        # Preparation counts from here on, constructor and plan included, plus the loading of the system's libraries.
        self._began = time.monotonic() - libraries_s
        read, written = _process_io()
        self._io_before = read - (io_after[0] - io_before[0]), written - (io_after[1] - io_before[1])
        self._system: System = self._system_class(self._workload, runtime, budget, options, self._clock)

    def execute(self) -> None:
        """Plan, prepare and run all epochs; always close the system."""
        from harness.records.record import PlannedBuffer
        from harness.wire.joint import merged_plan
        from harness.wire.protocol import Done, Planned
        from harness.worker import build

        try:
            items = [
                PlannedBuffer(name=item.name, bytes=item.bytes, tier=item.tier) for item in self._system.plan().items
            ]
            planning_s = time.monotonic() - self._began
            if self._reserve:
                items.append(PlannedBuffer(name="reserve", bytes=self._reserve))
            self._joint.send(Planned(items=merged_plan(self._joint.gather(items))))
            self._prepare(planning_s)
            config = self._spec.config
            models = build.snapshots(self._spec, self._trainer, self._joint.rank)
            for epoch in range(config.epochs):
                self._epoch(epoch, warmup=epoch < config.warmup)
                if models is not None:
                    models.keep()
            notes = {**self._system.notes(), **self._lowered()}
            facts = self._system.facts()
        finally:
            self._system.close()
            self._accelerator.close()
        tests = [] if models is None else models.accuracies(self._workload, config.test_nodes)
        if tests:
            notes = {**notes, "test_accuracy": f"{tests[-1]:.6f}"}
        self._joint.gather(None)  # wait for all ranks before `done`
        self._joint.send(Done(notes=notes, facts=facts, test_accuracy=tests))

    def known(self) -> dict[str, Any]:
        """Return the system's notes and facts as fields of `Failed`; empty if it failed before it had any."""
        try:
            return {"notes": {**self._system.notes(), **self._lowered()}, "facts": self._system.facts()}
        except Exception:
            return {}

    def _lowered(self) -> dict[str, str]:
        """Return a note of the automatic options below the paper's values, which exceed the budget."""
        found = [f"{name} {value} instead of {wanted}" for name, (value, wanted) in self._system.lowered.items()]
        return {"lowered_to_fit": ", ".join(found)} if found else {}

    def _prepare(self, planning_s: float) -> None:
        """Prepare; the report includes time and I/O of libraries, constructor and plan (`planning_s`)."""
        from harness.wire.protocol import Prepared

        start = time.monotonic()
        self._system.prepare()
        seconds = planning_s + time.monotonic() - start
        read_before, written_before = self._io_before
        read, written = _process_io()
        from systems.engine.store.artefacts import making_seconds

        files = self._system.files()
        reused = self._system.facts().prepared_reused is True
        own = Prepared(
            seconds=seconds,
            planning_s=planning_s,
            made_s=making_seconds(files) if reused else 0.0,
            bytes_read=read - read_before,
            bytes_written=written - written_before,
            reused=reused,
            files=[str(path) for path in files],
        )
        self._joint.send(Prepared.joined(self._joint.gather(own)))
        self._joint.gate("prepared")

    def _epoch(self, epoch: int, *, warmup: bool) -> None:
        from harness.wire.protocol import EpochDone
        from harness.wire.spots import NONCE_BYTES, chosen
        from harness.worker.epoch_report import EpochLog, EpochReport, joined, tables

        with_features = (warmup or self._spec.config.verify) and self._spec.config.stages != "sample"
        self._clock.drain()
        self._accelerator.lanes()
        self._board.begin(self._num_batches)
        count = self._board.count
        nonce = self._joint.gate(f"epoch {epoch} start", NONCE_BYTES if self._spec.challenge else 0)
        looked_at = chosen(nonce, epoch, self._num_batches) if nonce and self._num_batches else frozenset()
        log = EpochLog(with_features=with_features, nonce=nonce, looked_at=looked_at)
        user = os.times().user
        start = time.monotonic()
        for number, batch in enumerate(self._system.epoch(epoch), start=1):
            log.add(batch, *self._train(batch, log))
            count(number)
        self._accelerator.synchronize()
        end = time.monotonic()
        user = os.times().user - user
        self._joint.gate(f"epoch {epoch} end")
        self._board.begin(0)

        from harness.wire.joint import summed
        from systems.interface import wall_seconds

        own = EpochReport(
            start, end, log, self._clock.drain(), self._accelerator.lanes(), self._system.counters().as_dict(), user
        )
        parts = self._joint.gather(own)
        checking_s = max(part.log.checking_s for part in parts)
        log, spans, lanes = joined([part.numbered(rank, len(parts)) for rank, part in enumerate(parts)])
        for event in tables(epoch, log, spans, lanes):
            self._joint.send(event)
        self._joint.send(
            EpochDone(
                epoch=epoch,
                start=min(part.start for part in parts),
                end=max(part.end for part in parts),
                batches=len(log.rows),
                digest=log.structure.hexdigest(),
                feature_digest=log.features.hexdigest() if with_features else None,
                loss=log.mean_loss(),
                accuracy=log.accuracy(),
                counters=_finite(summed([part.counters for part in parts])),
                stages_s=wall_seconds(spans),
                user_s=sum(part.user_s for part in parts),
                checking_s=checking_s,
            )
        )

    def _train(self, batch: Batch, log: EpochLog) -> tuple[float, int, int]:
        """Wait for the mini-batch, train and release it; return loss, correct, seen."""
        for found, wanted in zip((type(batch), type(batch.sampled)), self._kinds, strict=True):
            if found is not wanted:
                raise TypeError(f"epoch() yielded a {found.__qualname__}: a {wanted.__qualname__} itself is wanted")
        if batch.ready is not None:
            with self._clock.stage("wait", batch.sampled.index):
                batch.ready()
        log.digest(batch)
        loss, correct, seen = math.nan, 0, 0
        if self._spec.config.stages == "all":
            with self._clock.stage("train", batch.sampled.index):
                result = self._trainer.step(
                    batch.sampled, batch.table, batch.rows, first_layer_aggregated=batch.first_layer_aggregated
                )
            loss, correct, seen = result.loss, result.correct, result.seen
        batch.release()
        return loss, correct, seen


def _process_io() -> tuple[int, int]:
    """Return the bytes that this process has read from and written to devices."""
    values = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(values["read_bytes"]), int(values["write_bytes"])


def _finite(content: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by None."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def main(argv: list[str]) -> int:
    """Execute the spec; return 0 if the run completed, else 1 after an `error` event with the reason."""
    die_with_parent(int(argv[3]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # SIGTERM unwinds the stack, so that systems close their files and threads.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    from harness.wire.board import Board
    from harness.wire.joint import Joint
    from harness.wire.protocol import Failed, WorkerSpec
    from systems.engine.io.memory import share_one_heap
    from workloads.errors import OutcoreError
    from workloads.ranks import PeerLost, RankGroup

    share_one_heap()
    channel = _channel(argv[1], argv[2])
    spec = WorkerSpec.model_validate_json(Path(argv[0]).read_text(encoding="utf-8"))
    run: Run | None = None
    group: RankGroup | None = None
    try:
        group = RankGroup.from_environment(cuda=spec.config.device.startswith("cuda"))
        joint = Joint(channel, group)
        if spec.mode == "calibrate":
            from harness.worker.calibrate import calibrate

            calibrate(spec, joint)
        else:
            from systems.engine.store.artefacts import in_use

            # Ranks step together, so rank 0 reports progress for all.
            board = Board.attach(argv[4] if len(argv) > 4 and joint.rank == 0 else None)
            with in_use(Path(spec.artefacts)):
                run = Run(spec, joint, board)
                run.execute()
        if group is not None:
            group.close()
        return 0
    except PeerLost:
        traceback.print_exc()
        return _leave(group, 1)  # the lost rank, or torchrun for it, reports the reason
    except SystemExit as ended:  # SIGTERM, or the system's own
        if group is None:
            raise
        return _leave(group, ended.code if isinstance(ended.code, int) else 1)
    except OutcoreError as error:
        traceback.print_exc()
        failed = Failed(kind=error.kind, message=error.message, fix=error.fix)
    except Exception as error:
        traceback.print_exc()
        kind = "memory" if _is_memory(error) else "bug"
        failed = Failed(kind=kind, message=f"{type(error).__name__}: {error}"[:4000])
    if run is not None:
        failed = failed.model_copy(update=run.known())
    channel.send(failed)
    return _leave(group, 1)


def _leave(group: RankGroup | None, code: int) -> int:
    """Return the exit code of an incomplete run; a rank of several exits with it at once.

    Closing the group needs all ranks. An interpreter that ends while gloo's threads hold its tensors may be ended by
    SIGABRT, which would be reported instead of the reason.
    """
    if group is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _channel(events: str, go: str) -> Channel:
    """Open the pipes, given as a number (inherited descriptor) or a path (named pipe, or descriptor below torchrun)."""
    from harness.wire.protocol import Channel

    def opened(place: str, mode: int) -> int:
        return int(place) if place.isdecimal() else os.open(place, mode | os.O_CLOEXEC)

    return Channel(opened(events, os.O_WRONLY), opened(go, os.O_RDONLY))


def _is_memory(error: Exception) -> bool:
    """Return whether an allocation failed: Python's, the device's, or torch's on the host (a plain RuntimeError)."""
    named = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or named or "can't allocate memory" in str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
