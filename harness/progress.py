"""Progress display on stderr: one renewed line on a terminal, a line every few seconds elsewhere.

A thread renews it, so that no step is silent however long it takes. A step reports its progress by `stage`, or the
thread asks for a `Reading` at every beat (`during`); both show share, rate and time left.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import ClassVar

from harness.wire.board import Reading

# Seconds between lines off a terminal, below the promised five as a margin for delays.
_PLAIN_EVERY_S = 3.0
_BEAT_S = 0.5


class Meter:
    """Formatter of readings: completed share, rate and time left of one piece of work after the other."""

    def __init__(self) -> None:
        self._key: tuple[str, float] | None = None
        self._began = self._from = 0.0

    def line(self, reading: Reading, now: float) -> str:
        """Format a reading; `now` in monotonic seconds. The rate is the mean since the work's first reading."""
        if self._key != (reading.text, reading.total):
            self._key, self._began, self._from = (reading.text, reading.total), now, reading.done
        seconds = now - self._began
        if reading.share is None:
            return f"{reading.text}, {_span(seconds)}" if seconds >= 1 else reading.text
        counted = f"{reading.done:.0f} of {reading.total:.0f} {reading.unit}, " if reading.unit else ""
        parts = [f"{counted}{100 * reading.share:.0f} %"]
        rate = (reading.done - self._from) / seconds if seconds > 0 else 0.0
        if rate > 0:
            parts += [f"{rate:.3g}/s"] if reading.unit else []
            parts.append(f"{_span((reading.total - reading.done) / rate)} left")
        elif seconds >= 1:
            parts.append(_span(seconds))
        return f"{reading.text}: {', '.join(parts)}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Progress:
    """Progress display; call it with a short text for each step.

    `quiet`: print nothing. `verbose`: keep every step on a terminal. `every_s`: seconds between lines off a terminal.
    """

    _open_ones: ClassVar[weakref.WeakSet[Progress]] = weakref.WeakSet()

    def __init__(self, *, quiet: bool = False, verbose: bool = False, every_s: float = _PLAIN_EVERY_S) -> None:
        self.quiet = quiet
        self.verbose = verbose
        self._terminal = sys.stderr.isatty()
        self._every_s = _BEAT_S if self._terminal else every_s
        self._start = self._written = time.monotonic()
        self._prefix = ""
        self._step = Reading("")
        self._asked: list[Callable[[], Reading]] = []
        self._meter = Meter()
        self._open = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def title(self, text: str) -> None:
        """Begin a part of the work; its title prefixes the following steps."""
        self._prefix = text
        self._tell(Reading(text), keep=True)

    def __call__(self, text: str) -> None:
        """Show a step."""
        self._tell(Reading(text), keep=self.verbose)

    def keep(self, text: str) -> None:
        """Print a line that is not renewed."""
        self._tell(Reading(text), keep=True)

    def stage(self, what: str, share: float) -> None:
        """Set the completed share (0 to 1) of the step `what`; a new name begins a new step."""
        reading = Reading(what, share, 1.0)
        if what != self._step.text:
            self._tell(reading, keep=False)
        self._step = reading

    @contextmanager
    def during(self, ask: Callable[[], Reading] | str) -> Iterator[None]:
        """Show a text or the reading of `ask` while the body runs; a body that ends before a line is due shows none."""
        self._asked.append(ask if callable(ask) else lambda: Reading(ask))
        self._begin()
        try:
            yield
        finally:
            self._asked.pop()

    def done(self) -> None:
        """End the thread and clear the open line."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._open:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._open = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()

    @classmethod
    def end_all(cls) -> None:
        """End all displays that a failed command left open."""
        for progress in list(cls._open_ones):
            progress.done()

    def _tell(self, reading: Reading, *, keep: bool) -> None:
        self._step = reading
        self._begin()
        self._write(reading, keep=keep)

    def _named(self, reading: Reading) -> Reading:
        alone = self._prefix in ("", reading.text)
        return reading if alone else replace(reading, text=f"{self._prefix}: {reading.text}")

    def _begin(self) -> None:
        if self.quiet or self._thread is not None:
            return
        self._ended.clear()
        Progress._open_ones.add(self)
        # A weak reference, so that the thread of a display dropped without `done` ends too.
        self._thread = threading.Thread(target=_beat, args=(weakref.ref(self), self._ended), daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Take a reading; print it if a line is due."""
        asked = self._asked[-1:]
        reading = asked[0]() if asked else self._step
        if reading.text and time.monotonic() - self._written >= self._every_s:
            self._write(reading, keep=False)
        elif reading.text:
            with self._lock:  # rates count from the work's first reading, not from its first line
                self._meter.line(self._named(reading), time.monotonic())

    def _write(self, reading: Reading, *, keep: bool) -> None:
        if self.quiet:
            return
        with self._lock:
            self._written = time.monotonic()
            text = self._meter.line(self._named(reading), self._written)
            line = f"[{self._written - self._start:6.1f} s] {text}"
            if not self._terminal:
                print(line, file=sys.stderr, flush=True)
                return
            width = 80
            with suppress(OSError, ValueError):
                width = os.get_terminal_size(sys.stderr.fileno()).columns or width
            # A wrapped line cannot be cleared.
            sys.stderr.write(f"\r\x1b[2K{line if keep else line[: width - 1]}" + ("\n" if keep else ""))
            sys.stderr.flush()
            self._open = not keep


def _beat(progress: weakref.ref[Progress], ended: threading.Event) -> None:
    while not ended.wait(_BEAT_S):
        one = progress()
        if one is None:
            return
        with suppress(OSError, ValueError):  # stderr is closed
            one.renew()
        del one


def during(progress: Callable[[str], None], ask: Callable[[], Reading] | str) -> AbstractContextManager[None]:
    """Return `Progress.during` if `progress` is a `Progress`, else a context that does nothing."""
    return progress.during(ask) if isinstance(progress, Progress) else nullcontext()


def stages(progress: Callable[[str], None]) -> Callable[[str, float], None]:
    """Return `Progress.stage` of a `Progress`; for another callable, a function that passes it each stage once."""
    if isinstance(progress, Progress):
        return progress.stage
    seen: set[str] = set()

    def tell(what: str, share: float) -> None:
        if what not in seen:
            seen.add(what)
            progress(what)

    return tell
