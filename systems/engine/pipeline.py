"""Stages of threads joined by bounded channels, the basis of every system, and rings of
buffer rows.

A stage is a number of threads that take items from a source, process them and put the
results in a sink. An error in any thread stops all threads and reaches the reader of
the last channel; leaving the `with` block, at any time and for any reason, ends every
thread and drops items in flight.

Fixed buffers of the largest mini-batch's size would stand half empty. A ring hands out
contiguous runs of rows in turn, so that as many mini-batches fit as their own sizes
allow.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


class Stopped(Exception):
    """The pipeline stopped while a thread waited; never raised outside its threads."""


class Drained(Exception):
    """The channel is closed and empty."""


class Stoppable:
    """Base of objects at which threads wait; `stop` wakes them all, and they raise
    Stopped from then on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._stopped = False

    def stop(self) -> None:
        """Wake all waiting threads."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _wait(self) -> None:
        """Wait for a change, with `_changed` held; the caller then looks again. Raises
        Stopped when the pipeline ends.

        Callers loop in place and hand in no condition: these loops are most of the
        Python that runs for a mini-batch.
        """
        if not self._stopped:
            self._changed.wait()
        if self._stopped:
            raise Stopped


class Channel(Stoppable, Generic[T]):
    """Bounded queue of numbered items.

    Args:
        capacity: items held before `put` blocks.
        ordered: yield items by ascending number from 0, whatever their order of
            arrival; `put` then blocks while an item's number is `capacity` or more
            ahead of the next one out, which therefore always fits.
    """

    def __init__(self, capacity: int, *, ordered: bool = False) -> None:
        super().__init__()
        if capacity < 1:
            raise ValueError(
                f"a channel needs a capacity of at least 1, not {capacity}"
            )
        self.capacity = capacity
        self.ordered = ordered
        self._items: dict[int, tuple[int, T]] = {}  # by number, or by order of arrival
        self._next = 0
        self._arrived = 0
        self._closed = False

    def put(self, number: int, item: T) -> None:
        """Add an item after waiting for space. Raises Stopped when the pipeline ends
        meanwhile."""
        with self._changed:
            while (
                self._stopped
                or (number if self.ordered else self._arrived)
                >= self._next + self.capacity
            ):
                self._wait()
            self._items[number if self.ordered else self._arrived] = (number, item)
            self._arrived += 1
            self._changed.notify_all()

    def give_back(self, item: T) -> None:
        """Add a reused item of an unordered channel, or drop it if the pipeline ended:
        the next one starts with all."""
        with suppress(Stopped):
            self.put(0, item)

    def get(self) -> tuple[int, T]:
        """Wait for the next item; return its number and the item.

        Raises:
            Drained: the channel is closed and empty.
            Stopped: the pipeline ended.
        """
        with self._changed:
            while self._stopped or self._next not in self._items:
                if self._closed and not self._stopped:
                    raise Drained
                self._wait()
            found = self._items.pop(self._next)
            self._next += 1
            self._changed.notify_all()
            return found

    def items(self) -> Iterator[T]:
        """Yield the items until the channel is closed and empty. Raises Stopped when
        the pipeline ends."""
        with suppress(Drained):
            while True:
                yield self.get()[1]

    def close(self) -> None:
        """Mark the end of the items."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def clear(self) -> None:
        """Drop the remaining items."""
        with self._changed:
            self._items.clear()

    def __len__(self) -> int:
        with self._changed:
            return len(self._items)


class Turnstile(Stoppable):
    """Gate that lets numbered threads through one after the other, from 0, so that they
    take a resource in order."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def enter(self, number: int) -> None:
        """Wait until every lower number has left. Raises Stopped when the pipeline
        ends."""
        with self._changed:
            while self._stopped or self._next != number:
                self._wait()

    def leave(self) -> None:
        """Let the next number through."""
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    @contextmanager
    def turn(self, number: int) -> Iterator[None]:
        """Run the body between `enter` and `leave`; after an error in it no higher
        number enters."""
        self.enter(number)
        yield
        self.leave()


class RowRing(Stoppable):
    """Ring of buffer rows, handed out as contiguous runs that return in about the same
    order.

    A run of the ring's full length is granted once all others have returned, so every
    `take` succeeds in the end.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._runs: deque[list[int]] = (
            deque()
        )  # [start, count, still held], oldest first

    def take(self, count: int) -> int:
        """Return the first of `count` rows after waiting until they are free.

        Raises:
            ValueError: the ring has fewer rows.
            Stopped: the pipeline ended.
        """
        if count > self._capacity:
            raise ValueError(f"{count} rows of a ring of {self._capacity}")
        with self._changed:
            while self._stopped or (start := self._place(count)) is None:
                self._wait()
            if count:
                self._runs.append([start, count, 1])
            return start

    def _place(self, count: int) -> int | None:
        if not self._runs:
            return 0
        first, (start, length, _) = self._runs[0][0], self._runs[-1]
        end = start + length
        if start >= first:
            # The held rows are contiguous: free rows lie after them up to the end, and
            # before them from the start.
            return (
                end if end + count <= self._capacity else 0 if count <= first else None
            )
        return end if end + count <= first else None

    def give_back(self, start: int, count: int) -> None:
        """Free a run obtained from `take`."""
        if not count:
            return
        with self._changed:
            next(run for run in self._runs if run == [start, count, 1])[2] = 0
            while self._runs and not self._runs[0][2]:
                self._runs.popleft()
            self._changed.notify_all()


class TableRing(RowRing):
    """Ring of pieces of `table` [rows, dim]."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__(table.shape[0])
        self.table = table

    def take_piece(self, rows: int) -> torch.Tensor:
        """Return a piece of `rows` rows; waits and raises as `take`."""
        start = self.take(rows)
        return self.table[start : start + rows]

    def give_back_piece(self, piece: torch.Tensor) -> None:
        """Free a piece's rows, once all earlier pieces are given back too. Any thread
        may call."""
        start = (piece.data_ptr() - self.table.data_ptr()) // max(
            1, self.table.stride(0) * self.table.element_size()
        )
        self.give_back(start, piece.shape[0])


class Pipeline:
    """Threads and their channels, started and ended together. Use as a context manager.

    Args:
        name: prefix of the threads' names.
    """

    JOIN_SECONDS = 10.0

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._channels: list[Channel[Any]] = []
        self._on_stop: list[Callable[[], None]] = []
        self._error: BaseException | None = None
        self._stopping = threading.Event()

    @property
    def stopping(self) -> bool:
        """Whether the pipeline is ending; long work in a stage checks it regularly."""
        return self._stopping.is_set()

    def channel(self, capacity: int, *, ordered: bool = False) -> Channel[T]:
        """Make a channel that ends with the pipeline."""
        channel: Channel[T] = Channel(capacity, ordered=ordered)
        self._channels.append(channel)
        return channel

    def filled(self, items: Sequence[T]) -> Channel[T]:
        """Make a channel that holds these items, to be taken and given back."""
        channel: Channel[T] = self.channel(max(1, len(items)))
        for number, item in enumerate(items):
            channel.put(number, item)
        return channel

    def turnstile(self) -> Turnstile:
        """Make a turnstile that ends with the pipeline."""
        turnstile = Turnstile()
        self.on_stop(turnstile.stop)
        return turnstile

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Register a callback for an early stop, to wake threads that wait elsewhere (a
        feature buffer)."""
        self._on_stop.append(callback)

    def stage(
        self,
        name: str,
        workers: int,
        work: Callable[[int, A], B],
        source: Channel[A] | Iterable[A],
        sink: Channel[B] | None = None,
    ) -> None:
        """Start `workers` threads that do `work(number, item)` for each item of
        `source` and put the result in `sink`.

        Items of an iterable are numbered from 0. The sink is closed when the last
        worker has found the source drained.

        Args:
            sink: channel of the results; None drops them.

        Raises:
            ValueError: an ordered sink follows an unordered channel; every worker might
                wait for space ahead of an item that no worker has taken yet, a
                deadlock.
        """
        if (
            sink is not None
            and sink.ordered
            and isinstance(source, Channel)
            and not source.ordered
        ):
            raise ValueError(
                f"stage {name} has an ordered sink, so its source has to be ordered too"
            )
        take = source.get if isinstance(source, Channel) else _Numbered(source).get
        running = [workers]

        def run() -> None:
            try:
                while not self._stopping.is_set():
                    try:
                        number, item = take()
                    except Drained:
                        break
                    result = work(number, item)
                    if sink is not None:
                        sink.put(number, result)
                    del item, result
            except Stopped:
                return
            except BaseException as error:
                self.stop(error)
                return
            with self._lock:
                running[0] -= 1
                last = running[0] == 0
            if last and sink is not None:
                sink.close()

        for index in range(workers):
            thread = threading.Thread(
                target=run, name=f"{self.name}-{name}-{index}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def results(self, channel: Channel[T]) -> Iterator[T]:
        """Yield the items of the last channel until it is drained.

        Raises:
            BaseException: the error of any thread.
            InterruptedError: another thread closed the pipeline meanwhile.
        """
        while True:
            try:
                _, item = channel.get()
            except (Drained, Stopped) as end:
                # A thread that failed before this channel was made stopped the others,
                # not the channel.
                if self._error is not None:
                    raise self._error from None
                if isinstance(end, Drained):
                    return
                raise InterruptedError(
                    f"{self.name} was closed before the epoch ended"
                ) from None
            yield item
            del item

    def stop(self, error: BaseException | None = None) -> None:
        """Stop every thread at its next check; `results` raises the first error
        given."""
        with self._lock:
            if self._error is None:
                self._error = error
            if self._stopping.is_set():
                return
            self._stopping.set()
        for callback in self._on_stop:
            callback()
        for channel in self._channels:
            channel.stop()

    def finish(self) -> None:
        """Wait until every thread has found its source drained, the regular end.

        Raises:
            BaseException: the error of any thread.
        """
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error
        self._threads.clear()
        self._on_stop.clear()

    def close(self) -> None:
        """Stop and join every thread, and drop remaining items. Safe to call twice.

        Raises:
            RuntimeError: a thread did not end within `JOIN_SECONDS`; names it.
        """
        self.stop()
        deadline = time.monotonic() + self.JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        if alive:
            raise RuntimeError(f"threads did not end: {', '.join(alive)}")
        for channel in self._channels:
            channel.clear()
        self._threads.clear()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Numbered(Generic[T]):
    """Thread-safe source of numbered items from an iterable."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = enumerate(items)
        self._lock = threading.Lock()

    def get(self) -> tuple[int, T]:
        with self._lock:
            for pair in self._items:
                return pair
        raise Drained
