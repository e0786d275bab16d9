"""`outcore figures`: draw figures from run records alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.bench import drawn_as_dict
from harness.cli.common import OnResults
from harness.cli.results import say_bad
from harness.cli.table import print_table
from harness.figures.base import chosen
from harness.plan.experiment import load_experiment


def figures(
    call: OnResults,
    names: Annotated[
        str, typer.Argument(help="headline, all, or ids separated by commas")
    ] = "all",
    list_: Annotated[
        bool, typer.Option("--list", help="list the figures and the runs they have")
    ] = False,
    profile: Annotated[
        str,
        typer.Option(
            help="whose runs `--list` counts: smoke, quick, standard or paper"
        ),
    ] = "quick",
    again: Annotated[
        bool, typer.Option("--again", help="draw what has not changed, too")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="folder to draw into (default: RESULTS/figures)")
    ] = None,
) -> None:
    """Draw the papers' figures and ours as PNG, SVG and CSV; a figure without runs says
    which are missing.

    Examples:
        outcore figures gnndrive-fig9,outcore-roofline
        outcore figures --list --profile quick
    """
    from harness.compare.evidence import load_evidence
    from harness.figures.render import render

    selected = chosen(names)
    folder = out or call.results_root / "figures"
    with call.progress() as progress:
        evidence = load_evidence(call.results_root, progress)
        rendered = {
            entry.id: entry
            for entry in render(
                selected, evidence, folder, again=again, progress=progress
            )
        }
    say_bad(evidence.runs.attrs.get("bad", []))
    if list_:
        from harness.run.sweep import union

        plain = load_experiment(profile).model_dump()
        listed = []
        rows = []
        for figure in selected:
            one = rendered[figure.id]
            planned = union(figure.experiments(plain))
            found = [evidence.runs_of(cell) for cell in planned]
            present = sum(
                bool((runs["status"] != "failed").any()) for runs in found if len(runs)
            )
            about = {"id": figure.id, "paper": figure.paper, "title": figure.title}
            counts = {"runs_needed": len(planned), "runs_present": present}
            counts["studies_needed"] = len(figure.studies(plain))
            listed.append(
                {**about, **counts, "status": one.status, "reason": one.reason}
            )
            rows.append(
                (
                    figure.id,
                    one.status,
                    f"{present}/{len(planned)}",
                    figure.title,
                    one.reason,
                )
            )
        heads = ("figure", "status", "runs", "title", "why not")
        call.emit(
            {"figures": listed},
            lambda: print_table(heads, rows, prose=("title", "why not")),
        )
        return

    def shown() -> None:
        for result in rendered.values():
            if result.status == "drawn":
                print(f"{result.id}: {result.files[0]}")
            else:
                print(f"{result.id}: not drawn: {result.reason}", file=sys.stderr)

    call.emit({"figures": [drawn_as_dict(entry) for entry in rendered.values()]}, shown)
