"""From a worker's spec to the parts of a run: workload, accelerator, trainer; the same for runs and calibration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.protocol import WorkerSpec
    from harness.record import RunConfig
    from systems.interface import DiskProfile
    from workloads.accelerator import Accelerator
    from workloads.dataset import Dataset
    from workloads.training import Trainer
    from workloads.workload import Workload


def build_workload(spec: WorkerSpec) -> Workload:
    """Dataset, sampler, seed plan and model of a run."""
    from workloads.dataset import Dataset

    return workload_of(spec.config, Dataset.open(Path(spec.dataset)))


def workload_of(config: RunConfig, dataset: Dataset) -> Workload:
    """The workload that a configuration and its dataset make."""
    from workloads.workload import ModelSpec, SamplerSpec, Workload

    return Workload(
        dataset=dataset,
        sampler=SamplerSpec(
            fanout=tuple(config.fanout),
            replace=config.replace,
            batch_size=config.batch_size,
            shuffle=config.shuffle,
            max_batches=config.max_batches,
        ),
        model=ModelSpec(
            name=config.model,  # type: ignore[arg-type]
            layers=config.layers,
            hidden=config.hidden,
            heads=config.heads,
            learning_rate=config.learning_rate,
            dropout=config.dropout,
        ),
        seed=config.seed,
    )


def build_accelerator(spec: WorkerSpec) -> Accelerator:
    """The device, attached to the orchestrator's shared memory where it is emulated."""
    from workloads.accelerator import make_accelerator

    if spec.pool is None:
        return make_accelerator(spec.config.device, memory_bytes=spec.config.device_memory_bytes)
    from workloads.accelerators.pool import DevicePool

    pool = DevicePool.attach(spec.pool)
    return make_accelerator(spec.config.device, memory_bytes=spec.config.device_memory_bytes, pool=pool)


def build_trainer(spec: WorkerSpec, workload: Workload, accelerator: Accelerator) -> Trainer:
    """Model, optimiser and step: the same for every system."""
    from workloads.training import Trainer

    dataset = workload.dataset
    return Trainer(workload.model, dataset.dim, dataset.num_classes, accelerator, spec.config.seed)


def cores_of(spec: WorkerSpec) -> int:
    """Cores of this run: as many as asked for, or all that the process may use; the rest are given up."""
    allowed = sorted(os.sched_getaffinity(0))
    if spec.config.cores and spec.config.cores < len(allowed):
        allowed = allowed[: spec.config.cores]
        os.sched_setaffinity(0, allowed)
    return len(allowed)


def hand_over_bounds(spec: WorkerSpec, workload: Workload) -> None:
    """Give systems, which size buffers by them, the batch bounds that the harness found outside the cap."""
    import numpy as np

    from workloads.sampling.make import BatchBounds, keep_bounds

    if spec.bounds is None:
        return
    content = dict(spec.bounds)
    content["largest"] = tuple(content["largest"])
    for name in ("nodes_by_batch", "edges_by_batch"):
        content[name] = np.asarray(content[name], dtype=np.int64)
    keep_bounds(workload, BatchBounds(**content))


def disk_profile(content: dict[str, Any]) -> DiskProfile:
    """The device's profile from plain data; without points where none was measured."""
    from systems.interface import DiskPoint, DiskProfile

    points = tuple(DiskPoint(**point) for point in content.get("points", ()))
    return DiskProfile(points, content.get("logical_block_bytes", 512), content.get("tool", "none"))
