"""Scans through memory maps keep the process small."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np

from workloads.direct_files import small_maps

SIZE = 256 << 20


def mapped_bytes() -> int:
    found = re.search(r"RssFile:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_pages_of_a_scan_are_released_while_the_map_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "table"
    with path.open("wb") as file:
        file.truncate(SIZE)
    table = np.memmap(path, dtype=np.uint8, mode="r")
    before = mapped_bytes()
    table[::4096].sum()
    assert mapped_bytes() - before > SIZE // 2  # an ordinary scan keeps its pages
    with small_maps(table):
        deadline = time.monotonic() + 5
        while mapped_bytes() - before > SIZE // 8 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert mapped_bytes() - before <= SIZE // 8
        assert table[:: SIZE // 7].sum() == 0  # released pages are read again


def test_ordinary_arrays_are_left_alone() -> None:
    array = np.ones(100)
    with small_maps(array, None):
        assert array.sum() == 100
