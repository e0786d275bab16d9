"""`outcore report`: all records in one HTML file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import OnResults
from workloads.errors import InputError


def report(
    call: OnResults,
    out: Annotated[Path | None, typer.Option(help="the file to write (default: RESULTS/report.html)")] = None,
    figures: Annotated[str, typer.Option(help="all; or none: draw none, and remove those of older records")] = "all",
) -> None:
    """Write the report from records alone: headline, claims, gallery, charts and a page for each run; no network.

    Examples:
        outcore report
        outcore report --results-root results --out report.html
    """
    from harness.report import write_report

    if figures not in ("all", "none"):
        raise InputError(f"--figures is {figures!r}", "choose all or none")
    begin = time.perf_counter()
    with call.progress() as progress:
        written = write_report(call.results_root, out, draw=figures == "all", progress=progress)
    content = {
        "report": str(written.path),
        "bytes": written.size,
        "seconds": time.perf_counter() - begin,
        "runs": written.runs,
        "unreadable": written.unreadable,
        "figures": {"drawn": written.figures, "not_drawn": written.not_drawn},
        "claims": written.claims,
        "timelines": written.timelines,
    }
    call.tell(content, [f"report: {written.path}"])
