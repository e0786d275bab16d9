"""`outcore plan`: the buffers of a run or a loader under a memory, the least memory
that it accepts; nothing is run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.common import OnRuns, Progress, takes_settings, unwind_on_signals
from harness.cli.run import SETTINGS
from harness.cli.table import print_lines, print_table
from harness.plan.experiment import PlannedRun, resolve
from harness.settings import RunSettings, check_options, check_settings
from workloads.dataset import find_dataset
from workloads.errors import HostError, require
from workloads.units import format_bytes

#: Settings that a loader does not have, or that its user's loop decides.
_OF_RUNS = (
    *"model hidden epochs warmup isolation disk_class stages verify test_nodes".split(),
    *"keep_order ranks partition".split(),
)


@takes_settings(*SETTINGS, required=("dataset",), pairs=True)
def plan(
    system: Annotated[
        str, typer.Argument(help="a system of `outcore systems`, or module:Class")
    ],
    settings: RunSettings,
    call: OnRuns,
    loader: Annotated[
        bool,
        typer.Option(
            "--loader", help="plan outcore.loader, which hands rows out to a loop"
        ),
    ] = False,
) -> None:
    """Print a system's plan, the least memory that it accepts, and the values of
    options at `auto`; nothing is run.

    Examples:
        outcore plan gnndrive --dataset small --memory +64MiB
        outcore plan gnndrive --dataset small --memory 0.5x --loader
    """
    from harness.foreign import is_foreign
    from harness.foreign.systems import system_info
    from harness.run.planning import budgets_of, planner_of
    from harness.run.series import Series
    from workloads.accelerators.make import make_accelerator

    check_settings(settings)
    require(
        not is_foreign(system),
        f"{system} plans in its own worker",
        "run it: the record holds the plan",
    )
    require(
        settings.ranks == 1,
        f"a plan is of one process, and ranks is {settings.ranks}",
        "leave ranks out",
    )
    check_options(system, settings.options)
    unwind_on_signals()
    if loader:
        content = _of_loader(system, settings, call.data_root, call.progress())
        call.emit(content, lambda: _print(content, system_info(system).options))
        return
    with Series(
        call.results_root,
        call.data_root,
        isolation=settings.isolation,
        progress=call.progress(),
        places=call.places,
    ) as series:
        config = resolve(
            PlannedRun(system, settings), call.data_root, series.isolation.name
        )
        opened = find_dataset(str(settings.dataset), call.data_root)
        if reason := series.unsupported(config):
            raise HostError(reason, "choose another device, or another system")
        series.prepare([config], opened)
        given = config.device_memory_bytes
        found = budgets_of(series, config, opened)
        host = found.host
        rest = found.rest
        training = found.training_device
        # The planned device may have more memory than this host: none of it is used.
        with closing(
            make_accelerator(
                config.device, memory_bytes=given, training_bytes=training, touch=False
            )
        ) as accelerator:
            device = accelerator.memory_bytes
            planner = planner_of(series, config, opened, accelerator, rest)
            with closing(planner.planned(host, device)) as planned:
                held = [*planned.plan().items, *planned.budget.held]
                chosen = planner.chosen(planned)
                least = planner.least(device)
    items = [
        {"name": item.name, "bytes": item.bytes, "tier": item.tier} for item in held
    ]
    content = {
        "system": system,
        "of_loader": False,
        "dataset": opened.name,
        "memory": config.memory,
        "budget_bytes": host,
        "cap_bytes": None if host is None or rest is None else host + rest,
        "device_budget_bytes": device,
        "training_device_bytes": training,
        "plan": items,
        "least_memory": None if least is None else planner.written(least),
        "least_budget_bytes": least,
        "auto": chosen,
        "lowered": {
            name: {"value": value, "wanted": wanted}
            for name, (value, wanted) in planned.lowered.items()
        },
    }
    call.emit(content, lambda: _print(content, type(planner.options)))


def _of_loader(
    system: str, settings: RunSettings, data_root: Path, progress: Progress
) -> dict[str, Any]:
    """Return the plan of the loader itself, which is made and not prepared.

    Raises:
        BudgetError: the plan does not fit; names the least memory that does.
    """
    from systems.loading import Loader
    from systems.planning import MIB

    for name in _OF_RUNS:
        value = getattr(settings, name)
        default = RunSettings.model_fields[name].default
        require(
            value == default,
            f"{name} is {value}, a setting of runs, and --loader plans a loader",
            "leave it out",
        )
    dataset = find_dataset(str(settings.dataset), data_root)
    with (
        progress,
        Loader(
            dataset,
            system=system,
            memory=settings.memory,
            fanout=settings.fanout,
            batch_size=settings.batch_size,
            device=settings.device,
            device_memory=settings.device_memory,
            options=settings.options,
            seed=settings.seed,
            sampler=settings.sampler,
            replace=settings.replace,
            layers=settings.layers or 0,
            shuffle=settings.shuffle,
            max_batches=settings.max_batches,
            form="plain",
            edges="layers",
            faithful=False,
            cores=settings.cores,
            progress=progress.stage,
        ) as made,
    ):
        least = made.least_memory()
        items = [
            {"name": item.name, "bytes": item.bytes, "tier": item.tier}
            for item in made.plan.items
        ]
        host, device = made.memory_bytes
        return {
            "system": system,
            "of_loader": True,
            "dataset": dataset.name,
            "memory": settings.memory,
            "budget_bytes": host,
            "cap_bytes": None,
            "device_budget_bytes": device,
            "training_device_bytes": None,
            "plan": items,
            "least_memory": None if least is None else f"{least // MIB}MiB",
            "least_budget_bytes": least,
            "auto": made.chosen,
            "lowered": {
                name: {"value": value, "wanted": wanted}
                for name, (value, wanted) in made.lowered.items()
            },
        }


def _print(content: dict[str, Any], options: Any) -> None:
    of = "a loader by " if content["of_loader"] else ""
    title = (
        f"{of}{content['system']} on {content['dataset']}, memory {content['memory']}"
    )
    rows = [
        (item["tier"], item["name"], format_bytes(item["bytes"]))
        for item in content["plan"]
    ]
    totals: dict[str, int] = {}
    for item in content["plan"]:
        totals[item["tier"]] = totals.get(item["tier"], 0) + item["bytes"]
    rows += [(tier, "in all", format_bytes(nbytes)) for tier, nbytes in totals.items()]
    print_table(("tier", "buffer", "size"), rows, title)
    if (budget := content["budget_bytes"]) is not None:
        cap = content["cap_bytes"]
        beside = (
            ""
            if cap is None
            else f" (of {format_bytes(cap)}, beside interpreter, torch and a training "
            "step)"
        )
        print_lines(f"budget {format_bytes(budget)}{beside}")
    if training := content["training_device_bytes"]:
        device = format_bytes(content["device_budget_bytes"])
        print_lines(
            f"device memory for buffers {device}, beside {format_bytes(training)} of "
            "training"
        )
    if content["least_memory"] is not None:
        print_lines(f"least memory that it accepts: {content['least_memory']}")
    if not content["of_loader"]:
        print_lines(
            "outcore.loader also holds the mini-batches that it hands out: --loader "
            "plans it"
        )
    for name, value in content["auto"].items():
        of_size = (
            isinstance(value, int) and options.model_fields[name].annotation is str
        )
        lowered = content["lowered"].get(name)
        fewer = "" if lowered is None else f", {lowered['wanted']} with more memory"
        print_lines(f"auto: {name} {format_bytes(value) if of_size else value}{fewer}")
