"""Direct I/O of whole pages (errors name file and offset), page-aligned private memory,
and maps of files whose accessed pages are unmapped during a scan."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from workloads.arraytypes import Array, Int64Array, UInt8Array
from workloads.errors import DataIOError, fault_of

PAGE = 4096
N = TypeVar("N", int, Int64Array)
# cached pages are mapped 16 at a time, so a gigabyte is mapped again in 0.1 seconds
_EVERY_S = 0.002
_SMALL_BYTES = 64 << 20
_HUGE_PAGE_BYTES = 2 << 20


def padded(nbytes: N, to: int = PAGE) -> N:
    """Round `nbytes` up to a multiple of `to`: to whole 4 KiB pages."""
    return -(-nbytes // to) * to


def open_direct(path: Path, flags: int) -> int:
    """Open a file for direct I/O, or buffered if the file system has none; raises
    DataIOError where it cannot be opened."""
    with io_errors(path, writing=flags & os.O_ACCMODE != os.O_RDONLY):
        try:
            return os.open(path, flags | os.O_CLOEXEC | os.O_DIRECT, 0o644)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return os.open(path, flags | os.O_CLOEXEC, 0o644)


def write_at(handle: int, data: UInt8Array, offset: int, path: Path) -> None:
    """Write page-aligned memory of whole pages at a page of the file; raises
    DataIOError, with file and offset, where it fails."""
    done = 0
    buffered = False
    while done < data.nbytes:
        try:
            wrote = os.pwrite(handle, data[done:].data, offset + done)
        except OSError as error:
            if error.errno != errno.EINVAL or buffered:
                raise io_failed(
                    path, offset + done, error.errno or 0, writing=True
                ) from error
            buffered = True  # the file system accepted the flag and rejects the request
            fcntl.fcntl(
                handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~os.O_DIRECT
            )
            continue
        # A direct write must continue at a page: repeat a page that was written in
        # part.
        whole = wrote if done + wrote == data.nbytes else wrote // PAGE * PAGE
        if whole == 0:
            raise io_failed(path, offset + done, errno.ENOSPC, writing=True)
        done += whole


def read_at(handle: int, data: UInt8Array, offset: int, path: Path) -> None:
    """Read whole pages into page-aligned memory; raises DataIOError where that fails or
    the file ends early."""
    done = 0
    while done < data.nbytes:
        with io_errors(path, offset + done):
            got = os.preadv(handle, [data[done:].data], offset + done)
        if got == 0:
            raise io_failed(path, offset + done, 0)
        done += got if done + got == data.nbytes else max(1, got // PAGE) * PAGE


def io_failed(
    path: Path, offset: int, code: int, *, writing: bool = False
) -> DataIOError:
    """Make the error of a failed read or write; `code` 0: the file ended."""
    reason = "the file ends there"
    fix = "verify the dataset with `outcore data verify`"
    if code:
        reason, fix = fault_of(code, "" if writing else "check the device")
    message = (
        f"{'writing' if writing else 'reading'} {path} failed at offset {offset}: "
        f"{reason}"
    )
    return DataIOError(message, path=str(path), offset=offset, errno=code, fix=fix)


def cannot_open(path: Path, code: int) -> DataIOError:
    """Make the error of a file that cannot be opened for reading."""
    reason, fix = fault_of(code, "check that it is there and can be read")
    return DataIOError(
        f"cannot open {path}: {reason}", path=str(path), errno=code, fix=fix
    )


@contextmanager
def io_errors(path: Path, offset: int = 0, *, writing: bool = False) -> Iterator[None]:
    """Raise DataIOError in place of the body's OSError: reading or writing the file
    failed at `offset`."""
    try:
        yield
    except OSError as error:
        # numpy reports a short write without an errno.
        raise io_failed(
            path,
            offset,
            error.errno or (errno.ENOSPC if writing else 0),
            writing=writing,
        ) from error


def aligned_empty(nbytes: int, alignment: int = 4096) -> UInt8Array:
    """Allocate zeroed private uint8 [nbytes] at a multiple of `alignment`; pages are
    committed when first touched.

    From 2 MiB on, requests huge pages for the whole ones inside, at no more memory: a
    large direct read then spans few physical segments, instead of one per 4 KiB, over
    which devices split requests.
    """
    huge = nbytes >= _HUGE_PAGE_BYTES
    alignment = max(alignment, _HUGE_PAGE_BYTES if huge else 1)
    spare = max(0, alignment - mmap.PAGESIZE)
    # Private: shared anonymous memory would be counted, and swapped, as shmem.
    mapping = mmap.mmap(
        -1, max(1, nbytes + spare), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    memory = np.frombuffer(mapping, dtype=np.uint8)
    start = -memory.__array_interface__["data"][0] % alignment
    if huge and alignment % _HUGE_PAGE_BYTES == 0:
        with suppress(OSError):  # a kernel without huge pages
            mapping.madvise(
                mmap.MADV_HUGEPAGE, start, nbytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
            )
    return memory[start : start + nbytes]


def read_ahead(part: Array) -> None:
    """Begin to read a contiguous part of a memory map into the page cache, at once
    instead of page by page; other arrays are left alone."""
    if isinstance(part, np.memmap) and part.size:
        mapped: mmap.mmap = part._mmap  # type: ignore[attr-defined]
        begin = (
            part.__array_interface__["data"][0]
            - np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
        )
        mapped.madvise(
            mmap.MADV_WILLNEED, begin // mmap.PAGESIZE * mmap.PAGESIZE, part.nbytes
        )


def advise_random(array: Any) -> None:
    """Switch off the kernel's read-ahead of a memory-mapped array; does nothing for an
    array in memory."""
    mapping = getattr(array, "_mmap", None)
    if isinstance(mapping, mmap.mmap):
        mapping.madvise(mmap.MADV_RANDOM)


@contextmanager
def small_maps(*arrays: Any) -> Iterator[None]:
    """Unmap the pages of memory maps every two milliseconds within the block; the page
    cache keeps them.

    A scan through a map adds every page to the process's resident set until the map is
    closed, so a graph of 100 GB would seem to take 100 GB and, in a memory cgroup,
    would evict needed pages. Other arrays and small maps are left alone. Native loops
    may read meanwhile: an unmapped page is mapped again at its next access.
    """
    large = [
        array
        for array in arrays
        if isinstance(array, np.memmap) and array.nbytes > _SMALL_BYTES
    ]
    maps: list[mmap.mmap] = [array._mmap for array in large]  # type: ignore[attr-defined]
    if not maps:
        yield
        return
    done = threading.Event()

    def let_go() -> None:
        while not done.wait(_EVERY_S):
            for mapped in maps:
                mapped.madvise(mmap.MADV_DONTNEED)

    thread = threading.Thread(target=let_go, name="small-maps", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
