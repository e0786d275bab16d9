"""`outcore check`: conformance of a system, built-in, external or foreign, to what
every system promises."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from harness.cli.common import OnResults, OptionPairs, parse_options
from harness.cli.table import print_lines, print_table
from harness.settings import check_options
from workloads.errors import InputError


def check(
    system: Annotated[
        str,
        typer.Argument(help="a system's name, module:Class, env:NAME or image:NAME"),
    ],
    call: OnResults,
    quick: Annotated[
        bool, typer.Option(help="fewer cases, and a shorter capped run")
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            help="cpu, cuda or emulated:NAME; default: cpu, emulated:late, and cuda "
            "where there is one"
        ),
    ] = "",
    foreign: Annotated[
        bool, typer.Option("--foreign", help="the system is foreign: NAME is env:NAME")
    ] = False,
    option: OptionPairs = None,
) -> None:
    """Check a system on small generated graphs; exit code 1 if a promise does not hold.

    A foreign system that samples by itself is held against the distribution of the
    workload's own sampler.

    Examples:
        outcore check gnndrive --device emulated:late
        outcore check --foreign env:graphbolt -o workers=2
    """
    from rich.text import Text

    from harness.check.foreign import check_foreign
    from harness.check.runner import check_system
    from harness.foreign import ENV, is_foreign

    if foreign and not is_foreign(system):
        system = ENV + system
    options = parse_options(option or [])
    check_options(system, options)
    progress = call.progress()
    progress.title(f"check {system}")
    logs = call.results_root / "checks" / system.replace(":", ".").replace(os.sep, "-")
    if is_foreign(system):
        if device:
            raise InputError(
                "a foreign system is checked on the processor", "leave out --device"
            )
        results = check_foreign(system, options=options, logs=logs, progress=progress)
    else:
        results = check_system(
            system,
            quick=quick,
            options=options,
            logs=logs,
            progress=progress,
            device=device,
        )
    ok = all(result.ok for result in results)
    marks = {True: Text("ok", "green"), False: Text("broken", "red")}
    rows = [
        (marks[one.ok] if one.judged else "not judged", one.name, one.detail)
        for one in results
    ]
    content = {"system": system, "ok": ok, "checks": [one.as_dict() for one in results]}

    def shown() -> None:
        print_table(("", "promise", "detail"), rows, prose=("promise", "detail"))
        for one in results:
            if not one.ok:
                print_lines(f"{one.name}: {one.fix}")
        print_lines(
            *(
                f"log: {log}"
                for log in dict.fromkeys(one.log for one in results if one.log)
            )
        )

    call.emit(content, shown)
    if not ok:
        raise typer.Exit(1)
