"""`outcore doctor`: capabilities of this host, one line each, with a fix for each
missing one."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.common import OnPlaces
from harness.cli.table import print_table


def doctor(
    call: OnPlaces,
    ci: Annotated[
        bool, typer.Option("--ci", help="settings that make times noisy, instead")
    ] = False,
) -> None:
    """What this host can do: memory caps, direct I/O, io_uring, fio, GPU; each ok,
    degraded or missing with the fix.

    Exits with 3 where something is missing that no fallback replaces.

    Examples:
        outcore doctor --data-root /mnt/nvme
        outcore doctor --ci
    """
    from rich.text import Text

    from harness import doctor_ci
    from harness.doctor import as_dict, diagnose

    with call.working("looking at this host"):
        if ci:
            findings = doctor_ci.diagnose()
        else:
            findings = diagnose(call.data_root, call.places)
    report = as_dict(findings)
    colours = {"ok": "green", "degraded": "yellow", "missing": "red"}
    rows = [
        (found.name, Text(found.status, colours[found.status]), found.detail, found.fix)
        for found in findings
    ]
    heads = ("check", "state", "what", "fix")
    call.emit(report, lambda: print_table(heads, rows, prose=("what", "fix")))
    if report["status"] == "missing":
        raise typer.Exit(3)
