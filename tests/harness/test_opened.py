"""Files that a run has open: data is found wherever it lies, and libraries are not
taken for data."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from harness.isolation.walls import sandbox
from harness.isolation.walls.needs import Needs
from harness.run import opened
from systems import _native


def found_data() -> set[Path]:
    """Return the paths of this process's open files that are data."""
    return {file.path for file in opened.open_files([os.getpid()])}


def test_a_library_of_ones_own_is_no_data_and_data_mapped_as_code_is(
    tmp_path: Path,
) -> None:
    library = tmp_path / "own.so"
    data = tmp_path / "features.bin"
    library.write_bytes(Path(_native.__file__).read_bytes() + bytes(1 << 20))
    data.write_bytes(bytes(1 << 20))
    ctypes.CDLL(str(library))
    with data.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    with mapped:
        found = found_data()
    assert data in found
    assert library not in found


def test_a_library_that_is_opened_and_not_mapped_yet_is_no_data() -> None:
    """A look while `dlopen` reads the header of torch's library found 24 MiB of data
    from before the run."""
    library = max(
        Path(torch.__file__).parent.glob("lib/*.so"),
        key=lambda path: path.stat().st_size,
    )
    with library.open("rb"):
        found = found_data()
    assert library.stat().st_size > 1 << 20
    assert library not in found


def test_a_number_of_a_file_that_is_used_again_is_not_taken_for_the_first_file(
    tmp_path: Path,
) -> None:
    data = tmp_path / "features.bin"
    data.write_bytes(bytes(1 << 20))
    with data.open("rb") as file:
        link = Path(f"/proc/self/fd/{file.fileno()}")
        assert opened.is_another(link, str(tmp_path))
        assert not opened.is_another(link, str(data))
    assert opened.is_another(link, str(data))


def test_a_file_is_as_old_as_it_is_whatever_its_times_state(tmp_path: Path) -> None:
    file = tmp_path / "features.bin"
    before = int(time.time())
    file.touch()
    os.utime(file, (2e9, 2e9))
    assert before <= opened.born(file) <= time.time() or opened.born(file) == 2e9, (
        "no birth time on this file system"
    )


def test_a_file_without_a_name_is_found_and_can_be_opened(tmp_path: Path) -> None:
    data = tmp_path / "features.bin"
    data.write_bytes(bytes(1 << 20))
    with data.open("rb") as file:
        key = os.fstat(file.fileno()).st_ino
        data.unlink()
        (found,) = (
            one for one in opened.open_files([os.getpid()]) if one.key[1] == key
        )
        assert found.name == f"{data} (deleted)"
        assert found.path.stat().st_ino == key


def test_small_files_are_found_where_they_are_large_together(tmp_path: Path) -> None:
    pieces = [tmp_path / f"{number}.bin" for number in range(4)]
    for piece in pieces:
        piece.write_bytes(bytes(300 << 10))
    # A process of its own, since this one has small files of libraries open.
    code = (
        "import sys\nheld = [open(path, 'rb') for path in "
        "sys.argv[1:]]\nprint(flush=True)\nsys.stdin.read()"
    )
    for count in (3, 4):
        command = [sys.executable, "-S", "-E", "-c", code, *map(str, pieces[:count])]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            found = {file.path for file in opened.open_files([process.pid])}
            process.communicate()
        assert found & set(pieces) == (set(pieces) if count == 4 else set())


def test_bytes_that_wait_in_the_queue_of_a_socket_are_counted() -> None:
    """A process in a network space of its own, since all sockets of a space count."""
    code = (
        "import socket, sys\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "sender = socket.create_connection(server.getsockname())\n"
        "sender.sendall(bytes(100_000))\n"
        "print(flush=True)\nsys.stdin.read()"
    )
    needs = Needs(sockets="loopback")
    command, descriptors = sandbox.command(
        [sys.executable, "-S", "-E", "-c", code], needs
    )
    if not descriptors:
        pytest.skip(f"no sandbox here: {sandbox.walls().missing}")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, pass_fds=descriptors
    ) as process:
        sandbox.close(descriptors)
        assert process.stdout is not None
        process.stdout.readline()
        inside = [
            child.pid for child in psutil.Process(process.pid).children(recursive=True)
        ]
        assert opened.queued_bytes(inside) >= 100_000
        assert opened.queued_bytes([os.getpid()]) == 0
        process.communicate()
