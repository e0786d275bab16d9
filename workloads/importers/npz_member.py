"""Arrays of an `.npz` file as streams: they may exceed memory, and a member of a zip
file cannot be mapped."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np

from workloads.arraytypes import Array
from workloads.errors import DatasetError, InputError
from workloads.importers.source import (
    EDGES_A_CHUNK,
    EdgeChunk,
    EdgeStream,
    FeatureRows,
    check_edges,
    check_table,
    feature_source,
    reading,
)
from workloads.npyfile import read_header

_NO_FILE = "is no whole .npz file"
_DAMAGE = (
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    ValueError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    TokenError,
)


class NpzMember:
    """Array of an `.npz` file, read in order; `dtype` and `shape` are from the
    whole array.

    Every call raises DatasetError where the file is missing, truncated or corrupted,
    and InputError where it holds no such array, or one in Fortran order or of Python
    objects.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = f"{path}: {name}.npy"
        self._member = f"{name}.npy"
        self._open().close()

    def rows(self, rows_a_chunk: int) -> Iterator[Array]:
        """Yield all rows in chunks, as arrays [rows, ...]."""
        width = int(np.prod(self.shape[1:], dtype=np.int64))
        for part in self.flat(rows_a_chunk * width, 0, self.shape[0] * width):
            yield part.reshape(-1, *self.shape[1:])

    def edges(self) -> EdgeStream:
        """Stream the edges of an array [2, E]; raises InputError for another shape or
        no integers."""
        check_edges(self, self._name)
        count = self.shape[1]

        def chunks() -> Iterator[EdgeChunk]:
            # All sources stand before all destinations, so the member is read twice,
            # side by side.
            sources = self.flat(EDGES_A_CHUNK, 0, count)
            yield from zip(
                sources, self.flat(EDGES_A_CHUNK, count, 2 * count), strict=True
            )

        return chunks

    def chunks(self) -> Iterator[Array]:
        """Yield the elements of an array [E] in chunks of the same lengths as the
        edges."""
        yield from self.flat(EDGES_A_CHUNK, 0, int(np.prod(self.shape, dtype=np.int64)))

    def features(self) -> FeatureRows:
        """Stream the feature rows of an array [N, D]; raises InputError for another
        shape or no numbers."""
        check_table(self, self._name)
        return feature_source(self.shape, self.dtype, self.rows)

    def load(self) -> Array:
        """Return the whole array."""
        count = int(np.prod(self.shape, dtype=np.int64))
        empty = np.empty(0, dtype=self.dtype)
        parts = self.flat(max(1, count), 0, count)
        return next(parts, empty).reshape(self.shape)

    def flat(self, elements_a_chunk: int, first: int, last: int) -> Iterator[Array]:
        """Yield elements `first` to `last` of the array in C order, in chunks; earlier
        ones are read and dropped."""
        with (
            self._open() as file,
            reading(self._path, f"has a damaged {self._member}", _DAMAGE),
        ):
            # read rather than seek, so that the checksum at the end is compared
            skip = first * self.dtype.itemsize
            while skip and (data := file.read(min(skip, 8 << 20))):
                skip -= len(data)
            for start in range(first, last, elements_a_chunk):
                count = min(elements_a_chunk, last - start) * self.dtype.itemsize
                data = file.read(count)
                if len(data) < count:
                    raise DatasetError(
                        f"{self._name} is truncated", "download it again"
                    )
                yield np.frombuffer(data, dtype=self.dtype)

    def _open(self) -> IO[bytes]:
        """Open the array behind its header."""
        try:
            # Closing the archive leaves the member's own handle open until the member
            # is closed.
            with (
                reading(self._path, _NO_FILE, _DAMAGE),
                zipfile.ZipFile(self._path) as archive,
            ):
                file = archive.open(self._member)
        except KeyError:
            fault = f"{self._path} holds no {self._member[:-4]}"
            raise InputError(fault, "is it another dataset?") from None
        try:
            with reading(self._path, f"has a damaged {self._member}", _DAMAGE):
                self.dtype, self.shape = read_header(file)
        except TypeError:
            fix = "save np.ascontiguousarray of it, without Python objects"
            fault = f"{self._name} is not a plain array in C order"
            raise InputError(fault, fix) from None
        return file


def member_names(path: Path) -> list[str]:
    """List the arrays in an `.npz` file; raises DatasetError where the file is missing
    or no zip file."""
    with reading(path, _NO_FILE, _DAMAGE), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]
