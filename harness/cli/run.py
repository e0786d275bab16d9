"""`outcore run`: one run of one system under a cap."""

from __future__ import annotations

from typing import Annotated, Any

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


def run(
    system: Annotated[str, typer.Argument(help="a system of `outcore systems`, or module:Class")],
    dataset: Annotated[str, typer.Option("--dataset", help="name under the data root, or a path")],
    memory: Annotated[
        str, typer.Option(help="768MiB (cap), 0.25x (budget, share of the features), +64MiB (budget) or none")
    ] = "none",
    model: Annotated[str, typer.Option(help="sage, gcn or gat")] = "sage",
    layers: Annotated[int | None, typer.Option(help="as many as fanout has hops; shadow: any number")] = None,
    hidden: Annotated[int, typer.Option(help="hidden width")] = 256,
    fanout: Annotated[
        str, typer.Option(help="neighbours a hop, seed nodes' hop first; layerwise: nodes a layer")
    ] = "10,10,10",
    sampler: Annotated[str, typer.Option(help="neighbor, layerwise or shadow")] = "neighbor",
    batch_size: Annotated[int, typer.Option(help="seed nodes a mini-batch")] = 1000,
    max_batches: Annotated[int, typer.Option(help="at most so many mini-batches an epoch; 0: all")] = 0,
    epochs: Annotated[int, typer.Option(help="epochs, warm-up among them")] = 3,
    warmup: Annotated[int, typer.Option(help="epochs that are left out of the statistics")] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda or emulated:NAME")] = "cpu",
    device_memory: Annotated[str | None, typer.Option(help="of the device tier, like 2GiB")] = None,
    isolation: Annotated[str, typer.Option(help="auto, cgroup2, cgroup1, systemd, docker or none")] = "auto",
    disk_class: Annotated[str, typer.Option(help="SSD class of the run: none, NAME or NAME/k")] = "none",
    stages: Annotated[str, typer.Option(help="all, sample or sample+extract")] = "all",
    verify: Annotated[bool, typer.Option("--verify", help="feature digests in every epoch")] = False,
    test_nodes: Annotated[int, typer.Option(help="test accuracy over so many test nodes after the last epoch")] = 0,
    keep_order: Annotated[bool, typer.Option("--keep-order", help="train batches in the seed plan's order")] = False,
    timeout: Annotated[str, typer.Option(help="end the run after this, like 600s or 2h")] = "3600s",
    cores: Annotated[int, typer.Option(help="processor cores for the run; 0: all")] = 0,
    ranks: Annotated[int, typer.Option(help="processes that train each step together, by torchrun")] = 1,
    partition: Annotated[str, typer.Option(help="of the training nodes among ranks: none or self-reliant")] = "none",
    seed: Annotated[int, typer.Option(help="of sampling, shuffling and weights")] = 0,
    option: Annotated[list[str] | None, typer.Option("-o", "--option", help="key=value of the system")] = None,
    data_root: DataRoot = DATA,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run one system on one dataset under a memory cap; print its epochs, memory and verdict."""
    from harness.experiment import PlannedRun, RunSettings, check_options, check_settings, resolve, strict
    from harness.orchestrator import execute
    from harness.series import Series
    from workloads.dataset import find_dataset

    settings = strict(
        RunSettings,
        {
            "dataset": dataset,
            "memory": memory,
            "model": model,
            "layers": layers,
            "hidden": hidden,
            "fanout": fanout,
            "sampler": sampler,
            "batch_size": batch_size,
            "max_batches": max_batches,
            "epochs": epochs,
            "warmup": warmup,
            "device": device,
            "device_memory": device_memory,
            "isolation": isolation,
            "disk_class": disk_class,
            "stages": stages,
            "verify": verify,
            "keep_order": keep_order,
            "test_nodes": test_nodes,
            "timeout": timeout,
            "cores": cores,
            "ranks": ranks,
            "partition": partition,
            "seed": seed,
            "options": parse_options(option or []),
        },
        "",
    )
    check_settings(settings)
    check_options(system, settings.options)
    unwind_on_signals()
    progress = Progress(quiet=quiet or json_, verbose=verbose)
    with Series(results_root, data_root, isolation=isolation, progress=progress) as series:
        config = resolve(PlannedRun(system, settings), data_root, series.isolation.name)
        opened = find_dataset(dataset, data_root)
        series.prepare([config], opened)
        record = execute(series, config, opened, progress, refuse=True)
    progress.done()
    if json_:
        print_json(record.to_json())
    else:
        from harness.cli.table import console, epoch_table, summary_lines

        out = console()
        if record.epochs:
            out.print(epoch_table(record))
        for line in summary_lines(record):
            out.print(line, markup=False, highlight=False)
    # Out of memory and out of time are results; a failure and a host that cannot are not.
    code = {"failed": 1, "unsupported": 3}.get(record.status, 0)
    if code:
        raise typer.Exit(code)


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """`key=value` as YAML would read the value: numbers, true/false, lists, else text.

    Raises:
        InputError: there is no `=`.
    """
    import yaml

    from workloads.errors import InputError

    options: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise InputError(f"option {pair!r} has no value", "write it like -o key=value")
        try:
            options[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            options[key.strip()] = value
    return options


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("run")(run)
