"""`outcore claims`: judge every published claim from the records alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import RESULTS, Json, Quiet, ResultsRoot, Verbose, print_json

if TYPE_CHECKING:
    from harness.claims import Judged


def claims(
    explain: Annotated[str | None, typer.Option(help="one claim: its runs, stages, counters, what differs")] = None,
    paper: Annotated[str | None, typer.Option(help="only this paper's")] = None,
    verdict: Annotated[str | None, typer.Option(help="only those with this verdict")] = None,
    profile: Annotated[str, typer.Option(help="the profile whose runs the claims declare as their setting")] = "quick",
    results_root: ResultsRoot = RESULTS,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Hold the papers' numbers against our records: reproduced, direction only, not reproduced, emulated, not run."""
    from harness.claims import judge_all, judge_one
    from harness.cli.results_filter import say_bad
    from harness.compare.evidence import load_evidence
    from harness.plan.experiment import load_experiment

    plain = load_experiment(profile).model_dump()
    evidence = load_evidence(results_root)
    say_bad(evidence.frame.attrs.get("bad", []))
    if explain is not None:
        from harness.claims.explain import explain as lines_of

        judged = judge_one(explain, evidence, plain)
        if json_:
            print_json({**judged.to_json(), "explanation": lines_of(judged)})
            return
        for line in lines_of(judged):
            print(line)
        return
    _check(paper, verdict)
    found = [
        judged
        for judged in judge_all(evidence, plain)
        if (paper is None or judged.paper == paper) and (verdict is None or judged.verdict == verdict)
    ]
    if json_:
        print_json({"claims": [judged.to_json() for judged in found]})
        return
    _print(found)


def _check(paper: str | None, verdict: str | None) -> None:
    from harness.claims.judge import VERDICTS
    from harness.claims.published import claims as published
    from harness.settings import unknown_name

    papers = sorted({claim.paper for claim in published().values()})
    if paper is not None and paper not in papers:
        raise unknown_name("paper", f"--paper {paper!r}", paper, papers)
    if verdict is not None and verdict not in VERDICTS:
        raise unknown_name("verdict", f"--verdict {verdict!r}", verdict, VERDICTS)


def _print(found: list[Judged]) -> None:
    from rich.table import Table

    from harness.claims.explain import measured_text
    from harness.table import console

    out = console()
    table = Table("id", "claim", "paper", "ours", "verdict", "why")
    for judged in found:
        published = f"{judged.paper_value} {judged.unit}".strip()
        mark = "" if judged.certain else " (not certain)"
        table.add_row(judged.id, judged.claim, published, measured_text(judged), judged.verdict + mark, judged.reason)
    out.print(table)
    counts = Counter(judged.verdict for judged in found)
    out.print(", ".join(f"{count} {name}" for name, count in counts.most_common()), markup=False)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("claims")(claims)
