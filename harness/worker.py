"""The worker: runs one experiment in its own process, inside the cap, and tells the orchestrator what happened.

`python -m harness.worker SPEC EVENT_FD GO_FD PARENT`. It stands still at gates (after `prepare()`, at both ends of each
epoch) and writes events only there, so nothing of it runs while a clock does.
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
    from harness.protocol import Channel, WorkerSpec
    from systems.interface import Batch, StageSpan, System
    from workloads.accelerator import LaneSpan
    from workloads.workload import Workload

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when the orchestrator dies, however it dies; `parent` is its process id."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(70)


class Run:
    """One run of one system: plan, prepare, epochs."""

    def __init__(self, spec: WorkerSpec, channel: Channel) -> None:
        from harness import build
        from systems.interface import MemoryBudget, Runtime, StageClock
        from systems.registry import load

        self._spec = spec
        self._channel = channel
        cores = build.cores_of(spec)
        self._system_class = load(spec.config.system)
        self._workload = build.build_workload(spec)
        build.hand_over_bounds(spec, self._workload)
        self._accelerator = build.build_accelerator(spec)
        self._trainer = build.build_trainer(spec, self._workload, self._accelerator)
        self._clock = StageClock()
        runtime = Runtime(
            accelerator=self._accelerator,
            disk=build.disk_profile(spec.disk),
            artefacts=Path(spec.artefacts),
            scratch=Path(spec.scratch),
            cores=cores,
            stages=spec.config.stages,
            keep_order=spec.config.keep_order,
            epochs=spec.config.epochs,
        )
        budget = MemoryBudget(host=spec.budget_host, device=spec.budget_device)
        options = self._system_class.info.options.model_validate(spec.config.options)
        self._system: System = self._system_class(self._workload, runtime, budget, options, self._clock)

    def execute(self) -> None:
        """Everything, in order; the system is closed whatever happens."""
        from harness.protocol import Done, Planned
        from harness.record import PlannedBuffer

        try:
            items = [
                PlannedBuffer(name=item.name, bytes=item.bytes, tier=item.tier) for item in self._system.plan().items
            ]
            self._channel.send(Planned(items=items))
            self._prepare()
            config = self._spec.config
            for epoch in range(config.epochs):
                self._epoch(epoch, warmup=epoch < config.warmup)
            notes = self._system.notes()
        finally:
            self._system.close()
            self._accelerator.close()
        self._channel.send(Done(notes=notes))

    def notes(self) -> dict[str, str]:
        """What the system says of itself; nothing where it failed before it could know."""
        try:
            return self._system.notes()
        except Exception:
            return {}

    def _prepare(self) -> None:
        from harness.protocol import Prepared

        read_before, written_before = _process_io()
        start = time.monotonic()
        self._system.prepare()
        seconds = time.monotonic() - start
        read, written = _process_io()
        files = [str(path) for path in self._system.files()]
        self._channel.send(
            Prepared(
                seconds=seconds,
                bytes_read=read - read_before,
                bytes_written=written - written_before,
                reused=self._system.notes().get("prepared") == "reused",
                files=files,
            )
        )
        self._channel.gate("prepared")

    def _epoch(self, epoch: int, *, warmup: bool) -> None:
        from harness.protocol import EpochDone

        with_features = (warmup or self._spec.config.verify) and self._spec.config.stages != "sample"
        log = _EpochLog(self._workload, with_features=with_features)
        self._clock.drain()
        self._accelerator.lanes()
        self._channel.gate(f"epoch {epoch} start")
        start = time.monotonic()
        for batch in self._system.epoch(epoch):
            log.add(batch, *self._train(batch, log))
        self._accelerator.synchronize()
        end = time.monotonic()
        self._channel.gate(f"epoch {epoch} end")

        from systems.interface import wall_seconds

        spans = self._clock.drain()
        send_epoch_tables(self._channel, epoch, log.rows, spans, self._accelerator.lanes())
        self._channel.send(
            EpochDone(
                epoch=epoch,
                start=start,
                end=end,
                batches=len(log.rows),
                digest=log.structure.hexdigest(),
                feature_digest=log.features.hexdigest() if with_features else None,
                loss=log.mean_loss(),
                accuracy=log.accuracy(),
                counters=_finite(self._system.counters().as_dict()),
                stages_s=wall_seconds(spans),
            )
        )

    def _train(self, batch: Batch, log: _EpochLog) -> tuple[float, int, int]:
        """Wait for the batch, train on it, give it back: loss, correct, seen."""
        if batch.ready is not None:
            with self._clock.stage("wait", batch.sampled.index):
                batch.ready()
        log.digest(batch)
        loss, correct, seen = math.nan, 0, 0
        if self._spec.config.stages == "all":
            with self._clock.stage("train", batch.sampled.index):
                result = self._trainer.step(batch.sampled, batch.table, batch.rows)
            loss, correct, seen = result.loss, result.correct, result.seen
        batch.release()
        return loss, correct, seen


class _EpochLog:
    """What an epoch's batches were: small tuples while the clock runs, sums and digests afterwards."""

    def __init__(self, workload: Workload, *, with_features: bool) -> None:
        from workloads.sampling.digest import EpochDigest

        self.rows: list[tuple[int, int, int, int, float | None, int, str, float]] = []
        self.structure = EpochDigest()
        self.features = EpochDigest()
        self._with_features = with_features
        self._digest = ""
        self._loss = 0.0
        self._correct = 0
        self._seen = 0

    def digest(self, batch: Batch) -> None:
        """Structure always; features, from the very table that training reads, where asked for."""
        from workloads.sampling.digest import feature_digest, structure_digest

        value = structure_digest(batch.sampled)
        self.structure.add(value)
        self._digest = f"{value:016x}"
        if self._with_features and batch.table is not None:
            table, rows = batch.table, batch.rows
            if table.device.type != "cpu" and rows is not None:
                table, rows = table[rows.to(table.device)], None
            ids = None if rows is None else rows.numpy()
            self.features.add(feature_digest(batch.sampled, table.cpu().numpy(), ids))

    def add(self, batch: Batch, loss: float, correct: int, seen: int) -> None:
        """One trained batch."""
        sampled = batch.sampled
        finite = math.isfinite(loss)
        self.rows.append(
            (
                sampled.index,
                sampled.num_nodes,
                sampled.num_edges,
                sampled.num_seeds,
                loss if finite else None,
                correct,
                self._digest,
                time.monotonic(),
            )
        )
        if finite:
            self._loss += loss * seen
            self._correct += correct
            self._seen += seen

    def mean_loss(self) -> float | None:
        """Mean over seed nodes, None where nothing was trained for real."""
        return self._loss / self._seen if self._seen else None

    def accuracy(self) -> float | None:
        """Share of seed nodes classified rightly while training."""
        return self._correct / self._seen if self._seen else None


def send_epoch_tables(
    channel: Channel,
    epoch: int,
    rows: list[tuple[int, int, int, int, float | None, int, str, float]],
    spans: list[StageSpan],
    lanes: list[LaneSpan],
) -> None:
    """The epoch's tables in lines of bounded size."""
    from harness.protocol import CHUNK_ROWS, Batches, Spans

    for at in range(0, len(rows), CHUNK_ROWS):
        channel.send(Batches(epoch=epoch, rows=rows[at : at + CHUNK_ROWS]))
    stage_rows = [(span.stage, span.batch, span.thread, span.start, span.end) for span in spans]
    for at in range(0, len(stage_rows), CHUNK_ROWS):
        channel.send(Spans(epoch=epoch, rows=stage_rows[at : at + CHUNK_ROWS]))
    lane_rows = [(span.lane, span.batch, "lane", span.start, span.end) for span in lanes]
    for at in range(0, len(lane_rows), CHUNK_ROWS):
        channel.send(Spans(epoch=epoch, kind="lane", rows=lane_rows[at : at + CHUNK_ROWS]))


def _process_io() -> tuple[int, int]:
    """Bytes this process had read from and sent to devices."""
    values = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(values["read_bytes"]), int(values["write_bytes"])


def _finite(content: Any) -> Any:
    """Plain data in which NaN and infinity are None, as JSON wants it."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def main(argv: list[str]) -> int:
    """Run what the spec says; 0 done, 1 otherwise (an `error` event says why)."""
    die_with_parent(int(argv[3]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # SIGTERM unwinds the stack, so that systems close their files and threads.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    from harness.protocol import Channel, Failed, WorkerSpec
    from workloads.errors import OutcoreError

    channel = Channel(int(argv[1]), int(argv[2]))
    spec = WorkerSpec.model_validate_json(Path(argv[0]).read_text(encoding="utf-8"))
    run: Run | None = None
    try:
        if spec.mode == "calibrate":
            from harness.calibrate_worker import calibrate

            calibrate(spec, channel)
        else:
            run = Run(spec, channel)
            run.execute()
        return 0
    except OutcoreError as error:
        traceback.print_exc()
        failed = Failed(kind=error.kind, message=error.message, fix=error.fix)
    except Exception as error:
        traceback.print_exc()
        kind = "memory" if _is_memory(error) else "bug"
        failed = Failed(kind=kind, message=f"{type(error).__name__}: {error}"[:4000])
    if run is not None:
        failed = failed.model_copy(update={"notes": run.notes()})
    channel.send(failed)
    return 1


def _is_memory(error: Exception) -> bool:
    """Whether an allocation failed: Python's, the device's, or torch's on the host (a plain RuntimeError)."""
    named = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or named or "can't allocate memory" in str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
