"""`outcore run`: one run of one system under a cap."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.common import (
    DATA,
    RESULTS,
    DataRoot,
    Json,
    Progress,
    Quiet,
    ResultsRoot,
    Verbose,
    print_json,
    unwind_on_signals,
)
from harness.cli.settings import takes_settings
from harness.settings import RunSettings


@takes_settings(
    *"dataset memory model layers hidden fanout sampler batch_size max_batches epochs warmup device".split(),
    *"device_memory isolation disk_class stages verify test_nodes keep_order timeout".split(),
    *"cores ranks partition seed".split(),
    required=("dataset",),
)
def run(
    system: Annotated[str, typer.Argument(help="a system of `outcore systems`, or module:Class")],
    settings: RunSettings,
    option: Annotated[list[str] | None, typer.Option("-o", "--option", help="key=value of the system")] = None,
    data_root: DataRoot = DATA,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run one system on one dataset under a memory cap; print its epochs, memory and verdict."""
    from harness.plan.experiment import PlannedRun, check_options, check_settings, resolve
    from harness.run.orchestrator import execute
    from harness.run.series import Series
    from workloads.dataset import find_dataset

    check_settings(settings)
    check_options(system, settings.options)
    unwind_on_signals()
    progress = Progress(quiet=quiet or json_, verbose=verbose)
    with Series(results_root, data_root, isolation=settings.isolation, progress=progress) as series:
        config = resolve(PlannedRun(system, settings), data_root, series.isolation.name)
        opened = find_dataset(str(settings.dataset), data_root)
        series.prepare([config], opened)
        record = execute(series, config, opened, progress, refuse=True)
    progress.done()
    if json_:
        print_json(record.to_json())
    else:
        from harness.cli.table import epoch_table, summary_lines
        from harness.table import console

        out = console()
        if record.epochs:
            out.print(epoch_table(record))
        for line in summary_lines(record):
            out.print(line, markup=False, highlight=False)
    # `oom` and `timeout` are results; `failed` and `unsupported` are not.
    code = {"failed": 1, "unsupported": 3}.get(record.status, 0)
    if code:
        raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("run")(run)
