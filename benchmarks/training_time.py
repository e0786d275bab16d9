"""Does T(E) from a record of two epochs predict a training of eight, for every system?

    python benchmarks/training_time.py [--rounds N] [--data FOLDER] [SYSTEM ...]

Runs every system with 2 and with 8 epochs in turns (fresh artefacts each time), and
prints T(8) from the record of two epochs over the seconds that eight epochs took with
all of their preparation. Exit 1 if a median is off by over a tenth. Systems that
prepare epochs together say which seconds these share, and T(E) counts them once
(`diskgnn`).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from _outcore import outcore

from harness.records.cost import TrainingCost
from workloads.tempfolder import TemporaryFolder

SYSTEMS = (
    "pyg+",
    "ali+pg",
    "ginex",
    "mariusgnn",
    "gnndrive",
    "diskgnn",
    "agnes",
    "outcore",
)
#: Farthest from 1 that the ratio of a system may be.
WITHIN = 0.10
FEW = 2
MANY = 8


def run(
    root: Path, system: str, epochs: int, chosen: argparse.Namespace
) -> dict[str, Any]:
    """Run a system once, without artefacts of earlier runs; return its record."""
    shutil.rmtree(root / "data" / ".outcore" / "artefacts", ignore_errors=True)
    setting = {
        "--dataset": "foretold",
        "--memory": chosen.memory,
        "--device": "emulated:a10g",
        "--device-memory": "32MiB",
        "--batch-size": "50",
        "--max-batches": str(chosen.batches),
        "--epochs": str(epochs),
        "--disk-class": chosen.disk_class,
    }
    words = [word for pair in setting.items() for word in pair]
    return outcore(root, "run", system, *words)


def spent_s(record: dict[str, Any]) -> float:
    """Return the seconds that a training took: preparation and every epoch."""
    before = record["preprocess"]
    return float(
        before["seconds"]
        + before["made_s"]
        + sum(epoch["seconds"] for epoch in record["epochs"])
    )


def main() -> int:
    """Run all systems, print the ratios and judge them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", default=SYSTEMS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="0.25x")
    parser.add_argument("--disk-class", default="aws-nvme/16")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--nodes", default="1M")
    parser.add_argument(
        "--data", type=Path, default=Path("build"), help="folder of data and results"
    )
    chosen = parser.parse_args()
    missed = []
    with TemporaryFolder(chosen.data, "training-time") as root:
        shape = (
            "--nodes",
            chosen.nodes,
            "--edges",
            f"{20 * int(chosen.nodes.rstrip('M'))}M",
            "--dim",
            "128",
        )
        outcore(root, "data", "make", "foretold", "--kind", "kronecker", *shape)
        ratios: dict[str, list[float]] = {system: [] for system in chosen.systems}
        for number in range(chosen.rounds):
            for system in chosen.systems:
                few, many = (
                    run(root, system, epochs, chosen) for epochs in (FEW, MANY)
                )
                cost = TrainingCost.of(few)
                if cost is None or many["status"] != "ok":
                    print(
                        f"{system:10} {number}  {few['status']}, {many['status']}: "
                        f"{many.get('reason', '')}"
                    )
                    continue
                ratios[system].append(cost.total_s(MANY) / spent_s(many))
                terms = (
                    f"once {cost.once_s:.2f}, first {cost.first_s:.2f}, each "
                    f"{cost.each_s:.2f}"
                )
                foretold = (
                    f"T({MANY}) {cost.total_s(MANY):.2f} s, took {spent_s(many):.2f} s"
                )
                print(
                    f"{system:10} {number}  {terms}, epoch {cost.mean_epoch_s:.2f}: "
                    f"{foretold}",
                    flush=True,
                )
    for system, found in ratios.items():
        if not found:
            missed.append(system)
            continue
        ratio = statistics.median(found)
        missed += [system] if abs(ratio - 1) > WITHIN else []
        print(
            f"{system:10} T({MANY}) foretold over taken: {ratio:.3f} (rounds "
            f"{min(found):.3f} to {max(found):.3f})"
        )
    print(f"MISSED: {', '.join(missed)}" if missed else f"all within {WITHIN:.0%}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
