"""What verbs share: the common options, progress on stderr, signals that unwind."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

DataRoot = Annotated[Path, typer.Option(envvar="OUTCORE_DATA", help="where datasets lie", show_default=True)]
ResultsRoot = Annotated[Path, typer.Option(envvar="OUTCORE_RESULTS", help="where records lie", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on stdout, nothing else there")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="no progress")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="more progress")]

DATA = Path("data")
RESULTS = Path("results")


class Progress:
    """What is going on, on stderr: one line that is rewritten on a terminal, plain lines elsewhere."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self.quiet = quiet
        self.verbose = verbose
        self._terminal = sys.stderr.isatty()
        self._start = time.monotonic()
        self._prefix = ""
        self._open = False

    def title(self, text: str) -> None:
        """Begin a part of the work; what follows stands under it."""
        self._prefix = text
        self._write(text, keep=True)

    def __call__(self, text: str) -> None:
        """One step."""
        self._write(f"{self._prefix}: {text}" if self._prefix else text, keep=self.verbose)

    def keep(self, text: str) -> None:
        """A line that stays."""
        self._write(text, keep=True)

    def _write(self, text: str, *, keep: bool) -> None:
        if self.quiet:
            return
        stamp = f"[{time.monotonic() - self._start:6.1f} s] "
        if not self._terminal:
            print(stamp + text, file=sys.stderr, flush=True)
            return
        end = "\n" if keep else ""
        sys.stderr.write(f"\r\x1b[2K{stamp}{text}{end}")
        sys.stderr.flush()
        self._open = not keep

    def done(self) -> None:
        """Clear the line that is still open."""
        if self._open and not self.quiet:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._open = False


def print_json(content: Any) -> None:
    """The one JSON object of `--json`."""
    print(json.dumps(content, allow_nan=False))


def unwind_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that caps, processes and folders go."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
