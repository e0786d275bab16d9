"""What is going on, on stderr: one line that is renewed on a terminal, a line every few seconds elsewhere.

A thread renews it, so that no step is silent however long it takes; how far a step is comes from whoever does it, by
`stage`, or from a reading that is asked for at every beat (`during`). `share`, rate and time left are told of both.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

from harness.board import Reading

# Off a terminal a line is due after so many seconds: below the five that are promised, with time to be late.
_PLAIN_EVERY_S = 3.0
_BEAT_S = 0.5


class Meter:
    """Says of readings of one work after the other how far it is, how fast it goes and how long it will still take."""

    def __init__(self) -> None:
        self._key: tuple[str, float] | None = None
        self._began = self._from = 0.0

    def line(self, reading: Reading, now: float) -> str:
        """A reading in words, `now` in monotonic seconds. Rates are those since the work was first seen."""
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
    """Callable with a few words for each step.

    Args:
        quiet: print nothing.
        verbose: keep every step on a terminal.
        every_s: off a terminal, seconds between lines of one step.
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
        """Begin a part of the work; what follows stands under it."""
        self._prefix = text
        self._tell(Reading(text), keep=True)

    def __call__(self, text: str) -> None:
        """One step."""
        self._tell(Reading(text), keep=self.verbose)

    def keep(self, text: str) -> None:
        """A line that stays."""
        self._tell(Reading(text), keep=True)

    def stage(self, what: str, share: float) -> None:
        """A share (0 to 1) of a step is done; steps follow each other."""
        reading = Reading(what, share, 1.0)
        if what != self._step.text:
            self._tell(reading, keep=False)
        self._step = reading

    @contextmanager
    def during(self, ask: Callable[[], Reading]) -> Iterator[None]:
        """While the body runs, say at every beat what `ask` answers. Nothing is printed of what is over before."""
        self._asked.append(ask)
        self._begin()
        try:
            yield
        finally:
            self._asked.pop()

    def done(self) -> None:
        """Renew nothing any more; clear the line that is still open."""
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
        """What a command that failed left open."""
        for progress in list(cls._open_ones):
            progress.done()

    def _tell(self, reading: Reading, *, keep: bool) -> None:
        self._step = reading
        self._begin()
        self._write(reading, keep=keep)

    def _named(self, reading: Reading) -> Reading:
        if self._prefix in ("", reading.text):
            return reading
        return Reading(f"{self._prefix}: {reading.text}", reading.done, reading.total, reading.unit)

    def _begin(self) -> None:
        if self.quiet or self._thread is not None:
            return
        self._ended.clear()
        Progress._open_ones.add(self)
        # Who is forgotten without `done` ends its thread, too.
        self._thread = threading.Thread(target=_beat, args=(weakref.ref(self), self._ended), daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Look how far it is, and say so if that is due."""
        asked = self._asked[-1:]
        reading = asked[0]() if asked else self._step
        if reading.text and time.monotonic() - self._written >= self._every_s:
            self._write(reading, keep=False)
        elif reading.text:
            with self._lock:  # rates count from when the work began, not from its first line
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
            # A line that wraps cannot be taken back.
            sys.stderr.write(f"\r\x1b[2K{line if keep else line[: width - 1]}" + ("\n" if keep else ""))
            sys.stderr.flush()
            self._open = not keep


def _beat(progress: weakref.ref[Progress], ended: threading.Event) -> None:
    while not ended.wait(_BEAT_S):
        one = progress()
        if one is None:
            return
        with suppress(OSError, ValueError):  # nobody reads any more
            one.renew()
        del one


@contextmanager
def during(progress: Callable[[str], None], ask: Callable[[], Reading] | str) -> Iterator[None]:
    """`Progress.during` where `progress` is one, nothing where it is another callable; `ask` may be a few words."""
    if not isinstance(progress, Progress):
        yield
        return
    with progress.during(ask if callable(ask) else lambda: Reading(ask)):
        yield


def stages(progress: Callable[[str], None]) -> Callable[[str, float], None]:
    """`Progress.stage` where `progress` is one; another callable is told each stage once."""
    if isinstance(progress, Progress):
        return progress.stage
    seen: set[str] = set()

    def tell(what: str, share: float) -> None:
        if what not in seen:
            seen.add(what)
            progress(what)

    return tell
