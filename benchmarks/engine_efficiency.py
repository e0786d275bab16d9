"""Engine efficiency of gnndrive, storage-bound, on the null accelerator: how well the code drives the disk (rule 11).

Runs `outcore run gnndrive` as a user would, under a cap, and reads the ratio from its record. Exit 1 below the target.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = 0.85
OUTCORE = [sys.executable, "-c", "from harness.cli import main; main()"]


def outcore(*arguments: str, root: Path) -> dict[str, object]:
    environment = {**os.environ, "OUTCORE_DATA": str(root / "data"), "OUTCORE_RESULTS": str(root / "results")}
    done = subprocess.run(
        [*OUTCORE, *arguments, "--json"], env=environment, capture_output=True, text=True, check=False
    )
    if not done.stdout.strip():
        sys.exit(f"outcore {' '.join(arguments)} printed nothing; stderr: {done.stderr[-2000:]}")
    result: dict[str, object] = json.loads(done.stdout)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build"), help="where the dataset is made and removed")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        root = Path(name)
        outcore("data", "make", "g", "--kind", "kronecker", "--nodes", "2M", "--edges", "40M", "--dim", "128",
                "--train-fraction", "0.00125", root=root)  # fmt: skip
        print(f"{'disk':14} {'round':>5} {'efficiency':>10} {'extract s':>9} {'epoch s':>8}  verdict, class")
        worst = 1e9
        for disk in ("aws-nvme/16", "none"):
            seen = []
            for number in range(options.rounds):
                record = outcore(
                    "run", "gnndrive", "--dataset", "g", "--memory", "+64MiB", "--device", "emulated:null",
                    "--device-memory", "32MiB", "--batch-size", "50", "--epochs", "2", "--disk-class", disk,
                    "-o", "extractors=2", "--seed", str(number), root=root,
                )  # fmt: skip
                summary = record["summary"]
                assert isinstance(summary, dict)
                seen.append(float(summary["engine_efficiency"]))
                print(
                    f"{disk:14} {number:5} {seen[-1]:10.3f} {summary['stages_s']['extract']:9.2f} "
                    f"{summary['epoch_s']['median']:8.2f}  {record['verdict']}, {record['class']}"
                )
            median = statistics.median(seen)
            worst = min(worst, median)
            print(f"{disk:14} median {median:.3f} (target {TARGET})")
    return 0 if worst >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
