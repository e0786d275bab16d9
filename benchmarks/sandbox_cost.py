"""What a sandbox adds to the start of a worker: an interpreter that imports NumPy, with and without walls, in turns.

Usage: `python benchmarks/sandbox_cost.py [ROUNDS]`. Prints medians in milliseconds, their difference and their ratio.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from harness.isolation.walls import sandbox
from harness.isolation.walls.needs import Needs

_WORK = [sys.executable, "-c", "import numpy"]
MOST_MS = 50.0


def plain() -> float:
    """Return the milliseconds of a start without a sandbox."""
    began = time.monotonic()
    subprocess.run(_WORK, check=True)
    return 1000 * (time.monotonic() - began)


def walled() -> float:
    """Return the milliseconds of a start in a sandbox."""
    began = time.monotonic()
    command, descriptors = sandbox.command(_WORK, Needs())
    try:
        subprocess.run(command, pass_fds=descriptors, check=True)
    finally:
        sandbox.close(descriptors)
    return 1000 * (time.monotonic() - began)


def main() -> int:
    """Measure both in turns; return 1 if the sandbox adds more than 50 ms."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    found = sandbox.walls()
    if not found.kind:
        print(f"no sandbox here: {found.missing}")
        return 0
    plain(), walled()
    pairs = [(plain(), walled()) for _ in range(rounds)]
    without, within = (statistics.median(times) for times in zip(*pairs, strict=True))
    added = statistics.median(other - one for one, other in pairs)
    print(
        f"without {without:.1f} ms, in {found.kind} {within:.1f} ms: {added:+.1f} ms a start, x {within / without:.2f}"
    )
    return int(added > MOST_MS)


if __name__ == "__main__":
    sys.exit(main())
