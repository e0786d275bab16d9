"""`outcore figures`: draw figures from run records alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.bench import drawn_as_dict
from harness.cli.common import OnResults
from harness.cli.results import say_bad
from harness.figures.base import chosen
from harness.plan.experiment import Experiment, load_experiment

if TYPE_CHECKING:
    from harness.compare.comparable import Index


def figures(
    call: OnResults,
    names: Annotated[str, typer.Argument(help="headline, all, or ids separated by commas")] = "all",
    list_: Annotated[bool, typer.Option("--list", help="list the figures and the runs they have")] = False,
    profile: Annotated[str, typer.Option(help="whose runs `--list` counts: smoke, quick, standard or paper")] = "quick",
    again: Annotated[bool, typer.Option("--again", help="draw what has not changed, too")] = False,
    out: Annotated[Path | None, typer.Option(help="folder to draw into (default: RESULTS/figures)")] = None,
) -> None:
    """Draw the papers' figures and ours as PNG, SVG and CSV; a figure without runs says which are missing."""
    from harness.compare.evidence import load_evidence
    from harness.figures.render import render

    evidence = load_evidence(call.results_root)
    say_bad(evidence.frame.attrs.get("bad", []))
    selected = chosen(names)
    folder = out or call.results_root / "figures"
    rendered = {entry.id: entry for entry in render(selected, evidence, folder, again=again)}
    if list_:
        plain = load_experiment(profile).model_dump()
        counts = {figure.id: _count(evidence.index, figure.experiments(plain)) for figure in selected}
        listed = [
            {
                "id": figure.id,
                "paper": figure.paper,
                "title": figure.title,
                "runs_needed": counts[figure.id][0],
                "runs_present": counts[figure.id][1],
                "studies_needed": len(figure.studies(plain)),
                "status": rendered[figure.id].status,
                "reason": rendered[figure.id].reason,
            }
            for figure in selected
        ]
        lines = []
        for entry in listed:
            runs = f"{entry['runs_present']:3}/{entry['runs_needed']:<3} runs"
            why = f" ({entry['reason']})" if entry["reason"] else ""
            lines.append(f"{entry['id']:18} {entry['status']:10} {runs} {entry['title']}{why}")
        call.tell({"figures": listed}, lines)
        return

    def shown() -> None:
        for result in rendered.values():
            if result.status == "drawn":
                print(f"{result.id}: {result.files[0]}")
            else:
                print(f"{result.id}: not drawn: {result.reason}", file=sys.stderr)

    call.tell({"figures": [drawn_as_dict(entry) for entry in rendered.values()]}, shown)


def _count(index: Index, experiments: list[Experiment]) -> tuple[int, int]:
    """Return the number of runs that the experiments plan, and of those with a record that did not fail."""
    from harness.run.sweep import union

    wanted = union(experiments)
    return len(wanted), sum(any(record["status"] != "failed" for record in index.of(run)) for run in wanted)
