"""Small memory maps: unmap the pages that a scan has touched while it runs."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_EVERY_S = 0.002  # cached pages are mapped 16 at a time, so a gigabyte comes back in a tenth of a second
_SMALL_BYTES = 64 << 20


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
