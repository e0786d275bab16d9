"""A complete worker of a system that has the workload's own mini-batches: Outcore's
`gnndrive` behind `outcore_worker`.

It digests every mini-batch, as a system that claims `faithful` has to
(docs/foreign.md). Replace the class by your own; an image without Outcore needs a copy
of `outcore/foreign/outcore_worker.py` beside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from outcore.foreign.outcore_worker import Log, Run, Worker, main


class Example(Worker):
    """System of Outcore in a worker of its own."""

    WRAPPED = "gnndrive"

    def __init__(self, run: Run) -> None:
        """Make model and optimiser."""
        super().__init__(run)
        from harness.wire.protocol import Channel, RankChannel, WorkerSpec
        from harness.worker import build
        from systems.interface import StageClock

        config = {
            **run.spec["config"],
            "system": self.WRAPPED,
            "options": self.options(),
        }
        # `outcore_worker` waits at the gates of a calibration; Outcore's own worker has
        # more of them.
        self.spec = WorkerSpec.model_validate(
            {**run.spec, "mode": "run", "config": config}
        )
        # A single rank, which talks to the harness by `outcore_worker` alone.
        alone = RankChannel(Channel(-1, -1), None)
        self.cores = build.take_cores(self.spec)
        self.kind = build.load_system(self.spec, alone).kind
        self.parts = build.parts(self.spec, alone)
        build.hand_over_bounds(self.spec, self.parts.workload)
        self.clock = StageClock()
        self.system = None

    def options(self) -> dict[str, Any]:
        """Return the options of the wrapped system."""
        return {"extractors": self.run.options.extractors}

    def step(self) -> Callable[[], None]:
        """Return a training step on the largest mini-batch, its rows in memory."""
        import torch

        from workloads.sampling.make import make_sampler, make_seed_plan

        workload, (epoch, index) = (
            self.parts.workload,
            self.run.spec["bounds"][0]["largest"],
        )
        sampled = make_sampler(workload).sample(
            epoch, index, make_seed_plan(workload).batches(epoch)[index]
        )
        table = torch.randn(sampled.num_nodes, workload.dataset.dim)
        rows = torch.arange(sampled.num_nodes)

        def step() -> None:
            self.parts.trainer.step(sampled, table, rows)

        return step

    def plan(self) -> dict[str, int]:
        """Return the bytes of every buffer, before it is allocated."""
        from systems.interface import DiskProfile, MemoryBudget, Runtime

        spec = self.spec
        made = self.parts
        runtime = Runtime(
            accelerator=made.accelerator,
            disk=DiskProfile.from_plain(spec.disk),
            artefacts=Path(spec.artefacts),
            scratch=Path(spec.scratch),
            cores=self.cores,
            keep_order=spec.config.keep_order,
            epochs=spec.config.epochs,
        )
        options = self.kind.info.options.model_validate(spec.config.options)
        budget = MemoryBudget(host=spec.budget_host, device=spec.budget_device)
        self.system = self.kind(made.workload, runtime, budget, options, self.clock)
        return {item.name: item.bytes for item in self.system.plan().items}

    def prepare(self) -> list[Path]:
        """Do offline work; return the files it wrote."""
        self.system.prepare()
        self.system.prepare_epochs(0)
        return list(self.system.files())

    def epoch(self, number: int, log: Log) -> None:
        """Train every mini-batch, and digest its structure and, in the epochs that ask
        for it, its rows."""
        from workloads.feature_table import batch_feature_digest
        from workloads.sampling.digest import EpochDigest, structure_digest

        self.clock.drain()
        structure = EpochDigest()
        features = EpochDigest()
        with_features = number < self.run.config.warmup or self.run.config.verify
        for batch in self.system.epoch(number):
            one = batch.sampled
            if batch.ready is not None:
                with log.stage("wait", one.index):
                    batch.ready()
            digest = structure_digest(one)
            structure.add(digest)
            if with_features:
                features.add(batch_feature_digest(one, batch.table, batch.rows))
            with log.stage("train", one.index):
                loss, correct = self.train(batch)
            rows = (
                batch.table
                if batch.rows is None or not log.looks_at(one.index)
                else batch.table[batch.rows]
            )
            seeds = one.nodes[: one.num_seeds]
            log.batch(
                one.nodes,
                rows,
                one.num_edges,
                seeds,
                loss,
                correct,
                f"{digest:016x}",
                one.index,
            )
            batch.release()
        log.spans += [
            (span.stage, span.batch, span.thread, span.start, span.end)
            for span in self.clock.drain()
        ]
        log.digest = structure.hexdigest()
        log.feature_digest = features.hexdigest() if with_features else None

    def train(self, batch: Any) -> tuple[float, int]:
        """Take a training step; return the mean loss and the number of correct seed
        nodes."""
        result = self.parts.trainer.step(
            batch.sampled,
            batch.table,
            batch.rows,
            first_layer_aggregated=batch.first_layer_aggregated,
        )
        return result.loss, result.correct

    def counters(self) -> dict[str, Any]:
        """Return rows, hits, misses, requests and bytes."""
        return self.system.counters().as_dict()

    def close(self) -> dict[str, str]:
        """Release everything; return notes on the run."""
        notes = {} if self.system is None else self.system.notes()
        if self.system is not None:
            self.system.close()
        self.parts.accelerator.close()
        return notes


if __name__ == "__main__":
    main(Example)
