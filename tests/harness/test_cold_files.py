"""Files that a run has open: data is found wherever it lies, and libraries are not taken for data."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

import pytest

from harness.run import cold
from systems import _native


def test_data_beside_a_linked_package_is_seen_and_the_package_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, work = tmp_path / "site-packages", tmp_path / "work"
    (work / "package").mkdir(parents=True)
    packages.mkdir()
    (packages / "package").symlink_to(work / "package")
    library, data = work / "package" / "library.so", work / "features.bin"
    for file in (library, data):
        file.write_bytes(bytes(1 << 20))
    monkeypatch.setattr(cold, "_LIBRARIES", cold._libraries(packages))
    with library.open("rb"), data.open("rb"):
        found = cold.open_files([os.getpid()])
    assert data in found and library not in found


def test_a_library_of_ones_own_is_no_data_and_data_mapped_as_code_is(tmp_path: Path) -> None:
    library, data = tmp_path / "own.so", tmp_path / "features.bin"
    library.write_bytes(Path(_native.__file__).read_bytes() + bytes(1 << 20))
    data.write_bytes(bytes(1 << 20))
    ctypes.CDLL(str(library))
    with data.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    with mapped:
        found = cold.open_files([os.getpid()])
    assert data in found and library not in found


def test_a_file_is_as_old_as_it_is_whatever_its_times_say(tmp_path: Path) -> None:
    file = tmp_path / "features.bin"
    before = int(time.time())
    file.touch()
    os.utime(file, (2e9, 2e9))
    assert before <= cold.born(file) <= time.time() or cold.born(file) == 2e9, "no birth time on this file system"
