"""Direct I/O of whole pages; errors name file and offset."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from workloads.errors import DataIOError

PAGE = 4096
N = TypeVar("N", int, NDArray[np.int64])


def padded(nbytes: N, to: int = PAGE) -> N:
    """Round `nbytes` up to a multiple of `to`: to whole 4 KiB pages."""
    return -(-nbytes // to) * to


def open_direct(path: Path, flags: int) -> int:
    """Open a file for direct I/O, or buffered if the file system has none.

    Raises:
        DataIOError: the file cannot be opened.
    """
    for more in (os.O_DIRECT, 0):
        try:
            return os.open(path, flags | os.O_CLOEXEC | more, 0o644)
        except OSError as error:
            if more and error.errno == errno.EINVAL:
                continue
            raise io_failed(path, 0, error.errno or 0, writing=True) from error
    raise AssertionError("not reached")


def write_at(handle: int, data: NDArray[np.uint8], offset: int, path: Path) -> None:
    """Write page-aligned memory of whole pages at a page of the file.

    Raises:
        DataIOError: the write failed; names file and offset.
    """
    done, buffered = 0, False
    while done < data.nbytes:
        try:
            wrote = os.pwrite(handle, data[done:].data, offset + done)
        except OSError as error:
            if error.errno != errno.EINVAL or buffered:
                raise io_failed(path, offset + done, error.errno or 0, writing=True) from error
            buffered = True  # the file system accepted the flag and rejects the request
            fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~os.O_DIRECT)
            continue
        # A direct write must continue at a page: repeat a page that was written in part.
        whole = wrote if done + wrote == data.nbytes else wrote // PAGE * PAGE
        if whole == 0:
            raise io_failed(path, offset + done, errno.ENOSPC, writing=True)
        done += whole


def read_at(handle: int, data: NDArray[np.uint8], offset: int, path: Path) -> None:
    """Read whole pages into page-aligned memory.

    Raises:
        DataIOError: the read failed, or the file ends early.
    """
    done = 0
    while done < data.nbytes:
        with io_errors(path, offset + done):
            got = os.preadv(handle, [data[done:].data], offset + done)
        if got == 0:
            raise io_failed(path, offset + done, 0)
        done += got if done + got == data.nbytes else max(1, got // PAGE) * PAGE


def io_failed(path: Path, offset: int, code: int, *, writing: bool = False) -> DataIOError:
    """Make the error of a failed read or write; `code` 0: the file ended."""
    reason = os.strerror(code) if code else "the file ends there"
    fix = "make room on the disk of the results folder or lower the disk-space limit" if writing else "check the device"
    if not code:
        fix = "verify the dataset with `outcore data verify`"
    return DataIOError(
        f"{'writing' if writing else 'reading'} {path} failed at offset {offset}: {reason}",
        path=str(path),
        offset=offset,
        errno=code,
        fix=fix,
    )


def cannot_open(path: Path, code: int) -> DataIOError:
    """Make the error of a file that cannot be opened for reading."""
    return DataIOError(
        f"cannot open {path}: {os.strerror(code)}",
        path=str(path),
        errno=code,
        fix="check that it is there and can be read",
    )


@contextmanager
def io_errors(path: Path, offset: int = 0, *, writing: bool = False) -> Iterator[None]:
    """Raise DataIOError in place of the body's OSError: reading or writing the file failed at `offset`."""
    try:
        yield
    except OSError as error:
        # numpy reports a short write without an errno.
        raise io_failed(path, offset, error.errno or (errno.ENOSPC if writing else 0), writing=writing) from error
