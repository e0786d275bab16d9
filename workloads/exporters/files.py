"""Files of an export: declared with their values as streams, written under a temporary
name and compared meanwhile."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import xxhash

from workloads.arraytypes import Array, ArrayShape, UInt8Array
from workloads.dataset import Dataset, Part
from workloads.direct_files import PAGE, aligned_empty, io_failed, open_direct, read_at
from workloads.errors import DataIOError, DatasetError, require
from workloads.making.direct_stream import DirectStream
from workloads.making.progress import Progress
from workloads.making.writer import no_space, signals_raise
from workloads.manifest import ALIGNMENT, MANIFEST_NAME
from workloads.npyfile import padded_header
from workloads.tempfolder import TemporaryFolder, free_bytes, into_place, sync

Tick = Callable[[int], None]
"""Function that is called with the number of bytes just written."""

PIECE_BYTES = 2 << 20
_AHEAD = 6
_HASHED_AHEAD = 2  # pieces
_SPARE_BYTES = 1 << 20  # for the file system's own blocks


class Writable(Protocol):
    """Stream that takes bytes."""

    def write(self, data: memoryview, /) -> object:
        """Append bytes."""


@dataclass(frozen=True, eq=False)
class Values:
    """Array to write.

    Attributes:
        dtype, shape: numpy's name of the element type, and the shape; values of another
            type are converted.
        pieces: yields the values in order, in flat arrays of any length, each valid
            until the next.
    """

    dtype: str
    shape: ArrayShape
    pieces: Callable[[], Iterable[Array]]

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.count * np.dtype(self.dtype).itemsize

    def write(self, out: Writable) -> None:
        """Write all elements to a stream; raises ValueError where there are more or
        fewer than the shape has."""
        left = self.nbytes
        for piece in readable(self.pieces()):
            data = np.ascontiguousarray(piece, dtype=self.dtype).view(np.uint8).data
            left -= len(data)
            out.write(data)
        if left:
            raise ValueError(
                f"an array of shape {list(self.shape)} lacks {left} bytes of what was "
                "announced"
            )


def readable(pieces: Iterable[Array]) -> Iterator[Array]:
    """Yield the values; raises DataIOError where their source file cannot be read; an
    OSError of the written file has another message."""
    try:
        yield from pieces
    except OSError as error:
        path = error.filename or "the dataset"
        denied = isinstance(error, PermissionError)
        fix = "" if denied else "check that the dataset is there and can be read"
        raise DataIOError.of(error, f"{path} cannot be read", path, fix) from None


class _Md5:
    """MD5 of a stream, computed by a thread while the stream is written."""

    def __init__(self) -> None:
        self._hash = hashlib.md5(usedforsecurity=False)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="export-md5")
        self._ahead: deque[Future[None]] = deque()

    def update(self, data: bytes | memoryview) -> None:
        """Append bytes, which are copied; wait where several pieces are behind."""
        while len(self._ahead) >= _HASHED_AHEAD:
            self._ahead.popleft().result()
        self._ahead.append(self._thread.submit(self._hash.update, bytes(data)))

    def close(self) -> str:
        """Return the digest of all bytes, 32 hexadecimal digits, and end the thread."""
        self._thread.shutdown()
        return self._hash.hexdigest()


class Output:
    """Context manager of a new file: every piece is written past the page cache, read
    back from disk and compared.

    Up to six pieces of 2 MiB are written and read back at once, while the next ones are
    read and converted.

    Attributes:
        nbytes: bytes written so far.
        md5: at the end, the digest of all bytes; empty unless they are hashed.
    """

    def __init__(
        self, path: Path, most: int, tick: Tick, hashing: bool = False
    ) -> None:
        """Make the file with blocks for `most` bytes reserved; `tick` is called with
        each written piece's bytes, and `hashing` has all bytes hashed."""
        self._path = path
        self._tick = tick
        self.nbytes = 0
        self.md5 = ""
        with path.open("xb") as file:
            # Reserving first turns a disk that fills up into an error here, and saves
            # the file system's work later.
            os.posix_fallocate(file.fileno(), 0, max(1, most))
        self._stream = DirectStream(path, 0, read_back=True)
        self._hash = _Md5() if hashing else None

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; return their number."""
        if self._hash is not None:
            self._hash.update(data)
        self._stream.write(np.frombuffer(data, np.uint8))
        self.nbytes += len(data)
        self._tick(len(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: a `zipfile.ZipFile` wants the method."""

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait until all is written and compared, cut the file to its bytes and flush
        it to disk."""
        if self._hash is not None:
            self.md5 = self._hash.close()
        if error is None:
            self._stream.flush()
        self._stream.close(cancel=error is not None)
        if error is None:
            os.truncate(self._path, self.nbytes)
            sync(self._path)


@dataclass(frozen=True)
class ArrayFile:
    """File of an array: plain values, after a header if the name ends in `.npy`."""

    name: str
    values: Values

    @property
    def _header(self) -> bytes:
        if not self.name.endswith(".npy"):
            return b""
        # NumPy before 2 cannot map an array without elements whose header ends at a
        # page.
        to = ALIGNMENT if self.values.count else 128
        return padded_header(np.dtype(self.values.dtype), self.values.shape, to)

    @property
    def nbytes(self) -> int:
        """Bytes of header and values."""
        return len(self._header) + self.values.nbytes

    def write(self, out: Output) -> None:
        """Write the content."""
        out.write(self._header)
        self.values.write(out)


@dataclass(frozen=True)
class TextFile:
    """Small text file."""

    name: str
    text: str

    @property
    def nbytes(self) -> int:
        """Bytes of the text."""
        return len(self.text.encode())

    def write(self, out: Output) -> None:
        """Write the content."""
        out.write(self.text.encode())


@dataclass(frozen=True)
class LinkFile:
    """Symbolic link to another file of the folder."""

    name: str
    to: str
    nbytes: int = 0


class Content(Protocol):
    """One file of an export: its name within the folder, and its bytes within a few
    KiB."""

    @property
    def name(self) -> str:
        """Path within the folder."""

    @property
    def nbytes(self) -> int:
        """Bytes of the file, within a few KiB."""

    def write(self, out: Output) -> None:
        """Write the content."""


@dataclass(frozen=True)
class DigestFile:
    """JSON file of the MD5 digests of all files before it, by their paths, which begin
    with the folder's path as the caller gave it."""

    name: str
    nbytes: int = 0  # small, and known at the end

    def text(self, folder: Path, digests: Mapping[str, str]) -> TextFile:
        """Return the file of these digests, which are given by the files' names within
        `folder`."""
        found = {str(folder / name): digest for name, digest in digests.items()}
        return TextFile(self.name, json.dumps(found, indent=4))


File = Content | LinkFile | DigestFile
"""One file of an export."""


def stored(dataset: Dataset, part: Part, dtype: str = "") -> Values:
    """Return a part of a dataset as values to write, in its own type or in `dtype`."""
    entry = dataset.manifest.files[part]
    return Values(dtype or entry.dtype, entry.shape, partial(pieces, dataset, part))


def class_count(dataset: Dataset) -> File:
    """Declare a file of the number of classes, which may exceed the largest label."""
    return ArrayFile(
        "num_classes.npy",
        Values("int64", (), lambda: [np.array([dataset.num_classes])]),
    )


def pieces(dataset: Dataset, part: Part) -> Iterator[Array]:
    """Yield the values of a part in order, in flat pieces, read past the page cache,
    ahead of the caller.

    Raises:
        DatasetError: the file's content differs from its digest in the manifest (after
            the last piece).
        DataIOError: the file cannot be read, or ends early.
    """
    entry = dataset.manifest.files[part]
    path = dataset.file(part)
    with path.open("rb") as file:
        digest = xxhash.xxh3_64(file.read(entry.data_offset))
    for piece in _direct_pieces(path, entry.data_offset, entry.bytes):
        digest.update(piece.data)
        yield piece.view(entry.dtype)
    if digest.hexdigest() != entry.xxh3:
        fault = f"{path} is corrupted: XXH3 {digest.hexdigest()}, {entry.xxh3} expected"
        raise DatasetError(
            fault, "`outcore data verify` names every fault; make or import it again"
        )


def checked_map(dataset: Dataset, part: Part) -> Array:
    """Map a part for values that are not wanted in order, and read it once to compare
    its digest. Raises as `pieces`.

    It is mapped first: a file that replaces this one meanwhile is not the mapped one,
    and has another digest.
    """
    values = dataset.memmap(part)
    for _ in pieces(dataset, part):
        pass
    return values


def _direct_pieces(path: Path, begin: int, end: int) -> Iterator[UInt8Array]:
    """Yield the bytes of a file from `begin` (a multiple of 4096) to `end`, in order,
    with six reads in flight beside the piece in use; each is valid until the next.
    Raises DataIOError where the file cannot be read, or ends early."""
    memory = aligned_empty((_AHEAD + 1) * PIECE_BYTES).reshape(_AHEAD + 1, PIECE_BYTES)
    handle = open_direct(path, os.O_RDONLY)

    def read(number: int, at: int) -> UInt8Array:
        size = min(PIECE_BYTES, end - at)
        place = memory[number % (_AHEAD + 1)]
        whole = size // PAGE * PAGE
        read_at(handle, place[:whole], at, path)
        if whole < size:  # a direct read takes whole pages
            rest = np.fromfile(path, np.uint8, size - whole, offset=at + whole)
            if len(rest) < size - whole:
                raise io_failed(path, at + whole, 0)
            place[whole:size] = rest
        found: UInt8Array = place[:size]
        return found

    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="export-read") as threads:
        begins = enumerate(range(begin, end, PIECE_BYTES))
        ahead = deque(
            threads.submit(read, *begin) for begin in itertools.islice(begins, _AHEAD)
        )
        try:
            while ahead:
                piece = ahead.popleft().result()
                ahead.extend(
                    threads.submit(read, *begin)
                    for begin in itertools.islice(begins, 1)
                )
                yield piece
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
            os.close(handle)


def write_folder(files: Sequence[File], target: Path, progress: Progress) -> int:
    """Write the files as the folder `target`, whole or not at all; return their bytes.
    Raises as `export_dataset`."""
    given = target
    target = target.absolute()
    root = target.parent
    total = sum(file.nbytes for file in files)
    needed = total + _SPARE_BYTES + 2 * PAGE * len(files)
    done = 0

    def tick(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        progress("writing and reading back", min(1.0, done / max(1, total)))

    try:
        if target.exists() or target.is_symlink():
            raise _exists(target)
        if free_bytes(root) < needed:
            raise _no_space(target, needed)
        _refuse_inside_a_dataset(target)
        root.mkdir(parents=True, exist_ok=True)
        with signals_raise(), TemporaryFolder(root, target.name) as folder:
            folder.chmod(0o755)
            _write_files(files, folder, given, tick)
            if target.exists() or not into_place(folder, target):
                raise _exists(target)
            sync(root)
    except (OSError, DataIOError) as error:
        if error.errno == errno.ENOSPC:
            raise _no_space(target, needed) from None
        if isinstance(error, DataIOError):
            raise
        fix = "choose another --out, in a folder that can be written"
        fault = f"{target} cannot be written"
        raise DatasetError.from_os(error, fault, fix) from None
    return total


def _write_files(files: Sequence[File], folder: Path, given: Path, tick: Tick) -> None:
    """Write the files into `folder`, which will be renamed to `given`."""
    hashing = any(isinstance(file, DigestFile) for file in files)
    digests: dict[str, str] = {}
    for file in files:
        path = folder / file.name
        path.parent.mkdir(exist_ok=True)
        if isinstance(file, LinkFile):
            path.symlink_to(file.to)
            continue
        content = file.text(given, digests) if isinstance(file, DigestFile) else file
        with Output(path, content.nbytes, tick, hashing) as out:
            content.write(out)
        digests[file.name] = out.md5
    for written in {folder, *(path.parent for path in folder.rglob("*"))}:
        sync(written)


def _refuse_inside_a_dataset(target: Path) -> None:
    for folder in Path(os.path.realpath(target)).parents:
        fault = f"{target} would lie in the dataset {folder.name!r}"
        require(not (folder / MANIFEST_NAME).is_file(), fault, "choose another --out")


def _exists(target: Path) -> DatasetError:
    return DatasetError(
        f"{target} exists already", "remove it, or choose another --out"
    )


def _no_space(target: Path, needed: int) -> DatasetError:
    what = f"the export {target.name!r}"
    fix = "free some, or choose another --out"
    return no_space(what, target.parent, needed, fix)
