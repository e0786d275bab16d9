"""`outcore check`: conformance of a system, built-in or external, to the System interface."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.common import Json, Progress, Quiet, Verbose, print_json


def check(
    system: Annotated[str, typer.Argument(help="a system's name, or module:Class")],
    quick: Annotated[bool, typer.Option(help="fewer cases, under 20 s")] = False,
    option: Annotated[list[str] | None, typer.Option("-o", "--option", help="key=value of the system, for all")] = None,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check a system on small generated graphs; exit code 1 if a promise does not hold."""
    from harness.check import check_system
    from harness.cli.settings import parse_options
    from harness.plan.experiment import check_options

    options = parse_options(option or [])
    check_options(system, options)
    progress = Progress(quiet=quiet, verbose=verbose)
    progress.title(f"check {system}")
    try:
        results = check_system(system, quick=quick, options=options, progress=progress)
    finally:
        progress.done()
    ok = all(result.ok for result in results)
    if json_:
        print_json({"system": system, "ok": ok, "checks": [result.as_dict() for result in results]})
    else:
        _print(results)
    if not ok:
        raise typer.Exit(1)


def _print(results: object) -> None:
    from rich.markup import escape
    from rich.table import Table

    from harness.table import console

    table = Table("", "promise", "detail")
    for result in results:  # type: ignore[attr-defined]
        table.add_row("[green]ok[/]" if result.ok else "[red]broken[/]", escape(result.name), escape(result.detail))
    console().print(table)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("check")(check)
