"""`outcore check`: conformance of a system, built-in or external, to the System interface."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.common import OnResults, OptionPairs, parse_options
from harness.cli.table import print_lines, print_table
from harness.settings import check_options


def check(
    system: Annotated[str, typer.Argument(help="a system's name, or module:Class")],
    call: OnResults,
    quick: Annotated[bool, typer.Option(help="fewer cases, and a shorter capped run")] = False,
    device: Annotated[
        str, typer.Option(help="cpu, cuda or emulated:NAME; default: cpu, emulated:late, and cuda where there is one")
    ] = "",
    option: OptionPairs = None,
) -> None:
    """Check a system on small generated graphs; exit code 1 if a promise does not hold.

    Examples:
        outcore check gnndrive --quick
        outcore check gnndrive --device emulated:late
        outcore check mypkg.mod:MySystem -o threads=4
    """
    from rich.text import Text

    from harness.check.runner import check_system

    options = parse_options(option or [])
    check_options(system, options)
    progress = call.progress()
    progress.title(f"check {system}")
    logs = call.results_root / "checks" / system.replace(":", ".")
    results = check_system(system, quick=quick, options=options, logs=logs, progress=progress, device=device)
    ok = all(result.ok for result in results)
    marks = {True: Text("ok", "green"), False: Text("broken", "red")}
    rows = [(marks[one.ok], one.name, one.detail) for one in results]
    content = {"system": system, "ok": ok, "checks": [one.as_dict() for one in results]}

    def shown() -> None:
        print_table(("", "promise", "detail"), rows, prose=("promise", "detail"))
        for one in results:
            if not one.ok:
                print_lines(f"{one.name}: {one.fix}")
        print_lines(*(f"log: {log}" for log in dict.fromkeys(one.log for one in results if one.log)))

    call.tell(content, shown)
    if not ok:
        raise typer.Exit(1)
