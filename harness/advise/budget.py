"""The budget for data under a memory setting; a cap is reduced by the measured memory of an empty run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.records.record import RunConfig
    from harness.run.series import Series
    from harness.settings import MemorySetting
    from workloads.dataset import Dataset


def limit_of(memory: str, dataset: Dataset) -> MemorySetting:
    """Return a memory setting for which advice is possible: a cap or a budget.

    Raises:
        InputError: the memory is `none`, or is not a setting of memory.
    """
    from harness.settings import parse_memory
    from workloads.errors import InputError

    wanted = parse_memory(memory, dataset.feature_bytes)
    if wanted.budget_bytes is None and wanted.cap_bytes is None:
        raise InputError("advice needs a limit of memory", "give --memory, like 8GiB (all of it), +64MiB or 0.25x")
    return wanted


def budget_of(series: Series, config: RunConfig, dataset: Dataset) -> int:
    """Return the host budget in bytes under `config.memory`: a budget itself, or a cap less interpreter, torch, a step.

    Raises:
        InputError: the memory is `none`, or below the memory of an empty run.
        HostError: an empty run could not be measured.
    """
    from harness.run import calibrate
    from harness.run.spec import worker_spec

    wanted = limit_of(config.memory, dataset)
    if wanted.budget_bytes is not None:
        return wanted.budget_bytes
    with series.scratch() as folder:
        with worker_spec(series, config, dataset, folder, folder.name) as (spec, _):
            measured = calibrate.calibrate(series, spec, folder)
        budget = calibrate.memory_of(config, dataset, measured)[1]
        assert budget is not None
        return budget
