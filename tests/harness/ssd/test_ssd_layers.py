"""Disks under loop devices and volumes: counters and limits are the real disk's; page
caches are reported."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.isolation import IoLimit, Limits
from harness.isolation.blocks import is_stacked
from harness.isolation.cgroup1 import parse_blkio
from harness.isolation.cgroup2 import parse_io_stat
from harness.records.environment import disk
from harness.ssd.device import block_device, layers
from tests.harness.cap_tools import (
    CAPPING,
    MIB,
    cold_file,
    needs_cap,
    needs_io,
    on_disk,
    run_in,
)
from tests.harness.ssd.loops import loop, mounted, mounted_loop

READ = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 1 << 20)
for at in range(os.fstat(fd).st_size >> 20):
    os.preadv(fd, [buffer], at << 20)
"""


@pytest.mark.parametrize("direct", [True, False])
def test_a_loop_leads_to_the_disk_of_its_file_and_states_how_it_reads(
    direct: bool,
) -> None:
    with mounted_loop(32 * MIB, direct=direct) as (folder, image):
        device = block_device(folder)
        below = block_device(image)
        if not below.numbers:
            pytest.skip("no disk under the tests")
        assert device.numbers == below.numbers
        assert device.name == below.name
        assert device.holder.startswith("7:")
        assert device.holder not in device.numbers
        assert layers(device.holder)[1:] == layers(below.holder)
        assert [name.startswith("loop") for name in device.page_cached] == (
            [] if direct else [True]
        )
        found = disk(folder)
        assert found is not None
        assert found["page_cached"] == list(device.page_cached)
        assert below.page_cached == ()


@needs_cap
@needs_io
def test_reads_through_a_loop_are_counted_once_and_limited() -> None:
    with mounted_loop(96 * MIB, direct=True) as (folder, _):
        device = block_device(folder)
        if not device.numbers:
            pytest.skip("no disk under the tests")
        table = cold_file(folder, 16 * MIB)
        # A limit on each device, which makes cgroup v1 and v2 count both.
        limits = (
            IoLimit(device.number, read_bytes_per_s=32 * MIB),
            IoLimit(device.holder, read_bytes_per_s=1 << 40),
        )
        with CAPPING[0]().create("loop", Limits(None, limits)) as cap:
            before = cap.io()
            begin = time.monotonic()
            assert run_in(cap, READ, str(table)).returncode == 0
            after = cap.io()
            took = time.monotonic() - begin
        assert before is not None
        assert after is not None
        assert 16 * MIB <= after.read_bytes - before.read_bytes < 24 * MIB
        assert took > 0.25, "the limit holds through the loop"


def test_counters_of_a_loop_are_those_of_its_disk_already() -> None:
    with mounted_loop(32 * MIB, direct=True) as (folder, image):
        held = block_device(folder).holder
        below = block_device(image).number
        if not below:
            pytest.skip("no disk under the tests")
        assert is_stacked(held)
        assert not is_stacked(below)
        v1 = f"{held} Read 100\n{below} Read 100\nTotal 200\n"
        assert parse_blkio(v1.encode(), b"").read_bytes == 100
        v2 = (
            f"{held} rbytes=100 rios=1 wbytes=0 wios=0\n"
            f"{below} rbytes=100 rios=1 wbytes=0 wios=0\n"
        )
        assert parse_io_stat(v2.encode()).read_bytes == 100


@contextmanager
def volume(device: str) -> Iterator[str]:
    """Make a linear device-mapper device over all of `device`."""
    if shutil.which("dmsetup") is None or not Path("/dev/mapper/control").exists():
        pytest.skip("this kernel has no device-mapper")
    sectors = int(Path("/sys/block", Path(device).name, "size").read_text())
    name = f"outcore-test-{Path(device).name}"
    table = f"0 {sectors} linear {device} 0"
    subprocess.run(["dmsetup", "create", name, "--table", table], check=True)
    try:
        yield f"/dev/mapper/{name}"
    finally:
        subprocess.run(["dmsetup", "remove", "--retry", name], check=True)


def test_a_volume_on_a_loop_leads_to_the_disk_too() -> None:
    with contextmanager(on_disk)() as folder:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(32 * MIB)
        with (
            loop(image, direct=False) as device,
            volume(device) as made,
            mounted(made, folder / "m") as point,
        ):
            found = block_device(point)
            assert found.numbers == block_device(image).numbers
            assert found.page_cached == (Path(device).name,)
