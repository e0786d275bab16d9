"""`outcore claims`: judge every published claim from the records alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import OnResults
from harness.cli.results import say_bad
from harness.cli.table import Wide, print_lines, print_table
from harness.plan.experiment import load_experiment
from harness.settings import unknown_name

if TYPE_CHECKING:
    from harness.claims import Judged


def claims(
    table: Wide,
    call: OnResults,
    explain: Annotated[
        str | None,
        typer.Option(help="one claim: its runs, stages, counters, what differs"),
    ] = None,
    paper: Annotated[str | None, typer.Option(help="only this paper's")] = None,
    verdict: Annotated[
        str | None, typer.Option(help="only those with this verdict")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="profile of the runs that are judged; default: quick as it was when "
            "they were made"
        ),
    ] = None,
) -> None:
    """Hold the papers' numbers against our records: reproduced, direction only, not
    reproduced, emulated, not run.

    Examples:
        outcore claims --paper gnndrive
        outcore claims --explain gd-01
    """
    from harness.claims import judge_all, judge_one
    from harness.claims.judge import explain as lines_of
    from harness.claims.published import VERDICTS
    from harness.claims.published import claims as published
    from harness.compare.evidence import load_evidence

    plain = load_experiment(profile).model_dump() if profile is not None else None
    progress = call.progress()
    evidence = load_evidence(call.results_root, progress)
    say_bad(evidence.runs.attrs.get("bad", []))
    if explain is not None:
        judged = judge_one(explain, evidence, plain)
        call.emit(
            {**judged.to_json(), "explanation": lines_of(judged)}, lines_of(judged)
        )
        return
    papers = sorted({claim.paper for claim in published().values()})
    for what, value, known in (
        ("paper", paper, papers),
        ("verdict", verdict, VERDICTS),
    ):
        if value is not None and value not in known:
            raise unknown_name(what, f"--{what} {value!r}", value, known)
    found = [
        judged
        for judged in judge_all(evidence, plain, progress)
        if paper in (None, judged.paper) and verdict in (None, judged.verdict)
    ]
    call.emit(
        {"claims": [judged.to_json() for judged in found]},
        lambda: _print(found, wide=table.wide),
    )


def _print(found: list[Judged], *, wide: bool) -> None:
    from harness.claims.judge import measured_text, published_text

    rows = []
    for judged in found:
        verdict = judged.verdict + ("" if judged.certain else " (not certain)")
        rows.append(
            (
                judged.id,
                judged.claim,
                published_text(judged),
                measured_text(judged),
                verdict,
                judged.reason,
            )
        )
    heads = ("id", "claim", "paper", "ours", "verdict", "why")
    print_table(
        heads,
        rows,
        prose=("claim", "paper", "ours", "why"),
        hidden=() if wide else ("why",),
    )
    counts = Counter(judged.verdict for judged in found)
    print_lines(", ".join(f"{count} {name}" for name, count in counts.most_common()))
