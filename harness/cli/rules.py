"""`outcore rules`: the rules of the verdict, with their reasons and methods."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.common import Call
from harness.cli.table import print_lines, print_prose, print_table
from harness.judge.page import reason_of
from harness.judge.registry import rules as every_rule
from harness.records.record import Record
from workloads.errors import InputError


def rules(
    call: Call,
    wanted: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RULE]...", help="numbers or names; else all"),
    ] = None,
) -> None:
    """List the rules of the verdict; of the named ones print why each is there and how
    it is judged.

    Examples:
        outcore rules
        outcore rules 9 started_cold
    """
    known = every_rule()
    for text in wanted or []:
        if not any(text in (entry.number, entry.name) for entry in known):
            raise InputError(f"there is no rule {text!r}", "`outcore rules` lists them")
    found = [
        entry
        for entry in known
        if not wanted or {entry.number, entry.name} & set(wanted)
    ]
    content = [
        {
            "rule": one.number,
            "name": one.name,
            "severity": one.severity,
            "text": reason_of(one),
        }
        for one in found
    ]

    def shown() -> None:
        if wanted:
            for entry in found:
                print_lines(
                    f"rule {entry.number} {entry.name} ({entry.severity} if broken)", ""
                )
                print_prose(reason_of(entry))
            return
        rows = [
            (
                entry.number,
                entry.name,
                entry.severity,
                reason_of(entry).partition("\n")[0],
            )
            for entry in found
        ]
        print_table(("rule", "name", "broken", "why"), rows, prose=("name", "why"))

    call.emit({"rules": content}, shown)


def read_on(record: Record) -> list[str]:
    """Return a line that leads to the entries of a run's broken rules; none where all
    are kept."""
    names = {outcome.name for outcome in record.verdict_rules if not outcome.ok}
    numbers = dict.fromkeys(
        entry.number for entry in every_rule() if entry.name in names
    )
    return (
        [f"  why, and how it is judged: outcore rules {' '.join(numbers)}"]
        if numbers
        else []
    )
