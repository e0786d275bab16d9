"""A file of regions: appended byte ranges, each 4096-aligned, checksummed, read by one
large direct read.

Stores data that a system writes while it runs (sampled mini-batches, changesets): past
the page cache, within a byte budget, and verified on every read by the XXH3 in the
index, which the caller keeps in memory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from systems.engine.io.memory import aligned_empty
from workloads.direct_files import (
    cannot_open,
    io_errors,
    open_direct,
    padded,
    read_at,
    write_at,
)
from workloads.errors import BudgetError, DataIOError, fault_of
from workloads.units import format_bytes

Bytes = NDArray[np.uint8]
#: A region's entry in the index. A region is its head, padded to 8 bytes, then its
#: body; `count` is for the writer.
_NUMBERS = ("offset", "head_bytes", "body_bytes", "count")
_DIGESTS = ("head_xxh3", "body_xxh3")
ENTRY = np.dtype(
    [(name, "<i8") for name in _NUMBERS] + [(name, "<u8") for name in _DIGESTS]
)


@dataclass(frozen=True)
class RegionIndex:
    """Index of the regions in a file: structured array of `ENTRY`."""

    entries: NDArray[Any]

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Offsets in the file, int64 [regions], in bytes, multiples of 4096."""
        return np.asarray(self.entries["offset"], dtype=np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Each region's `count`, int64 [regions]; of a mini-batch, its nodes."""
        return np.asarray(self.entries["count"], dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return int(self.offsets[-1]) + self.read_bytes(-1) if len(self) else 0

    def read_bytes(self, number: int) -> int:
        """Return the bytes that reading a region requests from the disk."""
        entry = self.entries[number]
        return padded(padded(int(entry["head_bytes"]), 8) + int(entry["body_bytes"]))

    def head_bytes(self, number: int) -> int:
        """Return the bytes that reading a region's head alone requests."""
        return padded(int(self.entries[number]["head_bytes"]))


class RegionWriter:
    """Writer that appends regions to a file, by one thread at a time.

    Args:
        path: output file, replaced if it exists.
        budget_bytes: most bytes of the file; None: unlimited.
        fix: user's remedy for a full budget or disk.
        reuse: overwrite an existing file in place, which saves block allocation; it may
            stay longer than its regions.

    Raises:
        DataIOError: the file cannot be created.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        budget_bytes: int | None = None,
        fix: str = "make room on that disk or lower the bytes asked for",
        reuse: bool = False,
    ) -> None:
        self.path = Path(path)
        self._budget = budget_bytes
        self._fix = fix
        self._entries: list[tuple[int, ...]] = []
        self._buffer = aligned_empty(0)
        self._fd: int | None = None
        self.nbytes = 0
        with self._advice():
            self._fd = open_direct(
                self.path, os.O_WRONLY | os.O_CREAT | (0 if reuse else os.O_TRUNC)
            )

    def append_region(
        self, head: NDArray[Any], body: Sequence[NDArray[Any]], count: int = 0
    ) -> None:
        """Write one region: `head` can be read later without the `body`, whose arrays
        are joined.

        Raises:
            BudgetError: the file would exceed its budget.
            DataIOError: the disk is full or fails; names file and offset. The file is
                removed.
        """
        parts = [_flat(array) for array in body]
        start = padded(head.nbytes, 8)
        total = start + sum(part.nbytes for part in parts)
        region = self.room(padded(total))[: padded(total)]
        region[: head.nbytes] = _flat(head)
        region[head.nbytes : start] = 0
        at = start
        for part in parts:
            region[at : at + part.nbytes] = part
            at += part.nbytes
        region[total:] = 0
        self.append_made([(head.nbytes, total - start, count)])

    def room(self, nbytes: int) -> Bytes:
        """Return at least `nbytes` bytes of memory to assemble regions in; the previous
        content is lost."""
        if self._buffer.nbytes < nbytes:
            self._buffer = aligned_empty(
                0
            )  # free the old buffer before allocating the new one
            self._buffer = aligned_empty(nbytes)
        return self._buffer

    def append_made(self, made: Sequence[tuple[int, int, int]]) -> None:
        """Write consecutive regions laid out in `room`: (bytes of head, bytes of body,
        `count`) of each.

        Raises:
            BudgetError: the file would exceed its budget.
            DataIOError: the disk is full or fails; names file and offset. The file is
                removed.
        """
        if self._fd is None:
            raise ValueError(f"{self.path} is closed")
        at = 0
        entries = []
        for head, body, count in made:
            start = at + padded(head, 8)
            parts = self._buffer[at : at + head], self._buffer[start : start + body]
            digests = [xxhash.xxh3_64_intdigest(part.data) for part in parts]
            entries.append((self.nbytes + at, head, body, count, *digests))
            at = padded(start + body)
        if self._budget is not None and self.nbytes + at > self._budget:
            regions = len(self._entries) + len(made)
            message = (
                f"{self.path.name} needs {format_bytes(self.nbytes + at)} after "
                f"{regions} regions"
            )
            self.abandon()
            raise BudgetError(
                f"{message}, its budget is {format_bytes(self._budget)}", self._fix
            )
        with self._advice():
            try:
                write_at(self._fd, self._buffer[:at], self.nbytes, self.path)
            except DataIOError:
                self.abandon()
                raise
        self._entries += entries
        self.nbytes += at

    def close(self, *, sync: bool = True) -> RegionIndex:
        """Flush the file to disk (`sync=False`: it need not survive a crash of the
        machine); return its index.

        Raises:
            DataIOError: the disk is full or fails.
        """
        index = RegionIndex(np.array(self._entries, dtype=ENTRY))
        if self._fd is None:
            return index
        fd = self._fd
        self._fd = None
        self._buffer = aligned_empty(0)
        with self._advice(), io_errors(self.path, self.nbytes, writing=True):
            try:
                if sync:
                    os.fdatasync(fd)
            finally:
                os.close(fd)
        return index

    def abandon(self) -> None:
        """Close and remove the file. May be called at any time."""
        fd = self._fd
        self._fd = None
        self._buffer = aligned_empty(0)
        if fd is not None:
            os.close(fd)
            with suppress(OSError):
                self.path.unlink()

    @contextmanager
    def _advice(self) -> Iterator[None]:
        """Give an error of a full disk the user's remedy."""
        try:
            yield
        except DataIOError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                error.fix = self._fix
            raise


class RegionReader:
    """Reader of regions by one large direct read each, for any number of threads.

    Args:
        path: file of a `RegionWriter`.
        index: result of `RegionWriter.close`.
        what: name of a region in error messages, by default the class's.

    Raises:
        DataIOError: the file cannot be opened.
    """

    _what = "region"

    def __init__(self, path: Path | str, index: RegionIndex, *, what: str = "") -> None:
        self.path = Path(path)
        self.index = index
        self._what = what or self._what
        self._fd: int | None = None
        try:
            self._fd = open_direct(self.path, os.O_RDONLY)
        except DataIOError as error:
            raise cannot_open(self.path, error.errno) from error

    def __len__(self) -> int:
        return len(self.index)

    def read_region(self, number: int) -> tuple[Bytes, Bytes]:
        """Return head and body (uint8) of a region, both verified, as views of new
        memory.

        Raises:
            DataIOError: the device failed, or the bytes are missing or corrupted; names
                file, offset and region.
        """
        head, body = (
            int(self.index.entries[number][name])
            for name in ("head_bytes", "body_bytes")
        )
        start = padded(head, 8)
        memory = self._read(number, start + body)
        return self._verified(number, memory[:head], "head_xxh3"), self._verified(
            number, memory[start:], "body_xxh3"
        )

    def head(self, number: int) -> Bytes:
        """Return the head alone (uint8); raises as `read_region`."""
        memory = self._read(number, int(self.index.entries[number]["head_bytes"]))
        return self._verified(number, memory, "head_xxh3")

    def close(self) -> None:
        """Close the file. May be called more than once."""
        fd = self._fd
        self._fd = None
        if fd is not None:
            os.close(fd)

    def _read(self, number: int, nbytes: int) -> Bytes:
        if self._fd is None:
            raise ValueError(f"{self.path} is closed")
        memory = aligned_empty(padded(nbytes))
        try:
            read_at(self._fd, memory, int(self.index.offsets[number]), self.path)
        except DataIOError as error:
            reason = fault_of(error.errno)[0] if error.errno else "the file ends there"
            raise self._broken(number, error.offset, reason, error.errno) from error
        return memory[:nbytes]

    def _verified(self, number: int, data: Bytes, digest: str) -> Bytes:
        entry = self.index.entries[number]
        if xxhash.xxh3_64_intdigest(data.data) != int(entry[digest]):
            raise self._broken(
                number,
                int(entry["offset"]),
                "its bytes are not those written (XXH3)",
                0,
            )
        return data

    def _broken(self, number: int, offset: int, reason: str, code: int) -> DataIOError:
        message = (
            f"reading {self._what} {number} of {self.path} failed at offset {offset}: "
            f"{reason}"
        )
        return DataIOError(
            message,
            path=str(self.path),
            offset=offset,
            errno=code,
            fix="check the device and run again",
        )


def _flat(array: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
