"""Disk layout of a packed store: regions, rows files and the index, with their exact
sizes.

The packed rows of a region, its arrays and a `.rows` file each begin at a page and are
padded to whole pages.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from systems.engine.io.arrays import Array
from workloads.direct_files import PAGE, io_errors, padded
from workloads.errors import DataIOError

VERSION = 1
_ALIGN = 64  # alignment of an array in a region
_PIECE_BYTES = 2 << 20  # piece of a rows file: reordered in memory and checked as one
_PIECE_ROWS = 32768


def slot_rows(row_bytes: int) -> int:
    """Return the fewest rows that fill whole pages; runs of a multiple of them begin
    and end at a page."""
    return PAGE // math.gcd(PAGE, row_bytes)


def piece_rows(row_bytes: int) -> int:
    """Return the rows of a piece of a `.rows` file, a multiple of `slot_rows`: about 2
    MiB."""
    unit = slot_rows(row_bytes)
    return max(unit, min(_PIECE_ROWS, _PIECE_BYTES // row_bytes) // unit * unit)


def arrays_bytes(arrays: Mapping[str, Array]) -> int:
    """Return the bytes of a region's second part with these arrays, from their dtypes
    and shapes alone."""
    return lay_out(arrays)[2]


def lay_out(arrays: Mapping[str, Array]) -> tuple[bytes, list[int], int]:
    """Return the header (its length, then JSON: name, dtype, shape), the start of each
    array, and the total bytes."""
    names = [
        [name, array.dtype.str, list(array.shape)] for name, array in arrays.items()
    ]
    text = json.dumps(names, separators=(",", ":")).encode()
    header = len(text).to_bytes(8, "little") + text
    at = len(header)
    starts = []
    for array in arrays.values():
        at = padded(at, _ALIGN)
        starts.append(at)
        at += array.nbytes
    return header, starts, padded(at)


def parse(region: NDArray[np.uint8]) -> dict[str, Array]:
    """Return the arrays of a region's second part, as views of it."""
    length = int.from_bytes(region[:8].tobytes(), "little")
    arrays: dict[str, Array] = {}
    at = 8 + length
    for name, dtype, shape in json.loads(region[8 : 8 + length].tobytes()):
        at = padded(at, _ALIGN)
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        arrays[name] = region[at : at + nbytes].view(dtype).reshape(shape)
        at += nbytes
    return arrays


def load_index(folder: Path) -> dict[str, Array]:
    """Load the index of a folder, by column.

    Raises:
        DataIOError: the index is missing, damaged or of another version.
    """
    path = folder / "packed.npz"
    try:
        with io_errors(path), np.load(path, allow_pickle=False) as file:
            index = {name: file[name] for name in file.files}
        if int(index["version"]) != VERSION:
            raise ValueError("another version")
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        message = f"{path} is not a packed store's index: {error}"
        fix = "remove the prepared folder, it is then made anew"
        raise DataIOError(message, path=str(path), offset=0, fix=fix) from error
    return index
