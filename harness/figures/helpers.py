"""Processes that draw figures beside the one that renders them, from the last to the first, if that takes long."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import harness

if TYPE_CHECKING:
    from harness.compare.evidence import Evidence

# Seconds of drawing after which helpers start, and figures left for each: a helper's imports take seconds, too.
PATIENCE_S = 3.0
LEAST = 8
_COMMAND = [sys.executable, "-m", "harness.figures.aside"]


class Helpers:
    """Context manager: helpers that draw `figures` (their ids) of `evidence` into `out`, one for each core but one.

    A helper that fails leaves its figures to the caller.
    """

    def __init__(self, figures: Sequence[str], evidence: Evidence, out: Path) -> None:
        self._waiting = list(figures)
        self._taken: dict[str, bool | None] = {}
        self._changed = threading.Condition()
        self._told, self._began = (evidence, out), time.monotonic()
        self._threads: list[threading.Thread] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Helpers:
        return self

    def drew(self, figure: str) -> bool:
        """Return whether a helper drew a figure, once it has; a figure that none has begun is left to the caller."""
        with self._changed:
            if figure in self._waiting:
                self._waiting.remove(figure)
                self._start_late()
            elif figure in self._taken:
                self._changed.wait_for(lambda: self._taken[figure] is not None)
            return bool(self._taken.get(figure))

    def _start_late(self) -> None:
        if self._threads or time.monotonic() < self._began + PATIENCE_S:
            return
        evidence = pickle.dumps(self._told)
        for _ in range(min(len(os.sched_getaffinity(0)) - 1, len(self._waiting) // LEAST)):
            self._threads.append(threading.Thread(target=self._lead, args=(evidence,), daemon=True))
            self._threads[-1].start()

    def _lead(self, evidence: bytes) -> None:
        """Start a helper and hand it one figure after the other."""
        path = os.pathsep.join([str(Path(harness.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
        environment, figure = {**os.environ, "PYTHONPATH": path}, ""
        try:
            helper = subprocess.Popen(_COMMAND, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._processes.append(helper)
            assert helper.stdin is not None and helper.stdout is not None
            helper.stdin.write(evidence)
            helper.stdin.flush()
            while helper.stdout.readline():  # it is ready for a figure, the last one drawn
                with self._changed:
                    if figure:
                        self._taken[figure] = True
                        self._changed.notify_all()
                    if not self._waiting:
                        return
                    figure = self._waiting.pop()
                    self._taken[figure] = None
                helper.stdin.write(f"{figure}\n".encode())
                helper.stdin.flush()
        except OSError:  # it ended
            pass
        with self._changed:
            if figure and self._taken[figure] is None:
                self._taken[figure] = False
            self._changed.notify_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._waiting.clear()
        for helper in self._processes:
            helper.kill()
        for thread in self._threads:
            thread.join()
        for helper in self._processes:
            helper.kill()  # one that started meanwhile
            helper.communicate()
