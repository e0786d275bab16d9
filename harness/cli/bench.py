"""`outcore bench`: a sweep with resume, then its figures and the headline table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.common import OnRuns, unwind_on_signals
from harness.cli.dry_run import Plans
from harness.cli.run_tables import print_headline
from harness.cli.table import Wide, print_lines
from harness.compare.comparable import comparable
from harness.compare.epochs import part_of_epoch, with_part
from harness.compare.plan import keep
from harness.compare.rows import Rows, rows_of
from harness.figures.base import Figure, chosen
from harness.plan.experiment import Experiment, PlannedRun, load_experiment
from harness.progress import Progress
from harness.records.hosts import check_label
from harness.records.record import Record
from harness.settings import parse_seconds
from harness.studies.sweep import Studied, StudySweep
from workloads.errors import InputError
from workloads.units import format_bytes

if TYPE_CHECKING:
    from harness.figures.render import Rendered
    from harness.run.sweep import Sweep


def bench(
    table: Wide,
    call: OnRuns,
    experiment: Annotated[
        Path | None,
        typer.Argument(help="an experiment in YAML or JSON; else a profile"),
    ] = None,
    profile: Annotated[
        str, typer.Option(help="smoke, quick, systems, standard or paper")
    ] = "quick",
    figures: Annotated[
        str, typer.Option(help="headline, all, ids with commas; none: marks stale ones")
    ] = "headline",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="plan every run; show bytes and time; run nothing"
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="run again what has a record already")
    ] = False,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry/--no-retry", help="run again what other work on this host spoilt"
        ),
    ] = True,
    isolation: Annotated[
        str, typer.Option(help="auto, cgroup2, cgroup1, systemd, docker or none")
    ] = "auto",
    hosts: Annotated[
        str | None,
        typer.Option(
            help="ray://HOST:PORT of a cluster: run on its labelled hosts, collect here"
        ),
    ] = None,
    host_labels: Annotated[
        str | None, typer.Option(help="only hosts of these labels, separated by commas")
    ] = None,
    wait_for_hosts: Annotated[
        str, typer.Option(help="how long a label without a host is waited for")
    ] = "60s",
) -> None:
    """Compare systems: every run of the experiment that has no record yet, then figures
    and the headline table.

    Examples:
        outcore bench --profile quick
        outcore bench mine.yaml --figures gnndrive-fig9 --dry-run
    """
    from harness.report.outdated import Outdated, mark_outdated
    from harness.run.series import Series
    from harness.run.sweep import Sweep

    labels = _labels(host_labels, hosts)
    wait_s = parse_seconds(wait_for_hosts, "--wait-for-hosts")
    base = load_experiment(experiment if experiment is not None else profile)
    results_root = call.results_root
    progress = call.progress()
    # What the figures need beyond the profile's own runs.
    requested = [] if figures == "none" else chosen(figures)
    drawn_too = [] if figures == "none" else figures_of(base)
    wanted = [] if figures == "headline" else requested
    plain = base.model_dump()
    everything = [
        base,
        *(experiment for figure in wanted for experiment in figure.experiments(plain)),
    ]
    needs = [need for figure in wanted for need in figure.studies(plain)]
    sweep = Sweep(
        everything,
        results_root,
        call.data_root,
        progress,
        fresh=fresh,
        retry=retry,
        isolation=isolation,
    )
    studies = StudySweep(
        needs,
        results_root,
        call.data_root,
        progress,
        fresh=fresh,
        scratch=call.places.scratch,
    )
    if dry_run:
        _tell_estimate(sweep, studies, call)
        return
    unwind_on_signals()
    keep(results_root, base, [figure.id for figure in requested])
    if hosts is not None:
        from harness.hosts.modules import read_modules
        from harness.hosts.orders import Content
        from harness.hosts.ray_fleet import RayFleet
        from harness.hosts.sweep import FleetSweep

        orders = Content(
            experiments=[one.model_dump(mode="json") for one in everything],
            isolation=sweep.isolation,
            fresh=fresh,
            retry=retry,
            modules=read_modules(sweep.planned),
        )
        with RayFleet(hosts, orders, progress.keep) as fleet:
            spread = FleetSweep(
                fleet,
                orders,
                sweep.planned,
                results_root,
                progress.keep,
                labels=labels,
                wait_s=wait_s,
            )
            with progress.during(spread.reading):
                outcome = spread.run()
        studied = Studied()
    else:
        with Series(
            results_root,
            call.data_root,
            isolation=sweep.isolation,
            progress=progress,
            places=call.places,
        ) as series:
            outcome = sweep.run(series, lambda record: progress.keep(_line(record)))
            studied = studies.run()
    drawn: list[Rendered] = []
    report = None
    if figures != "none":
        progress.title("figures and report")
        drawn = _draw([*requested, *drawn_too], results_root, progress)
        report = _report(results_root, progress)
        outdated = Outdated(None, [])
    else:
        outdated = mark_outdated(results_root, progress)
    rows = rows_of(base, [*outcome.earlier, *outcome.records])
    content = {
        "experiment": base.name,
        "skipped": outcome.skipped,
        "made_elsewhere": outcome.elsewhere,
        "records": [record.to_json() for record in outcome.records],
        "hosts_left_out": outcome.left_out,
        "labels_without_runs": outcome.problems,
        "studies": [record.model_dump(mode="json") for record in studied.records],
        "studies_failed": studied.failed,
        "rows": [record.run_id for record in rows.records],
        "not_run": [planned_as_dict(run) for run in rows.not_run],
        "report": None if report is None else str(report),
        "figures": [drawn_as_dict(entry) for entry in drawn],
        "outdated": outdated.to_json(),
    }

    def shown() -> None:
        _print_rows(base, rows, wide=table.wide)
        print_lines(*map(_where, drawn), f"records: {results_root / 'runs'}")
        if report is not None:
            print(f"report: {report}")
        print_lines(*outdated.lines(results_root))
        for host, reason in outcome.left_out.items():
            print(f"host {host} was left out: {reason}", file=sys.stderr)
        for label, reason in outcome.problems.items():
            print(f"hosts {label}: {reason}", file=sys.stderr)
        for name, reason in studied.failed.items():
            print(f"study {name}: {reason}", file=sys.stderr)

    call.emit(content, shown)
    if (
        studied.failed
        or outcome.problems
        or any(record.status == "failed" for record in outcome.records)
    ):
        raise typer.Exit(1)


def _labels(text: str | None, hosts: str | None) -> list[str]:
    """Return the labels of `--host-labels`. Raises InputError: one is not a label, or
    `--hosts` is missing."""
    labels = [label.strip() for label in (text or "").split(",") if label.strip()]
    if text is not None and hosts is None:
        raise InputError(
            "--host-labels needs --hosts", "add --hosts ray://HOST:10001 of the cluster"
        )
    for label in labels:
        check_label("--host-labels", label)
    return labels


def _print_rows(base: Experiment, rows: Rows, *, wide: bool) -> None:
    """Print the headline table of all planned runs, which system is ahead, and the runs
    without a row."""
    from harness.compare.order import inversions
    from harness.report.headline import who_is_ahead

    title = f"{base.name}: {base.description}" if base.description else base.name
    print_headline(rows.records, title, wide=wide)
    lines = [f"not run: {_cell_text(run)}" for run in rows.not_run]
    for record in rows.passed_over:
        how = f"{record.status}, {record.verdict}"
        lines.append(
            f"{record.run_id} does not count ({how}): the row is of an earlier run"
        )
    lines += who_is_ahead([record.to_json() for record in rows.records], base.name)
    by_id = {record.run_id: record for record in rows.records}
    for _, members in comparable(record.to_json() for record in rows.records):
        setting = [by_id[member["run_id"]] for member in members]
        lines += [f"order: {pair}" for pair in inversions(setting)]
    print_lines(*lines)


def _where(entry: Rendered) -> str:
    """Return a line on a figure's file, or on the reason why there is none."""
    return (
        f"figure {entry.id}: "
        f"{entry.files[0] if entry.status == 'drawn' else f'not drawn: {entry.reason}'}"
    )


def figures_of(experiment: Experiment) -> list[Figure]:
    """Return the figures that an experiment asks for itself; raise InputError if there
    is no such figure."""
    return [figure for name in experiment.figures for figure in chosen(name)]


def planned_as_dict(run: PlannedRun) -> dict[str, Any]:
    """Return a planned run as plain data for `--json`."""
    cell = {
        "system": run.system,
        "dataset": run.settings.dataset,
        "memory": run.settings.memory,
    }
    return {**cell, "round": run.round}


def _cell_text(run: PlannedRun) -> str:
    """Return a planned run in words: system, dataset, memory, and its values of the
    grid."""
    axes = [
        f"{name} {value}"
        for name, value in run.axes.items()
        if name not in ("dataset", "memory")
    ]
    parts = [
        f"{run.system} on {run.settings.dataset}",
        f"memory {run.settings.memory}",
        *axes,
    ]
    return ", ".join([*parts, f"round {run.round}"])


def drawn_as_dict(entry: Rendered) -> dict[str, Any]:
    """Return a figure's outcome as plain data for `--json`."""
    return {
        "id": entry.id,
        "status": entry.status,
        "reason": entry.reason,
        "files": list(map(str, entry.files)),
    }


def _draw(
    wanted: Sequence[Figure], results_root: Path, progress: Progress
) -> list[Rendered]:
    """Draw each of the figures once."""
    from harness.compare.evidence import load_evidence
    from harness.figures.render import render
    from harness.regress.git import checkout
    from harness.regress.studies import keep_own

    figures = list({figure.id: figure for figure in wanted}.values())
    if any(figure.id == "outcore-trend" for figure in figures):
        keep_own(
            results_root, checkout(Path())
        )  # without a checkout, commits are ordered by their first runs
    return render(
        figures,
        load_evidence(results_root, progress),
        results_root / "figures",
        progress=progress,
    )


def _report(results_root: Path, progress: Progress) -> Path:
    """Write the HTML report if a record, a study or a figure is newer; return its
    path."""
    from harness.report.outdated import is_current
    from harness.report.write import NAME, write_report

    out = results_root / NAME
    if not is_current(out, results_root):
        write_report(results_root, out, progress=progress)
    return out


def _line(record: Record) -> str:
    epoch_s = record.summary.fresh_epoch_s
    part = part_of_epoch(record.config.model_dump())
    time = "" if epoch_s is None else with_part(f", {epoch_s:.2f} s an epoch", part)
    reported = record.status not in ("ok", "oom") or record.broke_its_plan
    reason = f" ({record.reason})" if reported and record.reason else ""
    return (
        f"{record.system} {record.config.memory}: {record.status}{reason}, "
        f"{record.verdict}{time}"
    )


def _tell_estimate(sweep: Sweep, studies: StudySweep, call: OnRuns) -> None:
    estimate = sweep.estimate()
    wanted = studies.estimate()
    dataset_bytes = sweep.missing_bytes(studies.datasets())
    runs = []
    lines = []
    for run, done in zip(sweep.planned, estimate.finished, strict=True):
        runs.append(
            {**planned_as_dict(run), "figures": list(run.figure_tags), "done": done}
        )
        drawn = (
            f" ({', '.join(run.figure_tags)})"
            if run.figure_tags != ("headline",)
            else ""
        )
        mark = ", done" if done else ""
        line = (
            f"round {run.round}: {run.system} on {run.settings.dataset}, memory "
            f"{run.settings.memory}{drawn}{mark}"
        )
        lines.append(line)
    content = {
        "runs": estimate.runs,
        "done": estimate.done,
        "dataset_bytes": dataset_bytes,
        "artefact_bytes": estimate.artefact_bytes,
        "seconds": estimate.seconds + wanted.seconds,
        "from_records": estimate.measured,
        "studies": wanted.studies,
        "studies_done": wanted.done,
        "order": runs,
    }
    plans = Plans(estimate.missing, sweep.isolation, call)
    content["plans"] = plans.content
    how = "from earlier records" if estimate.measured else "a rough model"
    counts = (
        f"{estimate.runs} runs ({estimate.done} done), {wanted.studies} studies "
        f"({wanted.done} done)"
    )
    made = (
        f"{format_bytes(dataset_bytes)} of datasets and about "
        f"{format_bytes(estimate.artefact_bytes)} of artefacts"
    )
    time = f"about {(estimate.seconds + wanted.seconds) / 60:.1f} min ({how})"
    call.emit(
        content,
        [*lines, *studies.lines(), *plans.lines(), f"{counts}, {made} to make, {time}"],
    )
    plans.end()
