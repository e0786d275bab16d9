"""`outcore plan`: the buffers that a system plans under a memory, the least memory that it accepts, without running."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any

import typer

from harness.cli.common import OnBoth, takes_settings, unwind_on_signals
from harness.cli.run import SETTINGS
from harness.cli.table import print_lines, print_table
from harness.plan.experiment import PlannedRun, resolve
from harness.settings import RunSettings, check_options, check_settings
from workloads.dataset import find_dataset
from workloads.errors import HostError, require
from workloads.units import format_bytes


@takes_settings(*SETTINGS, required=("dataset",), pairs=True)
def plan(
    system: Annotated[str, typer.Argument(help="a system of `outcore systems`, or module:Class")],
    settings: RunSettings,
    call: OnBoth,
) -> None:
    """Print a system's plan, the least memory that it accepts, and the values of options at `auto`; nothing is run.

    Examples:
        outcore plan gnndrive --dataset small --memory +64MiB
    """
    from harness.foreign import is_foreign
    from harness.run.planning import budgets_of, planner_of
    from harness.run.series import Series
    from workloads.accelerators.make import make_accelerator

    check_settings(settings)
    require(not is_foreign(system), f"{system} plans in its own worker", "run it: the record holds the plan")
    require(settings.ranks == 1, f"a plan is of one process, and ranks is {settings.ranks}", "leave ranks out")
    check_options(system, settings.options)
    unwind_on_signals()
    with Series(call.results_root, call.data_root, isolation=settings.isolation, progress=call.progress()) as series:
        config = resolve(PlannedRun(system, settings), call.data_root, series.isolation.name)
        opened = find_dataset(str(settings.dataset), call.data_root)
        if reason := series.unsupported(config):
            raise HostError(reason, "choose another device, or another system")
        series.prepare([config], opened)
        given, found = config.device_memory_bytes, budgets_of(series, config, opened)
        host, rest, training = found.host, found.rest, found.training_device
        # The planned device may have more memory than this host: none of it is used.
        with closing(
            make_accelerator(config.device, memory_bytes=given, training_bytes=training, touch=False)
        ) as accelerator:
            device = accelerator.memory_bytes
            planner = planner_of(series, config, opened, accelerator, rest)
            with closing(planner.planned(host, device)) as planned:
                held = [*planned.plan().items, *planned.budget.held]
                chosen, least = planner.chosen(planned), planner.least(device)
    items = [{"name": item.name, "bytes": item.bytes, "tier": item.tier} for item in held]
    content: dict[str, Any] = {
        "system": system,
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
        "lowered": {name: {"value": value, "wanted": wanted} for name, (value, wanted) in planned.lowered.items()},
    }
    call.tell(content, lambda: _print(content, type(planner.options)))


def _print(content: dict[str, Any], options: Any) -> None:
    title = f"{content['system']} on {content['dataset']}, memory {content['memory']}"
    rows = [(item["tier"], item["name"], format_bytes(item["bytes"])) for item in content["plan"]]
    totals: dict[str, int] = {}
    for item in content["plan"]:
        totals[item["tier"]] = totals.get(item["tier"], 0) + item["bytes"]
    rows += [(tier, "in all", format_bytes(nbytes)) for tier, nbytes in totals.items()]
    print_table(("tier", "buffer", "size"), rows, title)
    if (budget := content["budget_bytes"]) is not None:
        cap = content["cap_bytes"]
        beside = "" if cap is None else f" (of {format_bytes(cap)}, beside interpreter, torch and a training step)"
        print_lines(f"budget {format_bytes(budget)}{beside}")
    if training := content["training_device_bytes"]:
        device = format_bytes(content["device_budget_bytes"])
        print_lines(f"device memory for buffers {device}, beside {format_bytes(training)} of training")
    if content["least_memory"] is not None:
        print_lines(f"least memory that it accepts: {content['least_memory']}")
    for name, value in content["auto"].items():
        of_size = isinstance(value, int) and options.model_fields[name].annotation is str
        lowered = content["lowered"].get(name)
        fewer = "" if lowered is None else f", {lowered['wanted']} with more memory"
        print_lines(f"auto: {name} {format_bytes(value) if of_size else value}{fewer}")
