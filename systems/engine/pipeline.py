"""Stages of threads joined by bounded channels: the pipeline that every system is made of.

A stage is a number of threads that take items from a source, work on them and put the results in a sink. Whatever goes
wrong in any thread stops all of them, and the reader of the last channel gets the error; leaving the `with` block, at
any moment and for any reason, ends every thread and gives back what was still under way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


class Stopped(Exception):
    """The pipeline was stopped while a thread waited; never seen outside its threads."""


class Drained(Exception):
    """The channel is closed and empty."""


class Channel(Generic[T]):
    """A bounded queue of numbered items.

    Args:
        capacity: items it holds before `put` blocks.
        ordered: hand items out by ascending number from 0, whatever the order they came in; `put` then blocks while
            the item's number is `capacity` or more ahead of the next one to go out, so that the next one always finds
            room.
        discard: called for each item that nobody took when the pipeline ends.
    """

    def __init__(self, capacity: int, *, ordered: bool = False, discard: Callable[[T], None] | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"a channel needs a capacity of at least 1, not {capacity}")
        self.capacity = capacity
        self.ordered = ordered
        self._discard = discard
        self._changed = threading.Condition()
        self._queue: deque[tuple[int, T]] = deque()
        self._early: dict[int, T] = {}
        self._next = 0
        self._closed = False
        self._stopped = False

    def put(self, number: int, item: T) -> None:
        """Add an item, waiting for room.

        Raises:
            Stopped: the pipeline ended meanwhile; the item was discarded.
        """
        with self._changed:
            while not self._stopped and not self._has_room(number):
                self._changed.wait()
            if not self._stopped:
                if self.ordered:
                    self._early[number] = item
                else:
                    self._queue.append((number, item))
                self._changed.notify_all()
                return
        if self._discard is not None:
            self._discard(item)
        raise Stopped

    def _has_room(self, number: int) -> bool:
        if self.ordered:
            return number < self._next + self.capacity
        return len(self._queue) < self.capacity

    def get(self) -> tuple[int, T]:
        """The next item and its number, waiting for one.

        Raises:
            Drained: closed and nothing is left.
            Stopped: the pipeline ended.
        """
        with self._changed:
            while True:
                if self._stopped:
                    raise Stopped
                if self.ordered and self._next in self._early:
                    number = self._next
                    self._next += 1
                    self._changed.notify_all()
                    return number, self._early.pop(number)
                if self._queue:
                    self._changed.notify_all()
                    return self._queue.popleft()
                if self._closed:
                    raise Drained
                self._changed.wait()

    def close(self) -> None:
        """No more items will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake everyone who waits; `put` and `get` raise `Stopped` from now on."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def clear(self) -> None:
        """Discard what is left inside."""
        with self._changed:
            left = [item for _, item in self._queue] + list(self._early.values())
            self._queue.clear()
            self._early.clear()
        if self._discard is not None:
            for item in left:
                self._discard(item)

    def __len__(self) -> int:
        with self._changed:
            return len(self._queue) + len(self._early)


class Turnstile:
    """Lets numbered threads through one after the other, 0 first, so that a shared resource is taken in order."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = 0
        self._stopped = False

    def enter(self, number: int) -> None:
        """Wait until every lower number has left. Raises Stopped when the pipeline ends."""
        with self._changed:
            while self._next != number and not self._stopped:
                self._changed.wait()
            if self._stopped:
                raise Stopped

    def leave(self) -> None:
        """Let the next number through."""
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake everyone who waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class Pipeline:
    """Threads, their channels and their end. Use as a context manager.

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
        """Whether the pipeline is ending; long work in a stage looks here now and then."""
        return self._stopping.is_set()

    def channel(
        self, capacity: int, *, ordered: bool = False, discard: Callable[[T], None] | None = None
    ) -> Channel[T]:
        """A channel that ends with the pipeline."""
        channel: Channel[T] = Channel(capacity, ordered=ordered, discard=discard)
        self._channels.append(channel)
        return channel

    def turnstile(self) -> Turnstile:
        """A turnstile that ends with the pipeline."""
        turnstile = Turnstile()
        self.on_stop(turnstile.stop)
        return turnstile

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call this when the pipeline stops early, to wake threads that wait elsewhere (a feature buffer)."""
        self._on_stop.append(callback)

    def stage(
        self,
        name: str,
        workers: int,
        work: Callable[[int, A], B],
        source: Channel[A] | Iterable[A],
        sink: Channel[B] | None = None,
    ) -> None:
        """Start `workers` threads that do `work(number, item)` for each item of `source` and put the result in `sink`.

        Items of an iterable are numbered from 0. The sink is closed when the last worker has found the source drained.

        Raises:
            ValueError: an ordered sink behind an unordered channel, which could deadlock: every worker might wait for
                room ahead of an item that none has taken yet.
        """
        if sink is not None and sink.ordered and isinstance(source, Channel) and not source.ordered:
            raise ValueError(f"stage {name} has an ordered sink, so its source has to be ordered too")
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
            thread = threading.Thread(target=run, name=f"{self.name}-{name}-{index}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def results(self, channel: Channel[T]) -> Iterator[T]:
        """Items of the last channel until it is drained.

        Raises:
            BaseException: what any thread raised.
            InterruptedError: the pipeline was closed by someone else meanwhile.
        """
        while True:
            try:
                _, item = channel.get()
            except Drained:
                # A thread that failed before this channel was made stopped the others, not the channel.
                if self._error is not None:
                    raise self._error from None
                return
            except Stopped:
                if self._error is not None:
                    raise self._error from None
                raise InterruptedError(f"{self.name} was closed before the epoch ended") from None
            yield item
            del item

    def stop(self, error: BaseException | None = None) -> None:
        """Stop every thread as soon as it looks up; the first error given is the one `results` raises."""
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
        """The regular end: wait until every thread has found its source drained.

        Raises:
            BaseException: what any thread raised.
        """
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error
        self._threads.clear()
        self._on_stop.clear()

    def close(self) -> None:
        """Stop, wait for every thread, discard what nobody took. Safe to call twice.

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
    """An iterable that many threads take numbered items from."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = enumerate(items)
        self._lock = threading.Lock()

    def get(self) -> tuple[int, T]:
        with self._lock:
            for pair in self._items:
                return pair
        raise Drained
