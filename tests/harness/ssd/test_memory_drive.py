"""`outcore ssd emulate memory`: a real drive in memory that belongs to no run, counted
like a disk, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.isolation.base import Limits
from harness.isolation.blocks import disks
from harness.isolation.mounts import mount_of
from harness.ssd.device import block_device
from harness.ssd.measure import limiting
from harness.ssd.memory_drive import memory_drive
from tests.harness.cap_tools import MIB, needs_cap, needs_io, needs_root
from workloads.errors import HostError, InputError

SIZE = 128 * MIB
# Writes and syncs a file, then reads it directly, in blocks of 512 bytes.
PROGRAM = """
import mmap, os, sys
path, size = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDWR | os.O_CREAT)
for _ in range(size >> 20):
    os.write(fd, os.urandom(1 << 20))
os.fsync(fd)
os.close(fd)
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 512)
for place in range(0, size >> 2, 512):
    os.preadv(fd, [buffer], place)
"""


def loops() -> set[str]:
    """Return the attached loop devices of files in memory."""
    return {disk.name for disk in disks() if disk.name.startswith("loop")}


@needs_root
def test_a_drive_in_memory_is_a_disk_with_small_blocks_and_is_removed() -> None:
    before = loops()
    with memory_drive(SIZE) as drive:
        device = block_device(drive)
        assert mount_of(drive).kind == "ext4"
        assert device.logical_block_bytes == 512
        assert loops() - before == {device.name}
        assert not device.page_cached
        root = drive.parent
    assert not root.exists()
    assert loops() == before


@needs_root
@needs_cap
@needs_io
def test_its_memory_is_no_runs_and_its_reads_are_counted() -> None:
    size = 64 * MIB
    with memory_drive(SIZE) as drive:
        number = block_device(drive).number
        # Less than the file: its pages would not fit if the cap were charged for them.
        with limiting().create("memory-drive", Limits(size // 2)) as cap:
            file = str(drive / "file")
            command = [sys.executable, "-S", "-c", PROGRAM, file, str(size)]
            subprocess.run(cap.command(command), check=True, timeout=120)
            io = cap.io()
            peak = cap.memory().peak
    assert io is not None
    assert io.of([number]).read_bytes >= size // 4
    assert peak <= size // 2


@needs_root
def test_a_command_runs_beside_the_drive_and_returns_its_status(
    capfd: pytest.CaptureFixture[str],
) -> None:
    script = "import os; print(os.environ['OUTCORE_DATA']); raise SystemExit(3)"
    command = [sys.executable, "-S", "-c", script]
    arguments = ["ssd", "emulate", "memory", "--size", "128MiB", "--", *command]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 3
    data = Path(capfd.readouterr().out.strip())
    assert data.name == "data"
    assert not data.exists()


@needs_root
@pytest.mark.parametrize(("nbytes", "fault"), [(MIB, "too small"), (1 << 50, "leaves")])
def test_a_size_that_cannot_be_is_refused(nbytes: int, fault: str) -> None:
    with pytest.raises(InputError, match=fault), memory_drive(nbytes):
        raise AssertionError("no drive of this size")


@pytest.mark.skipif(os.geteuid() == 0, reason="this is root")
def test_without_root_there_is_no_drive() -> None:
    with pytest.raises(HostError, match="root"), memory_drive(SIZE):
        raise AssertionError("no drive without root")
