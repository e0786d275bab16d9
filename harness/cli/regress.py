"""`outcore regress`: compare two commits or two folders, keep baselines, find steps in
a history."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import Call, OnBoth, Verbs, unwind_on_signals
from harness.cli.regress_options import (
    Baselines,
    Deciding,
    Judging,
    Measuring,
    OnBaselines,
)
from harness.cli.table import print_lines, print_table
from harness.regress.decision import Comparison
from harness.regress.git import Repository
from harness.regress.history import (
    compare_folders,
    compare_history,
    epochs_of,
    read_runs,
)
from harness.regress.history import record as keep_runs
from harness.regress.outputs import write
from harness.regress.rows import HEADS, percent, row, shown_first
from harness.regress.trend import Series, trends
from workloads.errors import DataIOError, InputError

if TYPE_CHECKING:
    from harness.regress.bisect import Bisection

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


@app.verb
def check(
    base: Annotated[
        str,
        typer.Option(
            "--base", help="commit to hold HEAD against, like origin/main or HEAD~1"
        ),
    ],
    judging: Judging,
    measuring: Measuring,
    baselines: Baselines,
    call: OnBoth,
    head: Annotated[str, typer.Option(help="commit that is checked")] = "HEAD",
) -> None:
    """Build two commits, run the same experiment on both in turns, and decide each
    metric.

    Examples:
        outcore regress check --base origin/main
        outcore regress check --base HEAD~1 --time-budget 20min -o markdown=a.md
    """
    outputs = judging.outputs()
    unwind_on_signals()
    with call.progress() as progress:
        kept = baselines.history_in(call.results_root, measuring.repository)
        found = measuring.compare(base, head, judging.rules(), call, progress)
    epochs = epochs_of(kept.of(found.details["host"]))
    found = replace(found, details={**found.details, "baselines": epochs})
    _report(found, outputs, call)


@app.verb
def bisect(
    good: Annotated[str, typer.Argument(help="commit before the regression")],
    bad: Annotated[str, typer.Argument(help="commit with it, like HEAD")],
    deciding: Deciding,
    measuring: Measuring,
    call: OnBoth,
) -> None:
    """Find the first commit that regresses a metric, by the gate's decision on each
    commit that git bisect asks for.

    The good and the bad commit are compared first; each later comparison is with the
    good one, of the systems that regressed alone. Builds are kept. An undecided commit
    is skipped: give a longer --time-budget.

    Examples:
        outcore regress bisect v0.2.0 HEAD
        outcore regress bisect HEAD~20 HEAD --systems ginex --time-budget 20min
    """
    from harness.regress.bisect import bisect as search

    rules = deciding.rules()
    repository = measuring.checkout()
    work = measuring.folder(call) / "bisect"
    unwind_on_signals()
    with call.progress() as progress:

        def compared(commit: str, systems: Collection[str]) -> Comparison:
            folder = work / commit[:12]
            return measuring.compare(
                good, commit, rules, call, progress, systems=systems, work=folder
            )

        tree = measuring.builds() / "bisect"
        found = search(repository, good, bad, compared, tree, progress)
    with _whatever_reads():
        call.emit(found.to_json(), lambda: print_bisection(found))


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


def print_bisection(found: Bisection) -> None:
    """Print the commits that were tested, and last the first bad commit, or those that
    it may be."""
    if not found.regressed:
        print_lines(
            f"{found.bad} is {found.decision}, compared with {found.good}: no metric "
            "regressed, so there is no bad commit"
        )
        return
    rows = [(tested.line, tested.answer, tested.why) for tested in found.tested]
    title = f"{found.good} → {found.bad}"
    print_table(("commit", "answer", "why"), rows, title, prose=("commit", "why"))
    print_lines(f"regressed: {', '.join(found.regressed)}")
    first, *others = found.candidates
    if others:
        print_lines("first bad commit, one of:", *found.candidates)
    else:
        print_lines(f"first bad commit: {first}")
