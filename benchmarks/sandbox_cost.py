"""What does a worker's sandbox add to its start, to a system call, and to an epoch?

    python benchmarks/sandbox_cost.py [--starts 30] [--rounds 5] [--data FOLDER] \\
        [SYSTEM ...]

Starts an interpreter, calls the kernel and runs whole epochs with and without walls, in
turns. Prints medians of the pairs' differences and ratios. Exit 1 if a start takes over
50 ms more, or the median epoch over 0.5 % more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from _outcore import outcore

from harness.isolation.walls import sandbox
from harness.isolation.walls.needs import Needs
from workloads.tempfolder import TemporaryFolder

#: Systems whose epochs call the kernel most: for rows one by one, in rings, and not at
#: all.
SYSTEMS = ("gnndrive", "outcore", "pyg+")
START = "import numpy"
CALLS = 1_000_000
#: Prints the nanoseconds of a system call; the C library does not cache this one.
CALL = f"""
import ctypes, time
call = ctypes.CDLL(None).getppid
began = time.perf_counter()
for _ in range({CALLS}): call()
print(1e9 * (time.perf_counter() - began) / {CALLS})
"""
MOST_MS = 50.0
MOST_SHARE = 0.005
SETTING = {
    "--dataset": "walled",
    "--memory": "+128MiB",
    "--batch-size": "100",
    "--max-batches": "100",
    "--epochs": "7",
    "--device": "emulated:null",
    "--device-memory": "64MiB",
}


def plain(code: str) -> str:
    """Return the output of a Python program without a sandbox."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def walled(code: str) -> str:
    """Return the output of a Python program in a sandbox."""
    command, descriptors = sandbox.command([sys.executable, "-c", code], Needs())
    try:
        return subprocess.run(
            command, pass_fds=descriptors, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    finally:
        sandbox.close(descriptors)


def milliseconds(start: Callable[[str], str]) -> float:
    """Return the milliseconds of a start of an interpreter."""
    began = time.monotonic()
    start(START)
    return 1000 * (time.monotonic() - began)


def epoch_s(root: Path, system: str, *, inside: bool) -> float:
    """Return the median seconds of a run's measured epochs, in a sandbox or without
    one."""
    os.environ[sandbox.VARIABLE] = "on" if inside else "off"
    words = [word for pair in SETTING.items() for word in pair]
    record = outcore(root, "run", system, *words)
    walls = record["evidence"]["sandbox"]["kind"]
    if record["status"] != "ok" or bool(walls) is not inside:
        sys.exit(
            f"{system}: {record['status']} {record['reason']}, sandbox "
            f"{walls or 'none'}"
        )
    return float(
        statistics.median(
            epoch["seconds"] for epoch in record["epochs"] if not epoch["warmup"]
        )
    )


def main() -> int:
    """Measure starts, calls and epochs; return 1 if one of the bounds does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", default=SYSTEMS)
    parser.add_argument("--starts", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--data", type=Path, default=Path("build"), help="folder of data and results"
    )
    chosen = parser.parse_args()
    found = sandbox.walls()
    if not found.kind:
        print(f"no sandbox here: {found.missing}")
        return 0
    plain(START), walled(START)
    starts = [(milliseconds(plain), milliseconds(walled)) for _ in range(chosen.starts)]
    added = statistics.median(inside - outside for outside, inside in starts)
    print(f"a start takes {added:+.1f} ms ({len(starts)} pairs)", flush=True)
    calls = [(float(plain(CALL)), float(walled(CALL))) for _ in range(5)]
    call_ns = statistics.median(inside - outside for outside, inside in calls)
    print(f"a system call takes {call_ns:+.0f} ns (5 pairs of {CALLS:,})", flush=True)
    ratios = []
    with TemporaryFolder(chosen.data, "sandbox-cost") as root:
        shape = ("--nodes", "1M", "--edges", "20M", "--dim", "128")
        outcore(root, "data", "make", "walled", "--kind", "kronecker", *shape)
        for system in chosen.systems:
            pairs = []
            for number in range(chosen.rounds):
                # Either comes first in half of the pairs, so that a machine that slows
                # down favours none.
                times = {
                    inside: epoch_s(root, system, inside=inside)
                    for inside in (bool(number % 2), not number % 2)
                }
                pairs.append(times[True] / times[False])
            ratios += pairs
            ratio = statistics.median(pairs)
            print(
                f"{system}: an epoch takes {ratio:.4f} times as long (pairs "
                f"{min(pairs):.3f} to {max(pairs):.3f})"
            )
    share = statistics.median(ratios) - 1 if ratios else 0.0
    print(f"all pairs: {100 * share:+.2f} % of an epoch")
    return int(added > MOST_MS or share > MOST_SHARE)


if __name__ == "__main__":
    sys.exit(main())
