"""Progress of a loader's preparation: a line on a terminal, or a function of the
user's."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from systems.interface import Progress, silent
from workloads.errors import require

#: Seconds between two renewals of the line.
_EVERY_S = 0.1
_CLEAR = "\r\x1b[K"


class TerminalLine:
    """One line on stderr, renewed in place: the name of a task and its completed
    share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._what = ""
        self._shown_at = 0.0

    def __call__(self, what: str, share: float) -> None:
        """Show the task `what` and its share (0 to 1; NaN: unknown), where a renewal is
        due."""
        with self._lock:
            now = time.monotonic()
            if what == self._what and now - self._shown_at < _EVERY_S:
                return
            known = share == share
            text = (
                f"loader: {what}: {100 * share:.0f} %" if known else f"loader: {what}"
            )
            columns = shutil.get_terminal_size().columns
            _write(_CLEAR + text[: columns - 1])
            self._what = what
            self._shown_at = now

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            if self._what:
                _write(_CLEAR)
            self._what = ""


def _write(text: str) -> None:
    with suppress(OSError, ValueError):  # stderr is closed
        sys.stderr.write(text)
        sys.stderr.flush()


def progress_of(asked: Any) -> tuple[Progress, Callable[[], None]]:
    """Return the function that reports progress, and the function that ends the
    display.

    Args:
        asked: the user's function of task and share; True: a line on stderr; False:
            none; None: a line on a terminal.

    Raises:
        InputError: `asked` is none of these.
    """
    if asked is None:
        asked = (
            sys.stderr is not None
            and sys.stderr.isatty()
            and os.environ.get("TERM") not in ("dumb", "unknown")
        )
    if asked is True:
        line = TerminalLine()
        return line, line.clear
    if asked is False:
        return silent, _nothing
    fix = "give True, False, or a function of a task's name and its share from 0 to 1"
    require(callable(asked), f"progress is {asked!r}", fix)
    return asked, _nothing


def _nothing() -> None:
    """Do nothing."""
