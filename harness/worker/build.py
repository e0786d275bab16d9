"""Parts of a run from a worker's spec: workload, accelerator, trainer; the same for
runs and calibration."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.records.record import RunConfig
from harness.wire.protocol import RankChannel, WorkerSpec
from workloads.dataset import Dataset
from workloads.sampling.bounds import BatchBounds, keep_bounds
from workloads.workload import ModelSpec, SamplerSpec, Workload

if TYPE_CHECKING:
    from systems.interface import StageClock, System
    from workloads.accelerator import Accelerator
    from workloads.training import Trainer

KERNELS = "triton"  # folder of compiled kernels among the artefacts


@dataclass(frozen=True)
class LoadedSystem:
    """A system's class, and what loading it and its libraries took: seconds, and bytes
    read and written."""

    kind: type[System]
    seconds: float
    io: tuple[int, int]


@dataclass(frozen=True)
class Parts:
    """Parts of a run on one rank, the same for every system and for the calibration."""

    workload: Workload
    accelerator: Accelerator
    trainer: Trainer


def load_system(spec: WorkerSpec, joint: RankChannel) -> LoadedSystem:
    """Load the system and its libraries. A calibration waits at gates before, between
    and after."""
    from systems.engine.store.artefacts import process_io
    from systems.registry import load

    if spec.mode == "calibrate":
        joint.gate("imports")
    began, (read, written) = time.monotonic(), process_io()
    system_class = load(spec.config.system)
    if spec.mode == "calibrate":
        joint.gate("module")
    system_class.load_libraries()
    seconds = time.monotonic() - began
    io_after = process_io()
    if spec.mode == "calibrate":
        joint.gate("libraries")
    return LoadedSystem(
        system_class, seconds, (io_after[0] - read, io_after[1] - written)
    )


def parts(spec: WorkerSpec, joint: RankChannel) -> Parts:
    """Build the parts of a run from its worker's spec; an emulated device attaches to
    the orchestrator's memory."""
    from systems.engine.io.arrays import torch_dtype
    from workloads.accelerators.make import make_accelerator
    from workloads.accelerators.pool import DevicePool
    from workloads.training import Trainer

    config = spec.config
    rank = joint.rank
    dataset = Dataset.open(Path(spec.dataset))
    workload = workload_of(
        config, dataset, rank, None if spec.partition is None else Path(spec.partition)
    )
    device = (
        f"cuda:{rank}"
        if config.device == "cuda" and config.ranks > 1
        else config.device
    )
    pool = (
        DevicePool.attach(spec.pools[rank], hidden=spec.mode == "run")
        if spec.pools
        else None
    )
    _keep_kernels(spec)
    given = config.device_memory_bytes
    if spec.mode == "training" and device.startswith("cuda"):
        given = None  # what training takes is measured in all the memory that is free
    accelerator = make_accelerator(
        device, memory_bytes=given, training_bytes=spec.training_device_bytes, pool=pool
    )
    accelerator.warm_up(dataset.dim, torch_dtype(dataset.feature_dtype))
    trainer = Trainer(
        workload.model,
        dataset.dim,
        dataset.num_classes,
        accelerator,
        config.seed,
        joint.group,
    )
    return Parts(workload, accelerator, trainer)


def compile_kernels(spec: WorkerSpec) -> None:
    """Compile the kernels of a CUDA device in a process of its own. Compilers leave
    memory behind, which would count in the floor, and runs load the result from
    Triton's cache."""
    dataset = Dataset.open(Path(spec.dataset))
    row = [str(dataset.dim), dataset.feature_dtype.name]
    if spec.config.device.startswith("cuda"):
        _keep_kernels(spec)
        command = [
            sys.executable,
            "-m",
            "workloads.accelerators.trial",
            spec.config.device,
            *row,
        ]
        subprocess.run(
            command, stdout=sys.stderr, check=False
        )  # a run without the kernel has a note on it


def _keep_kernels(spec: WorkerSpec) -> None:
    """Keep compiled kernels in the artefacts' folder, which a container keeps too."""
    if spec.config.device.startswith("cuda"):
        os.environ.setdefault("TRITON_CACHE_DIR", str(Path(spec.artefacts) / KERNELS))


def workload_of(
    config: RunConfig, dataset: Dataset, rank: int = 0, partition: Path | None = None
) -> Workload:
    """Return the workload of a configuration and its opened dataset.

    Args:
        config, dataset: resolved configuration of the run, and its dataset.
        rank, partition: number of the rank, and partition file of the training nodes
            (`Workload.partition`).
    """
    drawn = config.model_dump(
        include={"replace", "batch_size", "shuffle", "max_batches"}
    )
    trained = config.model_dump(
        include={"layers", "hidden", "heads", "learning_rate", "dropout"}
    )
    return Workload(
        dataset=dataset,
        sampler=SamplerSpec(name=config.sampler, fanout=tuple(config.fanout), **drawn),
        model=ModelSpec(name=config.model, **trained),
        seed=config.seed,
        rank=rank,
        world=config.ranks,
        partition=partition,
    )


def take_cores(spec: WorkerSpec) -> int:
    """Return the number of cores of a rank, an equal part of the run's cores, and drop
    cores that are not the run's. Ranks are not pinned: each starts threads for its
    part, torch's among them, and the kernel places them."""
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
    """Store the mini-batch bounds found outside the cap with the workload; systems size
    buffers by them."""
    if spec.bounds is not None:
        keep_bounds(workload, BatchBounds.of_plain(spec.bounds[workload.rank]))


def stage_clock(spec: WorkerSpec) -> StageClock:
    """Return the stage clock of a run: that of the spec's `test_clock`, else the plain
    one."""
    from systems.interface import StageClock

    if not spec.test_clock:
        return StageClock()
    module, _, argument = spec.test_clock.partition(":")
    made: StageClock = importlib.import_module(module).stage_clock(argument)
    return made
