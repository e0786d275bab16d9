"""Progress display on stderr: one live line on a terminal (rich), a line at most every
ten seconds elsewhere.

A thread renews it, so that no step is silent however long it takes. A step reports its
progress by `stage` or is counted by `tracked`, or the thread asks for a `Reading` at
every beat (`during`); all show share, rate and time left.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as Live

T = TypeVar("T")
#: Function that a step calls with a line on its progress.
Notice = Callable[[str], None]

# Seconds between lines off a terminal.
_PLAIN_EVERY_S = 10.0
_BEAT_S = 0.5
# Columns of a terminal from which on the line has a bar.
_BAR_FROM = 100


def silent(text: str) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class Reading:
    """Progress of the work called `text`: `done` of `total` units (a share where
    `total` is 1, unknown where it is 0), with the name of the counted unit, and of the
    unit at hand (`detail`)."""

    text: str
    done: float = 0.0
    total: float = 0.0
    unit: str = ""
    detail: str = ""

    @property
    def share(self) -> float | None:
        """Completed share of the work, from 0 to 1; None: unknown."""
        known = self.total > 0 and self.done == self.done
        return min(1.0, max(0.0, self.done / self.total)) if known else None


class Meter:
    """Formatter of readings: completed share, rate and time left of one piece of work
    after the other."""

    def __init__(self) -> None:
        self._key: tuple[str, float] | None = None
        self._began = self._from = 0.0

    def parts(self, reading: Reading, now: float) -> tuple[str, str]:
        """Format a reading as what is done, and share, rate and time left; `now` in
        monotonic seconds.

        The rate is the mean since the work's first reading.
        """
        if self._key != (reading.text, reading.total):
            self._key = (reading.text, reading.total)
            self._began = now
            self._from = reading.done
        seconds = now - self._began
        text = f"{reading.text} {reading.detail}".rstrip()
        if reading.share is None:
            return text, span(seconds) if seconds >= 1 else ""
        counted = (
            f": {reading.done:.0f} of {reading.total:.0f} {reading.unit}"
            if reading.unit
            else ""
        )
        numbers = [f"{100 * reading.share:.0f} %"]
        rate = (reading.done - self._from) / seconds if seconds > 0 else 0.0
        if rate > 0:
            numbers += [f"{rate:.3g}/s"] if reading.unit else []
            numbers.append(f"{span((reading.total - reading.done) / rate)} left")
        elif seconds >= 1:
            numbers.append(span(seconds))
        return text + counted, ", ".join(numbers)


def span(seconds: float) -> str:
    """Format a duration in its largest suitable unit."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class TimeLeft:
    """Time left of a sequence of items with expected durations, scaled by the pace of
    the completed ones.

    Args:
        expected: expected seconds of each item, in order.
        now: clock in seconds.
    """

    def __init__(
        self, expected: Sequence[float], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._expected = expected
        self._now = now
        self._number = 0
        self._name = ""
        self._start = self._began = now()

    def begin(self, number: int, name: str) -> None:
        """Note that item `number` (from 0) begins."""
        self._number = number
        self._name = name
        self._began = self._now()

    def __call__(self) -> str:
        """Return the item's name and the time left, at least that of the items after
        it."""
        done = sum(self._expected[: self._number])
        pace = (self._began - self._start) / done if done > 0 else 1.0
        present = pace * self._expected[self._number] - (self._now() - self._began)
        left = pace * sum(self._expected[self._number + 1 :]) + max(0.0, present)
        return f"{self._name}, about {span(left)} left"


class Progress:
    """Progress display; call it with a short text for each step.

    `quiet`: print nothing. `verbose`: keep every step on a terminal, print every one
    elsewhere. `every_s`: least seconds between lines off a terminal; titles and kept
    lines are printed whenever they come.
    """

    _open_ones: ClassVar[weakref.WeakSet[Progress]] = weakref.WeakSet()

    def __init__(
        self,
        *,
        quiet: bool = False,
        verbose: bool = False,
        every_s: float = _PLAIN_EVERY_S,
    ) -> None:
        self.quiet = quiet
        self.verbose = verbose
        self._every_s = every_s
        self._start = time.monotonic()
        self._written = -math.inf
        self._prefix: Callable[[], str] = str
        self._step = Reading("")
        self._asked: list[Callable[[], Reading]] = []
        self._meter = Meter()
        self._live: Live | None = None
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def title(self, text: str, short: str | Callable[[], str] = "") -> None:
        """Begin a part of the work; `short`, a text or a function (default: the title),
        prefixes its steps."""
        self._prefix = short if callable(short) else lambda: short or text
        self._meter = Meter()
        self._step = Reading("")
        self.keep(text)

    def __call__(self, text: str) -> None:
        """Show a step."""
        self._report(Reading(text))

    def keep(self, text: str) -> None:
        """Print a line that is not renewed."""
        self._begin()
        self._print(text)

    def stage(self, what: str, share: float) -> None:
        """Set the completed share (0 to 1) of the step `what`; a new name begins a new
        step."""
        reading = Reading(what, share, 1.0)
        if what != self._step.text:
            self._report(reading)
        self._step = reading

    @contextmanager
    def during(self, ask: Callable[[], Reading] | str) -> Iterator[None]:
        """Show a text or the reading of `ask` while the body runs; a body that ends
        before a line is due shows none."""
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
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()

    @classmethod
    def end_all(cls) -> None:
        """End all displays that a failed command left open."""
        for progress in list(cls._open_ones):
            progress.done()

    def _report(self, reading: Reading) -> None:
        self._step = reading
        self._begin()
        self._show(reading, keep=self.verbose)

    def _begin(self) -> None:
        if self.quiet or self._thread is not None:
            return
        self._ended.clear()
        Progress._open_ones.add(self)
        if sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
            self._live = _live_line()
        # A weak reference, so that the thread of a display dropped without `done` ends
        # too.
        self._thread = threading.Thread(
            target=_beat, args=(weakref.ref(self), self._ended), daemon=True
        )
        self._thread.start()

    def renew(self) -> None:
        """Take a reading; show it if a line is due."""
        asked = self._asked[-1:]
        self._show(asked[0]() if asked else self._step)

    def _show(self, reading: Reading, *, keep: bool = False) -> None:
        """Show a reading on the terminal's line, or print it where a line is due;
        `keep`: print it in any case."""
        if self.quiet:
            return
        prefix = self._prefix()
        with self._lock:
            now = time.monotonic()
            done, numbers = self._meter.parts(
                reading, now
            )  # rates count from the first reading, not the first line
            text = ": ".join(filter(None, (prefix, done)))
            if self._live is not None:
                _renew(
                    self._live,
                    reading.share,
                    self._timed(text, now) if text else "",
                    numbers,
                )
            if keep or (
                text and self._live is None and now - self._written >= self._every_s
            ):
                counted = bool(reading.unit) or reading.share is None
                self._print(
                    text + (f"{', ' if counted else ': '}{numbers}" if numbers else "")
                )

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        with self._lock:
            self._written = time.monotonic()
            line = self._timed(text, self._written)
            if self._live is not None:
                self._live.console.print(line, markup=False, soft_wrap=True)
            else:
                with suppress(
                    OSError
                ):  # the reader has left, or a file is full: the work goes on
                    print(line, file=sys.stderr, flush=True)

    def _timed(self, text: str, now: float) -> str:
        return f"[{now - self._start:6.1f} s] {text}"


def _live_line() -> Live:
    """Start and return a display of one line: a text, cut at its end, a bar where there
    is space, and numbers."""
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Live
    from rich.table import Column
    from rich.text import Text

    class Cut(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.description, no_wrap=True, overflow="ellipsis")

    console = Console(stderr=True, highlight=False)
    bar = [BarColumn(bar_width=20)] if console.width >= _BAR_FROM else []
    columns = (Cut(Column()), *bar, TextColumn("{task.fields[numbers]}", markup=False))
    live = Live(
        *columns,
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
    )
    live.add_task("", total=None, numbers="", visible=False)
    live.start()
    console.show_cursor()  # a killed command leaves the terminal as it was
    return live


def _renew(live: Live, share: float | None, text: str, numbers: str) -> None:
    task = live.tasks[0]
    task.description = text
    task.fields["numbers"] = numbers
    task.visible = bool(text)
    task.total, task.completed = (
        (None, 0.0) if share is None else (1.0, share)
    )  # without a total, the bar pulses
    live.refresh()


def _beat(progress: weakref.ref[Progress], ended: threading.Event) -> None:
    while not ended.wait(_BEAT_S):
        one = progress()
        if one is None:
            return
        with suppress(OSError, ValueError):  # stderr is closed
            one.renew()
        del one


def during(
    progress: Callable[[str], None], ask: Callable[[], Reading] | str
) -> AbstractContextManager[None]:
    """Return `Progress.during` if `progress` is a `Progress`, else a context that does
    nothing."""
    return progress.during(ask) if isinstance(progress, Progress) else nullcontext()


def stages(progress: Callable[[str], None]) -> Callable[[str, float], None]:
    """Return `Progress.stage` of a `Progress`; for another callable, a function that
    passes it each stage once."""
    if isinstance(progress, Progress):
        return progress.stage
    seen: set[str] = set()

    def report(what: str, share: float) -> None:
        if what not in seen:
            seen.add(what)
            progress(what)

    return report


def tracked(
    progress: Callable[[str], None],
    items: Sequence[T],
    what: str,
    unit: str,
    name: Callable[[T], str] = lambda item: "",
) -> Iterator[T]:
    """Yield items, and show how many are done if `progress` is a `Progress`.

    Args:
        progress: the display.
        items: items to yield, in order.
        what: name of the work.
        unit: name of the items.
        name: function from an item to its name, shown while it is at hand.
    """
    done = 0
    detail = ""
    with during(progress, lambda: Reading(what, done, len(items), unit, detail)):
        for done, item in enumerate(items):  # noqa: B007 - the reading shows it
            detail = name(item)
            yield item
