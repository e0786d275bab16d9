"""Fixed cost of a run: seconds from the worker's start to the release of its first batch, without evictions.

Runs real systems on a small generated graph and a device without training time, calibrated beforehand, so that only
the harness and imports take time. Prints the median of each system and of all; fails above the bound.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from workloads.tempfolder import TemporaryFolder

BOUND_S = 4.0
OUTCORE = [sys.executable, "-c", "from harness.cli import main; main()"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs a system")
    parser.add_argument("--systems", default="in-memory,pyg+,gnndrive")
    arguments = parser.parse_args()
    with TemporaryFolder(Path(os.environ.get("TMPDIR", "/var/tmp")), "benchmark") as root:
        return measure(Path(root), arguments.systems.split(","), arguments.runs)


def measure(root: Path, systems: list[str], runs: int) -> int:
    here = str(Path(__file__).resolve().parents[1])
    environment = {
        **os.environ,
        "OUTCORE_DATA": str(root / "data"),
        "OUTCORE_RESULTS": str(root / "results"),
        "PYTHONPATH": here,
    }

    def outcore(*command: str) -> str:
        done = subprocess.run([*OUTCORE, *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr or done.stdout)
        return done.stdout

    outcore("data", "make", "small", "--kind", "kronecker", "--nodes", "100k", "--edges", "1M", "--dim", "128", "-q")
    all_samples: list[float] = []
    for _ in range(runs):
        for system in systems:
            record = json.loads(
                outcore(
                    "run",
                    system,
                    "--dataset",
                    "small",
                    "--fanout",
                    "10,10",
                    "--batch-size",
                    "50",
                    "--max-batches",
                    "5",
                    "--epochs",
                    "2",
                    "--device",
                    "emulated:null",
                    "--device-memory",
                    "16MiB",
                    "--json",
                )
            )
            seconds = record["overhead"]["first_batch_s"]
            all_samples.append(seconds)
            print(f"{system:10} {seconds:.2f} s to the first batch, whole run {record['duration_s']:.1f} s", flush=True)
    median = statistics.median(all_samples)
    print(f"fixed cost of a run: median {median:.2f} s, worst {max(all_samples):.2f} s, bound {BOUND_S:.1f} s")
    return 0 if median <= BOUND_S else 1


if __name__ == "__main__":
    sys.exit(main())
