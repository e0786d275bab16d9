"""`outcore report`: all records as an HTML page with a folder beside it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.common import OnResults
from harness.cli.table import print_lines
from workloads.errors import InputError

if TYPE_CHECKING:
    from harness.report.write import Written


def report(
    call: OnResults,
    out: Annotated[
        Path | None,
        typer.Option(help="the page to write (default: RESULTS/report.html)"),
    ] = None,
    figures: Annotated[
        str,
        typer.Option(help="all; or none: draw none, and mark those of older records"),
    ] = "all",
    reference: Annotated[
        Path | None,
        typer.Option(
            help="reference results to draw and judge in their own folder, not "
            "your runs"
        ),
    ] = None,
) -> None:
    """Write the report from records alone: headline, claims, gallery, charts and a page
    for each run; no network. Pictures and pages of runs lie in the folder beside it.

    Examples:
        outcore report
        outcore report --reference results/reference
    """
    from harness.report import write_report

    if figures not in ("all", "none"):
        raise InputError(f"--figures is {figures!r}", "choose all or none")
    if reference is not None:
        if out is not None or figures != "all":
            raise InputError(
                "--reference draws all figures, beside the archive",
                "leave out --out and --figures",
            )
        _report_reference(reference, call)
        return
    begin = time.perf_counter()
    with call.progress() as progress:
        written = write_report(
            call.results_root, out, draw=figures == "all", progress=progress
        )
    call.emit(_content(written, begin), [f"report: {written.path}"])


def _report_reference(place: Path, call: OnResults) -> None:
    """Unpack the reference results at a place, and write the report of each."""
    from harness.report import write_report
    from harness.results.reference import MANIFEST, references, unpacked

    contents = []
    lines = []
    if not (folders := references(place)):
        raise InputError(
            f"{place} holds no reference results ({MANIFEST})",
            "name a folder that does",
        )
    with call.progress() as progress:
        for folder in folders:
            begin = time.perf_counter()
            progress(f"unpacking {folder}")
            reported = unpacked(folder)
            written = write_report(folder, progress=progress)
            contents.append(
                {
                    "reference": reported.model_dump(mode="json"),
                    **_content(written, begin),
                }
            )
            drawn = (
                f"{written.figures} figures and tables drawn, {written.not_drawn} not"
            )
            judged = (
                f"{written.judged} of {written.claims} claims judged, from "
                f"{written.runs} runs"
            )
            lines += [reported.label, f"{drawn}; {judged}", f"report: {written.path}"]
    call.emit({"references": contents}, lambda: print_lines(*lines))


def _content(written: Written, begin: float) -> dict[str, Any]:
    """Return the report as plain data; `begin` by the performance counter."""
    return {
        "report": str(written.path),
        "files": str(written.folder),
        "bytes": written.size,
        "seconds": time.perf_counter() - begin,
        "runs": written.runs,
        "unreadable": written.unreadable,
        "figures": {"drawn": written.figures, "not_drawn": written.not_drawn},
        "claims": written.claims,
        "judged": written.judged,
        "timelines": written.timelines,
    }
