"""Plan of a run without the run: the same budget, bounds, disk profile and cores as the
worker's."""

from __future__ import annotations

import os
from dataclasses import dataclass

from harness.records.record import RunConfig
from harness.run import calibrate
from harness.run.series import Series
from harness.run.spec import worker_spec, workload_of_run
from harness.settings import parse_memory
from systems.interface import DiskProfile, Runtime
from systems.planning import Planner
from systems.registry import load
from workloads.accelerator import Accelerator
from workloads.dataset import Dataset
from workloads.sampling.bounds import BatchBounds, keep_bounds


@dataclass(frozen=True)
class Budgets:
    """Memory for the buffers of a run's system, in bytes.

    Attributes:
        host: host memory; None for memory `none`.
        rest: bytes of a cap beside it: interpreter, torch and a training step; None
            where the setting is no cap.
        device: device memory, less that of training; None where none is given.
        training_device: device memory that training takes; None where it was not
            measured.
    """

    host: int | None
    rest: int | None
    device: int | None
    training_device: int | None


def budgets_of(series: Series, config: RunConfig, dataset: Dataset) -> Budgets:
    """Return the budgets of a run. A cap and a GPU are calibrated by an empty run, kept
    in the cache.

    Raises:
        InputError: the host memory is below that of an empty run, or training takes all
            the device memory.
        HostError: an empty run could not be measured.
    """
    wanted = parse_memory(config.memory, dataset.feature_bytes)
    # Training takes no memory of an emulated device.
    if wanted.cap_bytes is None and not config.device.startswith("cuda"):
        return Budgets(wanted.budget_bytes, None, config.device_memory_bytes, None)
    with (
        series.scratch() as folder,
        worker_spec(series, config, dataset, folder, folder.name) as (spec, _),
    ):
        held = calibrate.calibrate(series, spec, folder)
    _, host = calibrate.memory_of(config, dataset, held)
    rest = None if wanted.cap_bytes is None or host is None else wanted.cap_bytes - host
    return Budgets(
        host, rest, calibrate.device_budget(config, held), held.training_device_bytes
    )


def planner_of(
    series: Series,
    config: RunConfig,
    dataset: Dataset,
    accelerator: Accelerator,
    rest: int | None,
) -> Planner:
    """Return the planner of a run of one process.

    Args:
        series: a series that has prepared the run, so that the disk's profile is known.
        config, dataset: resolved configuration of the run, and its dataset.
        accelerator: training device, of which no memory is used.
        rest: as in `Planner`.
    """
    workload = workload_of_run(series, config, dataset)
    keep_bounds(
        workload,
        BatchBounds.of_plain(calibrate.batch_bounds(config, workload, series.cache)[0]),
    )
    kind = load(config.system)
    cores = len(os.sched_getaffinity(0))
    kind.load_libraries()
    runtime = Runtime(
        accelerator=accelerator,
        disk=series.profile(config) or DiskProfile(),
        artefacts=series.artefacts(config.system),
        scratch=series.scratch_root / "plan",
        cores=min(config.cores, cores) if config.cores else cores,
        stages=config.stages,
        keep_order=config.keep_order,
        epochs=config.epochs,
    )
    return Planner(
        kind,
        workload,
        runtime,
        kind.info.options.model_validate(config.options),
        config.device,
        rest=rest,
    )
