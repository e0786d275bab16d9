"""How much of the disk does each system's code use? Engine efficiency (rule 11) of
storage-bound epochs.

Runs `outcore run SYSTEM` as a user would, under a cap, and reads the ratio from its
record; the systems take turns. `python -m benchmarks.engine_efficiency ginex ali+pg`;
without names, all systems with a target. Exit 1 below a target.
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

#: Datasets by share of training nodes: a system with few reads per mini-batch needs
#: more mini-batches, or its epoch is too short to measure a rate.
FRACTIONS = {"g": "0.00125", "long": "0.01"}
LONG = {"diskgnn"}

#: Target of each system, and its options in this setting.
TARGETS: dict[str, tuple[float, tuple[str, ...]]] = {
    "gnndrive": (0.85, ("extractors=2",)),
    # Virtual disks report completed reads when their queue is empty; longer queues mean
    # fewer pauses.
    "diskgnn": (0.85, ("queue=4",)),
    "ginex": (0.8, ()),
    "ginex-pg": (0.8, ()),
    "ali+pg": (0.8, ()),
}
OUTCORE = [sys.executable, "-c", "from harness.cli import main; main()"]


def outcore(*arguments: str, root: Path) -> dict[str, object]:
    environment = {
        **os.environ,
        "OUTCORE_DATA": str(root / "data"),
        "OUTCORE_RESULTS": str(root / "results"),
    }
    done = subprocess.run(
        [*OUTCORE, *arguments, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.strip():
        sys.exit(
            f"outcore {' '.join(arguments)} printed nothing; stderr: "
            f"{done.stderr[-2000:]}"
        )
    result: dict[str, object] = json.loads(done.stdout)
    return result


def run(system: str, disk: str, seed: int, root: Path) -> dict[str, object]:
    """Run the system once and return its record."""
    chosen = [word for option in TARGETS[system][1] for word in ("-o", option)]
    return outcore(
        "run",
        system,
        "--dataset",
        "long" if system in LONG else "g",
        "--memory",
        "+64MiB",
        "--device",
        "emulated:null",
        "--device-memory",
        "32MiB",
        "--batch-size",
        "50",
        "--epochs",
        "2",
        "--disk-class",
        disk,
        *chosen,
        "--seed",
        str(seed),
        root=root,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "systems",
        nargs="*",
        metavar="SYSTEM",
        help=f"of {', '.join(TARGETS)}; default: all",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build"),
        help="where the dataset is made and removed",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--disk-class",
        action="append",
        help="default: aws-nvme/16 and none, the bare disk",
    )
    options = parser.parse_args()
    systems = options.systems or list(TARGETS)
    unknown = [name for name in systems if name not in TARGETS]
    if unknown:
        parser.error(f"no target for {', '.join(unknown)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    missed = False
    with TemporaryFolder(options.folder, "benchmark") as name:
        root = Path(name)
        for dataset in sorted(
            {"long" if system in LONG else "g" for system in systems}
        ):
            outcore(
                "data",
                "make",
                dataset,
                "--kind",
                "kronecker",
                "--nodes",
                "2M",
                "--edges",
                "40M",
                "--dim",
                "128",
                "--train-fraction",
                FRACTIONS[dataset],
                root=root,
            )
        print(
            f"{'system':10} {'disk':14} {'round':>5} {'efficiency':>10} "
            f"{'extract s':>9} {'epoch s':>8}  verdict, class"
        )
        for disk in options.disk_class or ("aws-nvme/16", "none"):
            seen: dict[str, list[float]] = {system: [] for system in systems}
            for number in range(options.rounds):
                for system in systems:
                    record = run(system, disk, number, root)
                    summary = record["summary"]
                    assert isinstance(summary, dict)
                    if summary.get("engine_efficiency") is None:
                        sys.exit(
                            f"{system}: no efficiency; {record['status']}: "
                            f"{record.get('reason', '')}"
                        )
                    seen[system].append(float(summary["engine_efficiency"]))
                    stages = summary["stages_s"]
                    print(
                        f"{system:10} {disk:14} {number:5} {seen[system][-1]:10.3f} "
                        f"{stages['extract']:9.2f} "
                        f"{summary['epoch_s']['median']:8.2f}  {record['verdict']}, "
                        f"{record['class']}",
                        flush=True,
                    )
            for system in systems:
                median = statistics.median(seen[system])
                target = TARGETS[system][0]
                missed |= median < target
                print(f"{system:10} {disk:14} median {median:.3f} (target {target})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
