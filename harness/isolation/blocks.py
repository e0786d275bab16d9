"""Layers of block devices below a volume, an array or a loop, so that no read is counted twice."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from harness.isolation.files import read_text


def layer_below(folder: Path) -> list[str]:
    """Return `major:minor` of the devices below the block device at /sys `folder`; empty for a disk."""
    if (folder / "loop/backing_file").exists():
        # The file may be deleted or in another mount namespace: then only the loop is known.
        file = Path(read_text(folder / "loop/backing_file").strip())
        try:
            made = file.stat()
        except OSError:
            return []
        # A loop may also be attached to a block device.
        number = made.st_rdev if file.is_block_device() else made.st_dev
        return [f"{os.major(number)}:{os.minor(number)}"]
    slaves = sorted((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    return [read_text(slave / "dev").strip() for slave in slaves]


@functools.cache
def is_stacked(number: str, sys: Path = Path("/sys")) -> bool:
    """Return whether a block device keeps its data on another device, whose counters repeat its reads."""
    link = sys / "dev/block" / number
    return link.exists() and bool(layer_below(link.resolve()))
