"""Plan of a run without the run: the same budget, bounds, disk profile and cores as the worker's."""

from __future__ import annotations

import os

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


def budget_of(series: Series, config: RunConfig, dataset: Dataset) -> tuple[int | None, int | None]:
    """Return the host budget in bytes, and the bytes of a cap beside it: interpreter, torch and a training step.

    Both are None for memory `none`, the second is for a budget. A cap is calibrated by an empty run, kept in the cache.

    Raises:
        InputError: the memory is below that of an empty run.
        HostError: an empty run could not be measured.
    """
    wanted = parse_memory(config.memory, dataset.feature_bytes)
    if wanted.cap_bytes is None:
        return wanted.budget_bytes, None
    with series.scratch() as folder, worker_spec(series, config, dataset, folder, folder.name) as (spec, _):
        budget = calibrate.memory_of(config, dataset, calibrate.calibrate(series, spec, folder))[1]
    assert budget is not None
    return budget, wanted.cap_bytes - budget


def planner_of(
    series: Series, config: RunConfig, dataset: Dataset, accelerator: Accelerator, rest: int | None
) -> Planner:
    """Return the planner of a run of one process.

    Args:
        series: a series that has prepared the run, so that the disk's profile is known.
        config, dataset: resolved configuration of the run, and its dataset.
        accelerator: training device, of which no memory is used.
        rest: as in `Planner`.
    """
    workload = workload_of_run(series, config, dataset)
    keep_bounds(workload, BatchBounds.of_plain(calibrate.batch_bounds(config, workload, series.cache)[0]))
    kind, cores = load(config.system), len(os.sched_getaffinity(0))
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
    return Planner(kind, workload, runtime, kind.info.options.model_validate(config.options), config.device, rest=rest)
