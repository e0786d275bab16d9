"""Plain `.npy` files with headers padded to 4096 bytes: numpy opens them, and direct
reads of the data are aligned."""

from __future__ import annotations

import io
import os
import tokenize
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import xxhash
from numpy.lib import format as npy_format

from workloads.arraytypes import ArrayShape, DType
from workloads.manifest import ALIGNMENT

HASH_CHUNK_BYTES = 8 << 20


def padded_header(
    dtype: np.dtype[np.generic], shape: ArrayShape, to: int = ALIGNMENT
) -> bytes:
    """Make a version 1.0 `.npy` header of exactly `to` bytes for a C-ordered array."""
    descr = npy_format.dtype_to_descr(dtype)
    text = (
        f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode(
            "latin1"
        )
    )
    prefix = npy_format.magic(1, 0)
    length = to - len(prefix) - 2
    return prefix + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


def write_all(file: io.FileIO, array: npt.NDArray[np.generic]) -> memoryview:
    """Write the whole array to an unbuffered file, which may accept less at a time;
    return its bytes."""
    data = left = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    while len(left):
        left = left[file.write(left) :]
    return data


def read_header(file: IO[bytes]) -> tuple[DType, ArrayShape]:
    """Read element type and shape of a `.npy` file from its beginning; leaves `file` at
    the data. Raises ValueError where it is no `.npy` file, TypeError where it is in
    Fortran order or holds Python objects."""
    version = npy_format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy version {version[0]}.{version[1]} is not supported")
    if version == (1, 0):
        read = npy_format.read_array_header_1_0
    else:
        read = npy_format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(file)
    except (SyntaxError, tokenize.TokenError) as error:  # where brackets are damaged
        raise ValueError(f"Cannot parse header: {error}") from error
    if dtype.hasobject:
        raise TypeError("it holds Python objects")
    if fortran and len(shape) > 1:
        raise TypeError("it is in Fortran order")
    return dtype, tuple(int(size) for size in shape)


def file_digest(path: Path) -> str:
    """Return the XXH3-64 of a file, 16 hexadecimal digits.

    Reads 8 MiB at a time and drops them from the page cache, which a table larger than
    memory would otherwise fill.
    """
    digest = xxhash.xxh3_64()
    buffer = memoryview(bytearray(HASH_CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        position = 0
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            os.posix_fadvise(file.fileno(), position, count, os.POSIX_FADV_DONTNEED)
            position += count
    return digest.hexdigest()
