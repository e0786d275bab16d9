"""Layers of block devices: what a volume, an array or a loop keeps its data on, so that no read is counted twice."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from harness.isolation.files import read_text


def layer_below(folder: Path) -> list[str]:
    """`major:minor` of what the block device at `folder` of /sys keeps its data on; empty for a disk."""
    if (folder / "loop/backing_file").exists():
        # The file may be deleted, or lie in another mount namespace: then the loop is all that is known.
        file = Path(read_text(folder / "loop/backing_file").strip())
        try:
            made = file.stat()
        except OSError:
            return []
        # A block device may be attached as it is.
        number = made.st_rdev if file.is_block_device() else made.st_dev
        return [f"{os.major(number)}:{os.minor(number)}"]
    slaves = sorted((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    return [read_text(slave / "dev").strip() for slave in slaves]


@functools.cache
def is_stacked(number: str, sys: Path = Path("/sys")) -> bool:
    """Whether a block device keeps its data on another, in whose counters its reads are found again."""
    link = sys / "dev/block" / number
    return link.exists() and bool(layer_below(link.resolve()))
