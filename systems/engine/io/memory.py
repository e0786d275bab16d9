"""Page-aligned memory, madvise, and the page cache's share of a file."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from systems import _native
from systems.engine.io.arrays import Array, as_rows
from workloads.direct_files import aligned_empty as aligned_empty
from workloads.errors import DataIOError

Advice = Literal["random", "willneed", "dontneed", "normal"]
_ARENA_MAX = -8  # of malloc.h


def give_back_free_memory() -> None:
    """Return freed memory to the kernel, between phases that need large arrays.

    Once an array of some MiB has been freed, glibc serves arrays up to that size from
    its heap and retains up to twice as much freed heap, which counts against a memory
    cap.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc
        trim(0)


def share_one_heap() -> None:
    """Make all threads of this process allocate from one heap; call before the first
    thread starts.

    By default glibc gives each thread its own heap, each retaining freed memory up to
    twice the largest array ever freed: a pipeline of six threads held its mini-batches
    several times over.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # glibc
        set_option(_ARENA_MAX, 1)


def madvise(array: Array, advice: Advice) -> None:
    """Advise the kernel of the access pattern of `array`'s pages: `random` turns off
    read-ahead for a memory map."""
    if array.nbytes:
        _native.advise(
            as_rows(array, 1).reshape(-1), getattr(mmap, f"MADV_{advice.upper()}")
        )


def resident_bytes(path: Path | str) -> int:
    """Return the bytes of the file in the page cache, by cachestat(2), else mincore(2).

    Raises:
        DataIOError: the file cannot be opened.
    """
    return _in_page_cache(_native.resident_bytes, path)


def evict(path: Path | str) -> int:
    """Write out the file's dirty pages and drop it from the page cache; return the
    bytes still resident.

    Pages that a process has mapped and touched stay: unmap first.

    Raises:
        DataIOError: the file cannot be opened or synced.
    """
    return _in_page_cache(_native.evict, path)


def _in_page_cache(call: Callable[[str], int], path: Path | str) -> int:
    try:
        return call(str(path))
    except OSError as error:
        raise DataIOError.of(
            error, f"cannot look at {path} in the page cache", path
        ) from error
