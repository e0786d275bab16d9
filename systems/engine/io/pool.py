"""Pool of readers, one for each thread that reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Reader(Protocol):
    """Interface of what a pool holds."""

    mode: str

    def close(self) -> None:
        """Close the file."""


Held = TypeVar("Held", bound=Reader)


class ReaderPool(Generic[Held]):
    """Readers, made at once; each thread borrows an idle one, of which there are as many as threads."""

    def __init__(self, make: Callable[[], Held], count: int) -> None:
        self._all = [make() for _ in range(count)]
        self._idle = deque(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def mode(self) -> str:
        """Read mode of the readers."""
        return ", ".join(sorted({reader.mode for reader in self._all}))

    @contextmanager
    def borrow(self) -> Iterator[Held]:
        """Lend an idle reader for the body."""
        reader = self._idle.popleft()
        try:
            yield reader
        finally:
            self._idle.append(reader)

    def close(self) -> None:
        """Close all readers."""
        for reader in self._all:
            reader.close()
        self._all.clear()
        self._idle.clear()
