"""`outcore check`: conformance of a system, built-in or external, to the System interface."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.common import Call, OptionPairs, parse_options
from harness.cli.table import print_table
from harness.progress import Progress
from harness.settings import check_options


def check(
    system: Annotated[str, typer.Argument(help="a system's name, or module:Class")],
    call: Call,
    quick: Annotated[bool, typer.Option(help="fewer cases, under 20 s")] = False,
    option: OptionPairs = None,
) -> None:
    """Check a system on small generated graphs; exit code 1 if a promise does not hold.

    Examples:
        outcore check gnndrive --quick
        outcore check mypkg.mod:MySystem -o threads=4
    """
    from rich.text import Text

    from harness.check.runner import check_system

    options = parse_options(option or [])
    check_options(system, options)
    progress = Progress(quiet=call.quiet, verbose=call.verbose)
    progress.title(f"check {system}")
    results = check_system(system, quick=quick, options=options, progress=progress)
    ok = all(result.ok for result in results)
    marks = {True: Text("ok", "green"), False: Text("broken", "red")}
    rows = [(marks[one.ok], one.name, one.detail) for one in results]
    content = {"system": system, "ok": ok, "checks": [one.as_dict() for one in results]}
    call.tell(content, lambda: print_table(("", "promise", "detail"), rows, prose=("promise", "detail")))
    if not ok:
        raise typer.Exit(1)
