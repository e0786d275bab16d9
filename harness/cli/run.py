"""`outcore run`: one run of one system under a cap."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.common import OnRuns, takes_settings, unwind_on_signals
from harness.cli.rules import read_on
from harness.cli.run_tables import print_epochs, summary_lines
from harness.cli.table import Wide, print_lines
from harness.plan.experiment import PlannedRun, resolve
from harness.settings import RunSettings, check_options, check_settings
from workloads.dataset import find_dataset

#: Settings that are options of `outcore run` and `outcore plan`, in the order of
#: `--help`.
SETTINGS = (
    *(
        "dataset memory model layers hidden fanout sampler batch_size max_batches "
        "epochs warmup device"
    ).split(),
    *(
        "device_memory isolation disk_class stages verify test_nodes keep_order timeout"
    ).split(),
    *"cores ranks partition seed".split(),
)


@takes_settings(*SETTINGS, required=("dataset",), pairs=True)
def run(
    system: Annotated[
        str, typer.Argument(help="a system of `outcore systems`, or module:Class")
    ],
    settings: RunSettings,
    table: Wide,
    call: OnRuns,
) -> None:
    """Run one system on one dataset under a memory cap; print its epochs, memory and
    verdict.

    Examples:
        outcore run gnndrive --dataset kron-2m --memory +64MiB
        outcore run diskgnn --dataset kron-2m --memory 0.25x -o host_cache=16MiB
    """
    from harness.run.orchestrator import execute
    from harness.run.series import Series

    check_settings(settings)
    check_options(system, settings.options)
    unwind_on_signals()
    progress = call.progress()
    with Series(
        call.results_root,
        call.data_root,
        isolation=settings.isolation,
        progress=progress,
        places=call.places,
    ) as series:
        config = resolve(
            PlannedRun(system, settings), call.data_root, series.isolation.name
        )
        opened = find_dataset(str(settings.dataset), call.data_root)
        series.prepare([config], opened)
        record = execute(series, config, opened, progress, refuse=True)

    def shown() -> None:
        print_epochs(record, wide=table.wide)
        print_lines(*summary_lines(record), *read_on(record))

    call.emit(record.to_json(), shown)
    # `oom` and `timeout` are results; `failed` and `unsupported` are not.
    if code := {"failed": 1, "unsupported": 3}.get(record.status, 0):
        raise typer.Exit(code)
