"""`outcore advise`: rank the systems for a graph, a memory and a disk without running
them."""

from __future__ import annotations

import os
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.common import OnRuns, takes_settings, unwind_on_signals
from harness.cli.table import Wide, console, print_lines, print_table
from harness.plan.experiment import PlannedRun, resolve
from harness.progress import Progress
from harness.settings import RunSettings, check_settings
from workloads.dataset import find_dataset
from workloads.errors import HostError, InputError
from workloads.units import format_bytes

if TYPE_CHECKING:
    from harness.advise.advice import Advice, AdviceSetting, RankedSystem
    from systems.forecast import Trace
    from systems.interface import DiskProfile


@takes_settings(
    *(
        "memory model hidden fanout sampler batch_size max_batches device "
        "device_memory disk_class isolation"
    ).split(),
    required=("memory",),
    memory="8GiB (all there is), +64MiB (for data) or 0.25x (of the features)",
)
def advise(
    dataset: Annotated[
        str,
        typer.Argument(
            help="name under the data root, or a path; with --published, of a graph"
        ),
    ],
    settings: RunSettings,
    table: Wide,
    call: OnRuns,
    epochs: Annotated[int, typer.Option(help="of the whole training")] = 20,
    batches: Annotated[
        int, typer.Option(help="mini-batches of an epoch to sample and simulate")
    ] = 40,
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system", help="rank only these; a system of your own as module:Class"
        ),
    ] = None,
    drive: Annotated[
        str | None,
        typer.Option(
            help="a disk that is not here: a saved profile, its file, or a class NAME/k"
        ),
    ] = None,
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="predict from the statistics of friendster, papers100m, mag240m, "
            "igb260m",
        ),
    ] = False,
    dim: Annotated[
        int, typer.Option(help="with --published: feature columns; 0: as published")
    ] = 0,
) -> None:
    """Rank the systems by the predicted time of a whole training.

    A share of an epoch is sampled and every system's reads are simulated on the disk's
    profile. Nothing is trained, and what is printed is a prediction.

    Examples:
        outcore advise kron-2m --memory 8GiB
        outcore advise papers100m --published --memory 0.1x --drive aws-nvme
    """
    from harness.advise.advice import advise as predicted
    from harness.advise.published import advise_published
    from harness.advise.published import published as published_graph
    from harness.drives.whatif import device_of

    if batches < 1 or epochs < 1:
        raise InputError(
            "batches and epochs are 1 or more", "raise the one that is not"
        )
    settings = settings.model_copy(
        update={"dataset": dataset, "epochs": 1, "warmup": 0}
    )
    check_settings(settings)
    if dim and not published:
        raise InputError(
            "--dim is for --published; a dataset has its own", "leave it out"
        )
    unwind_on_signals()
    more = {}
    with call.progress() as progress:
        if published:
            graph = published_graph(dataset)
            if drive is None:
                fix = "give --drive, like aws-nvme or a saved profile"
                raise InputError(
                    "a published graph is predicted for a drive that is named", fix
                )
            device = device_of(drive, call.results_root)
            found, host = advise_published(
                replace(graph, dim=dim) if dim else graph,
                settings,
                device.profile,
                epochs=epochs,
                batches=batches,
                systems=system,
                cores=len(os.sched_getaffinity(0)),
                progress=progress,
            )
            more = {"statistics": graph.source, "drive": device.name}
        else:
            setting, profile = _measured(
                settings, epochs, batches, drive, call, progress
            )
            host = setting.host
            found = predicted(
                setting, profile, batches=batches, systems=system, progress=progress
            )
    content = {
        "prediction": True,
        "host_budget_bytes": host,
        "epochs": epochs,
        "batches_sampled": found.trace.sampled,
        "batches": found.trace.num_batches,
        "measured": {
            **{
                name: getattr(found.trace, name)
                for name in "train_spread sample_spread rounds others_cpu".split()
            },
            "disk_slack": max(
                (entry.disk_slack for entry in found.ranked), default=1.0
            ),
        },
        "ranked": [
            {"rank": rank, **_forecast(entry, epochs)}
            for rank, group in enumerate(found.groups, 1)
            for entry in group
        ],
        "refused": {entry.system: entry.refused for entry in found.refused},
        "least_memory": found.least,
        "changes": {
            text: _forecast(entry, epochs) for text, entry in found.changes.items()
        },
    }
    call.emit(
        content | more, lambda: _print(found, host, epochs, more, wide=table.wide)
    )
    if not found.ranked:
        raise typer.Exit(3)


def _measured(
    settings: RunSettings,
    epochs: int,
    batches: int,
    drive: str | None,
    call: OnRuns,
    progress: Progress,
) -> tuple[AdviceSetting, DiskProfile]:
    """Return the conditions for a stored dataset on this host, and the profile of its
    disk or of the drive named."""
    from harness.advise.advice import AdviceSetting, check_limit
    from harness.drives.whatif import device_of
    from harness.run.planning import budgets_of
    from harness.run.series import Series
    from harness.run.spec import workload_of_run

    opened = find_dataset(str(settings.dataset), call.data_root)
    check_limit(settings.memory)
    with Series(
        call.results_root,
        call.data_root,
        isolation=settings.isolation,
        progress=progress,
        places=call.places,
    ) as series:
        config = resolve(
            PlannedRun("gnndrive", settings), call.data_root, series.isolation.name
        )
        workload = workload_of_run(series, config, opened)
        # Calibrate on the sampled share alone: its largest mini-batch is about as large
        # as the epoch's.
        few = min(batches, settings.max_batches) if settings.max_batches else batches
        config = config.model_copy(update={"max_batches": few})
        series.prepare([config], opened)
        profile = (
            series.profile(config)
            if drive is None
            else device_of(drive, call.results_root).profile
        )
        if profile is None or not profile.points:
            raise HostError(
                "the disk could not be profiled, so nothing can be predicted",
                "see `outcore doctor`",
            )
        found = budgets_of(series, config, opened)
    assert found.host is not None
    cores = len(os.sched_getaffinity(0))
    return AdviceSetting(
        workload,
        config.device,
        found.device,
        found.host,
        epochs,
        cores,
        rest=found.rest,
    ), profile


def _forecast(entry: RankedSystem, epochs: int) -> dict[str, Any]:
    return {
        "system": entry.system,
        "options": entry.options,
        "total_s": entry.total_s(epochs),
        "total_interval_s": entry.interval_s(epochs),
        **{
            name: getattr(entry, name)
            for name in ("epoch_s", "prepare_s", "each_s", "bound", "bytes_read")
        },
        "requests_by_size": {
            str(size): round(count) for size, count in sorted(entry.reads.items())
        },
        "why": entry.why,
    }


def _total(entry: RankedSystem, epochs: int) -> str:
    low, high = entry.interval_s(epochs)
    total = f"{entry.total_s(epochs):,.1f}"
    return total if low == high else f"{total} [{low:,.1f}, {high:,.1f}]"


def _measurement(trace: Trace, slack: float) -> list[str]:
    """Return a line on the spread of the measured times and the load beside them; none
    if nothing was measured."""
    from systems.forecast import EXACT

    spreads = {
        f"training in {trace.rounds} rounds": trace.train_spread,
        "sampling": trace.sample_spread,
    }
    found = [
        f"{name} {low:.2f} to {high:.2f} x"
        for name, (low, high) in spreads.items()
        if (low, high) != EXACT
    ]
    load = f"others took {100 * trace.others_cpu:.0f} % of the processors"
    reported = (
        [f"spread of the measurements: {', '.join(found)}; {load}"] if found else []
    )
    return reported + (
        [f"the disk was profiled beside others, and may be {slack:.1f} x as fast"]
        if slack > 1
        else []
    )


def _one_line(text: str) -> str:
    """Return the beginning of a reason that fits one line of the terminal; `--json` has
    the whole reason."""
    return textwrap.shorten(text, console().width, placeholder=" ...")


def _print(
    found: Advice, host: int, epochs: int, more: dict[str, Any], *, wide: bool
) -> None:
    trace = found.trace
    counts = (
        f"{epochs} epochs of {trace.num_batches} mini-batches ({trace.sampled} sampled)"
    )
    title = (
        f"{trace.workload.dataset.name}, {format_bytes(host)} for data, {counts}: "
        "predictions"
    )
    rows = []
    for rank, entry in (
        (rank, entry) for rank, group in enumerate(found.groups, 1) for entry in group
    ):
        system = " ".join(
            [
                entry.system,
                *(f"-o {key}={value}" for key, value in entry.options.items()),
            ]
        )
        cost = entry.cost
        times = (
            _total(entry, epochs),
            f"{cost.fresh_epoch_s:,.2f}",
            f"{cost.each_s:,.2f}",
            f"{cost.once_s:,.1f}",
        )
        rows.append(
            (
                str(rank),
                system,
                *times,
                entry.bound,
                format_bytes(round(entry.bytes_read)),
                entry.why,
            )
        )
    heads = (
        "rank",
        "system",
        "total s",
        "epoch s",
        "offline s",
        "once s",
        "waits for",
        "reads",
        "why",
    )
    if rows:
        print_table(
            heads,
            rows,
            title,
            prose=("why",),
            hidden=() if wide else ("offline s", "once s", "why"),
        )
    if found.ranked and len(equal := found.groups[0]) > 1:
        names = ", ".join(entry.system for entry in equal)
        print_lines(f"equal within the spread, the simplest first: {names}")
    print_lines(
        *_measurement(
            trace, max((entry.disk_slack for entry in found.ranked), default=1.0)
        )
    )
    refused = [one for one in found.refused if one.system not in found.least]
    reasons = [f"{one.system}: {one.refused}" for one in refused]
    shown = [_one_line(reason) for reason in reasons]
    print_lines(
        *shown,
        *(
            ["`--json` has the reasons that end in ... whole"]
            if shown != reasons
            else []
        ),
    )
    if found.least:
        print_lines(
            "nothing fits; least memory: "
            f"{', '.join(f'{name} {size}' for name, size in found.least.items())}"
        )
    for text, entry in found.changes.items():
        seconds = (
            f"{entry.total_s(epochs):,.1f} s ({entry.cost.fresh_epoch_s:,.2f} s an "
            "epoch)"
        )
        print_lines(f"with {text} the fastest would be {entry.system}: {seconds}")
    if more:
        note = f"predicted for {more['drive']} from statistics ({more['statistics']})"
        print(f"{note}; sampling's processor time is not in it")
