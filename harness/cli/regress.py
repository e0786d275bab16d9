"""`outcore regress`: compare two commits or two folders, keep baselines, find steps in
a history."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import (
    Call,
    OnBoth,
    OnResults,
    Options,
    Verbs,
    unwind_on_signals,
)
from harness.cli.table import print_lines, print_table
from harness.plan.experiment import Experiment, load_experiment
from harness.regress.decision import Comparison, Rules
from harness.regress.git import Repository, checkout
from harness.regress.history import (
    History,
    compare_folders,
    compare_history,
    load,
    read_runs,
)
from harness.regress.history import record as keep_runs
from harness.regress.outputs import HEADS, KINDS, percent, row, shown_first, write
from harness.regress.store import BranchStore, FolderStore, Store
from harness.regress.trend import Series, trends
from harness.settings import parse_seconds, unknown_name
from workloads.errors import DataIOError, InputError

app = Verbs(
    help="Epoch-time regressions: exit code 1 only for *regressed*, 3 where a side "
    "cannot be built.",
    no_args_is_help=True,
)

_STYLE = {
    "regressed": "bold red",
    "improved": "green",
    "same": "",
    "undecided": "yellow",
}
Checkout = Annotated[Path, typer.Option("--repository", help="the git checkout")]


@dataclass(frozen=True, kw_only=True)
class Judging(Options):
    """Options of the decisions and of their outputs."""

    min_effect: Annotated[
        float, typer.Option(help="least relative change of a time", min=0.0, max=10.0)
    ] = 0.03
    alpha: Annotated[
        float,
        typer.Option(
            help="chance of one false decision over all metrics together",
            min=1e-6,
            max=0.5,
        ),
    ] = 0.02
    gate: Annotated[
        str, typer.Option(help="all, or exact: times are shown and decide nothing")
    ] = "all"
    seed: Annotated[int, typer.Option(help="of the order of runs")] = 0
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            help="KIND=FILE: markdown, junit, json, github-benchmark, bmf, asv (a "
            "folder)",
        ),
    ] = None

    def rules(self) -> Rules:
        """Return the parameters of the decisions; raise InputError for an unknown
        gate."""
        if self.gate not in ("all", "exact"):
            raise InputError(f"--gate is {self.gate!r}", "choose all or exact")
        return Rules(
            min_effect=self.min_effect,
            alpha=self.alpha,
            seed=self.seed,
            gate_times=self.gate == "all",
        )

    def outputs(self) -> list[tuple[str, Path]]:
        """Return (kind, path) of each output; raise InputError for an unknown kind."""
        found = []
        for text in self.output or []:
            kind, sign, file = text.partition("=")
            if not sign or not file or kind not in KINDS:
                raise InputError(
                    f"--output {text!r} is not KIND=FILE",
                    f"KIND is one of {', '.join(KINDS)}",
                )
            found.append((kind, Path(file)))
        return found


@dataclass(frozen=True, kw_only=True)
class OnBaselines(OnResults):
    """Options of a verb that uses baselines."""

    baselines: Annotated[
        Path | None, typer.Option(help="folder of baselines; default RESULTS/baselines")
    ] = None
    branch: Annotated[
        str,
        typer.Option(
            help="keep baselines on this branch instead, like outcore-baselines"
        ),
    ] = ""
    repository: Checkout = Path()

    def store(self) -> Store:
        """Return the store of baselines; raise InputError where two are given."""
        if self.branch and self.baselines is not None:
            raise InputError(
                "--baselines and --branch are two places for one history",
                "give one of them",
            )
        if self.branch:
            return BranchStore(Repository(self.repository), self.branch)
        return FolderStore(self.baselines or self.results_root / "baselines")

    def history(self) -> History:
        """Return the baselines in the order of their commits; without a checkout, by
        date."""
        return load(self.store(), checkout(self.repository))


@app.verb
def check(
    base: Annotated[
        str,
        typer.Option(
            "--base", help="commit to hold HEAD against, like origin/main or HEAD~1"
        ),
    ],
    judging: Judging,
    call: OnBoth,
    head: Annotated[str, typer.Option(help="commit that is checked")] = "HEAD",
    profile: Annotated[
        str, typer.Option(help="a profile, or an experiment in YAML")
    ] = "ci",
    systems: Annotated[
        str, typer.Option(help="only these systems, separated by commas")
    ] = "",
    time_budget: Annotated[
        str, typer.Option(help="measure no longer than this, like 600s or 20min")
    ] = "600s",
    pairs: Annotated[
        int, typer.Option(help="pairs of runs a system at most", min=1)
    ] = 60,
    chunk: Annotated[
        int,
        typer.Option(help="systems in one call; fewer bring both sides nearer", min=1),
    ] = 4,
    repository: Checkout = Path(),
    work: Annotated[
        Path | None,
        typer.Option(help="records and logs of the check; default RESULTS/regress"),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="builds, kept; default build/regress in the checkout"),
    ] = None,
    allow_dirty: Annotated[
        bool,
        typer.Option("--allow-dirty", help="measure HEAD without the tree's changes"),
    ] = False,
) -> None:
    """Build two commits, run the same experiment on both in turns, and decide each
    metric.

    Examples:
        outcore regress check --base origin/main
        outcore regress check --base HEAD~1 --time-budget 20min -o markdown=a.md
    """
    from harness.regress.check import check as run_check

    outputs = judging.outputs()
    experiment = load_experiment(profile)
    top = Repository(repository).path
    unwind_on_signals()
    with call.progress() as progress:
        found = run_check(
            base,
            head,
            _only(experiment, systems),
            checkout=top,
            data_root=call.data_root,
            work=work or call.results_root / "regress",
            cache=cache or top / "build" / "regress",
            profiles=call.results_root / "cache",
            time_budget_s=parse_seconds(time_budget, "time budget"),
            rules=judging.rules(),
            pairs=pairs,
            chunk=chunk,
            allow_dirty=allow_dirty,
            progress=progress,
        )
    _report(found, outputs, call)


@app.verb
def compare(
    judging: Judging,
    call: OnBaselines,
    base: Annotated[
        Path | None,
        typer.Option(help="results root to hold it against; else the baselines"),
    ] = None,
) -> None:
    """Hold the runs of a results root against another root's, or against the baselines
    of this machine.

    Examples:
        outcore regress compare --base other/results
        outcore regress compare --branch outcore-baselines --gate exact
    """
    outputs = judging.outputs()
    rules = judging.rules()
    with call.working("comparing"):
        if base is not None:
            found = compare_folders(base, call.results_root, rules)
        else:
            found = compare_history(call.results_root, call.history(), rules)
    _report(found, outputs, call)


@app.verb
def record(call: OnBaselines) -> None:
    """Keep the runs of a results root as the baseline of their commit on this machine.

    Examples:
        outcore regress record
        outcore regress record --branch outcore-baselines
    """
    notes: list[str] = []
    with call.working("keeping the runs"):
        records = read_runs(call.results_root, notes)
        kept = keep_runs(records, call.store(), Repository(call.repository))
    call.emit(
        {"kept": kept, "runs": len(records), "notes": notes},
        [*notes, *(f"kept {place}" for place in kept)],
    )


@app.verb
def trend(
    call: OnBaselines,
    host: Annotated[
        str,
        typer.Option(help="fingerprint of a machine; else the one with most entries"),
    ] = "",
    min_effect: Annotated[
        float, typer.Option(help="least relative change of a time", min=0.0, max=10.0)
    ] = 0.03,
) -> None:
    """Find steps in the baselines of one machine, name the commits they lie between,
    and draw `outcore-trend`.

    Examples:
        outcore regress trend
    """
    from harness.compare.evidence import load_evidence
    from harness.figures.base import chosen
    from harness.figures.render import render
    from harness.regress.studies import keep

    began = time.monotonic()
    kept = call.history()
    counts = {entry.host: len(kept.of(entry.host)) for entry in kept.entries}
    if not counts:
        raise InputError(
            "there is no history", "keep baselines with `outcore regress record`"
        )
    if host and host not in counts:
        raise InputError(
            f"there is no history of machine {host!r}",
            f"there is {', '.join(sorted(counts))}",
        )
    with call.working("finding steps"):
        series = trends(
            kept,
            min_effect=min_effect,
            hosts=[host or max(counts, key=lambda name: counts[name])],
        )
        keep(call.results_root, series, min_effect, time.monotonic() - began)
        drawn = render(
            chosen("outcore-trend"),
            load_evidence(call.results_root),
            call.results_root / "figures",
        )[0]
    figure = {
        "status": drawn.status,
        "reason": drawn.reason,
        "files": list(map(str, drawn.files)),
    }

    def shown() -> None:
        print_trend(series, kept.notes)
        print(
            f"figure outcore-trend: {drawn.files[0] if drawn.files else drawn.reason}"
        )

    call.emit(
        {
            "series": [one.to_json() for one in series],
            "notes": kept.notes,
            "figure": figure,
        },
        shown,
    )


def _only(experiment: Experiment, systems: str) -> Experiment:
    """Return the experiment with the named systems only; with all of its systems if
    none is named."""
    wanted = [name.strip() for name in systems.split(",") if name.strip()]
    if not wanted:
        return experiment
    named = [
        entry if isinstance(entry, str) else str(entry.get("name"))
        for entry in experiment.systems
    ]
    for name in wanted:
        if name not in named:
            raise unknown_name(
                "system of this experiment",
                f"system {name!r}",
                name,
                sorted(set(named)),
            )
    kept = [
        entry
        for entry, name in zip(experiment.systems, named, strict=True)
        if name in wanted
    ]
    return experiment.model_copy(update={"systems": kept})


def _report(found: Comparison, outputs: list[tuple[str, Path]], call: Call) -> None:
    """Write every output, print the comparison, and end with the decision's exit code.

    A standard output that is closed or full changes nothing of that; output files that
    cannot be written are reported last, and are an error unless it regressed.
    """
    failures: list[DataIOError | InputError] = []
    for kind, path in outputs:
        try:
            write(kind, path, found)
        except (DataIOError, InputError) as error:
            failures.append(error)
    with _whatever_reads():
        call.emit(found.to_json(), lambda: print_comparison(found))
    if found.exit_code:
        for failure in failures:
            print(f"outcore: {failure}", file=sys.stderr)
        raise typer.Exit(found.exit_code)
    if failures:
        raise failures[0]


@contextmanager
def _whatever_reads() -> Iterator[None]:
    """Print in the body; drop the rest where standard output is closed or full."""
    try:
        yield
        sys.stdout.flush()
    except (OSError, SystemExit) as error:
        # The terminal library turns a closed pipe into an exit.
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError) or cause.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"outcore: not all was printed: {cause.strerror}", file=sys.stderr)


def print_comparison(found: Comparison) -> None:
    """Print the table of metrics, the notes and last the decision."""
    from rich.text import Text

    shown = shown_first(found.metrics)
    styles = [_STYLE[metric.decision] if metric.gates else "dim" for metric in shown]
    print_table(
        HEADS,
        map(row, shown),
        f"{found.base} → {found.head}",
        prose=("metric", "change", ""),
        styles=styles,
    )
    hidden = len(found.metrics) - len(shown)
    print_lines(
        *([f"{hidden} exact facts and statuses are the same"] if hidden else []),
        *found.notes,
    )
    print_lines(Text(f"decision: {found.decision}", _STYLE[found.decision]))


def print_trend(series: Sequence[Series], notes: Sequence[str]) -> None:
    """Print one line per step, oldest first within a series, and the number of series
    without a step."""
    rows = []
    for entry, step in ((one, step) for one in series for step in one.steps):
        values = (f"{step.before_value:,.4g}", f"{step.value:,.4g}")
        rows.append(
            (f"{entry.cell} / {entry.name}", step.commits, *values, percent(step.ratio))
        )
    if rows:
        print_table(
            ("metric", "commits", "before", "after", "change"),
            rows,
            f"machine {series[0].host}",
            prose=("metric",),
        )
    quiet = sum(not entry.steps for entry in series)
    longest = max(len(entry.points) for entry in series)
    print_lines(
        *notes,
        f"{quiet} of {len(series)} series have no step; the longest has {longest} "
        "entries",
    )
