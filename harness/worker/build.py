"""Parts of a run from a worker's spec: workload, accelerator, trainer; the same for runs and calibration."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.records.record import RunConfig
    from harness.wire.protocol import WorkerSpec
    from systems.interface import StageClock
    from workloads.accelerator import Accelerator
    from workloads.dataset import Dataset
    from workloads.ranks import RankGroup
    from workloads.training import Trainer
    from workloads.workload import Workload


def build_workload(spec: WorkerSpec, rank: int = 0) -> Workload:
    """Return the workload of one rank of a run: dataset, sampler, seed plan and model."""
    from workloads.dataset import Dataset

    partition = None if spec.partition is None else Path(spec.partition)
    return workload_of(spec.config, Dataset.open(Path(spec.dataset)), rank, partition)


def workload_of(config: RunConfig, dataset: Dataset, rank: int = 0, partition: Path | None = None) -> Workload:
    """Return the workload of a configuration and its opened dataset.

    Args:
        config, dataset: resolved configuration of the run, and its dataset.
        rank, partition: number of the rank, and partition file of the training nodes (`Workload.partition`).
    """
    from workloads.workload import ModelSpec, SamplerSpec, Workload

    drawn = config.model_dump(include={"replace", "batch_size", "shuffle", "max_batches"})
    trained = config.model_dump(include={"layers", "hidden", "heads", "learning_rate", "dropout"})
    return Workload(
        dataset=dataset,
        sampler=SamplerSpec(name=config.sampler, fanout=tuple(config.fanout), **drawn),
        model=ModelSpec(name=config.model, **trained),
        seed=config.seed,
        rank=rank,
        world=config.ranks,
        partition=partition,
    )


def build_accelerator(spec: WorkerSpec, rank: int = 0) -> Accelerator:
    """Return the rank's device, attached to the orchestrator's shared memory if it is emulated."""
    from workloads.accelerators.make import make_accelerator

    if not spec.pools:
        device = spec.config.device
        device = f"cuda:{rank}" if device == "cuda" and spec.config.ranks > 1 else device
        return make_accelerator(device, memory_bytes=spec.config.device_memory_bytes)
    from workloads.accelerators.pool import DevicePool

    pool = DevicePool.attach(spec.pools[rank])
    return make_accelerator(spec.config.device, memory_bytes=spec.config.device_memory_bytes, pool=pool)


def build_trainer(
    spec: WorkerSpec, workload: Workload, accelerator: Accelerator, group: RankGroup | None = None
) -> Trainer:
    """Return the trainer (model, optimiser, step), the same for every system.

    Args:
        spec: worker spec of the run.
        workload, accelerator: workload and device of the rank.
        group: ranks of the run; None for a single rank.
    """
    from workloads.training import Trainer

    dataset = workload.dataset
    return Trainer(workload.model, dataset.dim, dataset.num_classes, accelerator, spec.config.seed, group)


def take_cores(spec: WorkerSpec) -> int:
    """Return the number of cores of a rank, an equal part of the run's cores, and drop the others from the affinity.

    Ranks are not pinned: each starts threads for its part, torch's among them, and the kernel places them.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if spec.config.cores and spec.config.cores < len(allowed):
        allowed = allowed[: spec.config.cores]
        os.sched_setaffinity(0, allowed)
    cores = max(1, len(allowed) // spec.config.ranks)
    if spec.config.ranks > 1:
        import torch

        torch.set_num_threads(cores)
    return cores


def hand_over_bounds(spec: WorkerSpec, workload: Workload) -> None:
    """Store the mini-batch bounds found outside the cap with the workload; systems size buffers by them."""
    import numpy as np

    from workloads.sampling.make import BatchBounds, keep_bounds

    if spec.bounds is None:
        return
    content = dict(spec.bounds[workload.rank])
    content["largest"] = tuple(content["largest"])
    for name in ("nodes_by_batch", "edges_by_batch"):
        content[name] = np.asarray(content[name], dtype=np.int64)
    keep_bounds(workload, BatchBounds(**content))


def stage_clock(spec: WorkerSpec) -> StageClock:
    """Return the stage clock of a run: that of the spec's `test_clock`, else the plain one."""
    from systems.interface import StageClock

    if not spec.test_clock:
        return StageClock()
    module, _, argument = spec.test_clock.partition(":")
    made: StageClock = importlib.import_module(module).stage_clock(argument)
    return made
