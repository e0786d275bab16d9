"""Writer of a dataset, all or nothing: a locked temporary folder, renamed when every
part is whole and on disk; and the streaming writer of a part."""

from __future__ import annotations

import errno
import io
import math
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from workloads.arraytypes import Array, ArrayShape, DType
from workloads.errors import DataIOError, DatasetError, OutcoreError, fault_of
from workloads.making.direct_stream import DirectStream
from workloads.manifest import (
    ALIGNMENT,
    ALLOWED_DTYPES,
    PARTS,
    SALT,
    FileEntry,
    Manifest,
    Part,
)
from workloads.npyfile import file_digest, padded_header, write_all
from workloads.tempfolder import (
    TemporaryFolder,
    free_bytes,
    into_place,
    sync,
    temporary_prefix,
)
from workloads.units import format_bytes

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_SPARE_BYTES = 1 << 20  # for the manifest and the file system's own blocks


class TopologySink(Protocol):
    """Destination of `indptr` and `indices`, such as a
    `workloads.making.writer.DatasetWriter`."""

    def begin(
        self, part: Any, dtype: npt.DTypeLike, count: int | ArrayShape
    ) -> tuple[Path, int]:
        """Make a file with its header and its blocks reserved; return it and the data's
        offset, a multiple of 4096."""

    def finish(self, part: Any, xxh3: str | None = None) -> None:
        """Cut the file to size and flush it to disk; `xxh3` is the digest of header and
        data."""


class PartWriter:
    """Streaming writer of a part of `count` elements (or that shape): fill `buffer()`,
    `commit` it; or `write` arrays of any length.

    The part is a `DirectStream`, hashed while it is written. A later call raises the
    first error of a thread: DataIOError where the disk is full or failed.
    """

    def __init__(
        self,
        sink: TopologySink,
        part: Any,
        dtype: npt.DTypeLike,
        count: int | ArrayShape,
    ) -> None:
        self._sink = sink
        self._part = part
        self._dtype = np.dtype(dtype)
        shape = (count,) if isinstance(count, int) else count
        path, offset = sink.begin(part, self._dtype, count)
        self._left = math.prod(shape)
        self._hash = xxhash.xxh3_64(padded_header(self._dtype, shape))
        self._stream = DirectStream(path, offset, digest=self._hash)

    def buffer(self) -> Array:
        """Return a view of the free part of the current buffer, never empty, to fill
        with the next elements."""
        return self._stream.room().view(self._dtype)

    def commit(self, count: int) -> None:
        """Accept the first `count` elements of `buffer()`."""
        if count > self._left:
            raise ValueError(
                f"{self._part} gets {count - self._left} elements more than announced"
            )
        self._left -= count
        self._stream.advance(count * self._dtype.itemsize)
        if self._left == 0:
            self._stream.flush()

    def write(self, array: Array) -> None:
        """Append a copy of `array`, converted to the part's type."""
        flat = array.reshape(-1)
        done = 0
        while done < flat.shape[0]:
            room = self.buffer()
            step = min(room.shape[0], flat.shape[0] - done)
            room[:step] = flat[done : done + step]
            self.commit(step)
            done += step

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait for the disk, then finish the part; every announced element must have
        been written."""
        self._stream.close(cancel=error is not None)
        if error is None:
            if self._left:
                raise ValueError(
                    f"{self._part} lacks {self._left} elements of what was announced"
                )
            self._sink.finish(self._part, xxh3=self._hash.hexdigest())


class PartStream:
    """Writer of a part from its first row to its last, hashed on the way, so that
    nothing is read back."""

    def __init__(
        self, file: io.FileIO, part: Part, dtype: DType, shape: ArrayShape
    ) -> None:
        self._file = file
        self._part = part
        self._dtype = dtype
        self.digest = xxhash.xxh3_64(padded_header(dtype, shape))
        self.left = _data_bytes(dtype, shape)

    def write(self, rows: Array) -> None:
        """Append rows (of the part's dtype and width)."""
        rows = np.ascontiguousarray(rows, dtype=self._dtype)
        if rows.nbytes > self.left:
            raise ValueError(
                f"{self._part} gets {rows.nbytes - self.left} bytes more than announced"
            )
        self.left -= rows.nbytes
        self.digest.update(write_all(self._file, rows))


class DatasetWriter:
    """Context manager that writes a dataset: complete at `path` after a clean exit,
    removed after an exception.

    Every part is written once, by `write` (a whole array), `stream` (row by row) or
    `begin` and `finish` (other code writes the data into the file, from the offset on,
    even by direct I/O).

    Args:
        path: folder of the dataset, which gives its name.
        recipe: settings of the dataset, for the manifest.
        replace: whether to replace an existing dataset (at the end, when the new one is
            whole).

    Attributes:
        folder: temporary folder, for scratch files too; every file in it but the parts
            is removed at the end.
        num_classes, notes, stats: content of the manifest besides the files.
        salt: digest of the salt of generated features, for the manifest's recipe; empty
            without.

    Raises:
        DatasetError: `path` exists; the disk is full (names needed and free bytes); the
            folder cannot be written.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        recipe: Mapping[str, Any] | None = None,
        replace: bool = False,
    ) -> None:
        self.path = Path(path).absolute()
        self._recipe = dict(recipe or {})
        self._replace = replace
        self._files: dict[Part, FileEntry] = {}
        self._open: dict[Part, tuple[DType, ArrayShape]] = {}
        self.num_classes = 1
        self.salt = ""
        self.notes: list[str] = []
        self.stats: dict[str, dict[str, float | int | None]] = {}
        self._needed = 0

    def __enter__(self) -> DatasetWriter:
        root = self.path.parent
        try:
            root.mkdir(parents=True, exist_ok=True)
            check_absent(self.path, self._replace)
            with ExitStack() as stack:
                stack.enter_context(signals_raise())
                self.folder = stack.enter_context(TemporaryFolder(root, self.path.name))
                self.folder.chmod(0o755)
                self._held = stack.pop_all()
        except OSError as error:
            self._translate(error)
        return self

    def require_space(self, data_bytes: int) -> None:
        """Check that the disk has space for `data_bytes` of parts and scratch files;
        raises DatasetError with the bytes needed and free."""
        self._needed = data_bytes + _SPARE_BYTES
        if free_bytes(self.path.parent) < self._needed:
            raise self._no_space()

    def begin(
        self, part: Part, dtype: npt.DTypeLike, count: int | ArrayShape
    ) -> tuple[Path, int]:
        """Make the part's file with its header and all its blocks reserved.

        Returns the file and its data's offset, a multiple of 4096; `finish` cuts up to
        a block written past the end.
        """
        element = np.dtype(dtype)
        sizes = (count,) if isinstance(count, int) else count
        shape = tuple(int(size) for size in sizes)
        dims = 2 if part == "features" else 1
        if element.name not in ALLOWED_DTYPES[part] or len(shape) != dims:
            raise ValueError(f"{part} cannot be {element} of shape {shape}")
        if part in self._files or part in self._open:
            raise ValueError(f"{part} is written twice")
        path = self.folder / f"{part}.npy"
        size = ALIGNMENT + _data_bytes(element, shape)
        try:
            with path.open("xb", buffering=0) as file:
                # Reserving first turns a disk that fills up into an error here, not in
                # the middle of a native loop.
                os.posix_fallocate(file.fileno(), 0, size)
                file.write(padded_header(element, shape))
        except OSError as error:
            self._translate(error, extra=size)
        self._open[part] = (element, shape)
        return path, ALIGNMENT

    def finish(
        self, part: Part, xxh3: str | None = None, count: int | None = None
    ) -> None:
        """Cut the part's file to its exact size, flush it to disk and record its
        digest.

        `xxh3` is the file's digest (None: the file is read back), `count` the rows
        written where fewer than announced.
        """
        dtype, shape = self._open.pop(part)
        if count is not None:
            if count > shape[0]:
                raise ValueError(f"{part} has {count} rows, {shape[0]} were announced")
            shape = (count, *shape[1:])
        path = self.folder / f"{part}.npy"
        size = ALIGNMENT + _data_bytes(dtype, shape)
        try:
            with path.open("r+b", buffering=0) as file:
                if os.fstat(file.fileno()).st_size < size:
                    raise DataIOError(
                        f"{path} is shorter than the {size} bytes announced",
                        path=str(path),
                    )
                os.truncate(file.fileno(), size)
                if count is not None:
                    file.write(padded_header(dtype, shape))
                os.fsync(file.fileno())
            digest = xxh3 or file_digest(path)
        except OSError as error:
            self._translate(error)
        self._files[part] = FileEntry(
            dtype=dtype.name,
            shape=shape,
            data_offset=ALIGNMENT,
            bytes=size,
            xxh3=digest,
        )

    @contextmanager
    def stream(
        self, part: Part, dtype: npt.DTypeLike, shape: int | ArrayShape
    ) -> Iterator[PartStream]:
        """Write the part row by row, in order, within the block; every announced row
        must be written."""
        path, offset = self.begin(part, dtype, shape)
        with path.open("r+b", buffering=0) as file:
            file.seek(offset)
            stream = PartStream(file, part, *self._open[part])
            yield stream
        if stream.left:
            raise ValueError(f"{part} lacks {stream.left} bytes of what was announced")
        self.finish(part, xxh3=stream.digest.hexdigest())

    def write(self, part: Part, array: Array) -> None:
        """Write the part from a whole array."""
        with self.stream(part, array.dtype, array.shape) as stream:
            stream.write(array)

    def memmap(self, part: Part) -> Array:
        """Map a finished part read-only."""
        return self._files[part].memmap(self.folder / f"{part}.npy")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                self._commit()
            elif isinstance(error, (OSError, DataIOError)) and error.errno in _NO_SPACE:
                raise self._full(error.errno) from None
        except OSError as failure:
            self._translate(failure)
        finally:
            self._held.close()

    def _commit(self) -> None:
        missing = [part for part in PARTS if part not in self._files]
        if missing:
            raise ValueError(f"the dataset lacks {', '.join(missing)}")
        features = self._files["features"]
        indices = self._files["indices"]
        recipe = dict(self._recipe)
        if self.salt:
            recipe[SALT] = self.salt
        manifest = Manifest(
            num_nodes=features.shape[0],
            num_edges=indices.shape[0],
            dim=features.shape[1],
            feature_dtype=features.dtype,
            index_dtype=indices.dtype,
            num_classes=self.num_classes,
            files=self._files,
            recipe=recipe,
            notes=tuple(self.notes),
            stats=self.stats,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        manifest.check(self.path)
        for extra in self.folder.iterdir():
            if extra.name not in {f"{part}.npy" for part in manifest.parts}:
                shutil.rmtree(extra) if extra.is_dir() else extra.unlink()
        manifest.write(self.folder)
        sync(self.folder / "dataset.json")
        sync(self.folder)
        replaced = []
        while self.path.exists() or not into_place(self.folder, self.path):
            if not self._replace:
                raise _exists(self.path)
            replaced.append(
                tempfile.mkdtemp(
                    prefix=temporary_prefix(self.path.name), dir=self.path.parent
                )
            )
            with suppress(FileNotFoundError):  # another writer was faster
                self.path.rename(replaced[-1])
        for folder in replaced:
            shutil.rmtree(folder, ignore_errors=True)
        sync(self.path.parent)

    def _full(self, code: int, extra: int = 0) -> DatasetError:
        """Return the error of a full disk or, by its `code`, of a used-up quota, to
        which free space means nothing."""
        if code == errno.ENOSPC:
            return self._no_space(extra)
        reason, fix = fault_of(code)
        return DatasetError(
            f"dataset {self.path.name!r} cannot be written: {self.path.parent}: "
            f"{reason}",
            fix,
        )

    def _no_space(self, extra: int = 0) -> DatasetError:
        what = f"dataset {self.path.name!r}"
        fix = "free some, choose another --data-root, or make it smaller"
        return no_space(what, self.path.parent, max(self._needed, extra), fix)

    def _translate(self, error: OSError, extra: int = 0) -> NoReturn:
        if error.errno in _NO_SPACE:
            written = sum(entry.bytes for entry in self._files.values())
            raise self._full(error.errno, written + extra) from None
        where = error.filename or self.path
        fault = f"dataset {self.path.name!r} cannot be written: {where}"
        raise DatasetError.from_os(
            error, fault, "choose a --data-root that can be written"
        ) from None


def _data_bytes(dtype: DType, shape: ArrayShape) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def _exists(path: Path) -> OutcoreError:
    return DatasetError(
        f"{path.name!r} exists already in {path.parent}",
        f"`outcore data rm {path.name}` first, or use --force",
    )


def check_absent(path: Path, replace: bool) -> None:
    """Check that there is nothing at `path`, unless it may be replaced; raises
    DatasetError."""
    if path.exists() and not replace:
        raise _exists(path)


@contextmanager
def signals_raise() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception within the block, so that the temporary
    folder is removed."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    held: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                held[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


def no_space(what: str, root: Path, needed: int, fix: str) -> DatasetError:
    """Return the error for `what`, whose `needed` bytes do not fit the disk of
    `root`."""
    fault = (
        f"no space for {what}: it needs {format_bytes(needed)} ({needed} bytes) in "
        f"{root}, {format_bytes(free_bytes(root))} are free"
    )
    return DatasetError(fault, fix)
