"""Parts shared by the verbs: common options, JSON output, signal handlers."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.progress import Progress as Progress

DataRoot = Annotated[Path, typer.Option(envvar="OUTCORE_DATA", help="where datasets lie", show_default=True)]
ResultsRoot = Annotated[Path, typer.Option(envvar="OUTCORE_RESULTS", help="where records lie", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on stdout, nothing else there")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="no progress")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="more progress")]

DATA = Path("data")
RESULTS = Path("results")


def print_json(content: Any) -> None:
    """Print the one JSON object of `--json`."""
    print(json.dumps(content, allow_nan=False))


def unwind_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that caps, processes and folders are removed."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
