"""`outcore bench`: a sweep with resume, then its figures and the headline table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.common import OnBoth, unwind_on_signals
from harness.cli.dry_run import Plans
from harness.cli.run_tables import print_headline
from harness.cli.table import Wide, print_lines
from harness.compare.plan import keep
from harness.figures.base import chosen
from harness.plan.experiment import Experiment, load_experiment
from harness.progress import Progress
from harness.records.record import Record
from harness.settings import parse_seconds
from harness.studies.sweep import Studied, StudySweep
from workloads.units import format_bytes

if TYPE_CHECKING:
    from harness.figures.render import Rendered
    from harness.run.sweep import Outcome, Sweep


def bench(
    table: Wide,
    call: OnBoth,
    experiment: Annotated[Path | None, typer.Argument(help="an experiment in YAML or JSON; else a profile")] = None,
    profile: Annotated[str, typer.Option(help="smoke, quick, systems, standard or paper")] = "quick",
    figures: Annotated[str, typer.Option(help="headline, all, ids with commas; none removes stale ones")] = "headline",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="plan every run; show bytes and time; run nothing")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="run again what has a record already")] = False,
    retry: Annotated[
        bool, typer.Option("--retry/--no-retry", help="run again what other work on this host spoilt")
    ] = True,
    isolation: Annotated[str, typer.Option(help="auto, cgroup2, cgroup1, systemd, docker or none")] = "auto",
    hosts: Annotated[
        str | None, typer.Option(help="ray://HOST:PORT of a cluster: run on its labelled hosts, collect here")
    ] = None,
    host_labels: Annotated[str | None, typer.Option(help="only hosts of these labels, separated by commas")] = None,
    wait_for_hosts: Annotated[str, typer.Option(help="how long a label without a host is waited for")] = "60s",
) -> None:
    """Compare systems: every run of the experiment that has no record yet, then figures and the headline table.

    Examples:
        outcore bench --profile quick
        outcore bench mine.yaml --figures gnndrive-fig9 --dry-run
    """
    from harness.run.series import Series
    from harness.run.sweep import Sweep

    base = load_experiment(experiment if experiment is not None else profile)
    results_root, progress = call.results_root, call.progress()
    # What the figures need beyond the profile's own runs.
    requested = [] if figures == "none" else chosen(figures)
    wanted = [] if figures == "headline" else requested
    plain = base.model_dump()
    everything = [base, *(experiment for figure in wanted for experiment in figure.experiments(plain))]
    needs = [need for figure in wanted for need in figure.studies(plain)]
    sweep = Sweep(everything, results_root, call.data_root, progress, fresh=fresh, retry=retry, isolation=isolation)
    studies = StudySweep(needs, results_root, call.data_root, progress, fresh=fresh)
    if dry_run:
        _tell_estimate(sweep, studies, call)
        return
    unwind_on_signals()
    keep(results_root, base, [figure.id for figure in requested])
    if hosts is not None:
        from harness.hosts.ray_fleet import RayFleet
        from harness.hosts.sweep import FleetSweep

        labels = [label.strip() for label in (host_labels or "").split(",") if label.strip()]
        told = {"experiments": [one.model_dump(mode="json") for one in everything], "isolation": sweep.isolation}
        wait_s = parse_seconds(wait_for_hosts, "--wait-for-hosts")
        with RayFleet(hosts) as fleet:
            spread = FleetSweep(fleet, told, results_root, progress.keep, labels=labels, wait_s=wait_s, fresh=fresh)
            with progress.during(spread.reading):
                outcome = spread.run()
        for label, problem in outcome.problems.items():
            print(f"hosts {label}: {problem}", file=sys.stderr)
        studied = Studied()
    else:
        with Series(results_root, call.data_root, isolation=sweep.isolation, progress=progress) as series:
            outcome = sweep.run(series, lambda record: progress.keep(_line(record)))
            studied = studies.run()
    drawn: list[Rendered] = []
    report = None
    if figures != "none":
        progress.title("figures and report")
        drawn = _draw(figures, results_root, progress)
        report = _report(results_root, progress)
    else:
        _remove_stale(results_root, progress)
    content = {
        "experiment": base.name,
        "skipped": outcome.skipped,
        "made_elsewhere": outcome.elsewhere,
        "records": [record.to_json() for record in outcome.records],
        "studies": [record.model_dump(mode="json") for record in studied.records],
        "studies_failed": studied.failed,
        "report": None if report is None else str(report),
        "figures": [drawn_as_dict(entry) for entry in drawn],
    }

    def shown() -> None:
        _print_outcome(base, outcome, drawn, results_root, wide=table.wide)
        if report is not None:
            print(f"report: {report}")
        for name, reason in studied.failed.items():
            print(f"study {name}: {reason}", file=sys.stderr)

    call.tell(content, shown)
    if studied.failed or outcome.problems or any(record.status == "failed" for record in outcome.records):
        raise typer.Exit(1)


def _print_outcome(
    base: Experiment, outcome: Outcome, drawn: list[Rendered], results_root: Path, *, wide: bool
) -> None:
    """Print the headline table, the figures' files, and why other figures were not drawn."""
    from harness.judge.predict import inversions
    from harness.report.headline import who_is_ahead

    own = [record for record in outcome.records if record.config.experiment == base.name] or outcome.records
    title = f"{base.name}: {base.description}" if base.description else base.name
    print_headline(own, title, wide=wide)
    lines = who_is_ahead([record.to_json() for record in own], base.name)
    lines += [f"order: {pair}" for pair in inversions(own)]
    for entry in drawn:
        found = entry.files[0] if entry.status == "drawn" else f"not drawn: {entry.reason}"
        lines.append(f"figure {entry.id}: {found}")
    print_lines(*lines, f"records: {results_root / 'runs'}")


def drawn_as_dict(entry: Rendered) -> dict[str, Any]:
    """Return a figure's outcome as plain data for `--json`."""
    return {"id": entry.id, "status": entry.status, "reason": entry.reason, "files": list(map(str, entry.files))}


def _draw(figures: str, results_root: Path, progress: Progress) -> list[Rendered]:
    from harness.compare.evidence import load_evidence
    from harness.figures.render import render
    from harness.regress.git import checkout
    from harness.regress.studies import keep_own

    wanted = chosen(figures)
    if any(figure.id == "outcore-trend" for figure in wanted):
        keep_own(results_root, checkout(Path()))  # without a checkout, commits are ordered by their first runs
    return render(wanted, load_evidence(results_root, progress), results_root / "figures", progress=progress)


def _report(results_root: Path, progress: Progress) -> Path:
    """Write the HTML report if a record, a study or a figure is newer; return its path."""
    from harness.report.write import NAME, write_report

    out = results_root / NAME
    if not _is_current(out, results_root):
        write_report(results_root, out, progress=progress)
    return out


def _is_current(report: Path, results_root: Path) -> bool:
    """Return whether the report is there, and newer than every record, study and figure."""
    parts = [results_root / "runs", results_root / "studies", *(results_root / "figures").glob("*.json")]
    newest = max((part.stat().st_mtime_ns for part in parts if part.exists()), default=0)
    return report.is_file() and report.stat().st_mtime_ns >= newest


def _remove_stale(results_root: Path, progress: Progress) -> None:
    """Remove the report and the figures that show other records than these."""
    report, folder = results_root / "report.html", results_root / "figures"
    if not _is_current(report, results_root):
        report.unlink(missing_ok=True)
    if any(folder.glob("*.json")):
        from harness.compare.evidence import load_evidence
        from harness.figures.base import catalogue
        from harness.figures.render import render

        render(list(catalogue().values()), load_evidence(results_root, progress), folder, draw=False)


def _line(record: Record) -> str:
    summary = record.summary.epoch_s
    time = f", {summary.median:.2f} s an epoch" if summary else ""
    told = record.status not in ("ok", "oom") or record.broke_its_plan
    reason = f" ({record.reason})" if told and record.reason else ""
    return f"{record.system} {record.config.memory}: {record.status}{reason}, {record.verdict}{time}"


def _tell_estimate(sweep: Sweep, studies: StudySweep, call: OnBoth) -> None:
    estimate, wanted = sweep.estimate(), studies.estimate()
    dataset_bytes = sweep.missing_bytes(studies.datasets())
    runs, lines = [], []
    for run in sweep.planned:
        cell = {"system": run.system, "dataset": run.settings.dataset, "memory": run.settings.memory}
        runs.append({**cell, "round": run.round, "figures": list(run.figure_tags)})
        drawn = f" ({', '.join(run.figure_tags)})" if run.figure_tags != ("headline",) else ""
        lines.append(f"round {run.round}: {run.system} on {run.settings.dataset}, memory {run.settings.memory}{drawn}")
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
    done = f"{estimate.runs} runs ({estimate.done} done), {wanted.studies} studies ({wanted.done} done)"
    made = f"{format_bytes(dataset_bytes)} of datasets and about {format_bytes(estimate.artefact_bytes)} of artefacts"
    time = f"about {(estimate.seconds + wanted.seconds) / 60:.1f} min ({how})"
    call.tell(content, [*lines, *studies.lines(), *plans.lines(), f"{done}, {made} to make, {time}"])
    plans.end()
