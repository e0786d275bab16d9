"""`outcore report`: all records in one HTML file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import RESULTS, Json, Progress, Quiet, ResultsRoot, Verbose, print_json


def report(
    out: Annotated[Path | None, typer.Option(help="the file to write (default: RESULTS/report.html)")] = None,
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write the report from records alone: headline, claims, gallery, charts and a page for each run; no network."""
    from harness.report import write_report

    begin = time.perf_counter()
    progress = Progress(quiet=quiet or json_, verbose=verbose)
    written = write_report(results_root, out, progress=progress)
    progress.done()
    if json_:
        print_json(
            {
                "report": str(written.path),
                "bytes": written.size,
                "seconds": time.perf_counter() - begin,
                "runs": written.runs,
                "unreadable": written.unreadable,
                "figures": {"drawn": written.figures, "not_drawn": written.not_drawn},
                "claims": written.claims,
                "timelines": written.timelines,
            }
        )
        return
    print(f"report: {written.path}")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("report")(report)
