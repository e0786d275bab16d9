"""Test accuracy of a run's models, measured after the run and outside its cap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.foreign import is_foreign
from harness.isolation.base import Limits
from harness.run.launch import Ending, Worker
from harness.run.series import Series
from harness.wire.protocol import WorkerSpec

_LEAST_TIMEOUT_S = 60.0


def add_test_accuracy(
    series: Series,
    spec: WorkerSpec,
    folder: Path,
    log: Path,
    ending: Ending,
    progress: Callable[[str], None],
) -> str:
    """Add the test accuracy by epoch to the ending of a run that kept its models, where
    the run asks for it.

    Args:
        series: backend, whose cap is without a limit here.
        spec, folder, log: spec, scratch folder and log of the run's worker.
        ending: end of the run. A foreign system reports its own accuracy.
        progress: called with a text for each step.

    Returns:
        The reason why there is no accuracy; empty where there is one or none was asked
        for.
    """
    config = spec.config
    if not config.test_nodes or ending.status != "ok" or is_foreign(config.system):
        return ""
    # One process evaluates for all ranks: the draws of a mini-batch do not depend on
    # them.
    alone = config.model_copy(update={"ranks": 1, "partition": "none"})
    task = spec.model_copy(
        update={"mode": "evaluate", "config": alone, "partition": None, "pools": []}
    )
    timeout_s = max(_LEAST_TIMEOUT_S, config.timeout_s)
    name = f"evaluate-{folder.name}"
    progress("testing the models")
    with (
        series.isolation.create(name, Limits()) as cap,
        Worker(cap, task, folder, log, series.hidden) as worker,
    ):
        tested = worker.watch(timeout_s, lambda event: None)
    if not tested.test_accuracy:
        return f"the test accuracy was not measured: {tested.reason or tested.status}"
    ending.test_accuracy = tested.test_accuracy
    ending.notes["test_accuracy"] = f"{tested.test_accuracy[-1]:.6f}"
    return ""
