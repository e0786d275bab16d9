"""Plans of a sweep's runs before any of them is executed: which fit their memory, and
the least memory of the others.

Nothing is allocated, profiled or calibrated: a cap's share for interpreter, torch and
training is subtracted where an earlier run has measured it, and the disk's profile is
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from harness.foreign import is_foreign
from harness.plan.experiment import PlannedRun, resolve
from harness.progress import tracked
from harness.records.record import RunConfig
from harness.run import calibrate
from harness.run.planning import planner_of
from harness.run.series import Series
from harness.settings import parse_memory
from systems.planning import MIB
from workloads.accelerators.make import make_accelerator
from workloads.dataset import Dataset, find_dataset
from workloads.errors import DatasetError, HostError, InputError

Progress = Callable[[str], None]


@dataclass(frozen=True)
class DryPlan:
    """The plan of one cell of a sweep.

    Attributes:
        fits: whether the plan fits the run's memory; None where nothing was planned,
            for the reason in `reason`.
        least: least memory with which the plan fits, as a setting (`+12MiB`, `8MiB of
            device memory`); empty where the plan fits, or where no memory helps.
        least_bytes: the same in bytes.
        whole_cap: whether the run's memory is a cap of which nothing was subtracted for
            interpreter, torch and a training step, since no run measured these yet: the
            plan may fit less well, and the least is too small.
    """

    run: PlannedRun
    fits: bool | None
    reason: str = ""
    least: str = ""
    least_bytes: int = 0
    whole_cap: bool = False


def dry_plans(
    cells: Sequence[PlannedRun],
    results_root: Path,
    data_root: Path,
    *,
    isolation: str = "auto",
    progress: Progress = lambda text: None,
) -> list[DryPlan]:
    """Plan each cell of a sweep once, whatever its rounds; sizes of mini-batches are
    kept for the runs.

    Args:
        cells: planned runs, in any order.
        results_root, data_root: folders of records (for the cache) and of datasets.
        isolation: isolation backend of the sweep.
        progress: display of the progress.
    """
    once = list({cell.key: cell for cell in cells}.values())
    try:
        # Never entered: a dry run takes no lock, and no turn from a sweep that is
        # measuring.
        series = Series(results_root, data_root, isolation=isolation, progress=progress)
    except HostError as error:
        return [DryPlan(cell, None, str(error)) for cell in once]
    return [
        _plan(series, cell)
        for cell in tracked(
            progress, once, "planning", "runs", lambda cell: cell.system
        )
    ]


def _plan(series: Series, cell: PlannedRun) -> DryPlan:
    """Plan one cell, where that can be done without its worker."""
    if is_foreign(cell.system):
        return DryPlan(cell, None, f"{cell.system} plans in its own worker")
    if cell.settings.ranks > 1:
        return DryPlan(cell, None, "a plan is of one process, and ranks is more")
    try:
        dataset = find_dataset(str(cell.settings.dataset), series.data_root)
    except DatasetError:
        return DryPlan(cell, None, f"dataset {cell.settings.dataset} is not made yet")
    config = resolve(cell, series.data_root, series.isolation.name)
    if reason := series.unsupported(config):
        return DryPlan(cell, None, reason)
    try:
        return _planned(series, cell, config, dataset)
    except HostError as error:  # a library of the system is missing
        return DryPlan(cell, None, str(error))
    except InputError as error:
        return DryPlan(cell, False, str(error))


def _planned(
    series: Series, cell: PlannedRun, config: RunConfig, dataset: Dataset
) -> DryPlan:
    """Plan a run with the memory that is known to be left for its buffers.

    Raises:
        InputError: a cap is below what an empty run takes, or training takes all the
            device memory.
        HostError: a library of the system is not installed.
    """
    wanted = parse_memory(config.memory, dataset.feature_bytes)
    measured = calibrate.kept(series, config)
    host = wanted.budget_bytes
    rest = None
    device = config.device_memory_bytes
    if wanted.cap_bytes is not None:
        host = wanted.cap_bytes
        rest = 0
    if measured is not None:
        device = calibrate.device_budget(config, measured)
        _, host = calibrate.memory_of(config, dataset, measured)
        rest = (
            None
            if wanted.cap_bytes is None or host is None
            else wanted.cap_bytes - host
        )
    whole_cap = wanted.cap_bytes is not None and measured is None
    training = None if measured is None else measured.training_device_bytes
    given = config.device_memory_bytes
    with closing(
        make_accelerator(
            config.device, memory_bytes=given, training_bytes=training, touch=False
        )
    ) as tier:
        planner = planner_of(series, config, dataset, tier, rest)
        if planner.fits(host, device):
            return DryPlan(cell, True, whole_cap=whole_cap)
        least = planner.least(device) if host is not None else None
        if least is not None:
            text = planner.written(least)
            size = least + (rest or 0)
            return DryPlan(
                cell, False, least=text, least_bytes=size, whole_cap=whole_cap
            )
        on_device = planner.least_device() if device is not None else None
        if on_device is not None:
            size = on_device + (training or 0)
            return DryPlan(
                cell,
                False,
                least=f"{size // MIB}MiB of device memory",
                least_bytes=size,
            )
    return DryPlan(cell, False, "no memory is enough with these settings")
