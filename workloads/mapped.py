"""Memory maps: page-aligned private memory, and maps of files whose touched pages are unmapped during a scan."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt

_EVERY_S = 0.002  # cached pages are mapped 16 at a time, so a gigabyte comes back in a tenth of a second
_SMALL_BYTES = 64 << 20
_HUGE_PAGE_BYTES = 2 << 20


def aligned_empty(nbytes: int, alignment: int = 4096) -> npt.NDArray[np.uint8]:
    """Allocate zeroed private uint8 [nbytes] at a multiple of `alignment`; pages are committed when first touched.

    From 2 MiB on, requests huge pages for the whole ones inside, at no more memory: a large direct read then spans few
    physical segments, instead of one per 4 KiB, over which devices split requests.
    """
    huge = nbytes >= _HUGE_PAGE_BYTES
    alignment = max(alignment, _HUGE_PAGE_BYTES if huge else 1)
    spare = max(0, alignment - mmap.PAGESIZE)
    # Private: shared anonymous memory would be counted, and swapped, as shmem.
    mapping = mmap.mmap(-1, max(1, nbytes + spare), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = np.frombuffer(mapping, dtype=np.uint8)
    start = -memory.__array_interface__["data"][0] % alignment
    if huge and alignment % _HUGE_PAGE_BYTES == 0:
        with suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE, start, nbytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES)
    return memory[start : start + nbytes]


@contextmanager
def small_maps(*arrays: Any) -> Iterator[None]:
    """Unmap the pages of memory maps every two milliseconds within the block; the page cache keeps them.

    A scan through a map adds every page to the process's resident set until the map is closed, so a graph of 100 GB
    would seem to take 100 GB and, in a memory cgroup, would evict needed pages. Other arrays and small maps are left
    alone. Native loops may read meanwhile: an unmapped page comes back at the next touch.
    """
    large = [array for array in arrays if isinstance(array, np.memmap) and array.nbytes > _SMALL_BYTES]
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
