"""`outcore report`: all records in one HTML file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import OnResults


def report(
    call: OnResults,
    out: Annotated[Path | None, typer.Option(help="the file to write (default: RESULTS/report.html)")] = None,
) -> None:
    """Write the report from records alone: headline, claims, gallery, charts and a page for each run; no network.

    Examples:
        outcore report
        outcore report --results-root results --out report.html
    """
    from harness.report import write_report

    begin = time.perf_counter()
    with call.progress() as progress:
        written = write_report(call.results_root, out, progress=progress)
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
