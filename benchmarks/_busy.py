"""Load beside a run, as other programs of a shared machine make it: busy loops, and a
reader of the run's disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FILE_BYTES = 256 << 20
_LOOP = "while True: pass"
_HALF = "import time\nwhile True: sum(range(10**6)); time.sleep(0.01)"
_READ = """
import os, random, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
while True:
    for _ in range(64): os.pread(fd, 1 << 18, random.randrange(size >> 18) << 18)
    os.posix_fadvise(fd, 0, size, os.POSIX_FADV_DONTNEED)
    time.sleep(0.02)
"""

#: Programs of each kind of load: four busy loops, one processor half busy, a reader of
#: some hundred MB/s, or both.
LOADS: dict[str, list[str]] = {
    "loops": [_LOOP] * 4,
    "processor": [_HALF],
    "disk": [_READ],
    "both": [_HALF, _READ],
}


@contextmanager
def busy(kind: str, folder: Path) -> Iterator[None]:
    """Load the machine with a kind of `LOADS`, or with nothing if `kind` is empty.

    Args:
        kind: kind of load.
        folder: folder on the disk of the runs; the file that the reader reads is made
            there once and kept.
    """
    programs = LOADS[kind] if kind else []
    file = folder / "read-by-others"
    if _READ in programs and not file.exists():
        _write(file)
    others = [
        subprocess.Popen([sys.executable, "-c", program, str(file)])
        for program in programs
    ]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _write(file: Path) -> None:
    """Write the reader's file, and wait until the disk has it."""
    with file.open("wb") as out:
        for _ in range(_FILE_BYTES >> 20):
            out.write(os.urandom(1 << 20))
        out.flush()
        os.fsync(out.fileno())
