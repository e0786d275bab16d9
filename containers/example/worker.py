"""A complete custom worker: everything that Outcore expects of the process in a system's own container.

Started as `worker.py SPEC EVENTS GO PARENT`. SPEC is a JSON file that says what to run; events go to the named pipe
EVENTS, one JSON object a line; at a gate the worker waits for one byte `g` from the named pipe GO. docs/foreign.md
lists the events. The code below the line belongs to the system; here it is one of Outcore's systems.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

CHUNK = 1000  # rows a line: lines are limited to 1 MiB, tables to 2000 rows a line


class Orchestrator:
    """Orchestrator at the other end of the pipes."""

    def __init__(self, events: str, go: str) -> None:
        self._events = os.open(events, os.O_WRONLY)
        self._go = os.open(go, os.O_RDONLY)

    def send(self, event: str, **fields: Any) -> None:
        """Send one event as a line."""
        data = json.dumps({"event": event, **fields}).encode() + b"\n"
        while data:
            data = data[os.write(self._events, data) :]

    def gate(self, at: str) -> None:
        """Wait until the orchestrator answers; exit if it is gone."""
        self.send("gate", at=at)
        if os.read(self._go, 1) != b"g":
            os._exit(70)


def main(spec_file: str, events: str, go: str, _: str) -> int:
    """Calibrate or run, as the spec says; send any error as an event."""
    spec = json.loads(Path(spec_file).read_text(encoding="utf-8"))
    orchestrator = Orchestrator(events, go)
    try:
        work = Work(spec)
        calibrate(spec, orchestrator, work) if spec["mode"] == "calibrate" else run(spec, orchestrator, work)
    except Exception as error:
        kind = "memory" if isinstance(error, MemoryError) else getattr(error, "kind", "bug")
        orchestrator.send("error", kind=kind, message=f"{type(error).__name__}: {error}"[:4000])
        return 1
    return 0


def calibrate(spec: dict[str, Any], orchestrator: Orchestrator, work: Work) -> None:
    """Stop at three gates, where memory is read, and time training alone if the spec asks for it."""
    orchestrator.gate("floor")  # imports, model and optimiser are loaded, no data
    step = work.largest_step()
    orchestrator.gate("before step")
    step()
    orchestrator.gate("after step")
    if spec["time_training"]:
        seconds = {epoch: work.train_seconds(epoch) for epoch in range(spec["config"]["epochs"])}
        orchestrator.send("calibrated", train_s=seconds, null_s=seconds, how="the author's own")
    orchestrator.send("done", notes={})


def run(spec: dict[str, Any], orchestrator: Orchestrator, work: Work) -> None:
    """Plan, prepare, then run every epoch between its two gates."""
    config = spec["config"]
    orchestrator.send("plan", items=work.plan())
    start = time.monotonic()
    files = work.prepare()
    orchestrator.send(
        "prepared", seconds=time.monotonic() - start, bytes_read=0, bytes_written=0, reused=False, files=files
    )
    orchestrator.gate("prepared")  # written files are evicted from the page cache meanwhile
    for epoch in range(config["epochs"]):
        with_features = epoch < config["warmup"] or config["verify"]
        orchestrator.gate(f"epoch {epoch} start")
        begin = time.monotonic()
        rows, digest, feature_digest = work.epoch(epoch, with_features)
        end = time.monotonic()
        orchestrator.gate(f"epoch {epoch} end")
        spans = work.spans()
        for at in range(0, len(rows), CHUNK):
            orchestrator.send("batches", epoch=epoch, rows=rows[at : at + CHUNK])
        for at in range(0, len(spans), CHUNK):
            orchestrator.send("spans", epoch=epoch, kind="stage", rows=spans[at : at + CHUNK])
        trained = [(row[4], row[3]) for row in rows if row[4] is not None]
        seen = sum(seeds for _, seeds in trained)
        orchestrator.send(
            "epoch",
            epoch=epoch,
            start=begin,
            end=end,
            batches=len(rows),
            digest=digest,
            feature_digest=feature_digest,
            loss=sum(loss * seeds for loss, seeds in trained) / seen if seen else None,
            accuracy=sum(row[5] for row in rows) / seen if seen else None,
            counters=work.counters(),
            stages_s=work.stage_seconds(),
        )
    orchestrator.send("done", notes=work.close())


# ---------------------------------------------------------------------------------------------------------------------
# From here on the code belongs to the system. This one uses Outcore's modules; any other code in any language will do.


class Work:
    """System of Outcore, wrapped for the protocol."""

    WRAPPED = "gnndrive"

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec, self._config = spec, spec["config"]
        self._build()

    def _build(self) -> None:
        from harness.wire.protocol import Channel, Joint, WorkerSpec
        from harness.worker import build

        inner = {**self._spec, "config": {**self._config, "system": self.WRAPPED}}
        self._inner = WorkerSpec.model_validate(inner)
        # A single rank, which talks to the harness directly.
        made = build.parts(self._inner, Joint(Channel(-1, -1), None))
        self._class, self._workload, self._cores = made.system_class, made.workload, made.cores
        self._accelerator, self._trainer = made.accelerator, made.trainer
        build.hand_over_bounds(self._inner, self._workload)

    def largest_step(self) -> Any:
        """Return a function that trains the largest mini-batch once, with its features in memory."""
        import torch

        from workloads.sampling.make import make_sampler, make_seed_plan

        epoch, index = self._spec["bounds"][0]["largest"]
        seeds = make_seed_plan(self._workload).batches(epoch)[index]
        sampled = make_sampler(self._workload).sample(epoch, index, seeds)
        table = torch.randn(sampled.num_nodes, self._workload.dataset.dim)
        return lambda: self._trainer.step(sampled, table, torch.arange(sampled.num_nodes))

    def train_seconds(self, epoch: int) -> float:
        """Estimate the seconds of training alone: one step, times the number of steps."""
        from workloads.sampling.make import make_seed_plan

        step = self.largest_step()
        start = time.monotonic()
        step()
        return (time.monotonic() - start) * len(make_seed_plan(self._workload).batches(epoch))

    def plan(self) -> list[dict[str, Any]]:
        """List every buffer, before it is allocated."""
        from systems.interface import DiskProfile, MemoryBudget, Runtime, StageClock

        self._clock = StageClock()
        runtime = Runtime(
            accelerator=self._accelerator,
            disk=DiskProfile.from_plain(self._spec["disk"]),
            artefacts=Path(self._spec["artefacts"]),
            scratch=Path(self._spec["scratch"]),
            cores=self._cores,
            keep_order=self._config["keep_order"],
            epochs=self._config["epochs"],
        )
        options = self._class.info.options.model_validate(self._config["options"])
        budget = MemoryBudget(host=self._spec["budget_host"], device=self._spec["budget_device"])
        self._system = self._class(self._workload, runtime, budget, options, self._clock)
        return [{"name": item.name, "bytes": item.bytes, "tier": item.tier} for item in self._system.plan().items]

    def prepare(self) -> list[str]:
        """Do offline work; return the files it wrote."""
        self._system.prepare()
        return [str(path) for path in self._system.files()]

    def epoch(self, k: int, with_features: bool) -> tuple[list[tuple[Any, ...]], str, str | None]:
        """Train one epoch; return a row per mini-batch, and the digests by which mini-batches are compared."""
        from workloads.feature_table import batch_feature_digest
        from workloads.sampling.digest import EpochDigest, structure_digest

        self._clock.drain()
        structure, features, rows = EpochDigest(), EpochDigest(), []
        for batch in self._system.epoch(k):
            if batch.ready is not None:
                with self._clock.stage("wait", batch.sampled.index):
                    batch.ready()
            value = structure_digest(batch.sampled)
            structure.add(value)
            if with_features:
                features.add(batch_feature_digest(batch.sampled, batch.table, batch.rows))
            with self._clock.stage("train", batch.sampled.index):
                result = self._trainer.step(
                    batch.sampled, batch.table, batch.rows, first_layer_aggregated=batch.first_layer_aggregated
                )
            batch.release()
            one = batch.sampled
            loss = result.loss if math.isfinite(result.loss) else None
            rows.append(
                (
                    one.index,
                    one.num_nodes,
                    one.num_edges,
                    one.num_seeds,
                    loss,
                    result.correct,
                    f"{value:016x}",
                    time.monotonic(),
                )
            )
        self._spans = self._clock.drain()
        return rows, structure.hexdigest(), features.hexdigest() if with_features else None

    def spans(self) -> list[tuple[str, int, str, float, float]]:
        """Return when each stage of each mini-batch ran, and on which thread."""
        return [(span.stage, span.batch, span.thread, span.start, span.end) for span in self._spans]

    def stage_seconds(self) -> dict[str, float]:
        """Return the wall time of each stage in which at least one of its spans was open."""
        from systems.interface import wall_seconds

        return wall_seconds(self._spans)

    def counters(self) -> dict[str, Any]:
        """Return rows, hits, misses, requests and bytes."""
        return self._system.counters().as_dict()

    def close(self) -> dict[str, str]:
        """Release everything; return notes on the run."""
        notes = self._system.notes()
        self._system.close()
        self._accelerator.close()
        return notes


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
