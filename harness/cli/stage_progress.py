"""Progress of long commands on stderr: a bar where it is a terminal, plain lines otherwise, nothing when quiet."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_PLAIN_EVERY_S = 10.0


class StageProgress:
    """Callable with a stage's name and its done fraction; use it in a `with` statement.

    Args:
        quiet: print nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}
        if not quiet and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))

    def __call__(self, stage: str, fraction: float) -> None:
        """Report that `fraction` (0 to 1) of `stage` is done."""
        if self._quiet:
            return
        if self._bar is not None:
            if stage not in self._tasks:
                self._finish_all()
                self._tasks[stage] = self._bar.add_task(stage, total=1.0)
            self._bar.update(self._tasks[stage], completed=fraction)
            return
        now = time.monotonic()
        if stage not in self._said or now - self._said[stage] > _PLAIN_EVERY_S:
            text = f"{stage}: {fraction:.0%}" if stage in self._said else f"{stage} ..."
            self._said[stage] = now
            print(text, file=sys.stderr, flush=True)

    def _finish_all(self) -> None:
        for task in self._tasks.values():
            if self._bar is not None:
                self._bar.update(task, completed=1.0)

    def __enter__(self) -> StageProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            if error is None:
                self._finish_all()
            self._bar.stop()
