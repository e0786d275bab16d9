"""Files that a run has open: data is found wherever it lies, and libraries are not taken for data."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.run import opened
from systems import _native


def found_data() -> set[Path]:
    """Return the paths of this process's open files that are data, and are to be evicted."""
    return {file.path for file in opened.open_files([os.getpid()]) if not (file.library or file.in_memory)}


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
    monkeypatch.setattr(opened, "_LIBRARIES", opened._libraries(packages))
    with library.open("rb"), data.open("rb"):
        found = found_data()
    assert data in found and library not in found


def test_a_library_of_ones_own_is_no_data_and_data_mapped_as_code_is(tmp_path: Path) -> None:
    library, data = tmp_path / "own.so", tmp_path / "features.bin"
    library.write_bytes(Path(_native.__file__).read_bytes() + bytes(1 << 20))
    data.write_bytes(bytes(1 << 20))
    ctypes.CDLL(str(library))
    with data.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    with mapped:
        found = found_data()
    assert data in found and library not in found


def test_a_file_is_as_old_as_it_is_whatever_its_times_say(tmp_path: Path) -> None:
    file = tmp_path / "features.bin"
    before = int(time.time())
    file.touch()
    os.utime(file, (2e9, 2e9))
    assert before <= opened.born(file) <= time.time() or opened.born(file) == 2e9, "no birth time on this file system"


def test_a_file_without_a_name_is_found_and_can_be_opened(tmp_path: Path) -> None:
    data = tmp_path / "features.bin"
    data.write_bytes(bytes(1 << 20))
    with data.open("rb") as file:
        key = os.fstat(file.fileno()).st_ino
        data.unlink()
        (found,) = (one for one in opened.open_files([os.getpid()]) if one.key[1] == key)
        assert found.name == f"{data} (deleted)" and found.path.stat().st_ino == key and found.is_data


def test_small_files_are_found_where_they_are_large_together(tmp_path: Path) -> None:
    pieces = [tmp_path / f"{number}.bin" for number in range(4)]
    for piece in pieces:
        piece.write_bytes(bytes(300 << 10))
    # A process of its own, since this one has small files of libraries open.
    code = "import sys\nheld = [open(path, 'rb') for path in sys.argv[1:]]\nprint(flush=True)\nsys.stdin.read()"
    for count in (3, 4):
        command = [sys.executable, "-S", "-E", "-c", code, *map(str, pieces[:count])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            found = {file.path for file in opened.open_files([process.pid])}
            process.communicate()
        assert found & set(pieces) == (set(pieces) if count == 4 else set())


def test_a_small_file_in_memory_is_found() -> None:
    with open(os.memfd_create("rows"), "r+b") as file:
        file.write(bytes(4096))
        file.flush()
        assert os.fstat(file.fileno()).st_ino in {one.key[1] for one in opened.open_files([os.getpid()])}


def test_memory_is_uncharged_beyond_what_the_cap_was_charged_for() -> None:
    with mmap.mmap(-1, 3 << 20) as shared, open(os.memfd_create("rows"), "r+b") as file:
        shared[:] = bytes(3 << 20)
        file.write(bytes(2 << 20))
        file.flush()
        held = [one for one in opened.open_files([os.getpid()]) if one.in_memory]
        assert sum(one.held_bytes for one in held if "zero" in one.name or "rows" in one.name) == 5 << 20
        everything = sum(one.held_bytes for one in held)
        assert opened.uncharged_bytes([os.getpid()], held, everything - (1 << 20)) == 1 << 20
        assert opened.uncharged_bytes([os.getpid()], held, everything) == 0
        assert (os.fstat(file.fileno()).st_dev, os.fstat(file.fileno()).st_ino) in opened.own_keys()
