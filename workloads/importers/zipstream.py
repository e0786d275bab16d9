"""Streams of the arrays in an `.npz` file: papers100M's exceed memory, and a zip member cannot be mapped."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from workloads.errors import DatasetError, InputError


class NpzMember:
    """One array of an `.npz` file, read in row order; `dtype` and `shape` are those of the whole array."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._member = path, f"{name}.npy"
        with self._open() as file:
            self.dtype, self.shape = self._header(file)

    def rows(self, rows_a_chunk: int, *, first: int = 0, last: int | None = None) -> Iterator[npt.NDArray[Any]]:
        """Yield rows `first` to `last` in chunks, as arrays [rows, ...]; earlier rows are read and dropped.

        Raises:
            DatasetError: the file is truncated or corrupted.
        """
        stop = self.shape[0] if last is None else last
        width = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        with self._open() as file:
            self._header(file)
            self._skip(file, first * width)
            for start in range(first, stop, rows_a_chunk):
                count = min(rows_a_chunk, stop - start)
                data = self._read(file, count * width)
                yield np.frombuffer(data, dtype=self.dtype).reshape(count, *self.shape[1:])

    def flat(self, elements_a_chunk: int, first: int, last: int) -> Iterator[npt.NDArray[Any]]:
        """Yield elements `first` to `last` of the array in C order, in chunks."""
        flat = NpzMember.__new__(NpzMember)
        flat._path, flat._member, flat.dtype = self._path, self._member, self.dtype
        flat.shape = (int(np.prod(self.shape, dtype=np.int64)),)
        return flat.rows(elements_a_chunk, first=first, last=last)

    def _open(self) -> IO[bytes]:
        try:
            # Closing the archive leaves the member's own handle open until the member is closed.
            with zipfile.ZipFile(self._path) as archive:
                return archive.open(self._member)
        except FileNotFoundError:
            raise DatasetError(f"{self._path} is missing", "check that the download was unpacked whole") from None
        except KeyError:
            raise InputError(f"{self._path} holds no {self._member[:-4]}", "is it another dataset?") from None
        except (zipfile.BadZipFile, OSError) as error:
            raise DatasetError(f"{self._path} is no whole .npz file ({error})", "download it again") from None

    def _header(self, file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
        try:
            version = npy_format.read_magic(file)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DatasetError(f"{self._path}: {self._member} is damaged ({error})", "download it again") from None
        if dtype.hasobject or (fortran and len(shape) > 1):
            raise InputError(f"{self._path}: {self._member} is not a plain array in C order")
        return dtype, tuple(int(size) for size in shape)

    def _skip(self, file: IO[bytes], count: int) -> None:
        while count:
            step = len(self._read(file, min(count, 8 << 20)))
            count -= step

    def _read(self, file: IO[bytes], count: int) -> bytes:
        try:
            data = file.read(count)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DatasetError(f"{self._path}: {self._member} is damaged ({error})", "download it again") from None
        if len(data) < count:
            raise DatasetError(f"{self._path}: {self._member} is truncated", "download it again")
        return data


def member_names(path: Path) -> list[str]:
    """List the arrays in an `.npz` file.

    Raises:
        DatasetError: the file is missing or no zip file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError) as error:
        raise DatasetError(f"{path} is no whole .npz file ({error})", "download it again") from None
