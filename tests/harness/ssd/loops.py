"""Real loop devices with a file system on them, for tests of devices between a dataset
and its disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.cap_tools import on_disk


@contextmanager
def loop(image: Path, *, direct: bool) -> Iterator[str]:
    """Attach a loop device to `image`; skip where none can be made."""
    if os.geteuid() != 0 or shutil.which("losetup") is None:
        pytest.skip("loop devices need root and losetup")
    how = f"--direct-io={'on' if direct else 'off'}"
    made = subprocess.run(
        ["losetup", "--find", "--show", how, image],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    device = made.stdout.strip()
    try:
        used = Path("/sys/block", Path(device).name, "loop/dio").read_text().strip()
        if used != str(int(direct)):
            pytest.skip(
                "this loop device cannot be attached with this direct-io setting"
            )
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@contextmanager
def mounted(device: str, point: Path) -> Iterator[Path]:
    """Make ext4 on a block device and mount it at `point`."""
    made = subprocess.run(
        ["mkfs.ext4", "-q", "-F", device], capture_output=True, text=True, check=False
    )
    point.mkdir()
    if made.returncode == 0:
        made = subprocess.run(
            ["mount", device, point], capture_output=True, text=True, check=False
        )
    if made.returncode != 0:
        pytest.skip(f"no ext4 on a loop device: {made.stderr.strip()}")
    try:
        yield point
    finally:
        # The kernel closes the files of a program that used io_uring a moment after its
        # end.
        for _ in range(50):
            if (
                subprocess.run(
                    ["umount", point], check=False, capture_output=True
                ).returncode
                == 0
            ):
                break
            time.sleep(0.1)


@contextmanager
def mounted_loop(size: int, *, direct: bool) -> Iterator[tuple[Path, Path]]:
    """Yield (folder on ext4 on a loop device, file under the device); the file is on a
    real disk."""
    with contextmanager(on_disk)() as folder:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(size)
        with (
            loop(image, direct=direct) as device,
            mounted(device, folder / "mounted") as point,
        ):
            yield point, image
