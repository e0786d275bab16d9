"""`outcore doctor`: capabilities of this host, one line each, with a fix for each missing one."""

from __future__ import annotations

import typer

from harness.cli.common import DATA, DataRoot, Json, Quiet, Verbose, print_json


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(doctor)


def doctor(data_root: DataRoot = DATA, json_: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """What this host can do: memory caps, direct I/O, io_uring, fio, GPU; each ok, degraded or missing with the fix.

    Exits with 3 where something is missing that no fallback replaces.
    """
    from harness.doctor import as_dict, diagnose

    findings = diagnose(data_root)
    report = as_dict(findings)
    if json_:
        print_json(report)
    else:
        from rich.table import Table

        from harness.table import console

        colours = {"ok": "green", "degraded": "yellow", "missing": "red"}
        table = Table("check", "state", "what", "fix", box=None, pad_edge=False)
        for found in findings:
            table.add_row(found.name, f"[{colours[found.status]}]{found.status}[/]", found.detail, found.fix)
        console().print(table)
    if report["status"] == "missing":
        raise typer.Exit(3)
